package copies

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
)

// lockName is the name of the object that says who may write to the copy.
const lockName = "lock"

// lockContent is the content of that object. Every change of it is a conditional write (bucket.Swap), so of two writers that want the
// lock one gets it.
type lockContent struct {
	// Epoch is the term of the holder. A new holder has a higher one, and writes to objects of that epoch only.
	Epoch int64 `json:"epoch"`
	// Holder tells holders apart. Name says to people who it is.
	Holder string `json:"holder"`
	Name   string `json:"name"`
	// Milliseconds is how long the lock is valid after each change of it.
	Milliseconds int64 `json:"milliseconds"`
	// Change is the number of the change within the epoch. So no two changes are equal, and a holder recognizes its own.
	Change int64 `json:"change"`
	// Process tells the processes of a holder apart.
	Process string `json:"process"`
	// Place is a random text that is made with the first lock and stays, so that a place that was emptied, or a directory whose
	// file system is not mounted, is not taken for the one before.
	Place string `json:"place"`
	// Source is Lock.Source of the first holder.
	Source string `json:"source,omitempty"`
	// Exclusive is set by a server that answers only while it holds the lock.
	Exclusive bool `json:"exclusive,omitempty"`
	// Released is set by a holder that has ended.
	Released bool `json:"released,omitempty"`
}

// ErrOtherPlace is the error of a Lock if the place is not the one that was used before.
var ErrOtherPlace = errors.New("this is not the place of the copy that the data directory has used before: it was emptied, or another " +
	"file system is mounted there, or none. If that is meant, remove copy.json from the data directory")

// SourceError is the error of Acquire if the copy is of other data than that of this process.
type SourceError struct{ Has, Want string }

func (e *SourceError) Error() string {
	name := func(source string) string { return cmp.Or(source, "a store that one server has alone") }
	return fmt.Sprintf("this is the copy of other data: of %s, not of %s. Name an empty place", name(e.Has), name(e.Want))
}

// ErrLost is the error of a holder that another writer has replaced.
var ErrLost = errors.New("another server has taken over the copy")

// HeldError is the error of Acquire while another holder may still write.
type HeldError struct {
	Name  string // of the holder
	Epoch int64
	// Shared means that the holder may answer without the lock, so that it must be stopped before another server takes over.
	Shared bool
}

func (e *HeldError) Error() string {
	if e.Shared {
		return fmt.Sprintf("the copy is written by %s (epoch %d), which runs without --backup-exclusive", e.Name, e.Epoch)
	}
	return fmt.Sprintf("the copy is written by %s (epoch %d)", e.Name, e.Epoch)
}

// Lock is a lock of a copy: of all processes that use the bucket, at most one holds it at a time. No clocks of two machines are compared.
// The holder counts from the moment at which it began to write its last change; another process counts from the moment at which it
// first saw that change, which is later, and waits a tenth longer, because clocks do not run equally fast. All methods may be called
// concurrently.
type Lock struct {
	Bucket bucket.Bucket
	// Holder and Name are lockContent.Holder and Name. A process may take the lock of another one with the same Holder at once, so the
	// other one must have ended.
	Holder, Name string
	// Source tells the data from those of others, if several processes have them. It is "" if only this one has.
	Source string
	// Time is how long the lock is valid after each change of it.
	Time time.Duration
	// Since returns the time since a fixed moment, by a clock that nobody sets and that runs while the machine sleeps.
	Since func() time.Duration
	// Strict makes Acquire fail with bucket.ErrNoConditions if the bucket does not keep the conditions of writes. Otherwise the lock
	// of such a bucket is a number for the epoch, and excludes nobody.
	Strict bool
	// Exclusive means that the holder answers only while it has the lock. Then it does not take the lock from one that answers without it,
	// unless Force is set.
	Exclusive, Force bool

	valid   validity
	probed  atomic.Bool // the bucket keeps conditions
	mu      sync.Mutex  // guards the fields below, also while the bucket is asked
	held    lockContent
	expect  string        // see Expect
	tag     string        // of the version that was written or seen last
	process string        // lockContent.Process
	seen    string        // the change of another holder that was seen last, first at seenAt
	seenAt  time.Duration // by Since
	writing bool          // a change was tried, and its result is not known
}

// Epoch returns the epoch of the lock, 0 if another process has it, or if it was not acquired.
func (l *Lock) Epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.Epoch
}

// Valid reports whether no other process can hold the lock. It waits for nothing.
func (l *Lock) Valid() bool { return l.valid.before(l.Since()) }

// Conditional reports whether the bucket has been seen to keep the conditions of writes.
func (l *Lock) Conditional() bool { return l.probed.Load() }

// forever is when a lock ends that excludes nobody.
const forever = time.Duration(math.MaxInt64)

// probe finds out whether the bucket keeps conditions.
func (l *Lock) probe(ctx context.Context) error {
	if l.probed.Load() {
		return nil
	}
	err := bucket.Probe(ctx, l.Bucket)
	l.probed.Store(err == nil)
	return err
}

