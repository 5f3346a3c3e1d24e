package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/storage"
)

const (
	keepAliveEvery = 10 * time.Second
	keepAliveWait  = 5 * time.Second
	// maxSend bounds a request; the members' own bound is lower and is what counts.
	maxSend = 64 << 20
	// barrierTimeout bounds a read of the current revision: longer than etcd itself
	// waits for a quorum.
	barrierTimeout = 10 * time.Second
	// barrierKey does not exist.
	barrierKey = "keelson.dev/barrier"
)

var errNegativeRevision = errors.New("etcd: negative revision")

// Store implements storage.Store on one cluster, with one client.
type Store struct {
	opts    Options
	keys    keys
	client  *clientv3.Client
	watches pb.WatchClient
	barrier rounds
	leases  leases

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	closed sync.Once

	seen      atomic.Int64 // highest revision that any answer named
	compacted atomic.Int64 // highest compaction revision known
	size      atomic.Int64
	unfit     atomic.Pointer[error] // why the cluster must not be used
	lost      atomic.Pointer[error] // why it must not be used by this process any more

	looking atomic.Bool // somebody looks which members answer

	mu       sync.Mutex // guards watchers
	watchers map[*watcher]struct{}
}

// Open connects to a cluster. It fails when no member answers in
// Options.DialTimeout, or when one has a version that cannot be used.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if len(o.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints")
	}
	config, err := o.tls()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s := &Store{opts: o, keys: keys{o.Prefix}, watchers: make(map[*watcher]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.client, err = clientv3.New(clientv3.Config{
		Context:              s.ctx,
		Endpoints:            o.Endpoints,
		TLS:                  config,
		DialTimeout:          o.DialTimeout,
		DialOptions:          o.dial(),
		DialKeepAliveTime:    keepAliveEvery,
		DialKeepAliveTimeout: keepAliveWait,
		MaxCallSendMsgSize:   maxSend,
		// The client would repeat a transaction that a member gave up on for as long
		// as the caller waits. What may be repeated is repeated here.
		MaxUnaryRetries: 1,
		Logger:          zapTo(o.Logger),
	})
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s.watches = pb.NewWatchClient(s.client.ActiveConnection())
	s.barrier.read = s.readRevision
	s.leases = leases{
		byTTL: make(map[int64]*bucket), now: time.Now, longest: o.LeaseReuse,
		grant: func(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
			r, err := repeat(ctx, s.suspect, shortAttempt, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
				return s.client.Grant(ctx, ttl)
			})
			if err != nil {
				return clientv3.NoLease, err
			}
			return r.ID, nil
		},
	}
	if err := s.contact(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("cannot use etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	s.tasks.Go(s.poll)
	if o.CompactionInterval > 0 {
		s.tasks.Go(s.compactor)
	}
	return s, nil
}

// contact waits for the first answer of the cluster.
func (s *Store) contact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.DialTimeout)
	defer cancel()
	const pause = 200 * time.Millisecond
	for {
		_, err := s.readRevisionWithin(ctx)
		if err == nil {
			s.members(ctx)
			return s.fit()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Close implements storage.Store.
func (s *Store) Close() (err error) {
	s.closed.Do(func() {
		s.mu.Lock() // no watcher begins after this
		s.cancel()
		s.mu.Unlock()
		s.tasks.Wait()
		if e := s.client.Close(); e != nil && !errors.Is(e, context.Canceled) {
			err = e
		}
	})
	return err
}

// enter begins an operation.
func (s *Store) enter(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// note keeps the highest revision seen.
func (s *Store) note(revision int64) { raise(&s.seen, revision) }

func raise(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

func (s *Store) entry(kv *mvccpb.KeyValue) storage.Entry {
	return storage.Entry{
		Key: s.keys.from(kv.Key), Value: kv.Value, ModRevision: kv.ModRevision, CreateRevision: kv.CreateRevision,
	}
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Entry{}, 0, err
	}
	if revision < 0 {
		return storage.Entry{}, 0, errNegativeRevision
	}
	k, err := s.keys.to(key)
	if err != nil {
		return storage.Entry{}, 0, err
	}
	r, err := s.read(ctx, k, revision)
	if err != nil {
		return storage.Entry{}, 0, err
	}
	at := r.Header.Revision
	if revision != 0 {
		at = revision
	}
	if len(r.Kvs) == 0 {
		return storage.Entry{}, at, nil
	}
	return s.entry(r.Kvs[0]), at, nil
}

// Range implements storage.Store.
func (s *Store) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	if err := s.enter(ctx); err != nil {
		return storage.RangeResult{}, err
	}
	if r.Revision < 0 {
		return storage.RangeResult{}, errNegativeRevision
	}
	span := s.keys.span(r.Start, r.End)
	key, end := span.wire()
	if span.empty() {
		key, end = barrierKey, barrierKey+"\x00" // the revision is still to be checked
	}
	opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(int64(r.Limit))}
	if r.CountOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	answer, err := s.read(ctx, key, r.Revision, opts...)
	if err != nil {
		return storage.RangeResult{}, err
	}
	result := storage.RangeResult{Count: answer.Count, Revision: answer.Header.Revision, More: answer.More && !r.CountOnly}
	if r.Revision != 0 {
		result.Revision = r.Revision
	}
	if len(answer.Kvs) > 0 {
		result.Entries = make([]storage.Entry, len(answer.Kvs))
		for i, kv := range answer.Kvs {
			result.Entries[i] = s.entry(kv)
		}
	}
	return result, nil
}

// read reads at a revision and explains its errors.
func (s *Store) read(
	ctx context.Context, key string, revision int64, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	for {
		r, err := s.get(ctx, key, append(opts, clientv3.WithRev(revision))...)
		switch {
		case err == nil:
			s.note(r.Header.Revision)
			return r, nil
		case errors.Is(err, rpctypes.ErrCompacted):
			return nil, s.compactedError(ctx, revision)
		case errors.Is(err, rpctypes.ErrFutureRev):
			current, err := s.Revision(ctx)
			if err != nil {
				return nil, err
			}
			if current < revision {
				return nil, &storage.FutureRevisionError{Revision: revision, Current: current}
			} // it came about meanwhile
		default:
			return nil, s.failure(ctx, "read", err)
		}
	}
}

func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return repeat(ctx, s.suspect, readAttempt, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, key, opts...)
	})
}

