package crd

import (
	"context"
	"testing"
)

// TestQueueSurvivesAPanic: reconcile is called again after a panic, and needs the queue then. When its context has ended, it does not.
func TestQueueSurvivesAPanic(t *testing.T) {
	// The definition has no client that could write its status, which is a panic.
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
