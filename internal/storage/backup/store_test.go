package backup_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestRestoreStore checks that the new store has the same objects with the same remaining times to live, at revisions above those of the
// store and those that clients have seen otherwise, and the history if that is asked for.
func TestRestoreStore(t *testing.T) {
	fs := vfs.NewMem()
	s := newFilledStore(t, options(fs, "from"))
	want, last := records(t, s), revision(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	from, err := embedded.OpenReader(options(fs, "from"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for _, c := range []struct {
		name  string
		state backup.StoreState
		min   int64
		floor int64
	}{
		{"at once", backup.StoreState{Time: now}, 0, last + 1_000_000_000},
		{"an hour later", backup.StoreState{Time: now.Add(-time.Hour)}, 0, last + 1_000_000_000 + 3600*100_000},
		{"an earlier state", backup.StoreState{Time: now.Add(-time.Hour), Seen: 7_000_000}, 0, 7_000_000 + 1_000_000_000 + 3600*100_000},
		{"above a revision", backup.StoreState{Time: now}, 5_000_000_000, 5_000_000_000},
		{"with the history", backup.StoreState{Time: now, Past: true}, 0, last + 1_000_000_000},
	} {
		o := options(fs, "to")
		o.Retention = storage.Retention{Rules: []storage.RetentionRule{{Keep: time.Hour}}, Bytes: -1}
		done, err := backup.RestoreStore(t.Context(), from, c.state, o, backup.RestoreOptions{Now: now, MinRevision: c.min, By: []byte("me")})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if done.Entries != int64(len(want)) || done.From != last || (done.Past > 0) != c.state.Past || done.Revision != c.floor+int64(len(want)) {
			t.Errorf("%s: %+v; the floor is %d", c.name, done, c.floor)
		}
		to := open(t, o)
		got := records(t, to)
		if len(got) != len(want) || revision(t, to) != done.Revision {
			t.Fatalf("%s: %d entries, want %d", c.name, len(got), len(want))
		}
		for i, r := range got {
			deadline := want[i].Deadline
			if deadline != 0 {
				deadline += now.Sub(c.state.Time).Milliseconds()
			}
			if r.Key != want[i].Key || !bytes.Equal(r.Value, want[i].Value) || r.ModRevision <= c.floor || r.Deadline != deadline {
				t.Errorf("%s: %+v became %+v", c.name, want[i], r)
			}
		}
		e, err := to.GetAt(t.Context(), storage.Scope{}, want[0].Key, last)
		if past := err == nil && e.ModRevision == want[0].ModRevision; past != c.state.Past {
			t.Errorf("%s: the past is %+v, %v", c.name, e, err)
		}
		if err := errors.Join(to.Close(), fs.RemoveAll("to")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	state, ro := backup.StoreState{Time: now}, backup.RestoreOptions{Now: now}
	if _, err := backup.RestoreStore(ctx, from, state, options(fs, "never"), ro); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	state.Seen = 1<<62 + 1
	if _, err := backup.RestoreStore(t.Context(), from, state, options(fs, "high"), ro); err == nil {
		t.Error("a revision that is too high is accepted")
	}
}
