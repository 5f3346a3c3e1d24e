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
func (c *suite) random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := c.env(t)
	d := &randomTest{
		env:    k,
		rng:    rand.New(rand.NewPCG(seed, 0)),
		model:  &model{revision: k.revision(), compacted: 0},
		reopen: c.reopen,
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

// modelWatch is a watcher and its position.
type modelWatch struct {
	w      storage.Watcher
	prefix string
	from   int64 // the next expected revision
}

func (d *randomTest) randomStep() {
	switch n := d.rng.IntN(100); {
	case n < 50:
		d.commit()
	case n < 62:
		d.rangeAt()
	case n < 75:
		d.getAt()
	case n < 80:
		d.startWatch()
	case n < 92 && len(d.watches) > 0:
		d.follow(d.watches[d.rng.IntN(len(d.watches))])
	case n < 94:
		d.compact()
	case n < 95 && d.reopen != nil && d.rng.IntN(8) == 0:
		d.s = d.reopen(d.t, d.s)
		d.watches, d.compactedBefore = nil, d.model.compacted
		if r := d.revision(); r != d.model.revision {
			d.t.Errorf("reopened at revision %d, model at %d", r, d.model.revision)
		}
	default:
		d.commit()
	}
}

var randomKeys = []string{"/a/1", "/a/2", "/a/3", "/a/11", "/a", "/b/1", "/b/2", "/b/1/x", "/c", "/a/1\x01", "/a/1\xff"}

func (d *randomTest) key() string { return randomKeys[d.rng.IntN(len(randomKeys))] }

func (d *randomTest) randomRevision() int64 {
	switch d.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return d.model.revision + 1 + d.rng.Int64N(3)
	case 2:
		return d.rng.Int64N(d.model.revision) + 1
	}
	return max(d.model.revision-d.rng.Int64N(50), 1)
}

func (d *randomTest) commit() {
	var txn storage.Txn
	for range d.rng.IntN(3) {
		c := storage.Condition{Key: d.key()}
		if d.rng.IntN(10) > 0 { // the condition usually holds
			c.ModRevision = d.model.at(d.model.revision)[c.Key].ModRevision
		}
		txn.Conditions = append(txn.Conditions, c)
	}
	for _, i := range d.rng.Perm(len(randomKeys))[:d.rng.IntN(4)] {
		op := storage.Put(randomKeys[i], fmt.Appendf(nil, "step %d", d.step))
		if d.rng.IntN(3) == 0 {
			op = storage.Delete(randomKeys[i])
		} else if d.rng.IntN(4) == 0 {
			op.TTL = 100_000
		}
		txn.Ops = append(txn.Ops, op)
	}
	want, wantErr := d.model.commit(txn)
	got, err := d.s.Commit(d.ctx, txn)
	d.compare(fmt.Sprintf("Commit(%+v)", txn), got, err, want, wantErr)
}

func (d *randomTest) getAt() {
	key, revision := d.key(), d.randomRevision()
	got, at, err := d.s.Get(d.ctx, key, revision)
	wantErr := d.model.readError(revision)
	wantAt := int64(0)
	var want storage.Entry
	if wantErr == nil {
		wantAt = cmp.Or(revision, d.model.revision)
		want = d.model.at(wantAt)[key]
	}
	d.compare(
		fmt.Sprintf("Get(%q, %d)", key, revision), []any{formatEntry(got), at}, err, []any{formatEntry(want), wantAt},
		wantErr,
	)
}

func (d *randomTest) rangeAt() {
	r := storage.RangeRequest{Revision: d.randomRevision(), Limit: d.rng.IntN(5), CountOnly: d.rng.IntN(5) == 0}
	if d.rng.IntN(2) == 0 {
		r.Start = d.key()
		r.End = storage.PrefixEnd(r.Start)
	} else if d.rng.IntN(2) == 0 {
		r.Start = d.key() + "\x00"
	}
	want, wantErr := d.model.rangeKeys(r)
	got, err := d.s.Range(d.ctx, r)
	d.compare(fmt.Sprintf("Range(%+v)", r), formatResult(got), err, formatResult(want), wantErr)
}

func (d *randomTest) compact() {
	revision := d.randomRevision()
	err := d.s.Compact(d.ctx, revision)
	var wantErr error
	if revision > d.model.revision {
		wantErr = &storage.FutureRevisionError{Revision: revision, Current: d.model.revision}
	} else {
		d.model.compacted = max(d.model.compacted, revision)
	}
	d.compare(fmt.Sprintf("Compact(%d)", revision), nil, err, nil, wantErr)
}

func (d *randomTest) startWatch() {
	f := &modelWatch{prefix: []string{"", "/a", "/a/", "/a/1", "/b/", "/none"}[d.rng.IntN(6)], from: d.randomRevision()}
	w, err := d.s.Watch(d.ctx, f.prefix, f.from)
	if f.from != 0 && f.from <= d.model.compacted {
		var compacted *storage.CompactedError
		if err == nil {
			// A store that was opened after the compaction may notice it only at its first answer.
			_, err = w.Next(d.ctx)
			w.Close()
			if err == nil && f.from == d.compactedBefore {
				return // etcd itself serves a watch from the compaction revision on
			}
		}
		if !errors.As(err, &compacted) {
			d.t.Errorf("Watch from %d, compacted %d: %v", f.from, d.model.compacted, err)
		}
		return
	}
	if err != nil {
		d.t.Errorf("Watch from %d: %v", f.from, err)
		return
	}
	f.w = w
	if f.from == 0 {
		f.from = d.model.revision + 1
	}
	d.t.Cleanup(func() { w.Close() })
	d.watches = append(d.watches, f)
}

// follow reads a watcher up to the current revision, and compares its events with the model's.
func (d *randomTest) follow(f *modelWatch) {
	for f.from <= d.model.revision {
		d.revision() // this requests progress
		b, err := f.w.Next(d.ctx)
		var compacted *storage.CompactedError
		if errors.As(err, &compacted) && f.from <= d.model.compacted {
			d.watches = slices.DeleteFunc(d.watches, func(o *modelWatch) bool { return o == f })
			return
		}
		if err != nil {
			d.t.Errorf("Next from %d: %v", f.from, err)
			return
		}
		var want []storage.Event
		for _, e := range matchingEvents(d.model.events, f.prefix) {
			if e.Entry.ModRevision >= f.from && e.Entry.ModRevision <= b.Revision {
				want = append(want, e)
			}
		}
		if got, want := formatEvents(b.Events), formatEvents(want); got != want {
			d.t.Errorf("watch of %q from %d to %d:\n got %s\nwant %s", f.prefix, f.from, b.Revision, got, want)
		}
		f.from = b.Revision + 1
	}
}

// compare compares a result and its error with the model's.
func (d *randomTest) compare(what string, got any, err error, want any, wantErr error) {
	d.t.Helper()
	if formatError(err) != formatError(wantErr) || err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("%s:\n got %v, %s\nwant %v, %s", what, got, formatError(err), want, formatError(wantErr))
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
