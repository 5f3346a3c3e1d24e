package embedded

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestRevisionFile: the written revision is read again, a store at a lower revision is refused, and a truncated
// file counts as missing.
func TestRevisionFile(t *testing.T) {
	o := Options{FS: vfs.NewMem(), Dir: "d"}.withDefaults()
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &revisionFile{opts: &o}
	if got := r.read(); got != 0 || r.check(0) != nil {
		t.Errorf("without a file the revision is %d", got)
	}
	r.write(7)
	if got := (&revisionFile{opts: &o}).read(); got != 7 {
		t.Errorf("read %d after writing 7", got)
	}
	if err := r.check(6); !errors.Is(err, ErrDataLost) {
		t.Errorf("a database at revision 6: %v", err)
	}
	if err := r.check(7); err != nil {
		t.Errorf("a database at revision 7: %v", err)
	}
	name := o.FS.PathJoin(o.Dir, revisionFileName)
	if err := o.FS.Remove(name); err != nil {
		t.Fatal(err)
	}
	if r.write(7); r.read() != 0 {
		t.Error("the same revision was written again")
	}
	f, err := o.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte{0, 0, 0, 0, 0, 0, 0, 9})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := r.read(); got != 0 {
		t.Errorf("a file without a checksum has revision %d", got)
	}
}

// TestLifetime: after the end enter fails, and the end waits for all methods that have entered.
func TestLifetime(t *testing.T) {
	l := newLifetime()
	if err := l.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.mu.TryLock() {
		t.Fatal("the store can be closed while it is used")
	}
	l.leave()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.enter(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("enter with a context that has ended: %v", err)
	}
	l.mu.Lock() // possible only if the cancelled enter has not locked mu
	l.closed = true
	l.mu.Unlock()
	if err := l.enter(t.Context()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("enter after the end: %v", err)
	}
}

// TestMayWrite: background work writes while space is low, but not when it is critical, and not after a failure.
func TestMayWrite(t *testing.T) {
	d := &database{space: new(diskSpace), pipeline: new(pipeline)}
	for level, want := range []bool{spaceEnough: true, spaceLow: true, spaceCritical: false} {
		d.space.level.Store(int32(level))
		if got := d.mayWrite(); got != want || d.space.isLow() != (level != spaceEnough) {
			t.Errorf("level %d: may write: %t", level, got)
		}
	}
	d.space.level.Store(spaceEnough)
	err := errors.New("failed")
	d.pipeline.failure.Store(&err)
	if d.mayWrite() {
		t.Error("a store that has failed may write")
	}
}
