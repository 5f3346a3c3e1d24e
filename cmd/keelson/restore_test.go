package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// recordsOf returns the records in a data directory, by the ends of their keys.
func recordsOf(t *testing.T, dataDir string) map[string]embedded.Record {
	t.Helper()
	s, err := openStopped(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list := map[string]embedded.Record{}
	for r, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list[strings.TrimPrefix(r.Key, thingKey)] = r
	}
	return list
}

// numbersOf returns what newSampleCopy has stored, such as "a1 c0".
func numbersOf(t *testing.T, dataDir string) string {
	t.Helper()
	var list []string
	for name, r := range recordsOf(t, dataDir) {
		var v struct{ N int }
		if err := json.Unmarshal(r.Value, &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(name, v.N))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestRestoreCopy restores moments of a copy.
func TestRestoreCopy(t *testing.T) {
	key, identity := identityFile(t)
	c, moments := newSampleCopy(t, key)
	for _, m := range []struct {
		at   string
		want string
		of   copies.Moment
	}{
		{"", "a1 c4 d2", moments[6]},
		{"0s", "a1 c4 d2", moments[6]},
		{time.Now().Add(time.Hour).Format(time.RFC3339), "a1 c4 d2", moments[6]},
		{strconv.FormatInt(moments[5].Revision, 10), "a1 c0 d2", moments[5]},
		{moments[4].Time.UTC().Format(copies.TimeFormat), "a1 b0 c0 d2", moments[4]},
		{moments[4].Time.Add(-time.Millisecond).Format(time.RFC3339Nano), "a1 b0 c0", moments[3]},
		{moments[2].Time.Add(999 * time.Millisecond).Format(time.RFC3339Nano), "a0 b0 c0", moments[2]},
		{moments[4].Time.Add(time.Second).Truncate(time.Second).Format(time.DateTime), "a1 b0 c0 d2", moments[4]},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		out := mustRun(t, "restore", "--from", c.dir, "--at", m.at, "--data-dir", dir, "--identity", identity)
		if got := numbersOf(t, dir); got != m.want {
			t.Errorf("--at=%s: %s, want %s", m.at, got, m.want)
		}
		last := int64(0)
		for name, r := range recordsOf(t, dir) {
			last = max(last, r.ModRevision)
			if r.ModRevision <= moments[6].Revision+1_000_000_000 {
				t.Errorf("--at=%s: %s has revision %d", m.at, name, r.ModRevision)
			}
		}
		want := regexp.MustCompile(fmt.Sprintf("^Restored pki/ca.key, pki/sa.key\nRestored %d entries to %s\n"+
			"The last change was made at %s; the new store is at revision %d and has [0-9.]+ MB\n"+
			"Start the server: keelson serve --data-dir %s\nWith --backup-to %s it goes on writing to this copy\n$", strings.Count(m.want, " ")+1,
			regexp.QuoteMeta(dir), regexp.QuoteMeta(m.of.String()), last, regexp.QuoteMeta(dir), regexp.QuoteMeta(c.dir)))
		if !want.MatchString(out) {
			t.Errorf("--at=%s: %s\nwant %s", m.at, out, want)
		}
		if names := entries(t, dir); !slices.Equal(names, []string{"copy.json", "lock", "pki", "store"}) {
			t.Errorf("--at=%s: the data directory has %q", m.at, names)
		}
		if b, err := os.ReadFile(datadir.CopyRecord(dir)); err != nil || !strings.Contains(string(b), `"epoch":5,"restored":true`) {
			t.Errorf("--at=%s: the record is %q, %v", m.at, b, err)
		}
		mustRun(t, "check", "--data-dir", dir)
	}
}

// TestRestoreCopyWithHistory checks that an object can be read as it was before the restore, and --min-revision.
func TestRestoreCopyWithHistory(t *testing.T) {
	c, moments := newSampleCopy(t)
	c.files = nil
	dir := filepath.Join(t.TempDir(), "data")
	out := mustRun(t, "restore", "--from", c.dir, "--history", "--data-dir", dir, "--min-revision", "7000000000000")
	if !strings.Contains(out, "Restored 3 entries and ") || !strings.Contains(out, " records of their history to ") {
		t.Error(out)
	}
	mustRun(t, "check", "--data-dir", dir)
	retention := storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}, Bytes: -1}
	s, err := embedded.Open(embedded.Options{Dir: datadir.StoreDir(dir), Retention: retention})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, m := range moments[3:] {
		e, err := s.GetAt(t.Context(), storage.Scope{}, thingKey+"c", m.Revision)
		if err != nil || strings.Contains(string(e.Value), `"n":4`) != (m == moments[6]) {
			t.Errorf("at %v: %s, %v", m, e.Value, err)
		}
	}
	if revision, err := s.Revision(t.Context()); err != nil || revision != 7000000000003 {
		t.Errorf("revision %d, %v", revision, err)
	}
}

