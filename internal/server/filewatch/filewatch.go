// Package filewatch follows parts of the configuration that are read from files, and applies a part again when one
// of its files changes. All files that a part reads are followed, also those that it reads because another file
// names them.
package filewatch

import (
	"context"
	"crypto/sha256"
	"maps"
	"os"
	"sync"
	"time"
)

// Read returns the content of a file, as os.ReadFile does; see ReadFile.
type Read = func(path string) ([]byte, error)

// repeatAfter is the time for which a failure with a new reason is not reported, if the files have not changed.
const repeatAfter = time.Minute

// writing is the time after a file's last change for which it may be incomplete. A periodic check waits until this
// time has passed, to avoid an empty or half-written file.
const writing = 200 * time.Millisecond

// Watch follows the files of one part of the configuration. Its methods may be called concurrently.
type Watch struct {
	// Apply reads files with read and puts their content into effect. It must not call read concurrently, nor
	// after it has returned. If Apply fails, the previous content must stay in effect. Each Check then calls Apply
	// again, because the cause may be outside of the files, or some files may not be replaced yet. Calls of Apply
	// do not overlap.
	Apply func(read Read) error
	// Report is called with the result of applying changed files. A failure is reported once. Until the files
	// change again, a failure with another reason is reported at most once a minute. Report may be nil.
	Report func(error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu       sync.Mutex // held during Apply; guards the fields below
	files    map[string]version
	err      error // of the last call of Apply
	reported time.Time
	text     string // of the failure that was reported last
}

// version identifies the content that a file had when it was read.
type version struct {
	content [sha256.Size]byte
	failed  string // why it could not be read; "" if it was read
	stat
}

// stat is compared to detect a change without reading the file.
type stat struct {
	modified time.Time
	size     int64
}

func (v *version) equals(o version) bool { return v.content == o.content && v.failed == o.failed }

func (s stat) differs(o stat) bool { return s.size != o.size || !s.modified.Equal(o.modified) }

func statOf(path string) stat {
	info, err := os.Stat(path)
	if err != nil {
		return stat{}
	}
	return stat{info.ModTime(), info.Size()}
}

// read returns the content of a file and its version.
func read(path string) ([]byte, version, error) {
	v := version{stat: statOf(path)} // before the content is read, so that a change in between is found later
	content, err := ReadFile(path)
	if err != nil {
		v.failed = err.Error()
		return nil, v, err
	}
	v.content = sha256.Sum256(content)
	return content, v, nil
}

// Load applies the files for the first time. An error is not reported.
func (w *Watch) Load() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.use()
	return w.err
}

// use calls Apply. mu is held.
func (w *Watch) use() {
	files := map[string]version{}
	w.err = w.Apply(func(path string) ([]byte, error) {
		content, v, err := read(path)
		files[path] = v
		return content, err
	})
	w.files = files
}

// Check applies the files again if one of them has changed, or if they could not be applied before.
func (w *Watch) Check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check()
}

// Refresh calls Check if the size or the modification time of a file has changed. Without a change it costs only
// one or two system calls for each file.
func (w *Watch) Refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, v := range w.files {
		if now := statOf(path); now.differs(v.stat) {
			w.check()
			return
		}
	}
}

// check does the work of Check. mu is held.
func (w *Watch) check() {
	if w.err == nil && !w.changed() {
		return
	}
	files, failed := w.files, w.err != nil
	w.use()
	if w.err != nil && failed && maps.EqualFunc(files, w.files, func(a, b version) bool { return a.equals(b) }) &&
		(w.err.Error() == w.text || w.now().Sub(w.reported) < repeatAfter) {
		return
	}
	w.text = ""
	if w.err != nil {
		w.reported, w.text = w.now(), w.err.Error()
	}
	if w.Report != nil {
		w.Report(w.err)
	}
}

// changed reports whether a file's content differs from the content that was applied. mu is held.
func (w *Watch) changed() bool {
	for path, v := range w.files {
		_, now, _ := read(path) // a failure is a part of the version
		if !v.equals(now) {
			return true
		}
		w.files[path] = now
	}
	return false
}

func (w *Watch) now() time.Time {
	if w.Now != nil {
		return w.Now()
	}
	return time.Now()
}

// Run checks the files at once, when wake fires, and at each interval at which none of them is being written, until ctx is
// done. wake may be nil.
func (w *Watch) Run(ctx context.Context, interval time.Duration, wake *Signal) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	// The first look is at once: it also answers a signal that fired before it was waited for.
	for atOnce := true; ; {
		woken := wake.Wait() // before the files are read, so that no signal is missed meanwhile
		if atOnce || !w.beingWritten() {
			w.Check()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			atOnce = false
		case <-woken:
			atOnce = true
		}
	}
}

// beingWritten reports whether a file was changed so recently that it may be incomplete. A time in the future
// counts as false, because the file system then has a different clock.
func (w *Watch) beingWritten() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, v := range w.files {
		now := statOf(path)
		if age := w.now().Sub(now.modified); now.differs(v.stat) && age >= 0 && age < writing {
			return true
		}
	}
	return false
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
