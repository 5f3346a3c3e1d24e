package backup_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

func content(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRetention checks which snapshots remain: the newest ones, and in any case the one that was written last.
// Other files remain too.
func TestRetention(t *testing.T) {
	d := &backup.Directory{Path: t.TempDir(), Keep: 2}
	const foreign = "keelson.snapshot"
	if err := os.WriteFile(filepath.Join(d.Path, foreign), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if newest, err := d.Newest(); err != nil || !newest.IsZero() {
		t.Errorf("the newest of none: %v, %v", newest, err)
	}
	at := time.Date(2030, 1, 31, 23, 59, 58, 0, time.UTC)
	save := func(created time.Time) string {
		t.Helper()
		name, size, err := d.Save(created, content("state"))
		if err != nil || size != 5 {
			t.Fatalf("%d bytes, %v", size, err)
		}
		if err := d.Prune(name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var written []string
	for i := range 4 {
		written = append(written, save(at.Add(time.Duration(i)*time.Second)))
	}
	if got, want := fileNames(t, d.Path), append(slices.Clone(written[2:]), foreign); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if newest, err := d.Newest(); err != nil || !newest.Equal(at.Add(3*time.Second)) {
		t.Errorf("the newest: %v, %v", newest, err)
	}
	if info, err := os.Stat(filepath.Join(d.Path, written[3])); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	past := save(at.Add(-time.Hour)) // the clock was set back
	if got, want := fileNames(t, d.Path), []string{past, written[3], foreign}; !slices.Equal(got, want) {
		t.Errorf("with a clock that was set back: %v, want %v", got, want)
	}
}

// TestFailedSave checks that a failed Save leaves no new file, and keeps all old files.
func TestFailedSave(t *testing.T) {
	cause := errors.New("cause")
	free := uint64(1 << 30)
	d := &backup.Directory{
		Path: t.TempDir(), Keep: 1, Reserve: 100 << 20, Free: func() (uint64, error) { return free, nil },
	}
	good, _, err := d.Save(time.Unix(1e9, 0), content("good"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		write func(io.Writer) error
		want  error
	}{
		"the store fails": {func(w io.Writer) error { return errors.Join(content("half")(w), cause) }, cause},
		"the disk is filled": {func(w io.Writer) error {
			for written := 0; ; written += 1 << 20 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					if written > 20<<20 {
						t.Errorf("%d bytes were written, and 20 MiB were above the reserve", written)
					}
					return err
				}
				free -= 1 << 20
			}
		}, backup.ErrNoSpace},
	} {
		free = 120 << 20
		if _, _, err := d.Save(time.Unix(2e9, 0), c.write); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := fileNames(t, d.Path); !slices.Equal(got, []string{good}) {
			t.Errorf("%s: there are %v", name, got)
		}
	}
	// The unfinished file of a killed process is overwritten.
	if err := os.WriteFile(filepath.Join(d.Path, "unfinished"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	free = 1 << 30
	name, _, err := d.Save(time.Unix(2e9, 0), content("new"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(d.Path, name)); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEncryptedSnapshot saves a snapshot that contains a password for two recipients. It reads the snapshot as
// each of them, and without an identity.
func TestEncryptedSnapshot(t *testing.T) {
	var d backup.Directory
	d.Path, d.Keep = t.TempDir(), 1
	var keys []age.Identity
	for range 2 {
		key, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys, d.Recipients = append(keys, key), append(d.Recipients, key.Recipient())
	}
	h := snapshot.Header{Revision: 7, Created: now, Files: map[string][]byte{"pki/ca.key": []byte("secret key")}}
	name, _, err := d.Save(now, func(w io.Writer) error {
		out, err := snapshot.NewWriter(w, h)
		if err != nil {
			return err
		}
		for _, key := range []string{"/registry/secrets/a", "/registry/secrets/b"} {
			value := bytes.Repeat([]byte("password "), 50_000) // larger than one encryption chunk of age
			if err := out.Write(snapshot.Entry{Key: key, Value: value, CreateRevision: 1, ModRevision: 1}); err != nil {
				return err
			}
		}
		_, err = out.Close()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path, name)
	stored, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(name, ".snapshot.age") || bytes.Contains(stored, []byte("secret key")) ||
		bytes.Contains(stored, []byte("password")) {
		t.Errorf("%s is not encrypted: %v", name, err)
	}
	for _, key := range keys {
		f, err := backup.OpenFile(path, []age.Identity{key})
		if err != nil {
			t.Fatal(err)
		}
		summary, err := backup.Verify(f, nil)
		if err != nil || summary.Entries != 2 || string(summary.Files["pki/ca.key"]) != "secret key" {
			t.Errorf("%+v, %v", summary, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := backup.OpenFile(path, nil); !errors.Is(err, backup.ErrEncrypted) {
		t.Errorf("without a key: %v", err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	var noMatch *age.NoIdentityMatchError
	if _, err := backup.OpenFile(path, []age.Identity{other}); !errors.As(err, &noMatch) {
		t.Errorf("with another key: %v", err)
	}
	stored[len(stored)/2] ^= 1
	if err := os.WriteFile(path, stored, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := backup.OpenFile(path, keys)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := backup.Verify(f, nil); err == nil {
		t.Error("a changed file is read")
	}
}

// TestPlantedFiles checks that files which other users have put into the directory are not written to, and do not
// count as snapshots.
func TestPlantedFiles(t *testing.T) {
	d := &backup.Directory{Path: t.TempDir(), Keep: 1}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(d.Path, "unfinished")); err != nil {
		t.Fatal(err)
	}
	planted := []string{"keelson-20990101T000000Z.snapshot", "keelson-20990102T000000Z.snapshot"}
	if err := os.Symlink(victim, filepath.Join(d.Path, planted[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, planted[1]), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if newest, err := d.Newest(); err != nil || !newest.IsZero() {
		t.Errorf("a planted file counts as a snapshot: %v, %v", newest, err)
	}
	name, _, err := d.Save(time.Unix(2e9, 0), func(w io.Writer) error {
		_, err := w.Write([]byte("content"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Prune(name); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "untouched" {
		t.Errorf("the target of a link has %q, %v", got, err)
	}
	info, err := os.Lstat(filepath.Join(d.Path, name))
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot is %v, %v", info, err)
	}
	for _, name := range planted {
		if _, err := os.Lstat(filepath.Join(d.Path, name)); err != nil {
			t.Errorf("another file was removed: %v", err)
		}
	}
}
