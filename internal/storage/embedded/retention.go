package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// kept is the state of what is kept beyond the compaction revision (Options.Retention). Nothing is moved or
// copied: the versions, and the operations in the log that name them, just stay for longer. One pass over the log
// for each keeping time in the rules, and one for keys that are not kept at all, removes operations and their
// versions ("gives them up"). Each pass examines an operation once. The kept versions are exactly those that the
// log still names.
//
// Example: pods are kept for a day, Leases not at all. Revision 7 changes a Lease, revision 8 a pod. When the compaction
// revision passes them, the pass for 0 deletes the record of revision 7 and the version of the Lease that it replaced. A
// day later the pass for a day deletes the record of revision 8 and the version of the pod before.
//
// It is saved as JSON with each step of a pass.
type kept struct {
	// Rules are the rules of the retention. A last rule is added for the keys that have no other rule.
	Rules []keptRule
	// Window is the compaction revision.
	Window mark
	// Passed are the revisions up to which the passes have examined the log. The key is the keeping time of the
	// pass in milliseconds.
	Passed map[int64]mark
	// Cut is the revision up to which all kept history was given up because there was no space. Losses are the
	// keys and folders whose history was given up by shares.
	Cut    mark
	Losses []loss `json:",omitempty"`
	// Bytes is the size, before compression, of the kept history that the pass for 0 has examined.
	Bytes int64
}

// keptRule is a rule of the retention.
type keptRule struct {
	storage.Scope
	KeepMS int64 // how long versions of the keys are kept; 0 if they are not
	// Floor is the lowest revision at which the scope can be read because of earlier rules. It is 0 if these do
	// not limit the reads.
	Floor mark
}

// mark is a revision and the time at which it was written, in Unix milliseconds; the time is 0 if it is not known.
type mark struct{ Revision, MS int64 }

// later returns the mark of the higher revision.
func (m mark) later(o mark) mark {
	if o.Revision > m.Revision {
		return o
	}
	return m
}

// pass is a pass over the log records that it has not examined yet.
type pass struct {
	keepMS  int64 // gives up the keys with this keeping time
	cut     bool  // gives up all keys until Kept.Bytes is at most most
	most    int64
	through int64 // the last record
	before  int64 // the pass ends at records after this time, in Unix milliseconds; 0 means no limit
	now     int64 // present time by the wall clock, if before is set
	counts  bool  // adds the size of the records that stay to Kept.Bytes
	// victims has the keys that lose versions in a pass by shares (shares.go); nil in other passes. After a crash,
	// a pass by shares starts from the beginning.
	victims *victims
}

// gives reports whether the pass gives up an operation on a key. size is the number of bytes that the operation
// keeps.
func (p pass) gives(k *kept, key []byte, op logOp, size int64) bool {
	if p.victims != nil {
		return p.victims.gives(key, op, size)
	}
	return p.cut || k.keepMS(key) == p.keepMS
}

// passes returns the passes of a compaction up to revision, without the pass that gives up history because of its
// size.
func (c *compactor) passes(revision int64) []pass {
	k := &c.kept
	list := []pass{{through: revision, counts: true}}
	wall := c.db.opts.Clock().UnixMilli()
	now := c.keptClock.now(wall, c.clock.readUptime())
	for _, keep := range k.times() {
		list = append(list, pass{keepMS: keep, through: revision, before: max(now-keep, 1), now: wall})
	}
	return list
}

// times returns the keeping times of the rules, in milliseconds, without 0.
func (k *kept) times() (list []int64) {
	for _, r := range k.Rules {
		if r.KeepMS > 0 && !slices.Contains(list, r.KeepMS) {
			list = append(list, r.KeepMS)
		}
	}
	return list
}

// keepMS returns for how many milliseconds versions of a key are kept.
func (k *kept) keepMS(key []byte) int64 {
	if len(k.Rules) == 1 { // only the rule for keys without another rule
		return 0
	}
	if i := k.ruleOf(string(key)); i >= 0 {
		return k.Rules[i].KeepMS
	}
	return 0
}

// ruleOf returns the number of the rule of a key, -1 if there is none.
func (k *kept) ruleOf(key string) int {
	return slices.IndexFunc(k.Rules, func(r keptRule) bool { return r.Has(key) })
}

// passed returns the revision up to which a pass has examined the log.
func (k *kept) passed(p pass) mark {
	switch {
	case p.victims != nil:
		return p.victims.at
	case p.cut:
		return k.Cut
	}
	return k.Passed[p.keepMS].later(k.Cut)
}

// advance records that a pass has examined the log up to the mark to, and adds bytes to Bytes.
func (k *kept) advance(p pass, to mark, bytes int64) {
	k.Bytes = max(k.Bytes+bytes, 0)
	switch {
	case p.victims != nil:
		p.victims.at = to
		return
	case p.cut:
		k.Cut = to
		return
	}
	k.Passed[p.keepMS] = to
}

// floor returns the lowest revision at which the keys of rule i can be read. compacted is the compaction revision.
func (k *kept) floor(i int, compacted int64) mark {
	r, window := k.Rules[i], k.Window
	if window.Revision != compacted { // an older version of the program compacted
		window = mark{Revision: compacted}
	}
	if floor := r.Floor.later(k.Passed[r.KeepMS]).later(k.Cut); r.KeepMS > 0 && floor.Revision < compacted {
		return floor
	}
	return window
}

