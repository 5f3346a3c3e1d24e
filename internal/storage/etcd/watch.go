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

	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// maxQueuedBatches is the largest number of batches that wait for Next. When it is reached, the stream is not
	// read, so that etcd must wait too.
	maxQueuedBatches = 16

	minReconnectPause, maxReconnectPause = 50 * time.Millisecond, 2 * time.Second
	// A request for progress is repeated after these pauses, because etcd drops requests while it has changes to send.
	minProgressPause, maxProgressPause = 5 * time.Millisecond, 100 * time.Millisecond
	// A stream from which a response is expected is closed after minSilence without one, because its member may be
	// suspended or unreachable, and another member may answer. The limit doubles for each further stream without a
	// response.
	minSilence, maxSilence = 3 * time.Second, keepAliveInterval + keepAliveTimeout
)

// errSilent ends a stream that does not send an expected response.
var errSilent = errors.New("the member says nothing")

// errFirstRevisionPassed makes the watcher start the stream again one revision earlier, because the first wanted
// revision, which was in the future, exists already.
var errFirstRevisionPassed = errors.New("the first revision has happened already")

// watcher implements storage.Watcher, and also cache.ProgressRequester. Its goroutine (run) keeps a stream open and
// queues batches for Next.
type watcher struct {
	store   *Store
	span    span
	records bool            // changes of recordKey are queued too
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	batches chan storage.Batch // closed at the end, after err is set
	err     error

	// startsInFuture is true if the first wanted revision was in the future when Watch was called. The stream then starts
	// at that revision, not one before. Only run uses it.
	startsInFuture bool
	next           int64 // revision of the first change that is not queued yet; only run uses it

	created        atomic.Bool   // etcd has confirmed the current stream
	queuedRevision atomic.Int64  // all changes up to this revision are queued
	wantedRevision atomic.Int64  // highest revision that a caller waits for
	wake           chan struct{} // capacity 1; receives when wantedRevision has changed
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	return asWatcher(s.watch(ctx, s.keys.span(prefix, storage.PrefixEnd(prefix)), from, false))
}

