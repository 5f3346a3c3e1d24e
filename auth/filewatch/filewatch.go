// Package filewatch polls a file and applies its content when it has changed.
package filewatch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// File is a file that may be replaced while the server runs.
type File struct {
	Path string
	// Interval is the time between two reads.
	Interval time.Duration
	// Wake makes Run read the file at once. It may be nil.
	Wake *Signal
	// Apply is called with changed content. If it returns an error, the previous content
	// must stay in effect; an error made by Retryable makes Run call Apply again with the
	// same content.
	Apply func(content []byte) error
	// OnError is called if the file cannot be read or applied.
	OnError func(error)
}

// Signal wakes all goroutines that wait for it. The zero value is ready to use.
type Signal struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

// Fire wakes all goroutines that wait.
func (s *Signal) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// Wait returns a channel that the next call of Fire closes. It is nil for a nil Signal.
func (s *Signal) Wait() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// Retryable marks an error that may disappear if the same content is applied again later.
func Retryable(err error) error { return &retryable{err} }

type retryable struct{ error }

func (a *retryable) Unwrap() error { return a.error }

// Run polls the file until ctx is done. current is the content that is in effect.
func (f *File) Run(ctx context.Context, current []byte) {
	ticker := time.NewTicker(f.Interval)
	defer ticker.Stop()
	for {
		wake := f.Wake.Wait()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		current = f.check(current)
	}
}

// check reads the file and applies it if it has changed. It returns the content that Run
// compares with the next time.
func (f *File) check(current []byte) []byte {
	content, err := os.ReadFile(f.Path)
	if err != nil {
		f.OnError(err)
		return current
	}
	if bytes.Equal(content, current) {
		return current
	}
	err = f.Apply(content)
	if err == nil {
		return content
	}
	f.OnError(err)
	var retry *retryable
	if errors.As(err, &retry) {
		return current
	}
	return content
}
