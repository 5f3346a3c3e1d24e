// Package buckettest has the tests that every bucket.Bucket passes.
package buckettest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
)

// Test tests a kind of buckets. open returns an empty bucket, and closes it at the end of t.
func Test(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Put", (*suite).put},
		{"PutFails", (*suite).putFails},
		{"PutLarge", (*suite).putLarge},
		{"PutConcurrently", (*suite).putConcurrently},
		{"Names", (*suite).names},
		{"List", (*suite).list},
		{"Delete", (*suite).delete},
		{"Swap", (*suite).swap},
		{"SwapIsApart", (*suite).swapIsApart},
		{"SwapRace", (*suite).swapRace},
		{"SwapLosesNothing", (*suite).swapLosesNothing},
		{"Context", (*suite).context},
		{"Probe", (*suite).probe},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), wait.Limit) // every wait of a test is bounded
			defer cancel()
			test.run(&suite{t, ctx, open(t)})
		})
	}
}

type suite struct {
	*testing.T
	ctx context.Context
	bucket.Bucket
}

// write returns a function for Put that writes a content.
func write(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

func (s *suite) mustPut(name, content string) {
	s.Helper()
	if err := s.Put(s.ctx, name, write([]byte(content))); err != nil {
		s.Fatal(err)
	}
}

// read returns the content of an object.
func (s *suite) read(name string) (string, error) {
	in, err := s.Get(s.ctx, name)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(in)
	return string(b), errors.Join(err, in.Close())
}

func (s *suite) has(name, want string) {
	s.Helper()
	if got, err := s.read(name); err != nil || got != want {
		s.Errorf("%s has %.40q (%v), want %.40q", name, got, err, want)
	}
}

func (s *suite) hasNo(name string) {
	s.Helper()
	if got, err := s.read(name); !errors.Is(err, bucket.ErrNotFound) {
		s.Errorf("%s has %.40q (%v), want ErrNotFound", name, got, err)
	}
}

// hasOnly checks what List returns.
func (s *suite) hasOnly(want ...bucket.Object) {
	s.Helper()
	if got, err := s.List(s.ctx); err != nil || !slices.Equal(got, want) {
		s.Errorf("the bucket has %v (%v), want %v", got, err, want)
	}
}

func (s *suite) put() {
	s.hasNo("a/one")
	s.hasOnly()
	s.mustPut("a/one", "first")
	s.has("a/one", "first")
	s.mustPut("a/one", "second time")
	s.has("a/one", "second time")
	s.mustPut("a/empty", "")
	s.has("a/empty", "")
	s.hasOnly(bucket.Object{Name: "a/empty"}, bucket.Object{Name: "a/one", Size: 11})
}

var errWrite = errors.New("the writer has failed")

// putFails also looks at the object while it is written: no part of it must be there.
func (s *suite) putFails() {
	s.mustPut("replaced", "before")
	for _, size := range []int{0, 10, 20 << 20} {
		for _, name := range []string{"new", "replaced"} {
			err := s.Put(s.ctx, name, func(w io.Writer) error {
				if err := write(make([]byte, size))(w); err != nil {
					return err
				}
				s.hasNo("new")
				s.has("replaced", "before")
				s.hasOnly(bucket.Object{Name: "replaced", Size: 6})
				return errWrite
			})
			if !errors.Is(err, errWrite) {
				s.Errorf("Put returns %v, want the error of the writer", err)
			}
		}
	}
	s.hasNo("new")
	s.has("replaced", "before")
	s.hasOnly(bucket.Object{Name: "replaced", Size: 6})
}

// content returns size bytes that look random.
func content(seed uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // it never fails
	return b
}

func (s *suite) putLarge() {
	const size = 20<<20 + 1
	large := content(1, size)
	err := s.Put(s.ctx, "large", func(w io.Writer) error {
		for rest := large; len(rest) > 0; { // in pieces that do not fit into the parts of an upload
			n := min(len(rest), 1<<20+7)
			if err := write(rest[:n])(w); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	for _, exact := range []int{8 << 20, 16 << 20} { // the size of a part, and of two
		name := fmt.Sprintf("exact-%d", exact)
		s.mustPut(name, string(large[:exact]))
		s.has(name, string(large[:exact]))
	}
	got, err := s.read("large")
	if err != nil || sha256.Sum256([]byte(got)) != sha256.Sum256(large) {
		s.Errorf("the object has %d bytes (%v), or others than were written", len(got), err)
	}
	s.mustPut("large", "small")
	s.has("large", "small")
}

// putConcurrently has writers that write the same object, and a reader that must always see one of the contents as a whole.
func (s *suite) putConcurrently() {
	const writers, size = 4, 100_000
	var contents []string
	for i := range writers {
		contents = append(contents, string(content(uint64(i), size+i)))
	}
	s.mustPut("same", contents[0])
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for range effort.Rounds(20, 5) {
				if err := s.Put(s.ctx, "same", write([]byte(contents[i]))); err != nil {
					s.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if got, err := s.read("same"); err != nil || !slices.Contains(contents, got) {
			s.Errorf("the object has %d bytes (%v), which is none of the contents that were written", len(got), err)
		}
		if list, err := s.List(s.ctx); err != nil || len(list) != 1 {
			s.Errorf("the bucket has %v (%v), want one object", list, err)
		}
	}
}

func (s *suite) names() {
	many := strings.Repeat("part/", 40) + "end"
	long := strings.Repeat("x", 200) + "/" + strings.Repeat("y", 199)
	for _, name := range []string{many, long, "A-Z_a=z.0/a..b."} {
		s.mustPut(name, name)
		s.has(name, name)
		if _, err := s.Swap(s.ctx, name, []byte(name), ""); err != nil {
			s.Error(err)
		}
	}
	if list, err := s.List(s.ctx); err != nil || len(list) != 3 {
		s.Errorf("the bucket has %v (%v), want three objects", list, err)
	}
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", ".a", "a/.b", "a b", "ä", "a\x00", "a\n", "a%2fb", "a?b", `a\b`,
		"a.unfinished", "a.versions", "a.versions/b", "a.swapped", strings.Repeat("x", 201), strings.Repeat("x/", 200) + "xx",
	} {
		if err := s.everything(s.ctx, name); err == nil {
			s.Errorf("an object can have the name %q", name)
		}
	}
}

// everything calls all methods that take a name. It returns nil if one of them returns nil.
func (s *suite) everything(ctx context.Context, name string) error {
	var errs []error
	in, err := s.Get(ctx, name)
	if err == nil {
		err = in.Close()
	}
	errs = append(errs, err)
	_, _, err = s.Load(ctx, name)
	errs = append(errs, err)
	_, err = s.Swap(ctx, name, nil, "")
	errs = append(errs, err, s.DeleteSwapped(ctx, name), s.Put(ctx, name, write(nil)), s.Delete(ctx, name))
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

// list has more objects than a page of S3, if tests do everything.
func (s *suite) list() {
	var want []bucket.Object
	for i := range effort.Rounds(1100, 30) {
		// The order of the names is not that of their parts: "a-" < "a/" < "a0".
		want = append(want, bucket.Object{Name: fmt.Sprintf("a%s%06d", []string{"-", "/", "0/", "/b/c/"}[i%4], i), Size: int64(i % 3)})
	}
	var all sync.WaitGroup
	for part := range slices.Chunk(want, len(want)/4+1) {
		all.Go(func() {
			for _, o := range part {
				s.mustPutAsync(o.Name, strings.Repeat("x", int(o.Size)))
			}
		})
	}
	all.Wait()
	slices.SortFunc(want, func(a, b bucket.Object) int { return strings.Compare(a.Name, b.Name) })
	s.hasOnly(want...)
}

// mustPutAsync does what mustPut does, but may be called in any goroutine.
func (s *suite) mustPutAsync(name, content string) {
	if err := s.Put(s.ctx, name, write([]byte(content))); err != nil {
		s.Error(err)
	}
}

func (s *suite) delete() {
	s.mustPut("a", "1")
	s.mustPut("b", "2")
	if _, err := s.Swap(s.ctx, "a", []byte("3"), ""); err != nil {
		s.Error(err)
	}
	for range 2 {
		if err := s.Delete(s.ctx, "a"); err != nil {
			s.Error(err)
		}
		s.hasNo("a")
		s.loads("a", "3", nil)
	}
	s.mustPut("a", "4")
	for range 2 {
		if err := s.DeleteSwapped(s.ctx, "a"); err != nil {
			s.Error(err)
		}
		s.has("a", "4")
		s.loads("a", "", bucket.ErrNotFound)
	}
	if err := s.Delete(s.ctx, "never/was"); err != nil {
		s.Error(err)
	}
	s.has("b", "2")
}

// loads checks what Load returns, and returns the tag.
func (s *suite) loads(name, want string, wantErr error) (tag string) {
	s.Helper()
	got, tag, err := s.Load(s.ctx, name)
	if string(got) != want || !errors.Is(err, wantErr) {
		s.Errorf("%s has %.40q (%v), want %.40q (%v)", name, got, err, want, wantErr)
	}
	return tag
}

// swaps checks what Swap returns, and returns the tag.
func (s *suite) swaps(name, content, tag string, want error) (newTag string) {
	s.Helper()
	newTag, err := s.Swap(s.ctx, name, []byte(content), tag)
	if !errors.Is(err, want) || (err == nil) != (newTag != "") {
		s.Errorf("Swap of %s returns %q (%v), want %v", name, newTag, err, want)
	}
	return newTag
}

func (s *suite) swap() {
	s.loads("x/lock", "", bucket.ErrNotFound)
	first := s.swaps("x/lock", "A", "", nil)
	if tag := s.loads("x/lock", "A", nil); tag != first {
		s.Errorf("Load returns the tag %q, Swap has returned %q", tag, first)
	}
	s.swaps("x/lock", "B", "", bucket.ErrChanged)
	second := s.swaps("x/lock", "", first, nil)
	s.loads("x/lock", "", nil)
	s.swaps("x/lock", "B", first, bucket.ErrChanged)
	third := s.swaps("x/lock", "A", second, nil)
	if first == third || first == second || second == third {
		s.Error("two versions have the same tag")
	}
	s.swaps("x/lock", "B", first, bucket.ErrChanged)
	s.loads("x/lock", "A", nil)

	large := string(content(3, bucket.MaxSwapped))
	third = s.swaps("x/lock", large, third, nil)
	s.loads("x/lock", large, nil)
	if _, err := s.Swap(s.ctx, "x/lock", []byte(large+"x"), third); err == nil {
		s.Error("Swap takes a content that is too large")
	}
	s.loads("x/lock", large, nil)

	if err := s.DeleteSwapped(s.ctx, "x/lock"); err != nil {
		s.Error(err)
	}
	s.swaps("x/lock", "B", third, bucket.ErrChanged)
	s.loads("x/lock", "", bucket.ErrNotFound)
	s.swaps("x/lock", "B", "", nil)
	s.swaps("x/lock", "C", third, bucket.ErrChanged)
	s.swaps("x/lock", "C", first, bucket.ErrChanged)
	s.loads("x/lock", "B", nil)
}

func (s *suite) swapIsApart() {
	tag := s.swaps("lock", "swapped", "", nil)
	s.hasNo("lock")
	s.hasOnly()
	s.mustPut("lock", "put")
	s.loads("lock", "swapped", nil)
	s.swaps("lock", "swapped again", tag, nil)
	s.has("lock", "put")
	s.hasOnly(bucket.Object{Name: "lock", Size: 3})
}

const racers = 8

// swapRace lets writers that have seen the same version write at the same time.
func (s *suite) swapRace() {
	tag, last := "", ""
	for round := range effort.Rounds(50, 10) {
		var all sync.WaitGroup
		start, tags, errs := make(chan struct{}), make([]string, racers), make([]error, racers)
		for i := range racers {
			all.Go(func() {
				<-start
				tags[i], errs[i] = s.Swap(s.ctx, "race", fmt.Appendf(nil, "%d by %d", round, i), tag)
			})
		}
		close(start)
		all.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				s.Fatalf("round %d: the writers %d and %d have both replaced the same version", round, won, i)
			case err == nil:
				won = i
			case !errors.Is(err, bucket.ErrChanged):
				s.Fatal(err)
			}
		}
		if won < 0 {
			s.Fatalf("round %d: all writers have lost", round)
		}
		last = fmt.Sprintf("%d by %d", round, won)
		if tag = s.loads("race", last, nil); tag != tags[won] {
			s.Errorf("Load returns the tag %q, Swap has returned %q", tag, tags[won])
		}
	}
}

// swapLosesNothing lets writers add lines to an object. Each line must be there once.
func (s *suite) swapLosesNothing() {
	var all sync.WaitGroup
	lines := effort.Rounds(20, 5)
	for i := range racers {
		all.Go(func() {
			for n := range lines {
				if err := s.addLine(fmt.Sprintf("line %d of %d\n", n, i)); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	got, _, err := s.Load(s.ctx, "lines")
	if err != nil {
		s.Fatal(err)
	}
	for i := range racers {
		for n := range lines {
			if line := fmt.Sprintf("line %d of %d\n", n, i); bytes.Count(got, []byte(line)) != 1 {
				s.Errorf("the line %q is there %d times", line, bytes.Count(got, []byte(line)))
			}
		}
	}
}

func (s *suite) addLine(line string) error {
	for {
		old, tag, err := s.Load(s.ctx, "lines")
		if err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return err
		}
		if bytes.Contains(old, []byte(line)) {
			return nil // an earlier Swap had another error than ErrChanged
		}
		_, err = s.Swap(s.ctx, "lines", append(old, line...), tag)
		if err == nil || s.ctx.Err() != nil {
			return err
		}
		if errors.Is(err, bucket.ErrChanged) {
			now, _, err := s.Load(s.ctx, "lines")
			if err == nil && bytes.Contains(now, []byte(line)) {
				return fmt.Errorf("the line %q was added, although Swap has returned ErrChanged", line)
			}
		}
	}
}

func (s *suite) context() {
	s.mustPut("here", strings.Repeat("x", 1<<20))
	s.swaps("here", "1", "", nil)
	ended, cancel := context.WithCancel(s.ctx)
	in, err := s.Get(ended, "here")
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, in); !errors.Is(err, context.Canceled) {
		s.Errorf("reading after the end of the context returns %v", err)
	}
	_ = in.Close() // it was only read
	for _, name := range []string{"here", "new"} {
		if err := s.everything(ended, name); !errors.Is(err, context.Canceled) {
			s.Errorf("the methods return %v after the end of the context", err)
		}
	}
	if _, err := s.List(ended); !errors.Is(err, context.Canceled) {
		s.Errorf("List returns %v after the end of the context", err)
	}

	for _, size := range []int{1, 20 << 20} { // the context ends within Put
		ctx, cancel := context.WithCancel(s.ctx)
		err := s.Put(ctx, "new", func(w io.Writer) error {
			if err := write(make([]byte, size))(w); err != nil {
				return err
			}
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			s.Errorf("Put returns %v after the end of the context", err)
		}
		ctx, cancel = context.WithCancel(s.ctx)
		err = s.Put(ctx, "new", func(w io.Writer) error {
			cancel()
			for {
				if err := write(make([]byte, size))(w); err != nil {
					return err
				}
			}
		})
		if !errors.Is(err, context.Canceled) {
			s.Errorf("a writer in Put gets %v after the end of the context", err)
		}
	}
	s.hasNo("new")
	s.loads("here", "1", nil)
	s.hasOnly(bucket.Object{Name: "here", Size: 1 << 20})
}

func (s *suite) probe() {
	for range 2 {
		if err := bucket.Probe(s.ctx, s.Bucket); err != nil {
			s.Error(err)
		}
	}
	s.hasOnly()
}
