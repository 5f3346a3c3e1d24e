package encrypt

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/uuid"
	kmsv2 "k8s.io/kms/apis/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// A plug-in is polled at healthyPollInterval, and at failingPollInterval after a failed poll.
	healthyPollInterval = time.Minute
	failingPollInterval = 10 * time.Second
	// sourceLifetime is the time for which values are written with a seed after the plug-in has last confirmed its key.
	sourceLifetime = 3 * time.Minute
	// maxCachedKeys is the largest number of decrypted keys and seeds in the cache.
	maxCachedKeys = 1000
)

// plugin is a KMS v2 provider: a program that listens on a Unix socket (KEP-3299). Values are encrypted with keys
// that are derived from a random seed. The plug-in encrypts the seed, and each value is stored together with the
// encrypted seed. (KEP-3299 calls the seed the DEK source.) The plug-in is called when the server starts, when its
// key changes, and when a value has a seed that this process has not decrypted before, but not for each value.
type plugin struct {
	name    string
	timeout time.Duration // of one call
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time

	conn   *grpc.ClientConn
	client kmsv2.KeyManagementServiceClient

	writing writeState
	status  pluginStatus
	keys    keyCache
}

// writeState is the seed and key with which values are written.
type writeState struct {
	source atomic.Pointer[writeSource] // nil until the plug-in has answered for the first time
	// validUntil is the time, in Unix nanoseconds, after which source is no longer used for writes. It is extended
	// when the plug-in confirms the key.
	validUntil atomic.Int64
}

// pluginStatus is the result of the last poll.
type pluginStatus struct {
	mu  sync.Mutex // held during a poll; guards the fields below
	err error      // result of the last poll
	at  time.Time  // when the last poll ended
}

// keyCache contains the decrypted keys and seeds, at most maxCachedKeys.
type keyCache struct {
	mu     sync.Mutex // guards byHash and order
	byHash map[[sha256.Size]byte]Transformer
	order  [][sha256.Size]byte // the keys of byHash, the oldest first
	calls  singleflight.Group  // calls that decrypt keys, by the hash of the key
}

// writeSource is a seed for writing: its transformer, and an envelope with the encrypted seed.
type writeSource struct {
	envelope envelope // without data
	Transformer
}

// dialPlugin creates the client of a plug-in, without sending anything. endpoint is the path of a Unix socket, or "@"
// and the name of an abstract socket.
func dialPlugin(name, endpoint string, timeout time.Duration, log *slog.Logger, metrics *Metrics) (*plugin, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", endpoint)
	}
	conn, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a Unix socket of this machine
		grpc.WithContextDialer(dial),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(metrics.intercept(name)),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	)
	if err != nil {
		return nil, fmt.Errorf("KMS provider %s: %w", name, err)
	}
	return &plugin{
		name: name, timeout: timeout, log: log, metrics: metrics, now: time.Now,
		conn: conn, client: kmsv2.NewKeyManagementServiceClient(conn),
		status: pluginStatus{err: errors.New("the plug-in was not asked yet")},
		keys:   keyCache{byHash: map[[sha256.Size]byte]Transformer{}},
	}, nil
}

func (p *plugin) close() { _ = p.conn.Close() }

// poll asks the plug-in for its status. If the key of the plug-in has changed, it creates a new seed.
func (p *plugin) poll(ctx context.Context) error {
	p.status.mu.Lock()
	defer p.status.mu.Unlock()
	p.status.err = p.checkStatus(ctx)
	p.status.at = p.now()
	return p.status.err
}

// recentHealth returns the result of the last poll if it is not older than age. Otherwise it polls.
func (p *plugin) recentHealth(ctx context.Context, age time.Duration) error {
	p.status.mu.Lock()
	if p.now().Sub(p.status.at) < age {
		defer p.status.mu.Unlock()
		return p.status.err
	}
	p.status.mu.Unlock()
	return p.poll(ctx)
}

// pollUntilDone polls the plug-in until ctx ends. If there was a poll shortly before, its result counts as the
// first poll.
func (p *plugin) pollUntilDone(ctx context.Context) {
	failing := p.recentHealth(ctx, healthyPollInterval) != nil
	for {
		wait := healthyPollInterval
		if failing {
			wait = failingPollInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := p.poll(ctx)
		if ctx.Err() != nil || failing == (err != nil) {
			continue
		}
		failing = err != nil
		if failing {
			p.log.Error("a KMS provider fails", "provider", p.name, "error", err)
		} else {
			p.log.Info("a KMS provider works again", "provider", p.name)
		}
	}
}

// checkStatus calls Status of the plug-in and validates the answer. The caller holds p.status.mu.
func (p *plugin) checkStatus(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	status, err := p.client.Status(ctx, &kmsv2.StatusRequest{})
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", p.name, err)
	}
	if status.Healthz != "ok" {
		return fmt.Errorf("got unexpected healthz status: %s", status.Healthz)
	}
	if status.Version != "v2" && status.Version != "v2beta1" {
		return fmt.Errorf("expected KMSv2 API version v2, got %s", status.Version)
	}
	if err := checkKeyID(status.KeyId); err != nil {
		p.metrics.invalidKeyID(p.name, status.KeyId)
		return fmt.Errorf("got invalid KMSv2 KeyID hash %x: %w", sha256.Sum256([]byte(status.KeyId)), err)
	}
	p.metrics.keyConfirmed(p.name, status.KeyId)
	if s := p.writing.source.Load(); s == nil || s.envelope.keyID != status.KeyId {
		if err := p.renewSource(ctx, status.KeyId); err != nil {
			return err
		}
	}
	p.writing.validUntil.Store(p.now().Add(sourceLifetime).UnixNano())
	return nil
}

