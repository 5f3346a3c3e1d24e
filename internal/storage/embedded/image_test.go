package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestStoresOfAnImageAreIndependent: stores that begin with the same image have its state and history. They do not
// see the writes of each other or of the first store, and it does not matter which of them is closed.
func TestStoresOfAnImageAreIndependent(t *testing.T) {
	for name, dir := range map[string]string{"in memory": "", "on disk": t.TempDir()} {
		t.Run(name, func(t *testing.T) { testImage(t, dir) })
	}
}

func testImage(t *testing.T, dir string) {
	options := func(name string) Options {
		if dir == "" {
			return Options{InMemory: true}
		}
		return Options{Dir: filepath.Join(dir, name)}
	}
	put := func(s *Store, key, value string) int64 {
		t.Helper()
		revision, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put(key, []byte(value))}})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	get := func(s *Store, key string, revision int64) string {
		t.Helper()
		e, _, err := s.Get(t.Context(), key, revision)
		if err != nil {
			t.Fatal(err)
		}
		return string(e.Value)
	}
	first := mustOpen(t, options("first"))
	old := put(first, "/a", "0")
	for i := range 100 {
		put(first, fmt.Sprintf("/many/%d", i), "x")
	}
	at := put(first, "/a", "1")
	image, err := first.Image(t.Context(), filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	put(first, "/a", "2")
	var forks []*Store
	for i := range 3 {
		o := options(fmt.Sprint(i))
		o.Image = image
		forks = append(forks, mustOpen(t, o))
	}
	for i, s := range forks {
		if now, err := s.Revision(t.Context()); err != nil || now != at {
			t.Errorf("store %d begins at revision %d, want %d: %v", i, now, at, err)
		}
		if got := put(s, "/a", fmt.Sprint("fork ", i)); got != at+1 {
			t.Errorf("the first write of store %d has revision %d, want %d", i, got, at+1)
		}
	}
	if err := errors.Join(image.Close(), forks[0].Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	for i, s := range forks[1:] {
		if got, want := get(s, "/a", 0), fmt.Sprint("fork ", i+1); got != want {
			t.Errorf("store %d has %q, want %q", i+1, got, want)
		}
		if got := get(s, "/a", old); got != "0" {
			t.Errorf("store %d has %q at an old revision", i+1, got)
		}
		if got := get(s, "/many/99", 0); got != "x" {
			t.Errorf("store %d has %q", i+1, got)
		}
		w, err := s.Watch(t.Context(), "/a", old)
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		for len(seen) < 3 {
			b, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range b.Events {
				seen = append(seen, string(e.Entry.Value))
			}
		}
		if want := fmt.Sprint([]string{"0", "1", fmt.Sprint("fork ", i+1)}); fmt.Sprint(seen) != want {
			t.Errorf("a watch from an old revision got %v, want %v", seen, want)
		}
		w.Close()
	}
}

// TestClosedStoresOfAnImageLeaveNothing: the files of a store in memory are gone when it is closed, although its image
// is in the same file system.
func TestClosedStoresOfAnImageLeaveNothing(t *testing.T) {
	first := mustOpen(t, Options{InMemory: true})
	image, err := first.Image(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	fs := first.opts.FS
	before := list(t, fs)
	for range 3 {
		s := mustOpen(t, Options{InMemory: true, Image: image})
		if now := list(t, fs); len(now) != len(before)+1 {
			t.Errorf("an open store: %v, before: %v", now, before)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if now := list(t, fs); len(now) != len(before) {
		t.Errorf("left behind: %v, before: %v", now, before)
	}
}

func list(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("/")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestImageNeedsAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: filepath.Join(dir, "a")})
	image, err := s.Image(t.Context(), filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, Options{Dir: filepath.Join(dir, "b")})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	o := testOptions(Options{Dir: filepath.Join(dir, "b"), Image: image})
	if s, err := Open(o); err == nil {
		s.Close()
		t.Error("an existing store was replaced")
	}
}