// adopt sets the rules to those of a retention. A keeping time that is not longer than window counts as 0. If the
// rules have changed, the floor of a new rule is the highest floor of the old rules that its keys may have had,
// and all records are examined again.
func (k *kept) adopt(rules []storage.RetentionRule, window time.Duration, compacted int64) {
	var list []keptRule
	for _, r := range rules {
		keep := r.Keep.Milliseconds()
		if r.Keep <= window {
			keep = 0
		}
		list = append(list, keptRule{Scope: r.Scope, KeepMS: keep})
	}
	list = append(list, keptRule{})
	if len(k.Rules) == 0 {
		k.Rules = []keptRule{{}} // nothing was kept
	}
	same := func(a, b keptRule) bool { return a.Scope == b.Scope && a.KeepMS == b.KeepMS }
	if slices.EqualFunc(list, k.Rules, same) && k.Passed != nil {
		return
	}
	for i := range list {
		covered := func(s storage.Scope) bool {
			return slices.ContainsFunc(list[:i], func(r keptRule) bool { return r.Covers(s) })
		}
		for j, before := range k.Rules {
			if !before.Overlaps(list[i].Scope) || covered(before.Scope) {
				continue
			}
			list[i].Floor = list[i].Floor.later(k.floor(j, compacted))
			if before.Covers(list[i].Scope) {
				break
			}
		}
	}
	k.Rules, k.Passed, k.Bytes = list, map[int64]mark{}, 0
}

// floors are the lowest revisions at which keys can be read.
type floors struct {
	rules  []keptRule // with the floors; the last one has all keys
	losses []loss
	kept   storage.Kept
}

// publishFloors computes the floors from kept and publishes them to readers. The caller holds mu, or is Open.
func (c *compactor) publishFloors() {
	k, compacted := &c.kept, c.compacted.Load()
	f := &floors{
		rules: slices.Clone(k.Rules), losses: slices.Clone(k.Losses),
		kept: storage.Kept{Bytes: k.Bytes, GivenUp: c.givenUp},
	}
	for i := range f.rules {
		f.rules[i].Floor = k.floor(i, compacted)
	}
	c.floors.Store(f)
}

func (f *floors) of(scope storage.Scope) mark {
	floor := f.ofRules(scope)
	for i := range f.losses {
		if l := &f.losses[i]; l.affectsScope(scope) {
			floor = floor.later(l.mark)
		}
	}
	return floor
}

func (f *floors) ofKey(scope storage.Scope, key string) mark {
	floor := f.ofRules(scope)
	for i := range f.losses {
		if l := &f.losses[i]; l.affectsKey(key) {
			floor = floor.later(l.mark)
		}
	}
	return floor
}

// ofRules returns the floor of a scope according to the rules, without the losses.
func (f *floors) ofRules(scope storage.Scope) (floor mark) {
	for _, r := range f.rules {
		if !r.Overlaps(scope) {
			continue
		}
		floor = floor.later(r.Floor)
		if r.Covers(scope) {
			break
		}
	}
	return floor
}

func (k *kept) encode() []byte {
	b, err := json.Marshal(k)
	mustSucceed(err)
	return b
}

// decodeKept decodes a record that was made by encode. It fails with errCorrupt.
func decodeKept(b []byte) (k kept, err error) {
	if err := json.Unmarshal(b, &k); err != nil {
		return kept{}, fmt.Errorf("%w: %s: %v", errCorrupt, metaKept, err)
	}
	return k, nil
}

// loadKept reads the state that an earlier process has saved, and adopts the retention in the options.
func (c *compactor) loadKept() error {
	var err error
	if c.kept, err = c.db.kept(); err != nil {
		return err
	}
	c.limit = c.db.opts.keptBytes()
	c.kept.adopt(c.db.opts.Retention.Rules, c.db.opts.HistoryWindow, c.compacted.Load())
	c.publishFloors()
	return nil
}

// keptBytes returns Retention.Bytes or its default; a negative number means no limit.
func (o *Options) keptBytes() int64 {
	const most, mostInMemory = 1 << 30, 64 << 20
	switch {
	case o.Retention.Bytes != 0:
		return o.Retention.Bytes
	case o.InMemory:
		return mostInMemory
	}
	if usage, err := o.FS.GetDiskUsage(o.Dir); err == nil {
		return min(most, int64(usage.TotalBytes/10))
	}
	return most
}

// rawLimit returns the largest size, before compression, of the kept history in bytes; 0 if it is not limited. bytes is its present size.
func (c *compactor) rawLimit(bytes int64) int64 {
	most := c.limit
	if most <= 0 || bytes <= most {
		return max(most, 0)
	}
	// The tables are only examined if the size without compression exceeds the limit. Those of level 0 do not
	// count, because they are compressed only when they are merged.
	_, raw, compressed, err := c.db.tableBytes(1)
	if err != nil || compressed <= 0 {
		return most
	}
	return int64(float64(most) * max(raw/compressed, 1))
}

// giveUpKept gives up a quarter of the kept history, at least 4 MiB, because space is low. It does nothing as long
// as the space of history that was given up before is not free yet.
func (c *compactor) giveUpKept() {
	const atLeast = 4 << 20
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kept
	if k.Bytes == 0 || c.reclaimer.pending() >= reclaimMinBytesLow {
		return
	}
	most := max(k.Bytes-max(k.Bytes/4, atLeast), 0)
	c.db.opts.Logger.Warn("little space is left: history is given up", "dir", c.db.opts.Dir, "bytes", k.Bytes-most)
	if err := c.giveUp(context.Background(), most); err != nil {
		c.db.opts.Logger.Error("history could not be given up", "error", err)
	}
}

// keptBytes returns the approximate number of bytes that an operation in the log keeps: the previous version and
// the operation itself. keySize and bySize are the lengths of its key and its author.
func (op *logOp) keptBytes(keySize, bySize int) int64 {
	return op.prevSize + 2*int64(keySize) + int64(bySize) + 16
}
