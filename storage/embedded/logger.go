package embedded

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pebbleLogger passes on what the database says. Its progress messages are left
// out: they are many, and about its inner life.
type pebbleLogger struct {
	store *Store

	said     atomic.Int64 // when the last error was logged, Unix nanoseconds
	withheld atomic.Int64 // errors since
}

// errorInterval is the time between two logged errors at least: the database tries
// again, at once and for ever, what does not succeed.
const errorInterval = 10 * time.Second

func (l *pebbleLogger) Infof(string, ...any) {}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	now, said := time.Now().UnixNano(), l.said.Load()
	if now-said < int64(errorInterval) || !l.said.CompareAndSwap(said, now) {
		l.withheld.Add(1)
		return
	}
	l.store.opts.Logger.Error(
		"database: "+fmt.Sprintf(format, args...), "dir", l.store.opts.Dir, "withheld", l.withheld.Swap(0),
	)
}

// Fatalf must not return: the database cannot go on. In the builder the panic
// becomes ErrFailed; in one of the database's own goroutines it ends the process,
// after the failure has been logged.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("the database in %s cannot go on: %s", l.store.opts.Dir, fmt.Sprintf(format, args...))
	if p := l.store.pipeline; p != nil {
		p.fail(err)
	}
	panic(err)
}