// Acquire takes the lock, if nobody holds it or its holder has not renewed it in time. The epoch is above atLeast. It fails with
// *HeldError while another process may hold it; whoever waits for the lock calls Acquire again and again.
func (l *Lock) Acquire(ctx context.Context, atLeast int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.probe(ctx); err != nil {
		if l.Strict || !errors.Is(err, bucket.ErrNoConditions) {
			return err
		}
		l.held = lockContent{Epoch: atLeast + 1}
		l.valid.set(forever)
		return nil
	}
	content, tag, err := l.load(ctx)
	if err != nil {
		return err
	}
	if tag != "" && content.Source != l.Source {
		return &SourceError{content.Source, l.Source}
	}
	now, held := l.Since(), &HeldError{Name: content.Name, Epoch: content.Epoch}
	if tag != "" && content.Holder != l.Holder && !content.Released {
		if l.seen != tag {
			l.seen, l.seenAt = tag, now
		}
		if now-l.seenAt < withMargin(time.Duration(content.Milliseconds)*time.Millisecond) {
			return held
		}
		if held.Shared = l.Exclusive && !l.Force && !content.Exclusive; held.Shared {
			return held
		}
	}
	if content.Place == "" {
		content.Place = rand.Text()
	}
	l.process = rand.Text()
	err = l.change(ctx, tag, lockContent{Epoch: max(content.Epoch, atLeast) + 1, Place: content.Place})
	if errors.Is(err, bucket.ErrChanged) {
		return held // by the one that was faster
	}
	return err
}

// Expect makes all methods fail with ErrOtherPlace if the place (lockContent.Place) is another one. "" means that none was used before.
func (l *Lock) Expect(place string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expect = place
}

// Seen is what Lock.Look has found.
type Seen struct {
	Place  string // of the lock, "" if there is no lock yet
	Holder string // the name of the holder, "" if nobody holds it
	Source string // Lock.Source of the data
}

// Look reads the lock.
func (l *Lock) Look(ctx context.Context) (Seen, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, _, err := l.load(ctx)
	if content.Released {
		content.Name = ""
	}
	return Seen{content.Place, content.Name, content.Source}, err
}

// Place returns the place of the lock that is held.
func (l *Lock) Place() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.Place
}

// withMargin returns a time with what is added because clocks do not run equally fast.
func withMargin(d time.Duration) time.Duration { return d + d/10 }

// Renew makes the lock valid for Lock.Time from now on. It fails with ErrLost if another process has it.
func (l *Lock) Renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.update(ctx, l.held.Epoch, false)
}

// Advance begins a new epoch.
func (l *Lock) Advance(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.update(ctx, l.held.Epoch+1, false)
}

// Release gives the lock up, so that another process can take it at once. The caller does not write to the copy any more.
func (l *Lock) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.Epoch == 0 {
		return nil
	}
	l.valid.end()
	return l.update(ctx, l.held.Epoch, true)
}

// update changes the lock that is held.
func (l *Lock) update(ctx context.Context, epoch int64, release bool) error {
	if l.held.Epoch == 0 {
		return ErrLost
	}
	if !l.probed.Load() {
		l.held.Epoch = epoch
		return nil
	}
	if l.writing { // it is not known whether the change before took effect
		if err := l.look(ctx); err != nil {
			return err
		}
		epoch = max(epoch, l.held.Epoch)
	}
	err := l.change(ctx, l.tag, lockContent{Epoch: epoch, Change: l.held.Change + 1, Released: release, Place: l.held.Place})
	if errors.Is(err, bucket.ErrChanged) { // perhaps by a change of this process that took effect late
		if err := l.look(ctx); err != nil {
			return err
		}
		if release || l.held.Epoch != epoch {
			return errLateChange
		}
		return nil
	}
	return err
}

var errLateChange = errors.New("an earlier change of the lock of the copy took effect late; try again")

// look finds out whether the lock is still held, and which change of it took effect last. It does not make it valid for longer.
func (l *Lock) look(ctx context.Context) error {
	content, tag, err := l.load(ctx)
	if err != nil {
		return err
	}
	if content.Process != l.process || content.Released || content.Change != l.held.Change && content.Change != l.held.Change+1 {
		return l.lose()
	}
	l.held.Change, l.held.Epoch, l.tag, l.writing = content.Change, content.Epoch, tag, false
	return nil
}

func (l *Lock) lose() error {
	l.valid.end()
	l.held, l.tag, l.writing = lockContent{}, "", false
	return ErrLost
}

// load returns the lock as it is; tag is "" if there is none.
func (l *Lock) load(ctx context.Context) (content lockContent, tag string, err error) {
	b, tag, err := l.Bucket.Load(ctx, lockName)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		tag = ""
	case err != nil:
		return content, "", fmt.Errorf("reading the lock of the copy: %w", err)
	default:
		if err := json.Unmarshal(b, &content); err != nil {
			return content, "", fmt.Errorf("the lock of the copy cannot be read: %w", err)
		}
	}
	if l.expect != "" && content.Place != l.expect {
		return content, "", ErrOtherPlace
	}
	return content, tag, nil
}

// change writes the lock. It is valid from the moment at which the write began.
func (l *Lock) change(ctx context.Context, tag string, content lockContent) error {
	content.Holder, content.Name, content.Milliseconds = l.Holder, l.Name, l.Time.Milliseconds()
	content.Process, content.Exclusive, content.Source = l.process, l.Exclusive, l.Source
	b, err := json.Marshal(content)
	if err != nil {
		return err
	}
	began := l.Since()
	l.writing = true
	newTag, err := l.Bucket.Swap(ctx, lockName, b, tag)
	if errors.Is(err, bucket.ErrChanged) {
		l.writing = false
		return err
	}
	if err != nil {
		return fmt.Errorf("writing the lock of the copy: %w", err)
	}
	l.held, l.tag, l.writing = content, newTag, false
	if content.Released {
		l.held = lockContent{}
		return nil
	}
	l.valid.set(began + l.Time)
	return nil
}

// validity is the moment at which a lock ends, by Lock.Since.
type validity struct{ at atomic.Int64 }

func (v *validity) set(at time.Duration)          { v.at.Store(int64(at)) }
func (v *validity) end()                          { v.at.Store(0) }
func (v *validity) before(now time.Duration) bool { return now < time.Duration(v.at.Load()) }