// TestRestoreCopyOfALine restores a moment of an older line of history: the new revisions are above those of all lines, and the server
// may go on in the copy.
func TestRestoreCopyOfALine(t *testing.T) {
	c, moments := newSampleCopy(t)
	first := filepath.Join(t.TempDir(), "first")
	mustRun(t, "restore", "--from", c.dir, "--data-dir", first)
	other := newCopiedStore(t)
	if err := other.store.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	other.store, err = embedded.Open(embedded.Options{Dir: datadir.StoreDir(first), Clock: func() time.Time { return other.now }})
	if err != nil {
		t.Fatal(err)
	}
	other.dir, other.record = c.dir, datadir.CopyRecord(first)
	other.put("e", 5)
	other.copy()
	highest, err := other.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, "backup", "list", "--from", c.dir); strings.Count(out, "\n") != 3 {
		t.Errorf("the copy has other lines:\n%s", out)
	}
	second := filepath.Join(t.TempDir(), "second")
	mustRun(t, "restore", "--from", c.dir, "--data-dir", second, "--at", strconv.FormatInt(moments[4].Revision, 10))
	for name, r := range recordsOf(t, second) {
		if r.ModRevision <= highest+1_000_000_000 {
			t.Errorf("%s has revision %d, and %d was seen", name, r.ModRevision, highest)
		}
	}
	if b, err := os.ReadFile(datadir.CopyRecord(second)); err != nil || !strings.Contains(string(b), `"epoch":6,"restored":true`) {
		t.Errorf("the record is %q, %v", b, err)
	}
}

