package copies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// unfinished is the ending of the name of a file that is being written, or that a process has left that was killed.
const unfinished = ".unfinished"

// directory is a Bucket that is a directory.
type directory struct{ root *os.Root }

// OpenDirectory returns a Bucket in a directory, which is made if it does not exist. Nothing outside of it is read or written: links
// that lead out of it are errors. The caller calls close at the end.
func OpenDirectory(dir string) (b Bucket, closeDir func() error, err error) {
	const private = 0o700
	if err := os.MkdirAll(dir, private); err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	return &directory{root}, root.Close, nil
}

// Put implements Bucket.
func (d *directory) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	const privateDir, privateFile = 0o700, 0o600
	if err := d.root.MkdirAll(path.Dir(name), privateDir); err != nil {
		return err
	}
	part := name + unfinished
	if err := d.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.root.Remove(part) // the first error is returned
		}
	}()
	if err := errors.Join(write(&contextWriter{ctx, f}), ctx.Err()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := d.root.Rename(part, name); err != nil {
		return err
	}
	return errors.Join(d.sync(path.Dir(name)), d.sync("."))
}

func (d *directory) sync(dir string) error {
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// contextWriter is a writer that fails when a context has ended.
type contextWriter struct {
	ctx context.Context
	io.Writer
}

func (w *contextWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

// Get implements Bucket.
func (d *directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	return f, err
}

// List implements Bucket. Files that are being written, and what is no regular file, are left out.
func (d *directory) List(ctx context.Context) (list []Object, err error) {
	err = fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || !e.Type().IsRegular() || strings.HasSuffix(name, unfinished) {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was deleted just now
		}
		if err == nil {
			list = append(list, Object{name, info.Size()})
		}
		return err
	})
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// Delete implements Bucket.
func (d *directory) Delete(_ context.Context, name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
