package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

// TestTransactions watches a store whose transactions change several keys. The watchers start at any revision, and the
// ring of recent changes is too small for them. The end of a batch counts as a bookmark: a batch must not end between
// two events of one revision.
func TestTransactions(t *testing.T) {
	const writers, each = 4, 400
	rng := rig.Seeded(t)
	s, err := embedded.Open(options(embedded.Options{InMemory: true, RingBytes: 4 << 10}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // for the whole test
	defer cancel()
	var writing, watching sync.WaitGroup
	var mu sync.Mutex // guards watches and errs
	var watches []history.Watch
	var errs []error
	last := make(chan struct{}) // closed when everything is written
	follow := func(name, namespace string, from int64) {
		w, err := watchStore(ctx, s, name, namespace, from, last)
		mu.Lock()
		defer mu.Unlock()
		watches = append(watches, w)
		errs = append(errs, err)
	}
	watching.Go(func() { follow("all", "", 1) })
	for i := range writers {
		seed := rng.Uint64()
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			for n := range each {
				var txn storage.Txn
				for _, k := range rng.Perm(6)[:1+rng.IntN(4)] {
					op := storage.Put(fmt.Sprintf("%c/%d", 'a'+k%2, k), fmt.Appendf(nil, "%d-%d-%d", i, n, k))
					if rng.IntN(4) == 0 {
						op = storage.Delete(op.Key)
					}
					txn.Ops = append(txn.Ops, op)
				}
				r, err := s.Commit(ctx, txn)
				if err != nil {
					t.Errorf("Commit: %v", err)
					return
				}
				if n%40 == 0 {
					from := 1 + rng.Int64N(r)
					namespace := []string{"", "a", "b"}[rng.IntN(3)]
					watching.Go(func() { follow(fmt.Sprintf("watch %d of %d", n, i), namespace, from) })
				}
			}
		})
	}
	writing.Wait()
	close(last)
	// A watch that had received everything before last was closed waits for another event. So the last transaction
	// changes every namespace.
	end := storage.Txn{Ops: []storage.Op{storage.Put("a/0", []byte("end")), storage.Put("b/1", []byte("end"))}}
	if _, err := s.Commit(ctx, end); err != nil {
		t.Fatal(err)
	}
	watching.Wait()
	l := history.NewLog(1, nil)
	for _, w := range watches {
		if w.Name == "all" {
			if err := l.AppendWatch(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, w := range watches {
		if errs[i] != nil {
			t.Errorf("%s: %v", w.Name, errs[i])
		} else if err := history.CheckWatch(w, l); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d changes in %d revisions, %d watches", len(l.Changes()), l.To()-1, len(watches))
}

// watchStore reads the events of a namespace after a revision until it has all that exist when last is closed. Another
// change of the namespace must follow.
func watchStore(
	ctx context.Context, s storage.Store, name, namespace string, from int64, last <-chan struct{},
) (history.Watch, error) {
	out := history.Watch{Name: name, Selector: history.Selector{Namespace: namespace}, From: from}
	prefix := namespace
	if prefix != "" {
		prefix += "/"
	}
	w, err := s.Watch(ctx, prefix, from+1)
	if err != nil {
		return out, err
	}
	defer w.Close()
	for {
		select {
		case <-last:
			current, err := s.Revision(ctx)
			if err != nil || out.Through >= current || from >= current {
				return out, err
			}
		default:
		}
		b, err := w.Next(ctx)
		if err != nil {
			return out, err
		}
		for _, e := range b.Events {
			out.Events = append(out.Events, eventOf(e))
		}
		out.Events = append(out.Events, history.Event{Type: history.Bookmark, State: history.State{Revision: b.Revision}})
		out.Through = b.Revision
	}
}

func eventOf(e storage.Event) history.Event {
	prev := stateOf(e.Prev)
	out := history.Event{Type: history.Modified, Key: strings.Clone(e.Entry.Key), State: stateOf(e.Entry), Prev: &prev}
	switch {
	case e.Deleted:
		out.Type = history.Deleted
		out.State = prev
		out.State.Revision = e.Entry.ModRevision
	case !prev.Exists():
		out.Type = history.Added
	}
	return out
}

func stateOf(e storage.Entry) history.State {
	return history.State{Revision: e.ModRevision, Value: string(e.Value)}
}
