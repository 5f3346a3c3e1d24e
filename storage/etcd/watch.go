package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/keelson-dev/keelson/storage"
)

const (
	// queued is how many batches wait for Next before the stream is left to wait,
	// and etcd with it.
	queued = 16

	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	// A request for progress is repeated because etcd drops those that come while
	// it has changes to send.
	firstAsk, longestAsk = 5 * time.Millisecond, 100 * time.Millisecond
	// A stream that somebody waits for and that says nothing is given up after
	// firstSilence: its member is paused, or cut off, and another may serve. If the next
	// ones say nothing either, each is given twice as long.
	firstSilence, longestSilence = 3 * time.Second, keepAliveEvery + keepAliveWait
)

// errSilent ends a stream that does not say what it ought to.
var errSilent = errors.New("the member says nothing")

// errEarlier begins a stream again, one revision earlier.
var errEarlier = errors.New("the first revision has happened already")

// watcher implements storage.Watcher. Beyond the interface it has RequestProgress.
type watcher struct {
	store  *Store
	span   span
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	batches chan storage.Batch // closed at the end, when err is set
	err     error

	// exact says that the first revision wanted was in the future when the watch
	// was asked for. It belongs to follow.
	exact bool
	next  int64 // of the first change not yet queued; belongs to follow

	begun   atomic.Bool   // the stream was confirmed
	reached atomic.Int64  // what is queued, with all before it
	wanted  atomic.Int64  // what somebody waits for
	ask     chan struct{} // capacity 1: wanted has changed
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	return s.watch(ctx, s.keys.span(prefix, storage.PrefixEnd(prefix)), from)
}

func (s *Store) watch(ctx context.Context, in span, from int64) (storage.Watcher, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	switch {
	case from < 0:
		return nil, errNegativeRevision
	case from == 0:
		current, err := s.Revision(ctx)
		if err != nil {
			return nil, err
		}
		from = current + 1
	}
	if compacted := s.compacted.Load(); from <= compacted {
		return nil, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	w := &watcher{
		store: s, span: in, next: from, exact: from > s.seen.Load(),
		batches: make(chan storage.Batch, queued), ask: make(chan struct{}, 1),
	}
	w.reached.Store(from - 1)
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, storage.ErrClosed
	}
	s.watchers[w] = struct{}{}
	s.tasks.Go(w.follow)
	return w, nil
}

// askProgress tells all watchers that somebody will wait for revision.
func (s *Store) askProgress(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.want(revision)
	}
}

// Next implements storage.Watcher.
func (w *watcher) Next(ctx context.Context) (storage.Batch, error) {
	if w.ctx.Err() != nil {
		return storage.Batch{}, storage.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return storage.Batch{}, err
	}
	select {
	case b, ok := <-w.batches:
		if !ok {
			return storage.Batch{}, w.err
		}
		return b, nil
	case <-w.ctx.Done():
		return storage.Batch{}, storage.ErrClosed
	case <-ctx.Done():
		return storage.Batch{}, ctx.Err()
	}
}

// RequestProgress makes the watcher move to the newest revision that the store has
// seen, if need be with a batch that has no events. It may be called from any
// goroutine.
func (w *watcher) RequestProgress() { w.want(w.store.seen.Load()) }

func (w *watcher) want(revision int64) {
	if revision <= w.reached.Load() {
		return
	}
	raise(&w.wanted, revision)
	select {
	case w.ask <- struct{}{}:
	default:
	}
}

// due says that the stream has something to say.
func (w *watcher) due() bool { return !w.begun.Load() || w.wanted.Load() > w.reached.Load() }

// Close implements storage.Watcher.
func (w *watcher) Close() error {
	w.cancel()
	return nil
}

// follow keeps a stream open until the watcher ends.
func (w *watcher) follow() {
	defer func() {
		close(w.batches)
		w.store.mu.Lock()
		delete(w.store.watchers, w)
		w.store.mu.Unlock()
	}()
	if w.span.empty() {
		<-w.ctx.Done()
	}
	silence := firstSilence
	for pause := firstPause; ; {
		before := w.next
		err := w.stream(silence)
		var compacted *storage.CompactedError
		switch {
		case w.ctx.Err() != nil:
			w.err = storage.ErrClosed
			return
		case errors.As(err, &compacted):
			w.err = err
			return
		case errors.Is(err, errEarlier):
			continue
		}
		if w.next != before {
			pause, silence = firstPause, firstSilence
		} else if errors.Is(err, errSilent) {
			silence = min(2*silence, longestSilence)
		}
		w.store.opts.Logger.Warn("etcd: watch interrupted, going on where it ended", "revision", w.next, "error", err)
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// openStream begins a watch from a revision on.
func (s *Store) openStream(ctx context.Context, in span, from int64) (pb.Watch_WatchClient, error) {
	st, err := s.watches.Watch(
		clientv3.WithRequireLeader(ctx), grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32),
	)
	if err != nil {
		return nil, err
	}
	key, end := in.wire()
	return st, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(key), RangeEnd: []byte(end), StartRevision: from,
		PrevKv: true, Fragment: true, ProgressNotify: true,
	}}})
}