// TestRestoreCopyDeadlines checks that an object has the time to live that it had at the moment that is restored.
func TestRestoreCopyDeadlines(t *testing.T) {
	c := newCopiedStore(t)
	c.put("a", 1)
	c.copy()
	c.commit(storage.Op{Key: thingKey + "b", Value: []byte(`{}`), TTL: 10})
	c.now = c.now.Add(3 * time.Second)
	last := c.put("c", 1)
	c.copy()
	e, err := c.store.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var left time.Duration
	for r, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Deadline != 0 {
			left = time.UnixMilli(r.Deadline).Sub(last.Time)
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	began := time.Now().Truncate(time.Millisecond)
	mustRun(t, "restore", "--from", c.dir, "--data-dir", dir)
	deadline := time.UnixMilli(recordsOf(t, dir)["b"].Deadline)
	if deadline.Before(began.Add(left)) || deadline.After(time.Now().Add(left)) {
		t.Errorf("it ends %v after the restore began, and %v were left", deadline.Sub(began), left)
	}
}

// TestRestoreCopyErrors checks that each error is one line with exit code 1, and that nothing is left but the lock.
func TestRestoreCopyErrors(t *testing.T) {
	key, _ := identityFile(t)
	_, other := identityFile(t)
	sealed, _ := newSampleCopy(t, key)
	c, moments := newSampleCopy(t)
	hole, _ := newSampleCopy(t)
	if err := os.Remove(hole.objects(".changes")[1]); err != nil {
		t.Fatal(err)
	}
	damagedSegment, _ := newSampleCopy(t)
	damage(t, damagedSegment.objects(".changes")[2])
	damagedImage, _ := newSampleCopy(t)
	damage(t, damagedImage.objects(".snapshot")[0])
	cut, _ := newSampleCopy(t)
	if err := os.Truncate(cut.objects(".changes")[2], 60); err != nil {
		t.Fatal(err)
	}
	noImage, _ := newSampleCopy(t)
	if err := os.Remove(noImage.objects(".snapshot")[0]); err != nil {
		t.Fatal(err)
	}
	empty, full, to := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	early := moments[2].Time.Add(-time.Millisecond).UTC().Format(copies.TimeFormat)
	from := func(c *copiedStore, args ...string) []string {
		return append([]string{"--from", c.dir, "--data-dir", to}, args...)
	}
	for _, e := range []struct {
		args []string
		want string
	}{
		{nil, "--from must name the copy"},
		{[]string{"--from", c.dir}, "--data-dir must name the directory to make"},
		{[]string{"--from", empty, "--data-dir", to}, "there is no copy in " + empty},
		{[]string{"--from", empty + "/none", "--data-dir", to}, "cannot read the copy in " + empty + "/none (--from): no such file or directory"},
		{[]string{"--from", c.dir, "--data-dir", full}, "the data directory " + full + " is not empty: it has mine"},
		{from(c, "--at", early), "the copy does not reach back to that moment: " +
			"the first one that can be restored is " + moments[2].String()},
		{from(c, "--at", "2d"), "the copy does not reach back to that moment: "},
		{from(c, "--at", "1"), "the copy does not reach back to that moment: "},
		{from(c, "--at", "5000"), fmt.Sprintf("the copy ends at revision %d, before 5000", moments[6].Revision)},
		{from(c, "--at", "yesterday"), `--at: "yesterday" is not a time such as `},
		{from(c, "--at", "0"), `--at: "0" is not a time such as `},
		{from(c, "--at", "99999999999999999999"), `--at: "99999999999999999999" is not a time such as `},
		{from(c, "--at", "-5m"), `--at: "-5m" is not a time such as `},
		{from(hole), fmt.Sprintf("the changes after revision %d are missing in the copy", moments[3].Revision)},
		{from(noImage), "the copy has no image, so nothing of it can be restored"},
		{from(damagedSegment), "0000000004/"},
		{from(damagedImage), "0000000001/image-"},
		{from(cut), "0000000004/"},
		{from(sealed), "the copy in " + sealed.dir + " is encrypted; --identity names the file with its key"},
		{from(sealed, "--identity", other), "the copy in " + sealed.dir + " is not encrypted for the key of --identity"},
		{from(c, "--min-revision", "9000000000000000000"), "the revision is too high for a store to go on from"},
	} {
		_, stderr, code := keelson(append([]string{"restore"}, e.args...)...)
		if code != 1 || !strings.HasPrefix(stderr, "keelson: "+e.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("keelson restore %s: exit code %d, %q; want %q", strings.Join(e.args, " "), code, stderr, e.want)
		}
	}
	if names := entries(t, to); !slices.Equal(names, []string{"lock"}) {
		t.Errorf("what is left is %q", names)
	}
	// A moment before what is missing or damaged can be restored.
	for _, c := range []*copiedStore{hole, damagedSegment, cut} {
		dir := filepath.Join(t.TempDir(), "data")
		mustRun(t, "restore", "--from", c.dir, "--data-dir", dir, "--at", strconv.FormatInt(moments[3].Revision, 10))
		if got := numbersOf(t, dir); got != "a1 b0 c0" {
			t.Errorf("before the hole: %s", got)
		}
	}
}

// restoreWith restores a copy with a file system.
func restoreWith(ctx context.Context, from, to string, fs vfs.FS) error {
	r := &copyRestore{place: copyPlace{url: from}, dataDir: to, out: io.Discard, errOut: io.Discard, fs: fs}
	return r.run(ctx)
}

// TestRestoreCopyOnAFullDisk lets the disk be full at several moments of a restore.
func TestRestoreCopyOnAFullDisk(t *testing.T) {
	c, _ := newSampleCopy(t)
	run := func(room int64) (used int64, to string, err error) {
		var written atomic.Int64
		to = filepath.Join(t.TempDir(), "data")
		err = restoreWith(t.Context(), c.dir, to, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate:
				// The changes after the image are left out: package copies tests those.
				if strings.Contains(op.Path, filepath.Join("copy", "store")) {
					return nil
				}
				if written.Add(1) > room {
					return syscall.ENOSPC
				}
			}
			return nil
		})))
		return written.Load(), to, err
	}
	all, _, err := run(1 << 40)
	if err != nil {
		t.Fatal(err)
	}
	for room := int64(0); room < all; room += max(all/4, 1) {
		_, to, err := run(room)
		if err == nil || !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "\n") {
			t.Errorf("with room for %d of %d writes: %v", room, all, err)
		}
		if names := entries(t, to); !slices.Equal(names, []string{"lock"}) {
			t.Errorf("with room for %d of %d writes %q is left", room, all, names)
		}
	}
}