// renewSource creates a seed and lets the plug-in encrypt it. keyID is the key ID in the status of the plug-in.
// The plug-in must encrypt the seed with the same key.
func (p *plugin) renewSource(ctx context.Context, keyID string) error {
	began, seed := time.Now(), make([]byte, seedSize)
	_, err := rand.Read(seed)
	p.metrics.seedGenerated(began, err)
	if err != nil {
		return err
	}
	answer, err := p.client.Encrypt(ctx, &kmsv2.EncryptRequest{Plaintext: seed, Uid: string(uuid.NewUUID())})
	if err != nil {
		return fmt.Errorf("failed to encrypt DEK source with KMS Provider %s, error: %w", p.name, err)
	}
	s := &writeSource{
		envelope: envelope{
			keyID: answer.KeyId, source: answer.Ciphertext, annotations: answer.Annotations, sourceType: hkdfSource,
		},
		Transformer: derivedKeys{seed},
	}
	if err := s.envelope.checkKey(); err != nil {
		return fmt.Errorf("KMS Provider %s encrypted a DEK source wrongly: %w", p.name, err)
	}
	if bytes.Equal(answer.Ciphertext, seed) {
		return fmt.Errorf("KMS Provider %s did not encrypt the DEK source", p.name)
	}
	if answer.KeyId != keyID {
		return fmt.Errorf("KMS Provider %s: the key of its status is not the one that it encrypts with", p.name)
	}
	p.writing.source.Store(s)
	p.cacheKey(s.envelope.keyHash(), s.Transformer)
	p.log.Info("a KMS provider has a new key", "provider", p.name)
	return nil
}

// ToStore implements Transformer.
func (p *plugin) ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error) {
	s := p.writing.source.Load()
	if s == nil {
		return nil, fmt.Errorf("the KMS provider %s is not ready", p.name)
	}
	if end := time.Unix(0, p.writing.validUntil.Load()); p.now().After(end) {
		return nil, fmt.Errorf(
			"the DEK source of the KMS provider %s expired at %s: the provider does not answer", p.name,
			end.UTC().Format(time.RFC3339),
		)
	}
	data, err := s.ToStore(ctx, authenticated, plain)
	if err != nil {
		return nil, err
	}
	p.metrics.keyUsed(toStorage, p.name, s.envelope.keyID)
	e := s.envelope
	e.data = data
	return e.append(nil), nil
}

// FromStore implements Transformer.
func (p *plugin) FromStore(ctx context.Context, authenticated, value []byte) ([]byte, bool, error) {
	e, err := parseEnvelope(value)
	if err != nil {
		return nil, false, err
	}
	t := p.decryptedKey(e.keyHash())
	if t == nil {
		return nil, false, p.pending(e)
	}
	plain, _, err := t.FromStore(ctx, authenticated, e.data)
	if err != nil {
		return nil, false, err
	}
	p.metrics.keyUsed(fromStorage, p.name, e.keyID)
	s := p.writing.source.Load()
	stale := s != nil && (e.keyID != s.envelope.keyID || e.sourceType != s.envelope.sourceType)
	return plain, stale, nil
}

// decryptedKey returns the transformer of a decrypted key or seed; nil if the plug-in must decrypt it first.
func (p *plugin) decryptedKey(hash [sha256.Size]byte) Transformer {
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	return p.keys.byHash[hash]
}

// pending returns the *storage.PendingError for an envelope whose key the plug-in must decrypt.
func (p *plugin) pending(e *envelope) error {
	key := *e
	key.data = nil
	hash := key.keyHash()
	return &storage.PendingError{
		Need:   fmt.Sprintf("KMS provider %s to decrypt a DEK source (key ID hash %x)", p.name, hash[:8]),
		Obtain: func(ctx context.Context) error { return p.obtain(ctx, &key, hash) },
	}
}

// obtain lets the plug-in decrypt the key of an envelope. Callers that need the same key share one call. The call
// is not cancelled with the context of a caller. It ends after p.timeout or when the connection is closed.
func (p *plugin) obtain(ctx context.Context, e *envelope, hash [sha256.Size]byte) error {
	answer := p.keys.calls.DoChan(string(hash[:]), func() (any, error) { return nil, p.decrypt(e, hash) })
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return fmt.Errorf("failed to decrypt DEK, error: %w", ctx.Err())
	}
}

// decrypt calls the plug-in to decrypt the key of an envelope, and adds it to the cache. obtain does not run it
// concurrently for the same key.
func (p *plugin) decrypt(e *envelope, hash [sha256.Size]byte) error {
	if p.decryptedKey(hash) != nil {
		return nil // another call has just decrypted it
	}
	p.metrics.dataKeys.cacheMisses.Inc()
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	answer, err := p.client.Decrypt(ctx, &kmsv2.DecryptRequest{
		Ciphertext: e.source, KeyId: e.keyID, Annotations: e.annotations, Uid: string(uuid.NewUUID()),
	})
	if err != nil {
		return fmt.Errorf("failed to decrypt DEK, error: %w", err)
	}
	t, err := e.open(answer.Plaintext)
	if err != nil {
		return err
	}
	p.cacheKey(hash, t)
	return nil
}

// cacheKey adds the transformer of a key to the cache. If there are too many, it removes the oldest one.
func (p *plugin) cacheKey(hash [sha256.Size]byte, t Transformer) {
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	if p.keys.byHash[hash] == nil {
		p.keys.order = append(p.keys.order, hash)
	}
	p.keys.byHash[hash] = t
	if len(p.keys.order) > maxCachedKeys {
		delete(p.keys.byHash, p.keys.order[0])
		p.keys.order = append(p.keys.order[:0], p.keys.order[1:]...)
	}
	p.metrics.plugins.cachedKeys.WithLabelValues(p.name).Set(float64(len(p.keys.order)))
}
