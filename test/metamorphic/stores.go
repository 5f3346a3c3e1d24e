package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// storeWorld is a store with the state that the test keeps about it.
type storeWorld struct {
	World
	store   storage.Store
	base    int64 // the revision of the store at the start
	watches []storage.Watcher
	through []int64 // the revision up to which each watch was read
}

// Stores runs random operations of storage.Store in all worlds. It returns a *Difference at the first result that is
// not the same in all worlds.
func Stores(t *testing.T, seed uint64, steps int, worlds ...World) error {
	t.Helper()
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(seed, 1))
	list := make([]*storeWorld, len(worlds))
	for i, w := range worlds {
		list[i] = &storeWorld{World: w, store: w.Open(t)}
		var err error
		if list[i].base, err = list[i].store.Revision(ctx); err != nil {
			t.Fatal(err)
		}
	}
	g := &generator{rng: rng, current: 0}
	for g.step = range steps {
		what, do := g.next()
		answers := make([]string, len(list))
		for i, w := range list {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			answers[i] = do(limited, t, w)
			cancel()
		}
		if err := compare(g.step, what, worlds, answers); err != nil {
			return err
		}
		if r, err := list[0].store.Revision(ctx); err == nil {
			g.current = r - list[0].base
		}
	}
	for _, w := range list {
		w.forget()
	}
	return nil
}

// generator generates random operations. Its revisions are counted from the first revision of the world.
type generator struct {
	rng       *rand.Rand
	step      int
	current   int64
	compacted int64
	watches   int
}

// root is the prefix of all keys, which a store with a key prefix of its own requires.
const root = "/registry/"

var storeKeys = []string{
	root + "a/1", root + "a/2", root + "a/3", root + "a/11", root + "a", root + "b/1", root + "b/2", root + "b/1/x",
	root + "c",
	root + "a/1\x01", root + "a/1\xff",
}

func (g *generator) key() string { return pick(g.rng, storeKeys...) }

// revision returns a revision for a request. latest means revision 0; other revisions can be read in most cases.
func (g *generator) revision() (relative int64, latest bool) {
	switch g.rng.IntN(10) {
	case 0, 1, 2:
		return 0, true
	case 3:
		return g.current + 1 + g.rng.Int64N(3), false
	case 4:
		return g.rng.Int64N(g.current + 1), false
	}
	return max(g.current-g.rng.Int64N(30), 0), false
}

func (w *storeWorld) absolute(relative int64, latest bool) int64 {
	if latest {
		return 0
	}
	return w.base + relative
}

func (g *generator) next() (string, func(context.Context, *testing.T, *storeWorld) string) {
	switch n := g.rng.IntN(100); {
	case n < 50:
		return g.commit()
	case n < 62:
		return g.get()
	case n < 74:
		return g.rangeAt()
	case n < 80:
		return g.watch()
	case n < 94 && g.watches > 0:
		return g.follow()
	case n < 96:
		return g.compact()
	case n < 97:
		g.watches = 0
		return "reopen", func(_ context.Context, t *testing.T, w *storeWorld) string {
			w.forget()
			if w.Reopen != nil {
				w.store = w.Reopen(t, w.store)
			}
			r, err := w.store.Revision(t.Context())
			return fmt.Sprintf("at %d, %s", r-w.base, w.plainError(err))
		}
	}
	return g.commit()
}

// commit makes a transaction. Its conditions refer to the revision that a key has; each world looks up its own.
func (g *generator) commit() (string, func(context.Context, *testing.T, *storeWorld) string) {
	type condition struct {
		key   string
		holds bool
	}
	var conditions []condition
	for range g.rng.IntN(3) {
		conditions = append(conditions, condition{g.key(), g.rng.IntN(10) > 0})
	}
	var ops []storage.Op
	for _, i := range g.rng.Perm(len(storeKeys))[:g.rng.IntN(4)] {
		op := storage.Put(storeKeys[i], fmt.Appendf(nil, "step %d", g.step))
		switch g.rng.IntN(9) {
		case 0, 1, 2:
			op = storage.Delete(storeKeys[i])
		case 3:
			op.TTL = 100_000
		case 4:
			op.Value = append(op.Value, make([]byte, 3000)...)
		}
		ops = append(ops, op)
	}
	return fmt.Sprintf(
			"commit %.500s if %v", fmt.Sprint(ops), conditions,
		), func(ctx context.Context, _ *testing.T, w *storeWorld) string {
			txn := storage.Txn{Ops: ops}
			for _, c := range conditions {
				e, _, err := w.store.Get(ctx, c.key, 0)
				if err != nil {
					return "looking up a condition: " + w.plainError(err)
				}
				if !c.holds {
					e.ModRevision = w.base + 1_000_000
				}
				txn.Conditions = append(txn.Conditions, storage.Condition{Key: c.key, ModRevision: e.ModRevision})
			}
			r, err := w.store.Commit(ctx, txn)
			if err != nil {
				return w.plainError(err)
			}
			return fmt.Sprintf("at %d", r-w.base)
		}
}

