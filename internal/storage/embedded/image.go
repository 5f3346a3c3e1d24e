package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Image is the state of a store at one moment, with its history, in files that do not change. Options.Image opens
// a store that begins with this state. The tables of an image are hard links to the tables of its store, and the
// tables of a new store are links to those of the image. So an image needs no time and no space in proportion to
// the number of objects. A table is removed when the last store that has it has merged it or is closed. The
// methods may be called concurrently.
type Image struct {
	fs       vfs.FS
	dir      string
	inMemory bool // the store has Options.InMemory
}

// Image creates an image in the directory dir, which must not exist. A store with Options.InMemory does not use
// dir. The image has all changes that were acknowledged before the call, and possibly later ones. The caller must
// call Close of the image. If dir is on another file system than the store, the tables are copied.
func (s *Store) Image(ctx context.Context, dir string) (*Image, error) {
	if err := s.lifetime.enter(ctx); err != nil {
		return nil, err
	}
	defer s.lifetime.leave()
	if s.opts.InMemory {
		dir = "image-" + rand.Text()
	}
	b := s.db.NewBatch()
	mustSucceed(b.Set([]byte(metaClock), s.clock.snapshot().encode(), nil))
	if err := errors.Join(s.db.applyUnsynced(b), b.Close()); err != nil {
		return nil, err
	}
	_, err := guardPanic(func() (struct{}, error) {
		// The flush empties the log, which would otherwise be copied and replayed.
		return struct{}{}, errors.Join(s.db.Flush(), s.db.Checkpoint(dir, pebble.WithFlushedWAL()))
	})
	if err != nil {
		return nil, fmt.Errorf("cannot create an image of the store in %s: %w", dir, err)
	}
	return &Image{fs: s.opts.FS, dir: dir, inMemory: s.opts.InMemory}, nil
}

// LinkTo creates a store in the directory to. It gets the state of the stopped store in from. Tables are hard
// links where that is possible.
func LinkTo(from, to string) error {
	o := Options{Dir: to}.withDefaults()
	if err := makeDir(o.FS, to); err != nil {
		return err
	}
	return (&Image{fs: o.FS, dir: from}).copyTo(&o)
}

// Close removes the files of the image. Stores that were opened with it are not affected.
func (i *Image) Close() error { return i.fs.RemoveAll(i.dir) }

// options sets the options of a store in memory that is opened with the image.
func (i *Image) options(o *Options) {
	if i.inMemory {
		o.FS, o.Dir, o.InMemory, o.unlogged, o.temporary = i.fs, "store-"+rand.Text(), true, true, true
	}
}

// copyTo makes the files of a store in o.Dir, which must not have a store.
func (i *Image) copyTo(o *Options) error {
	names, err := i.fs.List(i.dir)
	if err != nil {
		return fmt.Errorf("cannot read the image of a store: %w", err)
	}
	there, err := o.FS.List(o.Dir)
	if err != nil {
		return err
	}
	isMarker := func(name string) bool { return strings.HasPrefix(name, "marker.") }
	if slices.ContainsFunc(there, isMarker) {
		return fmt.Errorf("the directory %s has a store already", o.Dir)
	}
	// The database recognizes a directory by its markers. They come last, so that an incomplete copy is not used.
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case isMarker(a) == isMarker(b):
			return 0
		case isMarker(b):
			return -1
		}
		return 1
	})
	for _, name := range names {
		if name == DamagedName {
			continue
		}
		from, to := i.fs.PathJoin(i.dir, name), o.FS.PathJoin(o.Dir, name)
		copyFile := i.copyFile
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") {
			copyFile = func(_ vfs.FS, from, to string) error { return vfs.LinkOrCopy(i.fs, from, to) }
		}
		if err := copyFile(o.FS, from, to); err != nil {
			return fmt.Errorf("cannot copy the image of a store to %s: %w", o.Dir, err)
		}
	}
	return nil
}

// copyFile copies a small file. It need not be synced, because the database rewrites these files when it is opened.
func (i *Image) copyFile(fs vfs.FS, from, to string) error {
	in, err := i.fs.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
