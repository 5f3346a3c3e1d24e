package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

// TestDamagedFiles changes a byte of each file of a store, truncates it, empties it and removes it. Opening and
// verifying the store must end. Every value that can be read must be the one that was written, and no acknowledged key
// may be missing without an error.
func TestDamagedFiles(t *testing.T) {
	const keys = 200
	value := func(i int) string { return fmt.Sprintf("%d-%s", i, compressibleBytes(300, int64(i))) }
	from := t.TempDir()
	s := mustOpen(t, Options{Dir: from, HistoryWindow: -1})
	for i := range keys {
		mustCommit(t, s, storage.Put(fmt.Sprintf("/%03d", i), []byte(value(i))))
		if i < keys/2 && i%20 == 10 { // the first half goes into several tables, the rest stays in the log
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	flip := func(b []byte, at int) []byte {
		if len(b) == 0 {
			return b
		}
		b[min(at, len(b)-1)] ^= 0x40
		return b
	}
	changes := []struct {
		what string
		do   func([]byte) []byte
	}{
		{"its first byte changed", func(b []byte) []byte { return flip(b, 0) }},
		{"a byte changed at a quarter", func(b []byte) []byte { return flip(b, len(b)/4) }},
		{"a byte changed in its middle", func(b []byte) []byte { return flip(b, len(b)/2) }},
		{"its last byte changed", func(b []byte) []byte { return flip(b, len(b)-1) }},
		{"its second half gone", func(b []byte) []byte { return b[:len(b)/2] }},
		{"nothing in it", func([]byte) []byte { return nil }},
		{"been removed", nil},
	}
	for i, f := range files {
		kind := strings.Trim(filepath.Ext(f.Name())+" "+strings.Trim(f.Name(), "0123456789"), ". ")
		for j, change := range changes {
			if (i+j)%effort.Rounds(1, 4) != 0 {
				continue
			}
			t.Run(kind+" has "+change.what, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
				name := filepath.Join(dir, f.Name())
				before, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if change.do == nil {
					err = os.Remove(name)
				} else {
					err = os.WriteFile(name, change.do(before), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				problems := verifyDir(dir)
				missing, unreadable, opened := readAllKeys(t, dir, keys, value)
				t.Logf("%s: opened: %v; %d unreadable; check: %.300q", f.Name(), opened, unreadable, problems)
				if missing > 0 {
					t.Errorf("%d keys are taken for missing", missing)
				}
				if opened != nil && len(problems) == 0 {
					t.Errorf("it does not open, and check says nothing: %v", opened)
				}
				if unreadable > 0 && len(problems) == 0 {
					t.Errorf("%d keys cannot be read, and check says nothing", unreadable)
				}
			})
		}
	}
}

// verifyDir returns the problems that Verify reports, or the error that prevents it.
func verifyDir(dir string) (problems []string) {
	r, err := OpenReader(testOptions(Options{Dir: dir}))
	if err != nil {
		return []string{err.Error()}
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = r.Verify(ctx, Checks{}, func(p Problem) { problems = append(problems, p.String()) })
	if err != nil {
		problems = append(problems, err.Error())
	}
	return problems
}

// readAllKeys opens the store and reads all keys. It returns how many of them are missing and how many reads failed.
func readAllKeys(t *testing.T, dir string, keys int, value func(int) string) (missing, unreadable int, opened error) {
	t.Helper()
	s, err := Open(testOptions(Options{Dir: dir, HistoryWindow: -1}))
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	for i := range keys {
		e, _, err := s.Get(t.Context(), fmt.Sprintf("/%03d", i), 0)
		switch {
		case err != nil:
			unreadable++
		case e.ModRevision == 0:
			missing++
		case string(e.Value) != value(i):
			t.Errorf("/%03d has another value", i)
		}
	}
	return missing, unreadable, nil
}