func (g *generator) get() (string, func(context.Context, *testing.T, *storeWorld) string) {
	key := g.key()
	r, latest := g.revision()
	return fmt.Sprintf("get %q at %d (latest %v)", key, r, latest), func(
		ctx context.Context, _ *testing.T, w *storeWorld,
	) string {
		e, at, err := w.store.Get(ctx, key, w.absolute(r, latest))
		if err != nil {
			return w.plainError(err)
		}
		return fmt.Sprintf("%s at %d", w.plain(e), at-w.base)
	}
}

func (g *generator) rangeAt() (string, func(context.Context, *testing.T, *storeWorld) string) {
	r := storage.RangeRequest{
		Start: root, End: storage.PrefixEnd(root), Limit: g.rng.IntN(5), CountOnly: g.rng.IntN(5) == 0,
	}
	switch g.rng.IntN(3) {
	case 0:
		r.Start = g.key()
		r.End = storage.PrefixEnd(r.Start)
	case 1:
		r.Start = g.key() + "\x00"
	}
	relative, latest := g.revision()
	return fmt.Sprintf(
			"range %+v at %d (latest %v)", r, relative, latest,
		), func(ctx context.Context, _ *testing.T, w *storeWorld) string {
			r := r
			r.Revision = w.absolute(relative, latest)
			result, err := w.store.Range(ctx, r)
			if err != nil {
				return w.plainError(err)
			}
			out := fmt.Sprintf("count %d more %v at %d:", result.Count, result.More, result.Revision-w.base)
			for _, e := range result.Entries {
				out += " " + w.plain(e)
			}
			return out
		}
}

func (g *generator) compact() (string, func(context.Context, *testing.T, *storeWorld) string) {
	r, _ := g.revision()
	if g.rng.IntN(2) == 0 {
		r = max(r-20, 0)
	}
	if r <= g.current {
		g.compacted = max(g.compacted, r)
	}
	return fmt.Sprintf("compact %d", r), func(ctx context.Context, _ *testing.T, w *storeWorld) string {
		return w.plainError(w.store.Compact(ctx, w.base+r))
	}
}

// watch starts a watch at a revision that is not compacted. The conformance suite of stores tests with which error,
// and when, a watch from a compacted revision fails.
func (g *generator) watch() (string, func(context.Context, *testing.T, *storeWorld) string) {
	prefix := root + pick(g.rng, "", "a", "a/", "a/1", "b/", "none")
	from := max(g.current-g.rng.Int64N(40), g.compacted) + 1
	g.watches++
	return fmt.Sprintf("watch %q from %d", prefix, from), func(ctx context.Context, t *testing.T, w *storeWorld) string {
		watcher, err := w.store.Watch(ctx, prefix, w.base+from)
		if err != nil {
			return w.plainError(err)
		}
		t.Cleanup(func() { watcher.Close() })
		w.watches = append(w.watches, watcher)
		w.through = append(w.through, from-1)
		return "watching"
	}
}

// follow reads a watch up to the current revision. The boundaries of batches may differ between stores.
func (g *generator) follow() (string, func(context.Context, *testing.T, *storeWorld) string) {
	i := g.rng.IntN(g.watches)
	current := g.current
	compacted := g.compacted
	return fmt.Sprintf("follow watch %d to %d", i, current), func(
		ctx context.Context, _ *testing.T, w *storeWorld,
	) string {
		if w.through[i] < compacted && w.through[i] < current {
			return "overtaken" // the store may report the compaction, or deliver the events that it had already read
		}
		out := ""
		for w.through[i] < current {
			if _, err := w.store.Revision(ctx); err != nil { // makes the store send a progress notification
				return w.plainError(err)
			}
			b, err := w.watches[i].Next(ctx)
			if err != nil {
				return out + w.plainError(err)
			}
			for _, e := range b.Events {
				out += fmt.Sprintf(" %s deleted %v before %s;", w.plain(e.Entry), e.Deleted, w.plain(e.Prev))
			}
			w.through[i] = b.Revision - w.base
		}
		return out
	}
}

func (w *storeWorld) forget() {
	for _, watcher := range w.watches {
		watcher.Close()
	}
	w.watches, w.through = nil, nil
}

func (w *storeWorld) plain(e storage.Entry) string {
	if e.ModRevision == 0 {
		return "none"
	}
	created := e.CreateRevision
	if created != 0 {
		created -= w.base
	}
	return fmt.Sprintf("%q=%d:%.20q@%d/%d", e.Key, len(e.Value), e.Value, e.ModRevision-w.base, created)
}

func (w *storeWorld) plainError(err error) string {
	var conflict *storage.ConflictError
	var compacted *storage.CompactedError
	var future *storage.FutureRevisionError
	switch {
	case err == nil:
		return "no error"
	case errors.As(err, &conflict):
		return fmt.Sprintf(
			"conflict over %q with %s at %d", conflict.Condition.Key, w.plain(conflict.Current), conflict.Revision-w.base,
		)
	case errors.As(err, &compacted):
		return fmt.Sprintf("%d is compacted to %d", compacted.Revision-w.base, compacted.Compacted-w.base)
	case errors.As(err, &future):
		return fmt.Sprintf("%d is beyond %d", future.Revision-w.base, future.Current-w.base)
	}
	return err.Error()
}
