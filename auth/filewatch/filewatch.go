// Package filewatch reads a file again when its content changes.
package filewatch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"
)

// File is a file that somebody may replace while the server runs.
type File struct {
	Path string
	// Every is how often it is read.
	Every time.Duration
	// Use is handed content that differs from what it was handed before. An error
	// means that what was in use stays so; one made by Again, that the content is to
	// be tried again.
	Use func(content []byte) error
	// Failed is told why the file cannot be read or used.
	Failed func(error)
}

// Again marks an error that may be gone when the same content is used again.
func Again(err error) error { return &again{err} }

type again struct{ error }

func (a *again) Unwrap() error { return a.error }

// Run follows the file until ctx ends. current is the content in use.
func (f *File) Run(ctx context.Context, current []byte) {
	ticker := time.NewTicker(f.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			current = f.look(current)
		}
	}
}

// look returns the content that need not be looked at again.
func (f *File) look(current []byte) []byte {
	content, err := os.ReadFile(f.Path)
	if err != nil {
		f.Failed(err)
		return current
	}
	if bytes.Equal(content, current) {
		return current
	}
	err = f.Use(content)
	if err == nil {
		return content
	}
	f.Failed(err)
	var retry *again
	if errors.As(err, &retry) {
		return current
	}
	return content
}
