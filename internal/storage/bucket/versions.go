package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Versions of an object in a directory
//
// Each version of the object NAME is a file NAME.versions/NUMBER; the highest number is the current version. A writer that has seen
// version 5 makes version 6: it writes a file, and makes a hard link of the name of version 6 to it, which fails if there is one. So of
// several writers that have seen version 5 one succeeds. This needs no lock, and works over NFS.
//
// Old versions are removed, so a writer that was paused just before making version 6 may succeed after others have made the versions 6
// to 30 and removed version 6. Therefore it lists the versions afterwards. If there is a higher one, it looks at the version 7: each
// version has an identifier, and the identifier of the version before. If 7 follows the 6 of the writer, the writer has succeeded and
// was overtaken. If 7 follows another 6, or the writer had not seen the version before, nobody has used its version: it removes it and
// has lost. If 7 is removed already, the writer cannot know, and says so; that takes keptVersions versions in a few milliseconds, or a
// long pause.
//
// A list of a directory in which others make and remove files may lack those made meanwhile. But the keptVersions highest are kept, so
// it has one of the highest unless as many versions were made during it.

// keptVersions is how many of the highest versions are kept.
const keptVersions = 16

// errUnknown is the error of Swap if it is not known whether the object was replaced.
var errUnknown = errors.New("it is not known whether the object was replaced")

// version is a stored version of an object of Swap.
type version struct {
	number  int64
	id      string // of this version; no other version of any object has it
	before  string // the id of the version before, "" of the first
	content []byte
}

// maxHeader is more than the size in bytes of the header of a version.
const maxHeader = 128

// encode returns what is stored: a line with the identifiers, and the content.
func (v version) encode() []byte { return append([]byte(v.id+" "+v.before+"\n"), v.content...) }

// decodeVersion is the opposite of encode.
func decodeVersion(stored []byte) (v version, err error) {
	line, content, ok := bytes.Cut(stored, []byte("\n"))
	id, before, two := strings.Cut(string(line), " ")
	if !ok || !two || id == "" {
		return v, errors.New("its content was not written by this program")
	}
	return version{id: id, before: before, content: content}, nil
}

// readVersion reads what encode has made.
func readVersion(r io.Reader) (v version, err error) {
	stored, err := io.ReadAll(io.LimitReader(r, MaxSwapped+maxHeader))
	if err != nil {
		return v, err
	}
	if v, err = decodeVersion(stored); err == nil && len(v.content) > MaxSwapped {
		err = fmt.Errorf("it is larger than %d bytes", MaxSwapped)
	}
	return v, err
}

// checkContent returns an error if a content is too large for Swap.
func checkContent(content []byte) error {
	if len(content) > MaxSwapped {
		return fmt.Errorf("the content has %d bytes, more than %d", len(content), MaxSwapped)
	}
	return nil
}

// tag is the tag of a version in a directory.
func (v version) tag() string { return strconv.FormatInt(v.number, 10) + "-" + v.id }

// parseTag returns the number and the identifier of a version; 0 and "" if tag is "".
func parseTag(tag string) (v version, err error) {
	if tag == "" {
		return v, nil
	}
	number, id, ok := strings.Cut(tag, "-")
	if v.number, err = strconv.ParseInt(number, 10, 64); err != nil || !ok || v.number < 1 || id == "" {
		return v, fmt.Errorf("%q is not a tag of this bucket", tag)
	}
	v.id = id
	return v, nil
}

// versionFile returns the name of the file of a version.
func versionFile(name string, number int64) string {
	return fmt.Sprintf("%s%s/%019d", name, versionsDir, number)
}

// Load implements Bucket.
func (d *directory) Load(ctx context.Context, name string) (content []byte, tag string, err error) {
	v, err := d.current(ctx, name)
	if err != nil {
		return nil, "", objectError("reading", name, d.path, err)
	}
	return v.content, v.tag(), nil
}

// maxTries bounds how often a version is looked for that others remove meanwhile. Each time at least one other writer has succeeded
// keptVersions times.
const maxTries = 100

// current returns the current version, or ErrNotFound.
func (d *directory) current(ctx context.Context, name string) (v version, err error) {
	for range maxTries {
		if err := begin(ctx, name); err != nil {
			return v, err
		}
		numbers, err := d.numbers(name)
		if err != nil {
			return v, err
		}
		if len(numbers) == 0 {
			return v, ErrNotFound
		}
		if v, err = d.read(name, numbers[0]); !gone(err) {
			return v, err
		}
	}
	return v, errors.New("other writers replace the object too fast to read it")
}

