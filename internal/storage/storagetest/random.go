package storagetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// model is a simple store to compare with: it keeps all events and examines all of them for each answer.
type model struct {
	revision  int64
	compacted int64
	events    []storage.Event
}

// at returns the entries of all keys at revision.
func (m *model) at(revision int64) map[string]storage.Entry {
	state := map[string]storage.Entry{}
	for _, e := range m.events {
		if e.Entry.ModRevision > revision {
			break
		}
		if e.Deleted {
			delete(state, e.Entry.Key)
		} else {
			state[e.Entry.Key] = e.Entry
		}
	}
	return state
}

func (m *model) readError(revision int64) error {
	switch {
	case revision > m.revision:
		return &storage.FutureRevisionError{Revision: revision, Current: m.revision}
	case revision != 0 && revision < m.compacted:
		return &storage.CompactedError{Revision: revision, Compacted: m.compacted}
	}
	return nil
}

func (m *model) rangeKeys(r storage.RangeRequest) (storage.RangeResult, error) {
	if err := m.readError(r.Revision); err != nil {
		return storage.RangeResult{}, err
	}
	result := storage.RangeResult{Revision: cmp.Or(r.Revision, m.revision)}
	var entries []storage.Entry
	for key, e := range m.at(result.Revision) {
		if key >= r.Start && (r.End == "" || key < r.End) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b storage.Entry) int { return cmp.Compare(a.Key, b.Key) })
	result.Count = int64(len(entries))
	if r.CountOnly {
		return result, nil
	}
	if r.Limit > 0 && len(entries) > r.Limit {
		entries, result.More = entries[:r.Limit], true
	}
	result.Entries = entries
	return result, nil
}

func (m *model) commit(txn storage.Txn) (int64, error) {
	state := m.at(m.revision)
	for _, c := range txn.Conditions {
		if state[c.Key].ModRevision != c.ModRevision {
			return 0, &storage.ConflictError{Condition: c, Current: state[c.Key], Revision: m.revision}
		}
	}
	changed := false
	for _, op := range txn.Ops {
		prev := state[op.Key]
		if op.Delete && prev.ModRevision == 0 {
			continue
		}
		changed = true
		e := storage.Event{Prev: prev, Deleted: op.Delete, Entry: storage.Entry{Key: op.Key, ModRevision: m.revision + 1}}
		if !op.Delete {
			e.Entry.Value = op.Value
			e.Entry.CreateRevision = cmp.Or(prev.CreateRevision, m.revision+1)
		}
		m.events = append(m.events, e)
	}
	if changed {
		m.revision++
	}
	return m.revision, nil
}

// random runs random operations on the store and on the model, and compares every answer. Watchers that are started
// meanwhile must deliver the events that the model has recorded.
func (su *suite) random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := su.env(t)
	d := &randomTest{
		env:    k,
		rng:    rand.New(rand.NewPCG(seed, 0)),
		model:  &model{revision: k.revision(), compacted: 0},
		reopen: su.reopen,
	}
	for d.step = range randomSteps {
		d.randomStep()
		if t.Failed() {
			t.Fatalf("at step %d of seed %d", d.step, seed)
		}
	}
	for _, w := range slices.Clone(d.watches) {
		d.follow(w)
	}
}

// randomTest is the state of a random test.
type randomTest struct {
	*env
	rng     *rand.Rand
	model   *model
	watches []*modelWatch
	reopen  func(t *testing.T, s storage.Store) storage.Store
	step    int
	// compactedBefore is the compaction revision when the store was opened again.
	compactedBefore int64
}

// modelWatch is a watcher and the position up to which it was read.
type modelWatch struct {
	w      storage.Watcher
	prefix string
	from   int64 // the next expected revision
}

