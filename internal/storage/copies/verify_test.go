package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// forge makes a copy object by object, as a test wants it.
type forge struct {
	t      *testing.T
	store  *embedded.Store
	bucket bucket.Bucket
	now    time.Time
	key    *age.X25519Identity // objects are encrypted for it; nil: they are not
}

func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{t: t, now: time.UnixMilli(1_700_000_000_000)}
	b, closeBucket, err := bucket.OpenDirectory(filepath.Join(t.TempDir(), "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	f.bucket = b
	f.store, err = embedded.Open(embedded.Options{
		InMemory: true, HistoryWindow: -1, SweepInterval: time.Hour,
		Clock: func() time.Time { return f.now }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.store.Close(), closeBucket()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// commit makes a change a second after the one before, and returns its revision.
func (f *forge) commit(op storage.Op) int64 {
	f.t.Helper()
	f.now = f.now.Add(time.Second)
	revision, err := f.store.Commit(f.t.Context(), storage.Txn{Ops: []storage.Op{op}})
	if err != nil {
		f.t.Fatal(err)
	}
	return revision
}

func (f *forge) put(key, value string) int64 {
	f.t.Helper()
	return f.commit(storage.Put(key, []byte(value)))
}

// write writes an object and returns its name.
func (f *forge) write(name string, write func(io.Writer) error) string {
	f.t.Helper()
	if f.key != nil {
		name += sealed
	}
	err := f.bucket.Put(f.t.Context(), name, func(w io.Writer) error {
		if f.key == nil {
			return write(w)
		}
		out, err := age.Encrypt(w, f.key.Recipient())
		if err != nil {
			return err
		}
		return errors.Join(write(out), out.Close())
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return name
}

// image writes an image of the present state to an epoch.
func (f *forge) image(epoch int64) string {
	f.t.Helper()
	e, err := f.store.Export(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer e.Close()
	at, _, err := f.store.WrittenAt(f.t.Context(), e.Revision())
	if err != nil {
		f.t.Fatal(err)
	}
	return f.write(fmt.Sprintf(epochFormat+imageFormat, epoch, e.Revision(), at.UnixMilli()), func(w io.Writer) error {
		_, err := backup.Save(f.t.Context(), w, e, backup.SaveOptions{
			Created: f.now, Past: true, Files: map[string][]byte{"pki/ca.key": []byte("key")},
		})
		return err
	})
}

// transactions returns the changes after a revision, up to another one.
func (f *forge) transactions(after, through int64) []changelog.Transaction {
	f.t.Helper()
	result, err := f.store.Changes(f.t.Context(), storage.ChangesRequest{After: after, Through: through})
	if err != nil || result.Through != through {
		f.t.Fatalf("changes to %d of %d: %v", result.Through, through, err)
	}
	return changelog.Transactions(result.Changes)
}

// segment writes the changes after a revision, up to another one, to an epoch.
func (f *forge) segment(epoch, after, through int64) string {
	f.t.Helper()
	return f.segmentOf(epoch, epoch, after, through, f.transactions(after, through))
}

// segmentOf writes a segment with transactions to an epoch. written is the epoch in its header.
func (f *forge) segmentOf(epoch, written, after, through int64, list []changelog.Transaction) string {
	f.t.Helper()
	name := changelog.Name{After: after, Through: through}
	if n := len(list); n > 0 {
		name.Last = list[n-1].Time
	}
	return f.write(fmt.Sprintf(epochFormat, epoch)+name.String(), func(w io.Writer) error {
		out, err := changelog.NewWriter(w, changelog.Header{Epoch: written, After: after})
		if err != nil {
			return err
		}
		for _, t := range list {
			if err := out.Write(t); err != nil {
				return err
			}
		}
		_, err = out.Close(through)
		return err
	})
}

func (f *forge) origin(epoch, from, revision int64) {
	f.t.Helper()
	f.write(fmt.Sprintf(epochFormat+originFormat, epoch, from, revision), func(io.Writer) error { return nil })
}

func (f *forge) delete(name string) {
	f.t.Helper()
	if err := f.bucket.Delete(f.t.Context(), name); err != nil {
		f.t.Fatal(err)
	}
}

// content returns what is stored as an object.
func (f *forge) content(name string) []byte {
	f.t.Helper()
	in, err := f.bucket.Get(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// overwrite replaces what is stored as an object.
func (f *forge) overwrite(name string, content []byte) {
	f.t.Helper()
	err := f.bucket.Put(f.t.Context(), name, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *forge) identities() []age.Identity {
	if f.key == nil {
		return nil
	}
	return []age.Identity{f.key}
}

// verify returns the problems of the copy, one line each.
func (f *forge) verify() (v Verified, problems string) {
	f.t.Helper()
	var list []string
	v, err := Verify(f.t.Context(), f.bucket, f.identities(), func(p Problem) { list = append(list, p.String()) })
	if err != nil {
		f.t.Fatal(err)
	}
	return v, strings.Join(list, "\n")
}

func (f *forge) index() *Index {
	f.t.Helper()
	x, err := ReadIndex(f.t.Context(), f.bucket)
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// restore restores the state of a target to a new store.
func (f *forge) restore(target Target) (Restored, error) {
	f.t.Helper()
	p, err := f.index().Plan(target)
	if err != nil {
		return Restored{}, err
	}
	o := embedded.Options{Dir: f.t.TempDir(), ReserveBytes: -1, Logger: slog.New(slog.DiscardHandler)}
	return p.Restore(f.t.Context(), f.bucket, o, f.t.TempDir(), f.identities())
}

// sample is a copy with three images and four segments in an epoch:
//
//	revision   2 3 4  5 6 7  8 9 10  11 12 13  14 15 16
//	change     a b c  d d a  b -a d   e -b  c   a -d e
//	images         4           10                  16
//	segments          4-7     7-10    10-13     13-16
type sample struct {
	*forge
	images   []string
	segments []string // segments[i] has the changes after revision 4+3i
}

func newSample(t *testing.T, encrypt bool) *sample {
	t.Helper()
	s := &sample{forge: newForge(t)}
	if encrypt {
		var err error
		if s.key, err = age.GenerateX25519Identity(); err != nil {
			t.Fatal(err)
		}
	}
	for i, key := range strings.Fields("a b c d d a b -a d e -b c a -d e") {
		op := storage.Op{Key: "/" + strings.TrimPrefix(key, "-"), Delete: key[0] == '-'}
		if !op.Delete {
			op.Value = fmt.Append(nil, "value ", i)
		}
		switch revision := s.commit(op); {
		case revision != int64(i+2):
			t.Fatalf("the change %d has revision %d", i, revision)
		case revision == 4:
			s.images = append(s.images, s.image(1))
		case revision > 4 && revision%3 == 1:
			s.segments = append(s.segments, s.segment(1, revision-3, revision))
			if revision%6 == 4 {
				s.images = append(s.images, s.image(1))
			}
		}
	}
	if len(s.images) != 3 || len(s.segments) != 4 {
		t.Fatal(s.images, s.segments)
	}
	return s
}

// TestVerify checks copies with which nothing is wrong.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *sample)
		want   Verified
	}{
		"as it was written": {func(*sample) {}, Verified{Lines: 1, Images: 3, Segments: 4, Transactions: 12, Keys: 4}},
		"a merge was interrupted": {func(s *sample) {
			s.segment(1, 4, 13)
		}, Verified{Lines: 1, Images: 3, Segments: 5, Transactions: 12, Keys: 4, Contained: 3}},
		"segments overlap": {func(s *sample) {
			s.segment(1, 5, 12)
		}, Verified{Lines: 1, Images: 3, Segments: 5, Transactions: 12, Keys: 4, Contained: 1}},
		"an image has changes that are in no segment": {func(s *sample) {
			s.put("/f", "x")
			s.image(1)
		}, Verified{Lines: 1, Images: 4, Segments: 4, Transactions: 12, Keys: 4}},
		"the oldest segments begin before the oldest image": {func(s *sample) {
			s.delete(s.images[0])
			s.segment(1, 4, 13)
		}, Verified{Lines: 1, Images: 2, Segments: 5, Transactions: 6, Keys: 4, Contained: 3}},
		"another server has taken over, and the old one wrote on": {func(s *sample) {
			s.origin(2, 1, 14)
			s.segment(2, 14, 16)
			other := s.transactions(13, 16)
			other[1].Operations[0] = changelog.Operation{Key: "/lost", Value: []byte("x")}
			s.delete(s.segments[3])
			s.segmentOf(1, 1, 13, 16, other)
			s.delete(s.images[2])
			s.image(2)
		}, Verified{Lines: 1, Images: 3, Segments: 5, Transactions: 12, Keys: 4}},
		"a second line": {func(s *sample) {
			s.put("/f", "x")
			s.image(2)
			s.segment(2, 17, s.put("/g", "x"))
		}, Verified{Lines: 2, Images: 4, Segments: 5, Transactions: 13, Keys: 5}},
		"an object of others": {func(s *sample) {
			s.overwrite("README", []byte("x"))
		}, Verified{Lines: 1, Images: 3, Segments: 4, Transactions: 12, Keys: 4}},
	} {
		for _, encrypt := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", encrypted ", encrypt), func(t *testing.T) {
				s := newSample(t, encrypt)
				c.change(s)
				if got, problems := s.verify(); got != c.want || problems != "" {
					t.Errorf("%+v, want %+v; problems: %s", got, c.want, problems)
				}
			})
		}
	}
}

// TestVerifyFinds plants faults in a copy, each of which must be found and named.
func TestVerifyFinds(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(s *sample)
		want []string // each is in one of the problems, and there are no more problems
	}{
		"a segment is missing": {func(s *sample) { s.delete(s.segments[1]) }, []string{"revisions 8 to 10: their changes are missing"}},
		"two parts are missing": {func(s *sample) {
			s.delete(s.segments[0])
			s.delete(s.segments[2])
		}, []string{"revisions 5 to 7: ", "revisions 11 to 13: "}},
		"a segment has the name of another one": {func(s *sample) {
			s.overwrite(s.segments[1], s.content(s.segments[2]))
		}, []string{"0010-1700000009000.changes: its content is that of another segment: it is of epoch 1 and begins after revision 10"}},
		"a segment ends before its name says": {func(s *sample) {
			s.overwrite(s.segments[1], s.content(s.segment(1, 7, 9)))
			s.delete(s.segmentName(7, 9))
		}, []string{"0007-0000000000000000010-1700000009000.changes: its content is that of another segment: it ends at revision 9"}},
		"a segment ends behind what its name says": {func(s *sample) {
			longer := s.segmentOf(1, 1, 7, 11, s.transactions(7, 10))
			s.overwrite(s.segments[1], s.content(longer))
			s.delete(longer)
		}, []string{"its content is that of another segment: it ends at revision 11"}},
		"the time in the name of a segment is wrong": {func(s *sample) {
			s.overwrite("0000000001/"+changelog.Name{After: 7, Through: 10, Last: s.now}.String(), s.content(s.segments[1]))
			s.delete(s.segments[1])
		}, []string{"its content is that of another segment: it ends at revision 10, in millisecond 1700000009000"}},
		"a segment is of another epoch": {func(s *sample) {
			s.segmentOf(1, 2, 7, 10, s.transactions(7, 10))
		}, []string{"its content is that of another segment: it is of epoch 2"}},
		"a segment is cut off": {func(s *sample) {
			s.overwrite(s.segments[1], s.content(s.segments[1])[:100])
		}, []string{"0007-0000000000000000010-1700000009000.changes: the segment of changes is damaged"}},
		"a segment is empty": {func(s *sample) { s.overwrite(s.segments[3], nil) }, []string{"0013-0000000000000000016"}},
		"a byte of an image is wrong": {func(s *sample) {
			b := s.content(s.images[1])
			b[len(b)/2] ^= 1
			s.overwrite(s.images[1], b)
		}, []string{"image-0000000000000000010-1700000009000.snapshot: the snapshot is damaged"}},
		"the first image is cut off": {func(s *sample) {
			s.overwrite(s.images[0], s.content(s.images[0])[:50])
		}, []string{"image-0000000000000000004-"}},
		"an image is older than its name says": {func(s *sample) {
			s.overwrite(s.images[1], s.content(s.images[0]))
		}, []string{"image-0000000000000000010-1700000009000.snapshot: its content is the image of revision 4"}},
		"the time in the name of an image is wrong": {func(s *sample) {
			s.overwrite(fmt.Sprintf(epochFormat+imageFormat, 1, 10, 1_700_000_008_000), s.content(s.images[1]))
			s.delete(s.images[1])
		}, []string{"its name says millisecond 1700000008000, and the last change before it is of 1700000009000"}},
		"a merge has lost a deletion": {func(s *sample) {
			s.merge(4, 10, func(t changelog.Transaction) bool { return t.Revision == 9 })
		}, []string{"it does not have /a (revision 7), which the changes before it make"}},
		"a merge has lost a key": {func(s *sample) {
			s.merge(13, 16, func(t changelog.Transaction) bool { return t.Revision == 14 })
		}, []string{"it has /a (revision 14), which the changes before it do not make"}},
		"a merge has lost a creation": {func(s *sample) {
			s.merge(4, 10, func(t changelog.Transaction) bool { return t.Revision == 5 })
		}, []string{"it has /d of revision 10, created at 5; the changes before it make revision 10, created at 6"}},
		"a merge has lost a creation, and the key is written again": {func(s *sample) {
			s.merge(10, 13, func(t changelog.Transaction) bool { return t.Revision == 11 })
		}, []string{"it has /e of revision 16, created at 11; the changes before it make revision 16, created at 16"}},
		"a merge has lost an update": {func(s *sample) {
			s.merge(4, 10, func(t changelog.Transaction) bool { return t.Revision == 8 })
		}, []string{"it has /b of revision 8, created at 3; the changes before it make revision 3, created at 3"}},
		"a segment deletes what is not there": {func(s *sample) {
			list := s.transactions(10, 13)
			list[1].Operations[0].Key = "/nothing"
			s.segmentOf(1, 1, 10, 13, list)
		}, []string{"revision 12 deletes /nothing, which is not there", "it does not have /b (revision 8)"}},
		"a value was changed": {func(s *sample) {
			list := s.transactions(10, 13)
			list[0].Operations[0].Value = []byte("other")
			list[2].Operations[0].Value = []byte("other")
			s.segmentOf(1, 1, 10, 13, list)
		}, []string{"it has another value of /c (revision 13)"}},
		"a merged segment and its parts disagree": {func(s *sample) {
			s.segmentOf(1, 1, 4, 10, slices.DeleteFunc(s.transactions(4, 10), func(t changelog.Transaction) bool { return t.Revision == 6 }))
		}, []string{"0004-0000000000000000007-1700000006000.changes: it and 0000000001/0000000000000000004-0000000000000000010-"}},
		"there is no image": {func(s *sample) {
			for _, name := range s.images {
				s.delete(name)
			}
		}, []string{"epoch 1: it has no image"}},
		"three objects at once": {func(s *sample) {
			s.overwrite(s.segments[0], []byte("x"))
			s.overwrite(s.segments[3], []byte("x"))
			s.overwrite(s.images[2], []byte("x"))
		}, []string{"0004-0000000000000000007", "0013-0000000000000000016", "image-0000000000000000016"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample(t, false)
			c.harm(s)
			_, problems := s.verify()
			lines := strings.Split(problems, "\n")
			for _, want := range c.want {
				if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) }) {
					t.Errorf("no problem has %q", want)
				}
			}
			if t.Failed() || len(lines) != len(c.want) {
				t.Errorf("the problems are:\n%s", problems)
			}
		})
	}
}

func (s *sample) segmentName(after, through int64) string {
	s.t.Helper()
	for _, x := range s.index().Epochs[0].Segments {
		if x.After == after && x.Through == through {
			return x.Object.Name
		}
	}
	s.t.Fatalf("there is no segment of %d to %d", after, through)
	return ""
}

// merge replaces segments by one that lacks transactions.
func (s *sample) merge(after, through int64, lacks func(changelog.Transaction) bool) {
	s.t.Helper()
	for _, x := range s.index().Epochs[0].Segments {
		if x.After >= after && x.Through <= through {
			s.delete(x.Object.Name)
		}
	}
	s.segmentOf(1, 1, after, through, slices.DeleteFunc(s.transactions(after, through), lacks))
}

// TestVerifyNeedsTheKey checks that a missing key is no damage.
func TestVerifyNeedsTheKey(t *testing.T) {
	s := newSample(t, true)
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	none := func(p Problem) { t.Error(p) }
	if _, err := Verify(t.Context(), s.bucket, nil, none); !errors.Is(err, backup.ErrEncrypted) {
		t.Errorf("without a key: %v", err)
	}
	var mismatch *age.NoIdentityMatchError
	if _, err := Verify(t.Context(), s.bucket, []age.Identity{other}, none); !errors.As(err, &mismatch) {
		t.Errorf("with another key: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, s.bucket, s.identities(), none); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := Verify(t.Context(), newForge(t).bucket, nil, none); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty bucket: %v", err)
	}
}

// TestEncryptedHeaderAlone cuts an encrypted object off behind the header of the encryption, where reading it ends with io.EOF.
func TestEncryptedHeaderAlone(t *testing.T) {
	s := newSample(t, true)
	b := s.content(s.segments[2])
	end := strings.Index(string(b), "\n--- ")
	s.overwrite(s.segments[2], b[:end+strings.Index(string(b[end+1:]), "\n")+2])
	if _, problems := s.verify(); strings.Count(problems, "\n") != 0 || !strings.Contains(problems, "0010-0000000000000000013") {
		t.Errorf("the problems are %q", problems)
	}
	if done, err := s.restore(Target{Revision: 15}); err == nil {
		t.Errorf("restored %+v", done)
	}
}

// busyBucket is a bucket that is changed by another process at the first Get of an object, or at a List.
type busyBucket struct {
	bucket.Bucket
	name  string
	meet  func()
	stale []bucket.Object // the result of the first List
}

func (b *busyBucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == b.name {
		b.name = ""
		b.meet()
	}
	return b.Bucket.Get(ctx, name)
}

func (b *busyBucket) List(ctx context.Context) ([]bucket.Object, error) {
	if stale := b.stale; stale != nil {
		b.stale = nil
		return stale, nil
	}
	return b.Bucket.List(ctx)
}

// TestVerifyBesideAWriter merges segments and removes images while they are verified.
func TestVerifyBesideAWriter(t *testing.T) {
	merge := func(s *sample) { s.merge(7, 16, func(changelog.Transaction) bool { return false }) }
	for name, change := range map[string]func(s *sample, b *busyBucket){
		"segments are merged": func(s *sample, b *busyBucket) {
			b.name, b.meet = s.segments[2], func() { merge(s) }
		},
		"the oldest image is removed": func(s *sample, b *busyBucket) {
			b.name, b.meet = s.images[0], func() { s.delete(s.images[0]) }
		},
		"an image is removed": func(s *sample, b *busyBucket) {
			b.name, b.meet = s.images[1], func() { s.delete(s.images[1]) }
		},
		"the line of history is removed": func(s *sample, b *busyBucket) {
			b.name, b.meet = s.segments[1], func() {
				for _, name := range append(s.images, s.segments...) {
					s.delete(name)
				}
				s.image(2)
			}
		},
		"the list has neither the merged segment nor its parts": func(s *sample, b *busyBucket) {
			list, err := s.bucket.List(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			b.stale = slices.DeleteFunc(list, func(o bucket.Object) bool { return o.Name == s.segments[1] })
			merge(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample(t, false)
			b := &busyBucket{Bucket: s.bucket}
			change(s, b)
			if _, err := Verify(t.Context(), b, nil, func(p Problem) { t.Error(p) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVerifyOfShipped verifies what a Shipper has written through restarts and faults of the bucket.
func TestVerifyOfShipped(t *testing.T) {
	for range effort.Rounds(20, 2) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 2)))
			for range 30 {
				w.broken = w.rng.IntN(2) == 0
				if w.rng.IntN(6) == 0 {
					if err := w.store.Close(); err != nil {
						t.Fatal(err)
					}
					w.open()
				}
				w.commit(15)
				w.step()
				w.broken = false
				x, err := ReadIndex(t.Context(), w.bucket)
				if err != nil || len(x.Epochs) == 0 {
					continue
				}
				// Those of killed processes are encrypted for keys that are gone with them, but for w.keys too.
				if _, err := Verify(t.Context(), w.bucket, w.keys, func(p Problem) { t.Error(p) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
