package etcd

import (
	"context"
	"crypto/tls"
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

	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	keepAliveInterval = 10 * time.Second
	keepAliveTimeout  = 5 * time.Second
	// maxRequestBytes is the client's limit for a request. The members have a lower limit, which is the effective
	// one.
	maxRequestBytes = 64 << 20
	// revisionTimeout limits a read of the current revision. It is longer than the time for which etcd itself
	// waits for a quorum.
	revisionTimeout = 10 * time.Second
	// missingKey is a key that does not exist. A read of it returns the current revision.
	missingKey = "keelson.dev/barrier"
)

var errNegativeRevision = errors.New("etcd: negative revision")

// Store implements storage.Store on one cluster, with one client.
type Store struct {
	opts          Options
	keys          keys
	client        *clientv3.Client
	watchClient   pb.WatchClient // of the connection of client
	revisionReads sharedReads
	leases        leases

	lifetime        lifetime
	observed        observed
	unusable        unusable
	checkingMembers atomic.Bool // a goroutine runs checkMembers

	mu       sync.Mutex // guards watchers
	watchers map[*watcher]struct{}
}

// lifetime ends background work at Close.
type lifetime struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // background goroutines; none is started after Close
	closed sync.Once
}

// observed is the state of the cluster known from its responses.
type observed struct {
	revision  atomic.Int64 // highest revision in an answer
	compacted atomic.Int64 // highest known compaction revision
	size      atomic.Int64 // size of the largest database of a member, in bytes
}

// unusable contains the reasons why the cluster must not be used, nil if there is none.
type unusable struct {
	version  atomic.Pointer[error] // a member has an unsuitable version of etcd; may be set to nil again
	wentBack atomic.Pointer[error] // the revision has decreased; final for this process
}

// Open connects to a cluster. It fails if no member answers within Options.DialTimeout, or if a member has a version
// that cannot be used. The caller must call Close.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if len(o.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints")
	}
	s := &Store{opts: o, keys: keys{o.Prefix}, watchers: make(map[*watcher]struct{})}
	s.lifetime.ctx, s.lifetime.cancel = context.WithCancel(context.Background())
	if err := s.connect(); err != nil {
		s.lifetime.cancel()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s.revisionReads.read = s.readRevision
	s.leases = leases{
		byTTL: make(map[int64]*sharedLease), now: time.Now, maxReuse: o.LeaseReuse, full: o.leaseFull,
		grant: func(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
			r, err := retry(ctx, s.startMemberCheck, shortAttemptTimeout,
				func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
					return s.client.Grant(ctx, ttl)
				})
			if err != nil {
				return clientv3.NoLease, err
			}
			return r.ID, nil
		},
	}
	if err := s.waitForCluster(ctx); err != nil {
		// The client reports only that its time is over, not why no member has answered.
		if cause := o.probe(ctx); cause != nil && ctx.Err() == nil && s.usable() == nil {
			err = fmt.Errorf("no member answers in %v: %w", o.DialTimeout, cause)
		}
		s.Close()
		return nil, fmt.Errorf("cannot use etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	s.lifetime.tasks.Go(s.pollMembers)
	if o.CompactionInterval > 0 {
		s.lifetime.tasks.Go(s.runCompactor)
	}
	return s, nil
}

// connect sets the clients.
func (s *Store) connect() (err error) {
	o := &s.opts
	if o.Own != nil {
		s.client, s.watchClient = o.Own.Client, o.Own.Watch
		return nil
	}
	var config *tls.Config
	if o.TLS != nil {
		config = o.TLS()
	}
	s.client, err = clientv3.New(clientv3.Config{
		Context:              s.lifetime.ctx,
		Endpoints:            o.Endpoints,
		TLS:                  config,
		DialTimeout:          o.DialTimeout,
		DialOptions:          o.dial(),
		DialKeepAliveTime:    keepAliveInterval,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallSendMsgSize:   maxRequestBytes,
		// The client would retry a transaction until the context of the caller ends if a member reports a timeout.
		// This package retries the requests that may be retried.
		MaxUnaryRetries: 1,
		Logger:          Logger(o.Logger),
	})
	if err == nil {
		s.watchClient = pb.NewWatchClient(s.client.ActiveConnection())
	}
	return err
}

// unreachableAfter is the time after which Open logs why no member has answered yet.
const unreachableAfter = 2 * time.Second

// waitForCluster waits for the first answer of the cluster, and checks the versions of the members.
func (s *Store) waitForCluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.DialTimeout)
	defer cancel()
	report := time.AfterFunc(unreachableAfter, func() {
		if cause := s.opts.probe(ctx); cause != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("no member of etcd answers; the server tries again until the time is over",
				"endpoints", s.opts.Endpoints, "time", s.opts.DialTimeout, "error", cause)
		}
	})
	defer report.Stop()
	const pause = 200 * time.Millisecond
	for {
		_, err := s.readRevisionWithin(ctx)
		if err == nil {
			s.updateMembers(ctx)
			return s.usable()
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
	s.lifetime.closed.Do(func() {
		s.mu.Lock() // no watcher or task is started after this
		s.lifetime.cancel()
		s.mu.Unlock()
		s.lifetime.tasks.Wait()
		if e := s.client.Close(); e != nil && !errors.Is(e, context.Canceled) {
			err = e
		}
	})
	return err
}

// enter returns an error if the store is closed or if ctx has ended.
func (s *Store) enter(ctx context.Context) error {
	if s.lifetime.ctx.Err() != nil {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// observe records the revision of an answer.
func (s *Store) observe(revision int64) { raiseTo(&s.observed.revision, revision) }

// raiseTo sets v to to, unless v is higher.
func raiseTo(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// entry converts a key-value pair of etcd.
func (s *Store) entry(kv *mvccpb.KeyValue) storage.Entry {
	return storage.Entry{
		Key: s.keys.fromEtcd(kv.Key), Value: kv.Value, ModRevision: kv.ModRevision, CreateRevision: kv.CreateRevision,
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
	k, err := s.keys.toEtcd(key)
	if err != nil {
		return storage.Entry{}, 0, err
	}
	r, err := s.readAt(ctx, k, revision)
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
		key, end = missingKey, missingKey+"\x00" // the range is empty, but the request checks the revision
	}
	opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(int64(r.Limit))}
	if r.CountOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	answer, err := s.readAt(ctx, key, r.Revision, opts...)
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

// readAt reads at a revision (0 means the current one), and converts the errors of etcd to those of storage.Store.
func (s *Store) readAt(
	ctx context.Context, key string, revision int64, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	for {
		r, err := s.get(ctx, key, append(opts, clientv3.WithRev(revision))...)
		switch {
		case err == nil:
			s.observe(r.Header.Revision)
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
			} // the revision has been reached meanwhile: read again
		default:
			return nil, s.convertError(ctx, "read", err)
		}
	}
}

// get sends a read request, and retries it.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return retry(ctx, s.startMemberCheck, readAttemptTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, key, opts...)
	})
}

