package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	privateDir, privateFile = 0o700, 0o600

	// abandoned is the age at which an unfinished file is removed, because its writer must have been killed. A writer that is only slow
	// changes its file all the time.
	abandoned = time.Hour
	// maxRemoved bounds how many unfinished files are removed in one call.
	maxRemoved = 100
)

// directory is a Bucket that is a directory. Several processes may use it, also on several machines over NFS, so nothing depends on
// locks.
type directory struct {
	root *os.Root
	path string // for messages
}

// OpenDirectory returns a Bucket in a directory, which is made if it does not exist. Nothing outside of it is read or written: links
// that lead out of it are errors. The caller calls closeDir at the end.
func OpenDirectory(dir string) (b Bucket, closeDir func() error, err error) {
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return nil, nil, fmt.Errorf("making the directory of the bucket: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the directory of the bucket: %w", err)
	}
	return &directory{root, dir}, root.Close, nil
}

// begin checks a name and a context.
func begin(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return ctx.Err()
}

// Put implements Bucket.
func (d *directory) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return objectError("writing", name, d.path, d.put(ctx, name, write))
}

func (d *directory) put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := begin(ctx, name); err != nil {
		return err
	}
	part, err := d.writeUnfinished(ctx, name, write)
	if err != nil {
		return err
	}
	if err := d.root.Rename(part, name); err != nil {
		_ = d.root.Remove(part) // the first error is returned
		return err
	}
	return d.syncParents(name)
}

// writeUnfinished writes a file for an object, whose name no other writer uses, and makes it durable. After an error there is no file.
func (d *directory) writeUnfinished(ctx context.Context, name string, write func(io.Writer) error) (part string, err error) {
	if err := d.root.MkdirAll(path.Dir(name), privateDir); err != nil {
		return "", err
	}
	part = name + "." + rand.Text() + unfinished
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return "", err
	}
	complete := false
	defer func() {
		if !complete { // also if write panics
			err = errors.Join(err, f.Close())
			_ = d.root.Remove(part) // the first error is returned
		}
	}()
	if err := errors.Join(write(&contextWriter{ctx, f}), ctx.Err()); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	complete = true
	if err := f.Close(); err != nil { // a network file system may report a failed write only now
		_ = d.root.Remove(part)
		return "", err
	}
	return part, nil
}

// syncParents makes the entries of a file and of its directories durable.
func (d *directory) syncParents(name string) error {
	for {
		name = path.Dir(name)
		f, err := d.root.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil || name == "." {
			return err
		}
	}
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

// contextFile is a file of which reading fails when a context has ended.
type contextFile struct {
	ctx context.Context
	*os.File
}

func (f *contextFile) Read(b []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

// gone reports whether an error says that a file does not exist. ESTALE is what NFS says of a file that another machine has removed.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) }

// Get implements Bucket.
func (d *directory) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := d.open(ctx, name)
	if err != nil {
		return nil, objectError("reading", name, d.path, err)
	}
	return struct{ io.ReadCloser }{&contextFile{ctx, f}}, nil
}

func (d *directory) open(ctx context.Context, name string) (*os.File, error) {
	if err := begin(ctx, name); err != nil {
		return nil, err
	}
	f, err := d.root.Open(name)
	if gone(err) {
		return nil, ErrNotFound
	}
	return f, err
}

// List implements Bucket. What is no regular file is left out. Files that killed writers have left are removed.
func (d *directory) List(ctx context.Context) ([]Object, error) {
	l := &lister{ctx: ctx, left: &leftovers{directory: d, oldest: time.Now().Add(-abandoned)}}
	if err := fs.WalkDir(d.root.FS(), ".", l.visit); err != nil {
		return nil, fmt.Errorf("listing the bucket %s: %w", d.path, err)
	}
	slices.SortFunc(l.list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return l.list, nil
}

// lister has the objects that a walk through a directory has found.
type lister struct {
	ctx  context.Context
	left *leftovers
	list []Object
}

// visit is the fs.WalkDirFunc of a lister. Another process may remove a file or a directory at any moment.
func (l *lister) visit(name string, e fs.DirEntry, err error) error {
	switch {
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	case name != "." && gone(err):
		return nil
	case err != nil || name == ".":
		return err
	case l.left.remove(name, e):
		return nil
	case !validPart(e.Name()) && e.IsDir():
		return fs.SkipDir
	case !e.Type().IsRegular() || checkName(name) != nil:
		return nil
	}
	info, err := e.Info()
	if gone(err) {
		return nil
	}
	if err == nil {
		l.list = append(l.list, Object{name, info.Size()})
	}
	return err
}

// leftovers removes the unfinished files that killed writers have left.
type leftovers struct {
	*directory
	oldest  time.Time // files that were last changed before are removed
	removed int
}

// remove reports whether a file is unfinished, and removes it if it is old. Nothing depends on its success.
func (l *leftovers) remove(name string, e fs.DirEntry) bool {
	if !strings.HasSuffix(name, unfinished) || !e.Type().IsRegular() {
		return false
	}
	if info, err := e.Info(); err == nil && info.ModTime().Before(l.oldest) && l.removed < maxRemoved {
		l.removed++
		_ = l.root.Remove(name)
	}
	return true
}

// Delete implements Bucket.
func (d *directory) Delete(ctx context.Context, name string) error {
	err := begin(ctx, name)
	if err == nil {
		err = d.root.Remove(name)
	}
	if gone(err) {
		err = nil
	}
	return objectError("deleting", name, d.path, err)
}