// Revision implements storage.Store. It makes watchers ask for progress up to the
// revision that it returns.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	if err := s.fit(); err != nil {
		return 0, err
	}
	revision, err := s.barrier.get(ctx)
	if err != nil {
		return 0, s.failure(ctx, "read the revision", err)
	}
	return revision, nil
}

func (s *Store) readRevision() (int64, error) {
	ctx, cancel := context.WithTimeout(s.ctx, barrierTimeout)
	defer cancel()
	revision, err := s.readRevisionWithin(ctx)
	if err == nil {
		s.askProgress(revision)
	}
	return revision, err
}

func (s *Store) readRevisionWithin(ctx context.Context) (int64, error) {
	before := s.seen.Load()
	r, err := repeat(ctx, s.suspect, shortAttempt, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, barrierKey, clientv3.WithCountOnly())
	})
	if err != nil {
		return 0, err
	}
	if r.Header.Revision < before {
		return 0, s.wentBack(before, r.Header.Revision)
	}
	s.note(r.Header.Revision)
	return r.Header.Revision, nil
}

// wentBack is called when the cluster is at an earlier revision than before, because its data was replaced by an
// old backup. What this process and its clients remember is then wrong, and revisions are used again.
func (s *Store) wentBack(before, now int64) error {
	err := fmt.Errorf(
		"%w: the cluster is at revision %d and was at %d: its data was replaced by older data", storage.ErrFailed, now,
		before,
	)
	if s.lost.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("etcd went back in time; restart the process", "was", before, "is", now)
		if s.opts.OnFailure != nil {
			s.opts.OnFailure(err)
		}
	}
	return *s.lost.Load()
}

// Compact implements storage.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if revision <= s.compacted.Load() {
		return nil
	}
	_, err := repeat(ctx, s.suspect, readAttempt, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return s.client.Compact(ctx, revision)
	})
	switch {
	case err == nil:
		raise(&s.compacted, revision)
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil
	case errors.Is(err, rpctypes.ErrFutureRev):
		current, err := s.Revision(ctx)
		if err != nil {
			return err
		}
		return &storage.FutureRevisionError{Revision: revision, Current: max(current, 0)}
	}
	return s.failure(ctx, "compact", err)
}

// Stats implements storage.Store. The compacted revision is the highest that this
// process has to do with; others may have compacted further.
func (s *Store) Stats() storage.Stats {
	return storage.Stats{Revision: s.seen.Load(), CompactedRevision: s.compacted.Load(), SizeBytes: s.size.Load()}
}

// fit says whether the cluster may be used.
func (s *Store) fit() error {
	if p := s.lost.Load(); p != nil {
		return *p
	}
	if p := s.unfit.Load(); p != nil {
		return *p
	}
	return nil
}
