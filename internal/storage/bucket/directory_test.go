package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
)

// openTest opens a directory.
func openTest(t *testing.T, dir string) *directory {
	t.Helper()
	b, closeBucket, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeBucket(); err != nil {
			t.Error(err)
		}
	})
	return b.(*directory)
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// makeFile makes a file in a bucket that was last changed some time ago.
func makeFile(t *testing.T, dir, name string, age time.Duration) string {
	t.Helper()
	file, at := filepath.Join(dir, name), time.Now().Add(-age)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), privateDir), os.WriteFile(file, []byte("left"), privateFile), os.Chtimes(file, at, at))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func TestListRemovesWhatKilledWritersHaveLeft(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	if err := b.Put(t.Context(), "e/kept", text("1")); err != nil {
		t.Fatal(err)
	}
	old, young := makeFile(t, dir, "e/a.X.unfinished", abandoned+time.Minute), makeFile(t, dir, "e/a.Y.unfinished", abandoned-time.Minute)
	for i := range maxRemoved + 10 {
		makeFile(t, dir, fmt.Sprintf("f/%03d.unfinished", i), 2*abandoned)
	}
	if _, err := b.Swap(t.Context(), "lock", nil, ""); err != nil {
		t.Fatal(err)
	}
	oldVersion := makeFile(t, dir, "lock.versions/0000000000000000002.Z.unfinished", 2*abandoned)
	for i, want := range []int{10 + 1, 0} { // one of the removed is e/a.X
		list, err := b.List(t.Context())
		if err != nil || !slices.Equal(list, []Object{{"e/kept", 1}}) {
			t.Errorf("the bucket has %v (%v)", list, err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "f")); err != nil || len(left) != want {
			t.Errorf("there are %d unfinished files (%v) after %d calls of List, want %d", len(left), err, i+1, want)
		}
	}
	if exists(old) || !exists(young) {
		t.Error("the unfinished file of a killed writer is left, or that of a running one is removed")
	}
	_, tag, err := b.Load(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Swap(t.Context(), "lock", nil, tag); err != nil || exists(oldVersion) {
		t.Errorf("Swap returns %v, or has not removed the unfinished file", err)
	}
}

// TestPausedWriter has a writer that is paused while another one writes the same object.
func TestPausedWriter(t *testing.T) {
	dir := t.TempDir()
	paused, other := openTest(t, dir), openTest(t, dir)
	err := paused.Put(t.Context(), "e/same", func(w io.Writer) error {
		if err := text("pau")(w); err != nil {
			return err
		}
		if err := other.Put(t.Context(), "e/same", text("other")); err != nil {
			return err
		}
		return text("sed")(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, other, "e/same"); got != "paused" {
		t.Errorf("the object has %q", got)
	}
	err = paused.Put(t.Context(), "e/same", func(w io.Writer) error {
		part, err := filepath.Glob(filepath.Join(dir, "e/*.unfinished"))
		if err != nil || len(part) != 1 {
			t.Errorf("the unfinished files are %v (%v)", part, err)
		}
		return errors.Join(os.Remove(part[0]), text("lost")(w)) // another process took it for abandoned
	})
	if err == nil || contentOf(t, other, "e/same") != "paused" {
		t.Errorf("Put returns %v, the object has %q", err, contentOf(t, other, "e/same"))
	}
}

func contentOf(t *testing.T, b Bucket, name string) string {
	t.Helper()
	in, err := b.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	got, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestPanicLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	func() {
		defer func() { _ = recover() }()
		_ = b.Put(t.Context(), "a", func(io.Writer) error { panic("in a writer") })
	}()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("the directory has %v (%v)", list, err)
	}
}

// TestVisit has what a walk meets when another process removes files and directories, or has made its own.
func TestVisit(t *testing.T) {
	failing := errors.New("input/output error")
	for _, test := range []struct {
		name string
		e    entry
		err  error // of the walk
		want error
	}{
		{"a", entry{name: "a", dir: true}, fs.ErrNotExist, nil},
		{"a", entry{name: "a", dir: true}, syscall.ESTALE, nil},
		{"a", entry{name: "a", dir: true}, failing, failing},
		{".", entry{name: ".", dir: true}, fs.ErrNotExist, fs.ErrNotExist},
		{"a/b", entry{name: "b", err: fs.ErrNotExist}, nil, nil},
		{"a/b", entry{name: "b", err: syscall.ESTALE}, nil, nil},
		{"a/b", entry{name: "b", err: failing}, nil, failing},
		{"lost+found", entry{name: "lost+found", dir: true}, nil, fs.SkipDir},
		{"lock.versions", entry{name: "lock.versions", dir: true}, nil, fs.SkipDir},
		{".nfs0001", entry{name: ".nfs0001", err: failing}, nil, nil},
	} {
		l := &lister{ctx: t.Context(), left: &leftovers{directory: openTest(t, t.TempDir())}}
		if err := l.visit(test.name, test.e, test.err); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || len(l.list) != 0 {
			t.Errorf("visiting %s with %v, %v returns %v and lists %v, want %v", test.name, test.err, test.e.err, err, l.list, test.want)
		}
	}
}

// entry is a fs.DirEntry of which Info fails.
type entry struct {
	name string
	dir  bool
	err  error
}

func (e entry) Name() string               { return e.name }
func (e entry) IsDir() bool                { return e.dir }
func (e entry) Info() (fs.FileInfo, error) { return nil, e.err }

func (e entry) Type() fs.FileMode {
	if e.dir {
		return fs.ModeDir
	}
	return 0
}

// TestListWhileFilesAreRemoved lists while another process adds and removes files and directories.
func TestListWhileFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	if err := b.Put(t.Context(), "z/kept", text("1")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			sub := filepath.Join(dir, fmt.Sprintf("d%d", i%10))
			err := os.MkdirAll(sub, privateDir)
			for n := range 5 {
				err = errors.Join(err, os.WriteFile(filepath.Join(sub, fmt.Sprint(n)), nil, privateFile))
			}
			if err := errors.Join(err, os.RemoveAll(sub)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range effort.Rounds(2000, 200) {
		list, err := b.List(t.Context())
		if err != nil || !slices.Contains(list, Object{"z/kept", 1}) {
			t.Errorf("the bucket has %v (%v)", list, err)
			break
		}
	}
	close(done)
	other.Wait()
}

func TestLinksDoNotLeadOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := makeFile(t, outside, "secret", 0)
	b := openTest(t, dir)
	for link, target := range map[string]string{"file": secret, "folder": outside, "lock.versions": outside} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "folder/secret"} {
		if in, err := b.Get(t.Context(), name); err == nil {
			_ = in.Close()
			t.Errorf("%s can be read", name)
		}
	}
	_, _, loaded := b.Load(t.Context(), "lock")
	_, swapped := b.Swap(t.Context(), "lock", nil, "")
	if err := b.Put(t.Context(), "folder/new", text("1")); err == nil || loaded == nil || swapped == nil {
		t.Errorf("links lead out of the bucket: %v, %v, %v", err, loaded, swapped)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the bucket has %v (%v)", list, err)
	}
	if err := errors.Join(b.Put(t.Context(), "file", text("1")), b.DeleteSwapped(t.Context(), "lock")); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 1 || contentOf(t, b, "file") != "1" {
		t.Errorf("outside there are %v (%v)", list, err)
	}
}

// numbersOf returns the numbers of the versions in a bucket.
func numbersOf(t *testing.T, b *directory, name string) []int64 {
	t.Helper()
	numbers, err := b.numbers(name)
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

// swapTimes replaces an object, and returns the last tag.
func swapTimes(t *testing.T, b Bucket, name, tag string, times int) string {
	t.Helper()
	for i := range times {
		var err error
		if tag, err = b.Swap(t.Context(), name, fmt.Append(nil, i), tag); err != nil {
			t.Fatal(err)
		}
	}
	return tag
}

func TestOldVersionsAreRemoved(t *testing.T) {
	b := openTest(t, t.TempDir())
	swapTimes(t, b, "lock", "", keptVersions+10)
	got := numbersOf(t, b, "lock")
	if len(got) != keptVersions || got[0] != keptVersions+10 {
		t.Errorf("the versions are %v, want the %d highest", got, keptVersions)
	}
	if list, err := os.ReadDir(filepath.Join(b.path, "lock"+versionsDir)); err != nil || len(list) != keptVersions {
		t.Errorf("the directory has %v (%v)", list, err)
	}
}

// paused is a writer of a version that has looked which version is the current one, and is paused before it makes its own.
type paused struct {
	*directory
	v          version
	part, file string
}

func pause(t *testing.T, b *directory, name, tag string) *paused {
	t.Helper()
	seen, err := parseTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	v := version{number: seen.number + 1, id: "PAUSED", before: seen.id}
	file := versionFile(name, v.number)
	part, err := b.writeUnfinished(t.Context(), file, func(w io.Writer) error { return text(string(v.encode()))(w) })
	if err != nil {
		t.Fatal(err)
	}
	return &paused{b, v, part, file}
}

// goOn is the rest of Swap.
func (p *paused) goOn(name string) error {
	if err := p.link(p.part, p.file); err != nil {
		return err
	}
	return p.won(name, p.v)
}

// TestPausedSwap has a writer that is paused between looking which version is current, and making its own.
func TestPausedSwap(t *testing.T) {
	for _, test := range []struct {
		others int // how often the object was replaced meanwhile
		want   error
	}{
		{0, nil},
		{1, ErrChanged},
		{keptVersions, ErrChanged},     // version 2 is there
		{keptVersions + 1, ErrChanged}, // version 2 was removed, version 3 is there
		{keptVersions + 2, errUnknown}, // version 3 was removed, too
		{10 * keptVersions, errUnknown},
	} {
		b := openTest(t, t.TempDir())
		first := swapTimes(t, b, "lock", "", 1)
		p := pause(t, b, "lock", first)
		last := swapTimes(t, b, "lock", first, test.others)
		// The paused writer begins with version 1, so the others have made 2 to others+1.
		if err := p.goOn("lock"); !errors.Is(err, test.want) {
			t.Errorf("after %d other versions the paused writer gets %v, want %v", test.others, err, test.want)
		}
		if test.want == nil {
			continue
		}
		if _, tag, err := b.Load(t.Context(), "lock"); err != nil || tag != last {
			t.Errorf("after %d other versions the current one is %s (%v), want %s", test.others, tag, err, last)
		}
		if n := numbersOf(t, b, "lock"); slices.Contains(n, 2) && test.others > keptVersions {
			t.Errorf("after %d other versions the one of the paused writer is left: %v", test.others, n)
		}
	}
}

// TestOvertakenSwap has a writer that is paused between making its version, and looking whether it has won. Others have seen its version.
func TestOvertakenSwap(t *testing.T) {
	for _, test := range []struct {
		others int
		want   error
	}{{0, nil}, {1, nil}, {keptVersions, nil}, {keptVersions + 1, errUnknown}} {
		b := openTest(t, t.TempDir())
		p := pause(t, b, "lock", "")
		if err := p.link(p.part, p.file); err != nil {
			t.Fatal(err)
		}
		last := swapTimes(t, b, "lock", p.v.tag(), test.others)
		if err := p.won("lock", p.v); !errors.Is(err, test.want) {
			t.Errorf("after %d other versions the overtaken writer gets %v, want %v", test.others, err, test.want)
		}
		if _, tag, err := b.Load(t.Context(), "lock"); err != nil || tag != last {
			t.Errorf("after %d other versions the current one is %s (%v), want %s", test.others, tag, err, last)
		}
	}
}

// TestRepeatedLink makes the link of a request whose answer NFS has lost.
func TestRepeatedLink(t *testing.T) {
	b := openTest(t, t.TempDir())
	p := pause(t, b, "lock", "")
	for range 2 {
		if err := p.link(p.part, p.file); err != nil {
			t.Error(err)
		}
	}
	if err := pause(t, b, "lock", "").goOn("lock"); !errors.Is(err, ErrChanged) {
		t.Errorf("another link to the same name returns %v", err)
	}
}

// TestRaceOfDirectories lets writers race that have opened the directory on their own, as processes do.
func TestRaceOfDirectories(t *testing.T) {
	dir := t.TempDir()
	const writers = 8
	var all sync.WaitGroup
	times := effort.Rounds(50, 10)
	for i := range writers {
		b := openTest(t, dir)
		all.Go(func() {
			for n := range times {
				if err := appendLine(t.Context(), b, fmt.Sprintf("%d of %d\n", n, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	got, _, err := openTest(t, dir).Load(t.Context(), "lines")
	if lines := bytes.Count(got, []byte("\n")); err != nil || lines != writers*times {
		t.Errorf("there are %d lines (%v), want %d", lines, err, writers*times)
	}
}

func appendLine(ctx context.Context, b Bucket, line string) error {
	for {
		old, tag, err := b.Load(ctx, "lines")
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if _, err = b.Swap(ctx, "lines", append(old, line...), tag); !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

func TestForeignVersions(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	tag := swapTimes(t, b, "lock", "", 1)
	for _, wrong := range []string{"x", "1", "-1", "0-X", "1-", "-X"} {
		if _, err := b.Swap(t.Context(), "lock", nil, wrong); err == nil || errors.Is(err, ErrChanged) {
			t.Errorf("Swap with the tag %q returns %v", wrong, err)
		}
	}
	for _, name := range []string{
		"2", "0000000000000000000", "-000000000000000001", "99999999999999999999", "0000000000000000002.X.unfinished", "x",
	} {
		makeFile(t, dir, "lock.versions/"+name, 0)
	}
	if _, got, err := b.Load(t.Context(), "lock"); err != nil || got != tag {
		t.Errorf("the current version is %s (%v), want %s", got, err, tag)
	}
	makeFile(t, dir, "lock.versions/0000000000000000002", 0)
	if _, _, err := b.Load(t.Context(), "lock"); err == nil || !strings.Contains(err.Error(), "was not written by this program") {
		t.Errorf("a version that another program has written returns %v", err)
	}
}

func TestDirectoryErrorsNameTheObject(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	makeFile(t, dir, "file", 0)
	for _, err := range []error{
		b.Put(t.Context(), "file/below", text("")), second(b.Swap(t.Context(), "file/below", nil, "")), second(b.Get(t.Context(), "no/file")),
		third(b.Load(t.Context(), "no/file")), second(b.Get(t.Context(), "no/../file")),
	} {
		if err == nil || !strings.Contains(err.Error(), "file") || !strings.Contains(err.Error(), dir) {
			t.Errorf("the error does not name the object and the bucket: %v", err)
		}
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }
