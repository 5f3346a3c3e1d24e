package embedded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestPurge: afterwards no file contains overwritten or deleted values, neither a table nor a log file. It makes
// no difference whether they were still in memory when the store was closed, or in tables of several levels.
// Present values stay.
func TestPurge(t *testing.T) {
	for _, more := range []int{0, 200} { // number of values of 100 KB in between, which cause tables to be written
		t.Run(fmt.Sprint(more, " more"), func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Dir: dir, Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: time.Hour}}}}
			s := mustOpen(t, o)
			rng := rand.New(rand.NewPCG(1, 2))
			random := func(size int) []byte {
				b := make([]byte, size)
				for i := range b {
					b[i] = byte('0' + rng.IntN(64))
				}
				return b
			}
			gone, there := [][]byte{random(64), random(64)}, random(64)
			mustCommit(t, s, storage.Put("/registry/secrets/default/deleted", bytes.Clone(gone[0])))
			mustCommit(t, s, storage.Put("/registry/secrets/default/changed", bytes.Clone(gone[1])))
			for i := range more {
				mustCommit(t, s, storage.Put(fmt.Sprintf("/registry/secrets/default/%d", i%50), random(100_000)))
			}
			mustCommit(t, s, storage.Delete("/registry/secrets/default/deleted"))
			mustCommit(t, s, storage.Put("/registry/secrets/default/changed", bytes.Clone(there)))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a restart alone does not remove anything
				s = mustOpen(t, o)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range gone {
				if len(filesWith(t, dir, gone[i])) == 0 {
					t.Fatalf("value %d is in no file before the purge", i)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, DamagedName), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, DamagedName, "000007.sst"), gone[0], 0o600); err != nil {
				t.Fatal(err)
			}
			revision, err := Purge(t.Context(), Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			for i := range gone {
				if found := filesWith(t, dir, gone[i]); len(found) > 0 {
					t.Errorf("value %d is still in %v", i, found)
				}
			}
			s = mustOpen(t, o)
			defer s.Close()
			e, now, err := s.Get(t.Context(), "/registry/secrets/default/changed", 0)
			if err != nil || !bytes.Equal(e.Value, there) || now != revision {
				t.Errorf("%q at revision %d, not %d: %v", e.Value, now, revision, err)
			}
			r, err := s.Range(t.Context(), storage.RangeRequest{Start: "/", End: "0"})
			if err != nil || len(r.Entries) != 1+min(more, 50) {
				t.Errorf("%d entries, %v", len(r.Entries), err)
			}
			if list, _, err := s.Versions(t.Context(), storage.VersionsRequest{Key: "/registry/secrets/default/changed", Limit: 9}); err != nil || len(list) != 1 {
				t.Errorf("%d versions, %v", len(list), err)
			}
		})
	}
}

// filesWith returns the files below a directory that contain text.
func filesWith(t *testing.T, dir string, text []byte) (names []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, text) {
			names = append(names, filepath.Base(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}
