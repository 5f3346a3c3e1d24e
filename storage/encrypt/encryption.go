package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options say how to open an Encryption.
type Options struct {
	// File is the EncryptionConfiguration, in YAML or JSON.
	File string
	// Reload follows changes of the file. A file that cannot be used, or whose
	// plug-ins do not answer, changes nothing.
	Reload bool
	// ReloadEvery is how often the file is looked at; 0 is five seconds.
	ReloadEvery time.Duration
	// Root is what the keys in etcd begin with in place of /registry, without a
	// slash at its end; "" is /registry. It is part of what values authenticate.
	Root string
	// Metrics count what is done; nil counts for nobody.
	Metrics *Metrics
	// Logger is told of reloads and of plug-ins that fail; nil discards.
	Logger *slog.Logger
}

const (
	defaultRoot        = "/registry"
	defaultReloadEvery = 5 * time.Second
	// lingering is how long the providers of an old configuration stay open for
	// what is in flight.
	lingering = time.Minute
	// healthAge is how old the answer of a plug-in may be that a health check
	// gives.
	healthAge = 20 * time.Second
	// maxConfig bounds the file, in bytes.
	maxConfig = 4 << 20
)

// Encryption is a configuration in use.
type Encryption struct {
	o       Options
	current atomic.Pointer[providers]

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	old      map[*providers]*time.Timer
	last     []byte // the file that is in use
	onReload func() // nil: nobody is told
	closed   bool
}

// Open reads and validates the configuration and starts to follow its plug-ins. One
// that does not answer yet is no error: what needs it fails until it does.
func Open(o Options) (*Encryption, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics("")
	}
	if o.ReloadEvery <= 0 {
		o.ReloadEvery = defaultReloadEvery
	}
	e := &Encryption{o: o, old: map[*providers]*time.Timer{}}
	document, err := readConfig(o.File)
	if err != nil {
		return nil, err
	}
	p, err := e.build(document)
	if err != nil {
		return nil, err
	}
	e.last = document
	o.Metrics.loaded(document)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := p.prime(e.ctx); err != nil {
		o.Logger.Error("a KMS provider does not answer", "error", err)
	}
	p.start()
	e.current.Store(p)
	if o.Reload {
		e.tasks.Go(e.follow)
	}
	return e, nil
}

func readConfig(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxConfig)
	}
	var document []byte
	if err == nil {
		document, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("error reading encryption provider configuration file: %w", err)
	}
	if len(bytes.TrimSpace(document)) == 0 {
		return nil, fmt.Errorf("encryption provider configuration file %q is empty", name)
	}
	return document, nil
}

func (e *Encryption) build(document []byte) (*providers, error) {
	c, err := parse(document)
	if err == nil {
		var p *providers
		if p, err = newProviders(c, e.o.Logger, e.o.Metrics); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", e.o.File, err)
}

// Close ends the connections to plug-ins. Nothing may be transformed afterwards.
func (e *Encryption) Close() error {
	e.cancel()
	e.tasks.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for p, timer := range e.old {
		timer.Stop()
		p.close()
	}
	clear(e.old)
	e.current.Load().close()
	return nil
}

func (e *Encryption) follow() {
	ticker := time.NewTicker(e.o.ReloadEvery)
	defer ticker.Stop()
	var said string
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := e.reload()
		if changed || err != nil {
			e.o.Metrics.reload(err)
		}
		if changed {
			e.tellReload()
		}
		if err != nil && err.Error() != said {
			e.o.Logger.Error("the encryption configuration cannot be reloaded; the one before stays in use", "error", err)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}

// OnReload has f called after each reload that took effect: what could not be read
// before may be readable now. f is called by one goroutine and must not wait for long.
func (e *Encryption) OnReload(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onReload = f
}

func (e *Encryption) tellReload() {
	e.mu.Lock()
	f := e.onReload
	e.mu.Unlock()
	if f != nil {
		f()
	}
}

// reload uses the file if it changed and all its plug-ins answer, and says whether it
// did.
func (e *Encryption) reload() (changed bool, err error) {
	document, err := readConfig(e.o.File)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	same := bytes.Equal(document, e.last)
	e.mu.Unlock()
	if same {
		return false, nil
	}
	next, err := e.build(document)
	if err != nil {
		return false, err
	}
	if err := next.prime(e.ctx); err != nil {
		next.close()
		return false, err
	}
	next.start()
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.current.Swap(next)
	e.last = document
	e.o.Metrics.loaded(document)
	e.old[before] = time.AfterFunc(lingering, func() { e.retire(before) })
	e.o.Logger.Info("the encryption configuration was reloaded", "file", e.o.File)
	return true, nil
}

func (e *Encryption) retire(p *providers) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.old[p]; there && !e.closed {
		delete(e.old, p)
		p.close()
	}
}

// HasPlugins says whether the configuration has, or may get, KMS providers.
func (e *Encryption) HasPlugins() bool { return e.o.Reload || len(e.current.Load().plugins) > 0 }

// Healthy says whether all KMS providers answer, by an answer that may be 20
// seconds old.
func (e *Encryption) Healthy(ctx context.Context) error {
	var errs []error
	for _, p := range e.current.Load().plugins {
		if err := p.check(ctx, healthAge); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Resource returns what transforms the values of a resource, by its key in the
// store. It follows reloads.
func (e *Encryption) Resource(gr schema.GroupResource) *ResourceTransformer {
	return &ResourceTransformer{e: e, gr: gr}
}

// ResourceTransformer transforms the values of one resource.
type ResourceTransformer struct {
	e  *Encryption
	gr schema.GroupResource
}

// ToStore returns the value to store under key.
func (t *ResourceTransformer) ToStore(ctx context.Context, key string, plain []byte) ([]byte, error) {
	return t.e.current.Load().of(t.gr).ToStore(t.named(ctx), t.authenticated(key), plain)
}

// FromStore returns the plain value of what is stored under key, and whether a
// write would store it another way. It never waits for a plug-in; the error is a
// *storage.PendingError where one has to be asked.
func (t *ResourceTransformer) FromStore(ctx context.Context, key string, value []byte) ([]byte, bool, error) {
	return t.e.current.Load().of(t.gr).FromStore(t.named(ctx), t.authenticated(key), value)
}

// named tells metrics which resource it is.
func (t *ResourceTransformer) named(ctx context.Context) context.Context {
	return context.WithValue(ctx, resourceKey{}, t.gr.String())
}

func (t *ResourceTransformer) authenticated(key string) []byte {
	if t.e.o.Root != "" && t.e.o.Root != defaultRoot {
		if rest, ok := strings.CutPrefix(key, defaultRoot); ok {
			return []byte(t.e.o.Root + rest)
		}
	}
	return []byte(key)
}