// rottenFS is a disk that changes a byte of each table, but for those of the store from which a restore reads.
type rottenFS struct{ vfs.FS }

func (f rottenFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".sst") || strings.Contains(name, filepath.Join("copy", "store")) {
		return file, err
	}
	return &rottenFile{File: file}, nil
}

type rottenFile struct {
	vfs.File
	began bool
}

func (f *rottenFile) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	if !f.began && len(b) > 10 {
		f.began = true
		b[10] ^= 1
	}
	return f.File.Write(b)
}

// TestRestoreCopyReadsTheNewStore checks that a new store that cannot be read is not left.
func TestRestoreCopyReadsTheNewStore(t *testing.T) {
	c, _ := newSampleCopy(t)
	to := filepath.Join(t.TempDir(), "data")
	err := restoreWith(t.Context(), c.dir, to, rottenFS{vfs.Default})
	if err == nil || !strings.Contains(err.Error(), "wrong with the new store, so it was removed") {
		t.Errorf("%v", err)
	}
	if names := entries(t, to); !slices.Equal(names, []string{"lock"}) {
		t.Errorf("what is left is %q", names)
	}
}

// TestRestoreCopyIsEnded ends a restore at several moments, as ctrl-C does.
func TestRestoreCopyIsEnded(t *testing.T) {
	c, _ := newSampleCopy(t)
	run := func(until int64) (done int64, to string, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var operations atomic.Int64
		to = filepath.Join(t.TempDir(), "data")
		err = restoreWith(ctx, c.dir, to, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(errorfs.Op) error {
			if operations.Add(1) == until {
				cancel()
			}
			return nil
		})))
		return operations.Load(), to, err
	}
	all, _, err := run(0)
	if err != nil {
		t.Fatal(err)
	}
	for until := int64(1); until < all*9/10; until += max(all/7, 1) {
		_, to, err := run(until)
		if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("after %d of %d operations: %v", until, all, err)
		}
		if names := entries(t, to); !slices.Equal(names, []string{"lock"}) {
			t.Errorf("after %d of %d operations %q is left", until, all, names)
		}
	}
}

