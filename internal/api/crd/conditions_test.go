package crd

import (
	"context"
	"testing"
)

// TestQueueSurvivesAPanic checks that the queue still works after a panic, because reconcile is then called again.
// When the context has ended, the queue is shut down.
func TestQueueSurvivesAPanic(t *testing.T) {
	// The server has no client to write a status with, so the reconciliation of the definition panics.
	s := &Server{work: newWork(nil), byName: map[string]*definition{"a": {deleting: true, hasFinalizer: true}}}
	ctx, end := context.WithCancel(t.Context())
	s.work.Add("a")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		s.reconcile(ctx)
	}()
	if s.work.ShuttingDown() {
		t.Error("the queue is closed after a panic")
	}
	end()
	s.reconcile(ctx)
	if !s.work.ShuttingDown() {
		t.Error("the queue is open after the end of the context")
	}
}