func (rt *randomTest) randomStep() {
	switch n := rt.rng.IntN(100); {
	case n < 50:
		rt.commit()
	case n < 62:
		rt.rangeAt()
	case n < 75:
		rt.getAt()
	case n < 80:
		rt.startWatch()
	case n < 92 && len(rt.watches) > 0:
		rt.follow(rt.watches[rt.rng.IntN(len(rt.watches))])
	case n < 94:
		rt.compact()
	case n < 95 && rt.reopen != nil && rt.rng.IntN(8) == 0:
		rt.s = rt.reopen(rt.t, rt.s)
		rt.watches, rt.compactedBefore = nil, rt.model.compacted
		if r := rt.revision(); r != rt.model.revision {
			rt.t.Errorf("reopened at revision %d, model at %d", r, rt.model.revision)
		}
	default:
		rt.commit()
	}
}

var randomKeys = []string{"/a/1", "/a/2", "/a/3", "/a/11", "/a", "/b/1", "/b/2", "/b/1/x", "/c", "/a/1\x01", "/a/1\xff"}

func (rt *randomTest) key() string { return randomKeys[rt.rng.IntN(len(randomKeys))] }

func (rt *randomTest) randomRevision() int64 {
	switch rt.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return rt.model.revision + 1 + rt.rng.Int64N(3)
	case 2:
		return rt.rng.Int64N(rt.model.revision) + 1
	}
	return max(rt.model.revision-rt.rng.Int64N(50), 1)
}

func (rt *randomTest) commit() {
	var txn storage.Txn
	for range rt.rng.IntN(3) {
		c := storage.Condition{Key: rt.key()}
		if rt.rng.IntN(10) > 0 { // the condition usually holds
			c.ModRevision = rt.model.at(rt.model.revision)[c.Key].ModRevision
		}
		txn.Conditions = append(txn.Conditions, c)
	}
	for _, i := range rt.rng.Perm(len(randomKeys))[:rt.rng.IntN(4)] {
		op := storage.Put(randomKeys[i], fmt.Appendf(nil, "step %d", rt.step))
		if rt.rng.IntN(3) == 0 {
			op = storage.Delete(randomKeys[i])
		} else if rt.rng.IntN(4) == 0 {
			op.TTL = 100_000
		}
		txn.Ops = append(txn.Ops, op)
	}
	want, wantErr := rt.model.commit(txn)
	got, err := rt.s.Commit(rt.ctx, txn)
	rt.compare(fmt.Sprintf("Commit(%+v)", txn), got, err, want, wantErr)
}

func (rt *randomTest) getAt() {
	key, revision := rt.key(), rt.randomRevision()
	got, at, err := rt.s.Get(rt.ctx, key, revision)
	wantErr := rt.model.readError(revision)
	wantAt := int64(0)
	var want storage.Entry
	if wantErr == nil {
		wantAt = cmp.Or(revision, rt.model.revision)
		want = rt.model.at(wantAt)[key]
	}
	rt.compare(
		fmt.Sprintf("Get(%q, %d)", key, revision), []any{formatEntry(got), at}, err, []any{formatEntry(want), wantAt},
		wantErr,
	)
}

func (rt *randomTest) rangeAt() {
	r := storage.RangeRequest{Revision: rt.randomRevision(), Limit: rt.rng.IntN(5), CountOnly: rt.rng.IntN(5) == 0}
	if rt.rng.IntN(2) == 0 {
		r.Start = rt.key()
		r.End = storage.PrefixEnd(r.Start)
	} else if rt.rng.IntN(2) == 0 {
		r.Start = rt.key() + "\x00"
	}
	want, wantErr := rt.model.rangeKeys(r)
	got, err := rt.s.Range(rt.ctx, r)
	rt.compare(fmt.Sprintf("Range(%+v)", r), formatResult(got), err, formatResult(want), wantErr)
}

func (rt *randomTest) compact() {
	revision := rt.randomRevision()
	err := rt.s.Compact(rt.ctx, revision)
	var wantErr error
	if revision > rt.model.revision {
		wantErr = &storage.FutureRevisionError{Revision: revision, Current: rt.model.revision}
	} else {
		rt.model.compacted = max(rt.model.compacted, revision)
	}
	rt.compare(fmt.Sprintf("Compact(%d)", revision), nil, err, nil, wantErr)
}

