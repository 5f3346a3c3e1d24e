package embedded

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pebbleLogger logs the errors of the database. It drops the progress messages, which are frequent and concern only the
// internals of the database.
type pebbleLogger struct {
	store *Store

	lastLogged atomic.Int64 // time of the last logged error, in Unix nanoseconds
	withheld   atomic.Int64 // number of errors since then that were not logged
}

// errorInterval is the shortest time between two logged errors. The database repeats a failed operation immediately and
// without end.
const errorInterval = 10 * time.Second

func (l *pebbleLogger) Infof(string, ...any) {}

// Errorf logs an error, at most one per errorInterval. The attribute "withheld" counts the errors that were not logged.
func (l *pebbleLogger) Errorf(format string, args ...any) {
	now, said := time.Now().UnixNano(), l.lastLogged.Load()
	if now-said < int64(errorInterval) || !l.lastLogged.CompareAndSwap(said, now) {
		l.withheld.Add(1)
		return
	}
	l.store.opts.Logger.Error(
		"database: "+fmt.Sprintf(format, args...), "dir", l.store.opts.Dir, "withheld", l.withheld.Swap(0),
	)
}

// Fatalf does not return, because the database cannot continue. It panics. In the builder goroutine the panic becomes
// ErrFailed. In a goroutine of the database it ends the process, after the failure has been logged.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("the database in %s cannot go on: %s", l.store.opts.Dir, fmt.Sprintf(format, args...))
	if p := l.store.pipeline; p != nil {
		p.fail(err)
	}
	panic(err)
}
