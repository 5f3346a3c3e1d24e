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

	"github.com/keelson-dev/keelson/storage"
)

const (
	// pollHealthy and pollFailing are how often a plug-in is asked for its status.
	pollHealthy = time.Minute
	pollFailing = 10 * time.Second
	// sourceLife is how long values are written with a seed after the plug-in last
	// confirmed its key.
	sourceLife = 3 * time.Minute
	// openSources bounds the decrypted keys and seeds that are kept, in number.
	openSources = 1000
)

// plugin is a KMS v2 provider: a program behind a Unix socket that encrypts the
// seed from which values are encrypted (KEP-3299). The plug-in is asked when the
// server starts, when its key changes and when a value has a seed that was not met
// before; never for each value.
type plugin struct {
	name    string
	timeout time.Duration // of one call
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time

	conn   *grpc.ClientConn
	client kmsv2.KeyManagementServiceClient

	// current is what values are written with; nil until the plug-in first
	// answered. life is when it ends, unless the plug-in confirms the key.
	current atomic.Pointer[writeSource]
	life    atomic.Int64 // Unix nanoseconds

	polling sync.Mutex // held by the one that talks about status
	health  error      // guarded by polling: what the last poll said
	polled  time.Time  // guarded by polling

	mu      sync.Mutex // guards what follows
	open    map[[sha256.Size]byte]Transformer
	order   [][sha256.Size]byte // of open, the oldest first
	flights singleflight.Group  // calls to decrypt keys, by the hash of the key
}

// writeSource is an encrypted seed, and the seed.
type writeSource struct {
	envelope envelope // without data
	Transformer
}

// dialPlugin makes the client of a plug-in; nothing is sent yet. endpoint is a path,
// or a name in the abstract space after an @.
func dialPlugin(name, endpoint string, timeout time.Duration, log *slog.Logger, metrics *Metrics) (*plugin, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", endpoint)
	}
	conn, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
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
		open:   map[[sha256.Size]byte]Transformer{},
		health: errors.New("the plug-in was not asked yet"),
	}, nil
}

func (p *plugin) close() { _ = p.conn.Close() }

// poll asks the plug-in for its status and, where its key changed, for a new seed
// to be encrypted.
func (p *plugin) poll(ctx context.Context) error {
	p.polling.Lock()
	defer p.polling.Unlock()
	p.health = p.refresh(ctx)
	p.polled = p.now()
	return p.health
}

// check is poll, unless the last answer is younger than age.
func (p *plugin) check(ctx context.Context, age time.Duration) error {
	p.polling.Lock()
	if p.now().Sub(p.polled) < age {
		defer p.polling.Unlock()
		return p.health
	}
	p.polling.Unlock()
	return p.poll(ctx)
}

// follow polls until the context ends. The first poll was another's.
func (p *plugin) follow(ctx context.Context) {
	failing := p.check(ctx, pollHealthy) != nil
	for {
		wait := pollHealthy
		if failing {
			wait = pollFailing
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

func (p *plugin) refresh(ctx context.Context) error {
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
		p.metrics.invalid(p.name, status.KeyId)
		return fmt.Errorf("got invalid KMSv2 KeyID hash %x: %w", sha256.Sum256([]byte(status.KeyId)), err)
	}
	p.metrics.confirmed(p.name, status.KeyId)
	if s := p.current.Load(); s == nil || s.envelope.keyID != status.KeyId {
		if err := p.renew(ctx, status.KeyId); err != nil {
			return err
		}
	}
	p.life.Store(p.now().Add(sourceLife).UnixNano())
	return nil
}

// renew makes a seed and has it encrypted by the plug-in's key.
func (p *plugin) renew(ctx context.Context, keyID string) error {
	began, seed := time.Now(), make([]byte, seedSize)
	_, err := rand.Read(seed)
	p.metrics.generated(began, err)
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
		Transformer: seeded{seed},
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
	p.current.Store(s)
	p.keep(s.envelope.keyHash(), s.Transformer)
	p.log.Info("a KMS provider has a new key", "provider", p.name)
	return nil
}

// ToStore implements Transformer.
func (p *plugin) ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error) {
	s := p.current.Load()
	if s == nil {
		return nil, fmt.Errorf("the KMS provider %s is not ready", p.name)
	}
	if end := time.Unix(0, p.life.Load()); p.now().After(end) {
		return nil, fmt.Errorf(
			"the DEK source of the KMS provider %s expired at %s: the provider does not answer", p.name,
			end.UTC().Format(time.RFC3339),
		)
	}
	data, err := s.ToStore(ctx, authenticated, plain)
	if err != nil {
		return nil, err
	}
	p.metrics.keyOf(toStorage, p.name, s.envelope.keyID)
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
	t := p.opened(e.keyHash())
	if t == nil {
		return nil, false, p.pending(e)
	}
	plain, _, err := t.FromStore(ctx, authenticated, e.data)
	if err != nil {
		return nil, false, err
	}
	p.metrics.keyOf(fromStorage, p.name, e.keyID)
	s := p.current.Load()
	stale := s != nil && (e.keyID != s.envelope.keyID || e.sourceType != s.envelope.sourceType)
	return plain, stale, nil
}

// opened returns what reads the data of envelopes with a key, nil if the plug-in has to
// decrypt the key first.
func (p *plugin) opened(hash [sha256.Size]byte) Transformer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[hash]
}

// pending says that the plug-in has to decrypt the key of an envelope.
func (p *plugin) pending(e *envelope) error {
	key := *e
	key.data = nil
	hash := key.keyHash()
	return &storage.PendingError{
		Need:   fmt.Sprintf("KMS provider %s to decrypt a DEK source (key ID hash %x)", p.name, hash[:8]),
		Obtain: func(ctx context.Context) error { return p.obtain(ctx, &key, hash) },
	}
}

// obtain has the plug-in decrypt the key of an envelope. There is one call for a key at
// a time, which all who need the key wait for. The call does not end with the context of
// any of them, but after p.timeout or with the connection.
func (p *plugin) obtain(ctx context.Context, e *envelope, hash [sha256.Size]byte) error {
	answer := p.flights.DoChan(string(hash[:]), func() (any, error) { return nil, p.decrypt(e, hash) })
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return fmt.Errorf("failed to decrypt DEK, error: %w", ctx.Err())
	}
}

func (p *plugin) decrypt(e *envelope, hash [sha256.Size]byte) error {
	if p.opened(hash) != nil {
		return nil // by a call that has just ended
	}
	p.metrics.misses.Inc()
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
	p.keep(hash, t)
	return nil
}

func (p *plugin) keep(hash [sha256.Size]byte, t Transformer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[hash] == nil {
		p.order = append(p.order, hash)
	}
	p.open[hash] = t
	if len(p.order) > openSources {
		delete(p.open, p.order[0])
		p.order = append(p.order[:0], p.order[1:]...)
	}
	p.metrics.sources.WithLabelValues(p.name).Set(float64(len(p.order)))
}
