package workers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Pause waits for d. It returns false if ctx ends before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// RetryAfter is the time until the next attempt after an error.
const RetryAfter = time.Second

// Restart calls follow until ctx ends or the store is closed. It logs each error with the message, and calls
// follow again after RetryAfter. In between, the activity part is in the state starting.
func Restart(
	ctx context.Context, log *slog.Logger, message string, part *activity.Part, follow func(context.Context) error,
) {
	for ctx.Err() == nil {
		err := follow(ctx)
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		part.Starting()
		log.Warn(message, "error", err)
		Pause(ctx, RetryAfter)
	}
}

// Begin calls yield with the objects of a resource until yield fails. It returns a cursor for the later changes.
// Follow closes the cursor.
func Begin(ctx context.Context, r *registry.Resource, yield func(*cache.Object) error) (*cache.Cursor, error) {
	view, err := r.Reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	err = view.Ascend(ctx, "", "", 0, func(o *cache.Object) bool {
		failed = yield(o)
		return failed == nil
	})
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	return r.Reader.Watch(ctx, view.Revision(), cache.Interest{})
}

// Follow calls f with each change that a cursor delivers, until there is an error, and closes the cursor.
func Follow(ctx context.Context, cursor *cache.Cursor, f func(*cache.Event) error) error {
	defer cursor.Close()
	for {
		events, _, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := f(e); err != nil {
				return err
			}
		}
	}
}