// TestRestoreCopyAfterAKill restores to a directory in which a restore was killed.
func TestRestoreCopyAfterAKill(t *testing.T) {
	c, _ := newSampleCopy(t)
	to := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(to, restoringName, "copy", "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, restoringName, "copy", "store", "CURRENT"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "restore", "--from", c.dir, "--data-dir", to)
	if names := entries(t, to); !slices.Equal(names, []string{"copy.json", "lock", "pki", "store"}) {
		t.Errorf("the data directory has %q", names)
	}
	if got := numbersOf(t, to); got != "a1 c4 d2" {
		t.Error(got)
	}
}

// TestRestoreCopyFiles checks that a file of an image that is not for the data directory is refused, and that the others are removed.
func TestRestoreCopyFiles(t *testing.T) {
	c := newCopiedStore(t)
	c.files = map[string][]byte{"pki/ca.key": []byte("key"), "../outside": []byte("x")}
	c.put("a", 1)
	c.copy()
	to := filepath.Join(t.TempDir(), "data")
	_, stderr, code := keelson("restore", "--from", c.dir, "--data-dir", to)
	if code != 1 || !strings.Contains(stderr, `a file that is not for the data directory: "../outside"`) {
		t.Errorf("%d %s", code, stderr)
	}
	if names := entries(t, to); !slices.Equal(names, []string{"lock"}) {
		t.Errorf("what is left is %q", names)
	}
}

// TestBackupOfAKilledServer kills a server that keeps a copy, restores the copy elsewhere, and serves it: all objects that were copied are
// there, with higher resourceVersions. The killed server goes on with its copy, and so does a restored one after it.
func TestBackupOfAKilledServer(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	const path = "/api/v1/namespaces/default/configmaps"
	serve := func(data string, args ...string) (*process, string) {
		return run(t, append([]string{"serve", "--data-dir", in(data), "--secure-port", "0"}, args...)...), filepath.Join(in(data), "kubeconfig")
	}
	create := func(kubeconfig, name string) (version int64) {
		status, body := post(t, kubeconfig, path, `{"metadata":{"name":"`+name+`"},"data":{"k":"v"}}`)
		if status != http.StatusCreated {
			t.Fatal(status, body)
		}
		return versionOf(t, body)
	}
	restored := func(to string) map[string]embedded.Record {
		mustRun(t, "backup", "verify", "--from", in("copy"))
		mustRun(t, "restore", "--from", in("copy"), "--data-dir", in(to))
		mustRun(t, "check", "--data-dir", in(to))
		return recordsOf(t, in(to))
	}
	toCopy := []string{"--backup-to", in("copy"), "--backup-interval", "100ms"}

	p, kubeconfig := serve("data", toCopy...)
	last := int64(0)
	for i := range 20 {
		last = create(kubeconfig, fmt.Sprintf("c%02d", i))
	}
	wait.Seen(t, "the last object in the copy", func() (bool, string) {
		var l copyList
		out, stderr, code := keelson("backup", "list", "--from", in("copy"), "-o", "json")
		if code != 0 || json.Unmarshal([]byte(out), &l) != nil || len(l.Lines) == 0 || len(l.Lines[0].Spans) == 0 {
			return false, out + stderr
		}
		return l.Lines[0].Spans[0].LastRevision >= last, out
	})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
	restored("elsewhere")
	p, kubeconfig = serve("elsewhere")
	for i := range 20 {
		name := fmt.Sprintf("c%02d", i)
		status, body := get(t, kubeconfig, path+"/"+name)
		if status != http.StatusOK || !strings.Contains(body, `"k":"v"`) || versionOf(t, body) <= last+1_000_000_000 {
			t.Errorf("%s, whose resourceVersion was at most %d: %d %s", name, last, status, body)
		}
	}
	p.stop(t)

	p, kubeconfig = serve("data", toCopy...)
	create(kubeconfig, "again")
	p.stop(t)
	if restored("second")["/registry/configmaps/default/again"].Value == nil {
		t.Error("after the restart of the killed server, the copy lacks what it has written")
	}
	p, kubeconfig = serve("second", toCopy...)
	create(kubeconfig, "later")
	p.stop(t)
	if restored("third")["/registry/configmaps/default/later"].Value == nil {
		t.Error("the copy lacks what the restored server has written")
	}
	if out := mustRun(t, "backup", "list", "--from", in("copy")); strings.Count(out, "\n") != 3 {
		t.Errorf("the copy does not have a line of history for each of the two servers:\n%s", out)
	}
}

// versionOf returns the resourceVersion of an object.
func versionOf(t *testing.T, body string) int64 {
	t.Helper()
	version, err := strconv.ParseInt(objectVersion(t, body), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