// numbers returns the numbers of the versions, in descending order. Opening the directory by its name makes an NFS client ask the
// server whether it has changed.
func (d *directory) numbers(name string) (numbers []int64, err error) {
	list, err := fs.ReadDir(d.root.FS(), name+versionsDir)
	if err != nil && !gone(err) {
		return nil, err
	}
	for _, e := range list {
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if err == nil && n > 0 && path.Base(versionFile(name, n)) == e.Name() && e.Type().IsRegular() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers, nil
}

// read reads a version. A version that another process has removed meanwhile is gone.
func (d *directory) read(name string, number int64) (v version, err error) {
	f, err := d.root.Open(versionFile(name, number))
	if err != nil {
		return v, err
	}
	defer f.Close() // it was only read
	v, err = readVersion(f)
	v.number = number
	return v, err
}

// Swap implements Bucket.
func (d *directory) Swap(ctx context.Context, name string, content []byte, tag string) (newTag string, err error) {
	seen, err := parseTag(tag)
	if err := errors.Join(err, checkContent(content), begin(ctx, name)); err != nil {
		return "", objectError("replacing", name, d.path, err)
	}
	v := version{number: seen.number + 1, id: rand.Text(), before: seen.id, content: content}
	if err := d.add(ctx, name, seen, v); err != nil {
		return "", objectError("replacing", name, d.path, err)
	}
	d.removeOld(name, v.number)
	return v.tag(), nil
}

// DeleteSwapped implements Bucket.
func (d *directory) DeleteSwapped(ctx context.Context, name string) error {
	err := begin(ctx, name)
	if err == nil {
		err = d.root.RemoveAll(name + versionsDir)
	}
	return objectError("deleting", name, d.path, err)
}

// add adds the version v to those of an object of which seen is the current one.
func (d *directory) add(ctx context.Context, name string, seen, v version) error {
	// The file is made before the current version is read: the change makes an NFS client forget what it knows of the directory.
	file := versionFile(name, v.number)
	part, err := d.writeUnfinished(ctx, file, func(w io.Writer) error {
		_, err := w.Write(v.encode())
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = d.root.Remove(part) }() // List and later writers remove what is left
	now, err := d.current(ctx, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if now.number != seen.number || now.id != seen.id {
		return ErrChanged
	}
	if err := d.link(part, file); err != nil {
		return err
	}
	if err := d.won(name, v); err != nil {
		return err
	}
	return d.syncParents(file)
}

// link gives a file another name, if there is none of that name. An answer of NFS may be lost, and the repeated request then fails
// although the first has succeeded, so after an error it looks.
func (d *directory) link(from, to string) error {
	err := d.root.Link(from, to)
	if err == nil {
		return nil
	}
	linked, err1 := d.sameFile(from, to)
	switch {
	case err1 == nil && linked:
		return nil
	case errors.Is(err, fs.ErrExist):
		return ErrChanged
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: the file system must have hard links", err)
	}
	return err
}

func (d *directory) sameFile(a, b string) (bool, error) {
	x, err := d.root.Lstat(a)
	if err != nil {
		return false, err
	}
	y, err := d.root.Lstat(b)
	return err == nil && os.SameFile(x, y), err
}

// won returns nil if v, which was just made, was the current version at some time; the comment at the top of this file says why it
// might not.
func (d *directory) won(name string, v version) error {
	numbers, err := d.numbers(name)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	if len(numbers) > 0 && numbers[0] <= v.number {
		return nil
	}
	next, err := d.read(name, v.number+1)
	switch {
	case gone(err):
		err = errUnknown
	case err != nil:
		return fmt.Errorf("%w: %w", errUnknown, err)
	case next.before == v.id:
		return nil
	default:
		err = ErrChanged
	}
	_ = d.root.Remove(versionFile(name, v.number)) // if it is left, it is one of the old ones that removeOld removes
	return err
}

// removeOld removes the versions that are not among the highest, and files that killed writers have left. The highest is never removed.
// Nothing depends on its success.
func (d *directory) removeOld(name string, highest int64) {
	list, _ := fs.ReadDir(d.root.FS(), name+versionsDir)
	left := &leftovers{directory: d, oldest: time.Now().Add(-abandoned)}
	for _, e := range list {
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if err == nil && n <= highest-keptVersions {
			_ = d.root.Remove(name + versionsDir + "/" + e.Name())
		} else {
			left.remove(name+versionsDir+"/"+e.Name(), e)
		}
	}
}