func (rt *randomTest) startWatch() {
	f := &modelWatch{prefix: []string{"", "/a", "/a/", "/a/1", "/b/", "/none"}[rt.rng.IntN(6)], from: rt.randomRevision()}
	w, err := rt.s.Watch(rt.ctx, f.prefix, f.from)
	if f.from != 0 && f.from <= rt.model.compacted {
		var compacted *storage.CompactedError
		if err == nil {
			// A store that was opened after the compaction may learn of it only when the first batch is read.
			_, err = w.Next(rt.ctx)
			w.Close()
			if err == nil && f.from == rt.compactedBefore {
				return // etcd itself allows a watch from the compaction revision
			}
		}
		if !errors.As(err, &compacted) {
			rt.t.Errorf("Watch from %d, compacted %d: %v", f.from, rt.model.compacted, err)
		}
		return
	}
	if err != nil {
		rt.t.Errorf("Watch from %d: %v", f.from, err)
		return
	}
	f.w = w
	if f.from == 0 {
		f.from = rt.model.revision + 1
	}
	rt.t.Cleanup(func() { w.Close() })
	rt.watches = append(rt.watches, f)
}

// follow reads a watcher up to the current revision, and compares its events with the model's.
func (rt *randomTest) follow(f *modelWatch) {
	for f.from <= rt.model.revision {
		rt.revision() // makes the store send progress
		b, err := f.w.Next(rt.ctx)
		var compacted *storage.CompactedError
		if errors.As(err, &compacted) && f.from <= rt.model.compacted {
			rt.watches = slices.DeleteFunc(rt.watches, func(o *modelWatch) bool { return o == f })
			return
		}
		if err != nil {
			rt.t.Errorf("Next from %d: %v", f.from, err)
			return
		}
		var want []storage.Event
		for _, e := range matchingEvents(rt.model.events, f.prefix) {
			if e.Entry.ModRevision >= f.from && e.Entry.ModRevision <= b.Revision {
				want = append(want, e)
			}
		}
		if got, want := formatEvents(b.Events), formatEvents(want); got != want {
			rt.t.Errorf("watch of %q from %d to %d:\n got %s\nwant %s", f.prefix, f.from, b.Revision, got, want)
		}
		f.from = b.Revision + 1
	}
}

// compare compares a result and its error with the model's.
func (rt *randomTest) compare(what string, got any, err error, want any, wantErr error) {
	rt.t.Helper()
	if formatError(err) != formatError(wantErr) || err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		rt.t.Errorf("%s:\n got %v, %s\nwant %v, %s", what, got, formatError(err), want, formatError(wantErr))
	}
}

func formatEntry(e storage.Entry) string {
	if e.ModRevision == 0 {
		return "none"
	}
	return fmt.Sprintf("%q=%q@%d/%d", e.Key, e.Value, e.ModRevision, e.CreateRevision)
}

func formatResult(r storage.RangeResult) string {
	s := fmt.Sprintf("count %d more %v at %d:", r.Count, r.More, r.Revision)
	for _, e := range r.Entries {
		s += " " + formatEntry(e)
	}
	return s
}

func formatEvents(events []storage.Event) string {
	s := ""
	for _, e := range events {
		s += fmt.Sprintf(
			" %q=%q@%d deleted %v before %s;", e.Entry.Key, e.Entry.Value, e.Entry.ModRevision, e.Deleted, formatEntry(e.Prev),
		)
	}
	return s
}

func formatError(err error) string {
	var conflict *storage.ConflictError
	var compacted *storage.CompactedError
	var future *storage.FutureRevisionError
	switch {
	case err == nil:
		return "no error"
	case errors.As(err, &conflict):
		return fmt.Sprintf(
			"conflict over %+v with %s at %d", conflict.Condition, formatEntry(conflict.Current), conflict.Revision,
		)
	case errors.As(err, &compacted):
		return fmt.Sprintf("compacted %d %d", compacted.Revision, compacted.Compacted)
	case errors.As(err, &future):
		return fmt.Sprintf("future %d %d", future.Revision, future.Current)
	}
	return err.Error()
}
