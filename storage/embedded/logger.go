package embedded

import (
	"fmt"
)

// pebbleLogger passes on what the database says. Its progress messages are left
// out: they are many, and about its inner life.
type pebbleLogger struct {
	store *Store
}

func (l *pebbleLogger) Infof(string, ...any) {}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.store.opts.Logger.Error("database: "+fmt.Sprintf(format, args...), "dir", l.store.opts.Dir)
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
