package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// newDamagedStore returns the directory of a store with 300 keys in one table. One byte of the table was changed.
func newDamagedStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir, HistoryWindow: -1})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		value := make([]byte, 1000)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		mustCommit(t, s, storage.Put(fmt.Sprintf("/%03d", i), value))
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	content, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 0x10
	if err := os.WriteFile(tables[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// recordingHandler is a log handler that records messages.
type recordingHandler struct {
	slog.Handler
	mu  sync.Mutex // guards all
	all []string
}

func (h *recordingHandler) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r.Message)
	return nil
}

func (h *recordingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *recordingHandler) count(part string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, m := range h.all {
		if strings.Contains(m, part) {
			n++
		}
	}
	return n
}

// TestReadsOfDamagedFile checks that reads and transactions that need a damaged block fail, that all others are served,
// and that no damaged key is reported as missing.
func TestReadsOfDamagedFile(t *testing.T) {
	log := &recordingHandler{}
	failed := make(chan error, 1)
	s, err := Open(Options{
		Dir: newDamagedStore(t), HistoryWindow: -1, Logger: slog.New(log),
		OnFailure: func(err error) { failed <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bad := checkDamagedReads(t, s, log)
	checkDamagedTransactions(t, s, bad[0])
	mustCommit(t, s, storage.Put("/000", []byte("changed")), storage.Delete("/001"), storage.Put("/new", nil))
	checkDamagedWatch(t, s)
	checkDamagedMerge(t, s, failed)
}

// checkDamagedReads checks reads of a store of newDamagedStore, and returns the keys that cannot be read.
func checkDamagedReads(t *testing.T, s *Store, log *recordingHandler) []string {
	t.Helper()
	ctx := t.Context()
	var bad []string
	for i := range 300 {
		key := fmt.Sprintf("/%03d", i)
		e, _, err := s.Get(ctx, key, 0)
		switch {
		case err != nil:
			bad = append(bad, key)
		case e.ModRevision == 0 || len(e.Value) != 1000:
			t.Errorf("%s is taken for %d bytes at revision %d", key, len(e.Value), e.ModRevision)
		}
	}
	if len(bad) == 0 || len(bad) > 30 {
		t.Fatalf("%d keys cannot be read", len(bad))
	}
	if n := s.Stats().DamagedFiles; n != 1 {
		t.Errorf("%d files are counted as damaged", n)
	}
	if n := log.count("damaged"); n != 1 {
		t.Errorf("the damage was logged %d times", n)
	}
	if r, err := s.Range(ctx, storage.RangeRequest{Start: "/", End: "0"}); err == nil {
		t.Errorf("a range over all has %d entries", len(r.Entries))
	}
	if r, err := s.Range(ctx, storage.RangeRequest{Start: "/000", End: "/010"}); err != nil || len(r.Entries) != 10 {
		t.Errorf("a range of others: %d entries, %v", len(r.Entries), err)
	}
	return bad
}

// checkDamagedTransactions checks that transactions that need the key bad fail, without stopping the store.
func checkDamagedTransactions(t *testing.T, s *Store, bad string) {
	t.Helper()
	for _, txn := range []storage.Txn{
		{Ops: []storage.Op{storage.Put(bad, nil)}},
		{Ops: []storage.Op{storage.Delete(bad)}},
		{Conditions: []storage.Condition{{Key: bad}}, Ops: []storage.Op{storage.Put(bad, nil)}},
	} {
		var conflict *storage.ConflictError
		if _, err := s.Commit(t.Context(), txn); err == nil || errors.As(err, &conflict) ||
			errors.Is(err, storage.ErrFailed) {
			t.Errorf("a transaction over what cannot be read: %v", err)
		}
	}
}

// checkDamagedWatch checks that a watch delivers all changes up to the damage and then fails.
func checkDamagedWatch(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := s.Watch(ctx, "/", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	seen := int64(1)
	for err == nil {
		var b storage.Batch
		if b, err = w.Next(ctx); err != nil {
			if ctx.Err() != nil {
				t.Fatalf("a watch at revision %d ends neither with the damage nor with an event", seen)
			}
			break
		}
		for _, e := range b.Events {
			if e.Entry.ModRevision != seen+1 && e.Entry.ModRevision != seen {
				t.Fatalf("a watch goes from revision %d to %d", seen, e.Entry.ModRevision)
			}
			seen = e.Entry.ModRevision
		}
		if b.Revision >= 302 {
			t.Fatal("a watch passes over what cannot be read")
		}
	}
}

// checkDamagedMerge checks that a merge of the damaged file fails, and that the store goes on.
func checkDamagedMerge(t *testing.T, s *Store, failed chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, false); err == nil || ctx.Err() != nil {
		t.Fatalf("the damaged file was to be merged within a minute, which fails: %v", err)
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	if _, err := s.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put("/000", nil)}}); err != nil {
		t.Errorf("a transaction afterwards: %v", err)
	}
}
