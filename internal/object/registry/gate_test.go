package registry_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestGate closes and opens a gate that many enter: after Drain nobody is inside, and nobody enters until it is open
// again.
func TestGate(t *testing.T) {
	var g registry.Gate
	var inside atomic.Int64
	ended := make(chan struct{})
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if g.Enter() {
					inside.Add(1)
					inside.Add(-1)
					g.Leave()
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 200 {
		g.SetClosed(true)
		g.SetClosed(true)
		if err := g.Drain(ctx); err != nil {
			t.Fatalf("waiting until nobody is inside: %v", err)
		}
		if n := inside.Load(); n != 0 || !g.IsClosed() || g.Enter() {
			t.Fatalf("%d are inside of the closed gate, closed: %t", n, g.IsClosed())
		}
		g.SetClosed(false)
		if g.IsClosed() {
			t.Fatal("the gate is not open again")
		}
	}
	close(ended)
	running.Wait()
}

func TestGateWaits(t *testing.T) {
	var g registry.Gate
	if !g.Enter() {
		t.Fatal("the gate is closed at first")
	}
	g.SetClosed(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Drain(ctx); err == nil {
		t.Error("Drain has not waited for who is inside")
	}
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(t.Context()) }()
	g.Leave()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	var none *registry.Gate
	if !none.Enter() || none.IsClosed() {
		t.Error("a nil gate is closed")
	}
	none.Leave()
}

func BenchmarkGate(b *testing.B) {
	var g registry.Gate
	for b.Loop() {
		if g.Enter() {
			g.Leave()
		}
	}
}