// stream queues what one stream delivers until it breaks, or says nothing for as
// long as silence when it ought to.
func (w *watcher) stream(silence time.Duration) error {
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	start := max(w.next-1, 1)
	exact := w.exact
	if exact {
		start = w.next
	}
	w.exact = false
	w.begun.Store(false)
	st, err := w.store.openStream(ctx, w.span, start)
	if err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	var quiet silenceTimer
	asking.Go(func() {
		quiet.watch(ctx, silence, w.due, func() {
			w.store.suspect()
			cancel(errSilent)
		})
	})
	parts := assembler{next: w.next, entry: w.store.entry}
	for {
		quiet.begin()
		r, err := st.Recv()
		quiet.end()
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		switch {
		case r.CompactRevision != 0:
			raise(&w.store.compacted, r.CompactRevision)
			return &storage.CompactedError{Revision: w.next, Compacted: r.CompactRevision}
		case r.Canceled:
			return fmt.Errorf("etcd ended the watch: %s", r.CancelReason)
		case r.Created:
			if exact && r.Header.Revision >= start {
				return errEarlier
			}
			w.begun.Store(true)
			w.want(r.Header.Revision)
			asking.Go(func() { w.keepAsking(ctx, st) })
			continue
		}
		w.store.note(r.Header.Revision)
		b, err := parts.add(r)
		if err != nil {
			return err
		}
		if !w.queue(b) {
			return w.ctx.Err()
		}
	}
}

// queue hands a batch to Next. It returns false when the watcher was closed.
func (w *watcher) queue(b storage.Batch) bool {
	if b.Revision < w.next {
		return true
	}
	select {
	case w.batches <- b:
		w.next = b.Revision + 1
		w.reached.Store(b.Revision)
		return true
	case <-w.ctx.Done():
		return false
	}
}

// keepAsking requests progress as long as somebody waits for it.
func (w *watcher) keepAsking(ctx context.Context, st pb.Watch_WatchClient) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked int64
	pause := firstAsk
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
		case <-w.ask:
		}
		wanted := w.wanted.Load()
		if wanted <= w.reached.Load() {
			pause = firstAsk
			continue
		}
		if wanted <= asked && !due {
			continue // the timer runs
		}
		if wanted > asked {
			asked, pause = wanted, firstAsk
		}
		if st.Send(
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}},
		) != nil {
			return // Recv tells why
		}
		timer.Reset(pause)
		pause = min(2*pause, longestAsk)
	}
}

// silenceTimer measures for how long a stream that ought to say something does not.
type silenceTimer struct {
	receiving atomic.Bool
	heard     atomic.Int64 // responses
}

func (t *silenceTimer) begin() { t.receiving.Store(true) }

func (t *silenceTimer) end() {
	t.receiving.Store(false)
	t.heard.Add(1)
}

// watch calls silent, once, when nothing was heard for so long although something
// was due and waited for all the time. It looks a few times in that time, so that a
// process that was asleep itself begins to measure when it wakes.
func (t *silenceTimer) watch(ctx context.Context, silence time.Duration, due func() bool, silent func()) {
	const looks = 8
	ticker := time.NewTicker(silence / looks)
	defer ticker.Stop()
	heard, quiet := t.heard.Load(), 0
	for quiet < looks {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := t.heard.Load()
		if now != heard || !t.receiving.Load() || !due() {
			heard, quiet = now, 0
			continue
		}
		quiet++
	}
	silent()
}

// assembler makes batches of a stream's responses. It has no I/O.
type assembler struct {
	next  int64 // changes before it are not wanted
	entry func(*mvccpb.KeyValue) storage.Entry

	partial []storage.Event // of a revision that the next fragment may go on with
}

// add returns what a response completes: a batch with revision 0 is nothing. A
// change that lacks what was before it is a *storage.CompactedError.
func (a *assembler) add(r *pb.WatchResponse) (storage.Batch, error) {
	if len(r.Events) == 0 {
		if a.partial != nil {
			return storage.Batch{}, nil
		}
		return storage.Batch{Revision: r.Header.Revision}, nil
	}
	events := a.partial
	a.partial = nil
	for _, e := range r.Events {
		if e.Kv.ModRevision < a.next {
			continue
		}
		out := storage.Event{Deleted: e.Type == mvccpb.DELETE, Entry: a.entry(e.Kv)}
		switch {
		case e.PrevKv != nil:
			out.Prev = a.entry(e.PrevKv)
		case out.Deleted || e.Kv.CreateRevision != e.Kv.ModRevision:
			return storage.Batch{}, &storage.CompactedError{Revision: a.next, Compacted: e.Kv.ModRevision}
		}
		if out.Deleted {
			out.Entry.Value, out.Entry.CreateRevision = nil, 0
		}
		events = append(events, out)
	}
	if len(events) == 0 {
		return storage.Batch{}, nil
	}
	last := events[len(events)-1].Entry.ModRevision
	if r.Fragment {
		whole := len(events)
		for whole > 0 && events[whole-1].Entry.ModRevision == last {
			whole--
		}
		a.partial = append(a.partial, events[whole:]...)
		if events = events[:whole]; whole == 0 {
			return storage.Batch{}, nil
		}
		last = events[whole-1].Entry.ModRevision
	}
	a.next = last + 1
	if a.partial != nil {
		a.next = a.partial[0].Entry.ModRevision
	}
	return storage.Batch{Events: events, Revision: last}, nil
}
