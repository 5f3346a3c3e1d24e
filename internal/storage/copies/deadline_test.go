package copies

import (
	"log/slog"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestRestoreKeepsDeadlines restores an image that was made a while after the last change.
func TestRestoreKeepsDeadlines(t *testing.T) {
	f := newForge(t)
	f.commit(storage.Op{Key: "/a", Value: []byte("x"), TTL: 100})
	f.now = f.now.Add(50 * time.Second)
	f.image(1)
	deadline := func(e *embedded.Export, err error) (at int64) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for r, err := range e.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			at = r.Deadline
		}
		return at
	}
	want := deadline(f.store.Export(t.Context()))
	p, err := f.index().Plan(Target{})
	if err != nil {
		t.Fatal(err)
	}
	o := embedded.Options{Dir: t.TempDir(), ReserveBytes: -1, Logger: slog.New(slog.DiscardHandler)}
	if _, err := p.Restore(t.Context(), f.bucket, o, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := deadline(r.Export()); got != want {
		t.Errorf("the key ends %d ms after the moment at which it ended in the store", got-want)
	}
}