// Revision implements storage.Store. It makes watchers request progress up to the revision that it returns.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	if err := s.usable(); err != nil {
		return 0, err
	}
	revision, err := s.revisionReads.get(ctx)
	if err != nil {
		return 0, s.convertError(ctx, "read the revision", err)
	}
	return revision, nil
}

// readRevision reads the current revision for all callers of Revision that share the read.
func (s *Store) readRevision() (int64, error) {
	ctx, cancel := context.WithTimeout(s.lifetime.ctx, revisionTimeout)
	defer cancel()
	revision, err := s.readRevisionWithin(ctx)
	if err == nil {
		s.requestProgress(revision)
	}
	return revision, err
}

// readRevisionWithin reads the current revision, and fails if it is lower than an earlier one.
func (s *Store) readRevisionWithin(ctx context.Context) (int64, error) {
	before := s.observed.revision.Load()
	r, err := retry(ctx, s.startMemberCheck, shortAttemptTimeout,
		func(ctx context.Context) (*clientv3.GetResponse, error) {
			return s.client.Get(ctx, missingKey, clientv3.WithCountOnly())
		})
	if err != nil {
		return 0, err
	}
	if r.Header.Revision < before {
		return 0, s.revisionWentBack(before, r.Header.Revision)
	}
	s.observe(r.Header.Revision)
	return r.Header.Revision, nil
}

// revisionWentBack is called when the cluster is at a lower revision than before, because its data was replaced by
// an old backup. The data in the memory of this process and of its clients is then wrong, and the same revisions
// stand for other changes. It returns the error that all later calls return.
func (s *Store) revisionWentBack(before, now int64) error {
	err := fmt.Errorf(
		"%w: the cluster is at revision %d and was at %d: its data was replaced by older data", storage.ErrFailed, now,
		before,
	)
	if s.unusable.wentBack.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("etcd went back in time; restart the process", "was", before, "is", now)
		if s.opts.OnFailure != nil {
			s.opts.OnFailure(err)
		}
	}
	return *s.unusable.wentBack.Load()
}

// Compact implements storage.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if revision <= s.observed.compacted.Load() {
		return nil
	}
	_, err := retry(ctx, s.startMemberCheck, readAttemptTimeout,
		func(ctx context.Context) (*clientv3.CompactResponse, error) {
			return s.client.Compact(ctx, revision)
		})
	switch {
	case err == nil:
		raiseTo(&s.observed.compacted, revision)
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
	return s.convertError(ctx, "compact", err)
}

// Stats implements storage.Store. CompactedRevision is the highest one that this process knows; other processes may
// have compacted further.
func (s *Store) Stats() storage.Stats {
	return storage.Stats{
		Revision: s.observed.revision.Load(), CompactedRevision: s.observed.compacted.Load(),
		SizeBytes: s.observed.size.Load(),
	}
}

// usable returns the reason why the cluster must not be used, nil if there is none.
func (s *Store) usable() error {
	if p := s.unusable.wentBack.Load(); p != nil {
		return *p
	}
	if p := s.unusable.version.Load(); p != nil {
		return *p
	}
	return nil
}