// asWatcher returns nil, and not an interface with a nil pointer, after an error.
func asWatcher(w *watcher, err error) (storage.Watcher, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// watch starts a watcher of a range of keys. records says whether it has the changes of recordKey.
func (s *Store) watch(ctx context.Context, in span, from int64, records bool) (*watcher, error) {
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
	if compacted := s.observed.compacted.Load(); from <= compacted {
		return nil, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	w := &watcher{
		store: s, span: in, records: records, next: from, startsInFuture: from > s.observed.revision.Load(),
		batches: make(chan storage.Batch, maxQueuedBatches), wake: make(chan struct{}, 1),
	}
	w.queuedRevision.Store(from - 1)
	w.ctx, w.cancel = context.WithCancel(s.lifetime.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifetime.ctx.Err() != nil {
		return nil, storage.ErrClosed
	}
	s.watchers[w] = struct{}{}
	s.lifetime.tasks.Go(w.run)
	return w, nil
}

// requestProgress makes all watchers request progress up to revision.
func (s *Store) requestProgress(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.requestRevision(revision)
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

// RequestProgress makes the watcher advance to the newest revision that the store has observed, if necessary with a
// batch without events. It may be called from any goroutine.
func (w *watcher) RequestProgress() { w.requestRevision(w.store.observed.revision.Load()) }

// requestRevision makes the watcher request progress until it has reached revision.
func (w *watcher) requestRevision(revision int64) {
	if revision <= w.queuedRevision.Load() {
		return
	}
	raiseTo(&w.wantedRevision, revision)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// expectsResponse reports whether the stream should send something: its confirmation, or progress.
func (w *watcher) expectsResponse() bool {
	return !w.created.Load() || w.wantedRevision.Load() > w.queuedRevision.Load()
}

// Close implements storage.Watcher.
func (w *watcher) Close() error {
	w.cancel()
	return nil
}

// run keeps a stream open until the watcher ends.
func (w *watcher) run() {
	defer func() {
		close(w.batches)
		w.store.mu.Lock()
		delete(w.store.watchers, w)
		w.store.mu.Unlock()
	}()
	if w.span.empty() {
		<-w.ctx.Done()
	}
	silence := minSilence
	for pause := minReconnectPause; ; {
		before := w.next
		err := w.runStream(silence)
		var compacted *storage.CompactedError
		switch {
		case w.ctx.Err() != nil:
			w.err = storage.ErrClosed
			return
		case errors.As(err, &compacted):
			w.err = err
			return
		case errors.Is(err, errFirstRevisionPassed):
			continue
		}
		if w.next != before {
			pause, silence = minReconnectPause, minSilence
		} else if errors.Is(err, errSilent) {
			silence = min(2*silence, maxSilence)
		}
		w.store.opts.Logger.Warn("etcd: watch interrupted, going on where it ended", "revision", w.next, "error", err)
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxReconnectPause)
	}
}

// openStream opens a stream with a watch of a range from revision from on.
func (s *Store) openStream(ctx context.Context, in span, from int64) (pb.Watch_WatchClient, error) {
	st, err := s.watchClient.Watch(
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

// runStream opens one stream and queues its changes. It returns when the stream ends, or when an expected response
// has not arrived for the duration silence.
func (w *watcher) runStream(silence time.Duration) error {
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	start := max(w.next-1, 1)
	exact := w.startsInFuture
	if exact {
		start = w.next
	}
	w.startsInFuture = false
	w.created.Store(false)
	st, err := w.store.openStream(ctx, w.span, start)
	if err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	var quiet silenceTimer
	asking.Go(func() {
		quiet.watch(ctx, silence, w.expectsResponse, func() {
			w.store.startMemberCheck()
			cancel(errSilent)
		})
	})
	parts := assembler{next: w.next, entry: w.store.entry, records: w.records}
	for {
		quiet.receiveBegins()
		r, err := st.Recv()
		quiet.receiveEnds()
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		switch {
		case r.CompactRevision != 0:
			raiseTo(&w.store.observed.compacted, r.CompactRevision)
			return &storage.CompactedError{Revision: w.next, Compacted: r.CompactRevision}
		case r.Canceled:
			return fmt.Errorf("etcd ended the watch: %s", r.CancelReason)
		case r.Created:
			if exact && r.Header.Revision >= start {
				return errFirstRevisionPassed
			}
			w.created.Store(true)
			w.requestRevision(r.Header.Revision)
			asking.Go(func() { w.requestProgress(ctx, st) })
			continue
		}
		w.store.observe(r.Header.Revision)
		b, err := parts.add(r)
		if err != nil {
			return err
		}
		if !w.enqueue(b) {
			return w.ctx.Err()
		}
	}
}

// enqueue passes a batch to Next. It returns false if the watcher was closed.
func (w *watcher) enqueue(b storage.Batch) bool {
	if b.Revision < w.next {
		return true
	}
	select {
	case w.batches <- b:
		w.next = b.Revision + 1
		w.queuedRevision.Store(b.Revision)
		return true
	case <-w.ctx.Done():
		return false
	}
}

// requestProgress sends requests for progress while a caller waits for a revision.
func (w *watcher) requestProgress(ctx context.Context, st pb.Watch_WatchClient) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked int64
	pause := minProgressPause
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
		case <-w.wake:
		}
		wanted := w.wantedRevision.Load()
		if wanted <= w.queuedRevision.Load() {
			pause = minProgressPause
			continue
		}
		if wanted <= asked && !due {
			continue // the request was sent; the timer repeats it
		}
		if wanted > asked {
			asked, pause = wanted, minProgressPause
		}
		if st.Send(
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}},
		) != nil {
			return // Recv returns the error
		}
		timer.Reset(pause)
		pause = min(2*pause, maxProgressPause)
	}
}

// silenceTimer measures for how long a stream sends nothing although a response is expected.
type silenceTimer struct {
	receiving atomic.Bool
	responses atomic.Int64 // number of responses
}

func (t *silenceTimer) receiveBegins() { t.receiving.Store(true) }

func (t *silenceTimer) receiveEnds() {
	t.receiving.Store(false)
	t.responses.Add(1)
}

// watch calls silent once, when no response was received for the duration silence although one was expected and
// waited for all that time. It checks several times during this time, so that a time in which this process was
// suspended does not count.
func (t *silenceTimer) watch(ctx context.Context, silence time.Duration, due func() bool, silent func()) {
	const looks = 8
	ticker := time.NewTicker(silence / looks)
	defer ticker.Stop()
	heard, quiet := t.responses.Load(), 0
	for quiet < looks {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := t.responses.Load()
		if now != heard || !t.receiving.Load() || !due() {
			heard, quiet = now, 0
			continue
		}
		quiet++
	}
	silent()
}

// assembler makes batches from the responses of a stream. It has no I/O.
//
// Example: etcd splits the changes of revision 13 to 15 into two fragments: [a13, b14] with Fragment set, and [c14,
// d15]. The first one yields a batch with a13 only, because revision 14 may continue in the next fragment. The second
// one yields a batch with b14, c14 and d15.
type assembler struct {
	next  int64 // changes before this revision are dropped
	entry func(*mvccpb.KeyValue) storage.Entry
	// records says whether changes of recordKey are returned.
	records bool

	partial []storage.Event // events of the last revision, which may continue in the next fragment
}

// add returns the batch that a response completes; its Revision is 0 if there is none. If the previous value of a
// change is missing, it returns a *storage.CompactedError.
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
		out := storage.Event{Deleted: e.Type == clientv3.EventTypeDelete, Entry: a.entry(e.Kv), Lease: e.Kv.Lease}
		switch {
		case out.Entry.Key == recordKey:
			if !a.records {
				continue
			}
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
