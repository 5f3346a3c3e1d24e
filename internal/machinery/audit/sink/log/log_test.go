package log

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
)

func TestFormats(t *testing.T) {
	e := &audit.Event{AuditID: "id"}
	for format, want := range map[string]string{
		FormatJSON:   string(audit.AppendEvent(nil, e)) + "\n",
		FormatLegacy: audit.Line(e) + "\n",
	} {
		var out strings.Builder
		if !New(&out, format, nil).Write(t.Context(), []*audit.Event{e, e}) || out.String() != want+want {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestFailuresAreReported(t *testing.T) {
	lost := 0
	l := New(broken{}, FormatJSON, func(part string, err error, events []*audit.Event) {
		if part == "log" && err.Error() == "no space left" {
			lost += len(events)
		}
	})
	if l.Write(t.Context(), []*audit.Event{{}, {}}) || lost != 2 {
		t.Errorf("%d", lost)
	}
}

// clock is a clock whose time the tests set.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func open(t *testing.T, o FileOptions) *File {
	t.Helper()
	o.OnError = func(err error) { t.Error(err) }
	f, err := OpenFile(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func write(t *testing.T, f *File, b []byte) {
	t.Helper()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	f.cleanUps.Wait()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRotation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f := open(t, FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 1, MaxBackups: 2, Now: c.Now})
	if info, err := os.Stat(filepath.Join(dir, "audit.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	half := make([]byte, megabyte/2)
	for range 7 { // two of them fill a file
		write(t, f, half)
		c.now = c.now.Add(time.Second)
	}
	want := []string{"audit-2026-01-02T03-04-09.000.log", "audit-2026-01-02T03-04-11.000.log", "audit.log"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if _, err := f.Write(make([]byte, megabyte+1)); err == nil ||
		err.Error() != "write length 1048577 exceeds maximum file size 1048576" {
		t.Errorf("%v", err)
	}
}

func TestWithoutASizeTheFileGrows(t *testing.T) {
	dir := t.TempDir()
	f := open(t, FileOptions{Path: filepath.Join(dir, "audit.log")})
	write(t, f, make([]byte, 2*megabyte))
	write(t, f, make([]byte, 2*megabyte))
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestAnExistingFileIsContinued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for range 2 {
		f := open(t, FileOptions{Path: path, MaxSize: 1})
		write(t, f, []byte("x\n"))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "x\nx\n" {
		t.Errorf("%q %v", got, err)
	}
}

func TestOldFilesAreCompressedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	c := &clock{time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)}
	for _, name := range []string{"audit-2026-01-01T00-00-00.000.log", "audit-2026-01-02T00-00-00.000.log.gz",
		"audit-other.log", "another.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 1, MaxAge: 3, Compress: true, Now: c.Now})
	body := []byte(strings.Repeat("y", megabyte))
	write(t, f, body)
	write(t, f, []byte("z"))
	want := []string{"another.log", "audit-2026-01-10T00-00-00.000.log.gz", "audit-other.log", "audit.log"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	in, err := os.Open(filepath.Join(dir, want[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != string(body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestNothingIsLostInOneMillisecond rotates often while the clock stands still.
func TestNothingIsLostInOneMillisecond(t *testing.T) {
	dir := t.TempDir()
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f := open(t, FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 1, Now: c.Now})
	const writes = 20
	body := make([]byte, megabyte*6/10) // a file has room for only one
	for range writes {
		write(t, f, body)
	}
	if got := names(t, dir); len(got) != writes {
		t.Errorf("%d of %d writes are left: %v", len(got), writes, got)
	}
}

// TestCloseWaitsForCompression checks that after Close no file exists both with and without compression.
func TestCloseWaitsForCompression(t *testing.T) {
	dir := t.TempDir()
	f := open(t, FileOptions{Path: filepath.Join(dir, "audit.log"), MaxSize: 9, Compress: true})
	body := []byte(strings.Repeat("hello world ", megabyte*8/12))
	for range 2 {
		if _, err := f.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := names(t, dir)
	if len(got) != 2 || !strings.HasSuffix(got[0], ".log.gz") || got[1] != "audit.log" {
		t.Errorf("%v", got)
	}
}
