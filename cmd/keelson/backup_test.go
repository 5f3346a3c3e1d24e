package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// copiedStore is a store of which a test keeps a copy.
type copiedStore struct {
	t     *testing.T
	store *embedded.Store
	dir   string // of the copy
	now   time.Time
	to    []age.Recipient
	files map[string][]byte // go into images
	// record is copies.Options.Record.
	record string
}

// newCopiedStore returns a store whose clock is an hour behind.
func newCopiedStore(t *testing.T) *copiedStore {
	t.Helper()
	c := &copiedStore{t: t, dir: filepath.Join(t.TempDir(), "copy"), now: time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
	var err error
	c.store, err = embedded.Open(embedded.Options{
		Dir: t.TempDir(), HistoryWindow: -1, SweepInterval: time.Hour, ReserveBytes: -1,
		Clock: func() time.Time { return c.now }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

const thingKey = "/registry/example.com/things/default/"

// put writes a custom object a second after the change before, and returns the moment.
func (c *copiedStore) put(name string, n int) copies.Moment {
	c.t.Helper()
	return c.commit(storage.Op{Key: thingKey + name, Value: fmt.Appendf(nil,
		`{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"name":"%s","namespace":"default"},"n":%d}`, name, n)})
}

func (c *copiedStore) commit(op storage.Op) copies.Moment {
	c.t.Helper()
	c.now = c.now.Add(time.Second)
	revision, err := c.store.Commit(c.t.Context(), storage.Txn{Ops: []storage.Op{op}})
	if err != nil {
		c.t.Fatal(err)
	}
	return copies.Moment{Revision: revision, Time: c.now}
}

// copy brings the copy up to date, as a server that starts and stops.
func (c *copiedStore) copy() {
	c.t.Helper()
	b, closeBucket, err := bucket.OpenDirectory(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := copies.NewShipper(copies.Options{
		Store: c.store, Bucket: b, Interval: time.Second, Retention: 24 * time.Hour, Recipients: c.to,
		Files:  func(context.Context) (map[string][]byte, error) { return c.files, nil },
		Lock:   &copies.Lock{Bucket: b, Holder: "test", Name: "test", Time: time.Minute, Since: copies.SinceBoot},
		Record: c.record, To: c.dir, Now: func() time.Time { return c.now }, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.Finish(c.t.Context())
	}
	if err := errors.Join(err, closeBucket()); err != nil {
		c.t.Fatal(err)
	}
}

// image adds an image of the present state, whose last change is of moment m, to the epoch 6 of the copy.
func (c *copiedStore) image(m copies.Moment) {
	c.t.Helper()
	c.copy()
	e, err := c.store.Export(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer e.Close()
	name := fmt.Sprintf("0000000006/image-%019d-%013d.snapshot", m.Revision, m.Time.UnixMilli())
	f, err := os.Create(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = backup.Save(c.t.Context(), f, e, backup.SaveOptions{Created: c.now, Past: true})
	if err := errors.Join(err, f.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// objects returns the files of the copy whose names contain part, in the order of their names.
func (c *copiedStore) objects(part string) (list []string) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dir, "0*", "*"+part+"*"))
	if err != nil || len(found) == 0 {
		c.t.Fatal(found, err)
	}
	slices.Sort(found)
	return found
}

// damage changes a byte of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// identityFile makes a key of age, and returns its public key and a file with its private key.
func identityFile(t *testing.T) (age.Recipient, string) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return key.Recipient(), file
}

// newSampleCopy returns a copy with an image of three objects and four segments with a change each.
func newSampleCopy(t *testing.T, to ...age.Recipient) (c *copiedStore, moments []copies.Moment) {
	t.Helper()
	c = newCopiedStore(t)
	c.to, c.files = to, map[string][]byte{"pki/ca.key": []byte("key"), "pki/sa.key": []byte("key")}
	for _, name := range []string{"a", "b", "c"} {
		moments = append(moments, c.put(name, 0))
	}
	c.copy()
	for i, name := range []string{"a", "d", "-b", "c"} {
		if name, deleted := strings.CutPrefix(name, "-"); deleted {
			moments = append(moments, c.commit(storage.Delete(thingKey+name)))
		} else {
			moments = append(moments, c.put(name, i+1))
		}
		c.copy()
	}
	return c, moments
}

func TestBackupList(t *testing.T) {
	key, identity := identityFile(t)
	for _, to := range [][]age.Recipient{nil, {key}} {
		c, moments := newSampleCopy(t, to...)
		out := mustRun(t, "backup", "list", "--from", c.dir)
		first, last := moments[2], moments[6]
		encrypted := map[bool]string{false: "no", true: "yes"}[to != nil]
		lines := strings.Split(out, "\n")
		want := fmt.Sprintf("1-5 %s %d %s %d 1 4 0.0 MB %s", first.Time.UTC().Format(copies.TimeFormat), first.Revision,
			last.Time.UTC().Format(copies.TimeFormat), last.Revision, encrypted)
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "EPOCHS  FIRST MOMENT  ") || strings.Join(strings.Fields(lines[1]), " ") != want {
			t.Errorf("%s\nwant %s", out, want)
		}
		var l copyList
		if err := json.Unmarshal([]byte(mustRun(t, "backup", "list", "--from", c.dir, "-o", "json")), &l); err != nil {
			t.Fatal(err)
		}
		if len(l.Lines) != 1 || len(l.Lines[0].Spans) != 1 || !slices.Equal(l.Lines[0].Epochs, []int64{5, 4, 3, 2, 1}) {
			t.Fatalf("%+v", l)
		}
		if s := l.Lines[0].Spans[0]; s != (copySpan{first.Time.UTC(), first.Revision, last.Time.UTC(), last.Revision}) {
			t.Errorf("%+v", s)
		}
		if out := mustRun(t, "backup", "verify", "--from", c.dir, "--identity", identity); !strings.HasPrefix(out,
			"Verified 1 lines of history: 1 images, 4 segments with 4 transactions, up to 4 keys\n") {
			t.Error(out)
		}
		// Without a segment in the middle there are two parts, of which only the first has an image.
		if err := os.Remove(c.objects(".changes")[1]); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.dir, "notes.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		out = mustRun(t, "backup", "list", "--from", c.dir)
		if !strings.Contains(out, fmt.Sprint("  ", moments[3].Revision, " ")) || !strings.HasSuffix(out, "\nnotes.txt is no part of a copy\n") {
			t.Error(out)
		}
	}
}

func TestBackupVerify(t *testing.T) {
	c, _ := newSampleCopy(t)
	damage(t, c.objects("snapshot")[0])
	if err := os.Remove(c.objects(".changes")[1]); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := keelson("backup", "verify", "--from", c.dir)
	if code != 1 || stderr != "keelson: 1 thing is wrong with the copy in "+c.dir+"\n" ||
		!strings.Contains(out, ".snapshot: the snapshot is damaged: ") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	c, moments := newSampleCopy(t)
	segments := c.objects(".changes")
	if err := os.Remove(segments[1]); err != nil {
		t.Fatal(err)
	}
	damage(t, segments[3])
	out, stderr, code = keelson("backup", "verify", "--from", c.dir, "-o", "json")
	var v copyVerified
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 1 ||
		stderr != "keelson: 2 things are wrong with the copy in "+c.dir+"\n" {
		t.Fatalf("%d %v %s%s", code, err, out, stderr)
	}
	want := fmt.Sprintf("revisions %d to %d", moments[4].Revision, moments[4].Revision)
	if len(v.Problems) != 2 || v.Problems[0].Where != want || !strings.HasSuffix(segments[3], v.Problems[1].Where) ||
		v.Lines != 1 || v.Images != 1 || v.Segments != 2 {
		t.Errorf("%+v", v)
	}
}

func TestBackupPrune(t *testing.T) {
	c, _ := newSampleCopy(t)
	c.image(c.put("e", 1)) // an hour ago
	if out := mustRun(t, "backup", "prune", "--from", c.dir, "--retention", "7d"); out != "Removed 0 objects of 0.0 MB\n" {
		t.Error(out)
	}
	before := c.objects("")
	out := mustRun(t, "backup", "prune", "--from", c.dir, "--retention", "30m", "--dry-run")
	if !strings.Contains(out, ".snapshot (0.0 MB) would be removed\n") || !strings.Contains(out, "\nWould remove ") {
		t.Error(out)
	}
	if after := c.objects(""); !slices.Equal(before, after) {
		t.Errorf("--dry-run leaves %v of %v", after, before)
	}
	var done copyPruned
	if err := json.Unmarshal([]byte(mustRun(t, "backup", "prune", "--from", c.dir, "--retention", "30m", "-o", "json")), &done); err != nil {
		t.Fatal(err)
	}
	if after := c.objects(""); len(after) != len(before)-len(done.Removed) || len(c.objects("snapshot")) != 1 || done.Bytes == 0 ||
		done.DryRun {
		t.Errorf("%+v; there are %v of %v", done, after, before)
	}
	mustRun(t, "backup", "verify", "--from", c.dir)
}

// TestBackupErrors checks that each error is one line with exit code 1.
func TestBackupErrors(t *testing.T) {
	key, _ := identityFile(t)
	_, other := identityFile(t)
	sealed, _ := newSampleCopy(t, key)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, want string
	}{
		{"backup list", "--from must name the copy: a directory, or s3://BUCKET/PREFIX"},
		{"backup list --from " + dir, "there is no copy in " + dir},
		{"backup verify --from " + dir, "there is no copy in " + dir},
		{"backup prune --retention 7d --from " + dir, "there is no copy in " + dir},
		{"backup list --from " + dir + "/none", "cannot read the copy in " + dir + "/none (--from): no such file or directory"},
		{"backup list --from " + file, "cannot read the copy in " + file + " (--from): it is not a directory"},
		{"backup list --from ftp://x", "--from: the address of the bucket has an unknown scheme"},
		{"backup list --s3-region x --from " + dir, "--from: the bucket " + dir + " is a directory, for which there are no settings of S3"},
		{"backup list -o yaml --from " + dir, `--output must be json, not "yaml"`},
		{"backup list extra", `keelson backup list takes no arguments, but there is "extra"`},
		{"backup lists", `unknown command "lists" of keelson backup; did you mean "list"?`},
		{"backup prune --from " + sealed.dir, "--retention must say how far back states can be restored, such as 7d"},
		{"backup prune --retention 7 --from " + sealed.dir, `--retention: "7" is not a length of time such as 30s, 5m, 2h or 7d`},
		{"backup verify --from " + sealed.dir, "the copy in " + sealed.dir + " is encrypted; --identity names the file with its key"},
		{
			"backup verify --from " + sealed.dir + " --identity " + other,
			"the copy in " + sealed.dir + " is not encrypted for the key of --identity",
		},
		{"backup verify --from " + sealed.dir + " --identity " + file, file + " (--identity): "},
		{
			"backup verify --from " + sealed.dir + " --identity " + dir + "/none",
			"cannot read " + dir + "/none (--identity): no such file or directory",
		},
	} {
		_, stderr, code := keelson(strings.Fields(c.args)...)
		if code != 1 || !strings.HasPrefix(stderr, "keelson: "+c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("keelson %s: exit code %d, %q; want %q", c.args, code, stderr, c.want)
		}
	}
	if list := entries(t, dir); len(list) != 1 {
		t.Errorf("there is %q now", list)
	}
}

func TestParseAge(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour, "0d": 0, "0s": 0,
	} {
		if got, err := parseAge(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "7", "-5m", "-1d", "1d-5m", "7x", "1.5d", "99999d", "1d1d", "9999999h", "5 m"} {
		if got, err := parseAge(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
