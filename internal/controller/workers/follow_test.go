package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// TestRestart: a function that fails is called again after a second, until the store is closed or the context
// ends.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		log := slog.New(slog.DiscardHandler)
		begin, calls := time.Now(), 0
		Restart(ctx, log, "failed", nil, func(context.Context) error {
			if calls++; calls < 3 {
				return errors.New("a failure")
			}
			return fmt.Errorf("reading: %w", storage.ErrClosed)
		})
		if took := time.Since(begin); calls != 3 || took != 2*RetryAfter {
			t.Errorf("%d calls in %v", calls, took)
		}
		Restart(ctx, log, "failed", nil, func(context.Context) error {
			cancel()
			return errors.New("a failure")
		})
		if Pause(ctx, time.Hour) {
			t.Error("a pause did not end with its context")
		}
	})
}

// TestBeginAndFollow: each object is seen once, existing ones by Begin and later ones by Follow, until there is an
// error.
func TestBeginAndFollow(t *testing.T) {
	api := clienttest.New(t, "", "tester")
	maps := api.Registry.Resource(corev1.Resource("configmaps"))
	create := func(name string) {
		t.Helper()
		m := &corev1.ConfigMap{}
		m.Namespace, m.Name = "ns", name
		if _, err := api.Create(t.Context(),
			client.CreateRequest{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Object: m}); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	full := errors.New("full")
	if _, err := Begin(t.Context(), maps, func(*cache.Object) error { return full }); !errors.Is(err, full) {
		t.Errorf("the error is %v", err)
	}
	var seen []string
	cursor, err := Begin(t.Context(), maps, func(o *cache.Object) error {
		seen = append(seen, o.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	create("b")
	create("c")
	err = Follow(t.Context(), cursor, func(e *cache.Event) error {
		if seen = append(seen, e.Object.Name); len(seen) == 3 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || !slices.Equal(seen, []string{"a", "b", "c"}) {
		t.Errorf("seen: %v, %v", seen, err)
	}
}
