package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options configure an Encryption.
type Options struct {
	// File is the path of the EncryptionConfiguration, in YAML or JSON.
	File string
	// Read reads the file; nil is os.ReadFile.
	Read func(path string) ([]byte, error)
	// Reload means that the caller will call Encryption.Reload later.
	Reload bool
	// Root replaces /registry at the beginning of keys in etcd, without a slash at its end; "" means /registry.
	// The key with this prefix is authenticated together with the value.
	Root string
	// Metrics counts the operations; nil means unregistered metrics.
	Metrics *Metrics
	// Logger receives messages about reloads and about plug-ins that fail; nil discards them.
	Logger *slog.Logger
}

const (
	defaultRoot = "/registry"
	// retireDelay is the time between a reload and the closing of the old configuration's providers. Operations in
	// progress can end in this time.
	retireDelay = time.Minute
	// maxHealthAge is the age up to which the last result of a poll is used for a health check.
	maxHealthAge = 20 * time.Second
	// maxConfigBytes is the largest size of the file.
	maxConfigBytes = 4 << 20
)

// Encryption is an encryption configuration in use.
type Encryption struct {
	opts    Options
	current atomic.Pointer[providers]

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex                 // guards the fields below
	retiring map[*providers]*time.Timer // providers of old configurations, and the timers that close them
	document []byte                     // contents of the file that is in use
	onReload func(Dropped)              // may be nil
	closed   bool
}

// Open reads and validates the configuration and starts to poll its plug-ins. A plug-in that does not answer is not an
// error of Open: operations that need it fail until it answers. The caller must call Close.
func Open(o Options) (*Encryption, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics("")
	}
	if o.Read == nil {
		o.Read = os.ReadFile
	}
	e := &Encryption{opts: o, retiring: map[*providers]*time.Timer{}}
	document, err := readConfig(o.File, o.Read)
	if err != nil {
		return nil, err
	}
	p, err := e.parseProviders(document)
	if err != nil {
		return nil, err
	}
	e.document = document
	o.Metrics.configLoaded(document)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := p.pollPlugins(e.ctx); err != nil {
		o.Logger.Error("a KMS provider does not answer", "error", err)
	}
	p.start()
	e.current.Store(p)
	return e, nil
}

// readConfig reads the configuration file. It fails if the file is empty or larger than maxConfigBytes.
func readConfig(name string, read func(string) ([]byte, error)) ([]byte, error) {
	document, err := read(name)
	if err == nil && len(document) > maxConfigBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxConfigBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("error reading encryption provider configuration file: %w", err)
	}
	if len(bytes.TrimSpace(document)) == 0 {
		return nil, fmt.Errorf("encryption provider configuration file %q is empty", name)
	}
	return document, nil
}

// parseProviders creates the providers of the configuration in document.
func (e *Encryption) parseProviders(document []byte) (*providers, error) {
	c, err := parse(document)
	if err == nil {
		var p *providers
		if p, err = newProviders(c, e.opts.Logger, e.opts.Metrics); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", e.opts.File, err)
}

// Close closes the connections to the plug-ins. The transformers must not be used afterwards.
func (e *Encryption) Close() error {
	e.cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for p, timer := range e.retiring {
		timer.Stop()
		p.close()
	}
	clear(e.retiring)
	e.current.Load().close()
	return nil
}

// Dropped returns the prefixes of stored values of a resource that could be read before a reload, and cannot be
// read now. "" stands for values that are not encrypted. Keys are compared by name: if a key keeps its name and
// gets another secret, it is not in the result.
type Dropped func(gr schema.GroupResource) []string

// Holds reports whether a stored value has one of the prefixes, which are a result of Dropped.
func Holds(prefixes []string, value []byte) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		if prefix == "" {
			return !bytes.HasPrefix(value, []byte(encryptedPrefix))
		}
		return bytes.HasPrefix(value, []byte(prefix))
	})
}

// OnReload sets a function that is called after each successful reload, because afterwards some values can be
// decrypted that could not be before, and others can no longer be decrypted. f should not block for long.
func (e *Encryption) OnReload(f func(Dropped)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onReload = f
}

// CountReload counts the result of an attempt to reload in the metrics. The caller should count a failure that
// repeats itself only once.
func (e *Encryption) CountReload(err error) { e.opts.Metrics.configReload(err) }

// notifyReload calls the function that OnReload has set.
func (e *Encryption) notifyReload(before *providers) {
	e.mu.Lock()
	f := e.onReload
	e.mu.Unlock()
	if f == nil {
		return
	}
	f(func(gr schema.GroupResource) []string {
		kept := prefixesOf(e.current.Load().transformerFor(gr))
		return slices.DeleteFunc(prefixesOf(before.transformerFor(gr)), func(prefix string) bool { return slices.Contains(kept, prefix) })
	})
}

// Reload reads the file with read, and puts it into use if it has changed and all its plug-ins answer. If the file
// is invalid or one of its plug-ins does not answer, Reload returns an error, and the configuration in use stays.
// Reload must not be called concurrently or after Close. ctx limits the wait for plug-ins.
func (e *Encryption) Reload(ctx context.Context, read func(path string) ([]byte, error)) error {
	document, err := readConfig(e.opts.File, read)
	if err != nil {
		return err
	}
	e.mu.Lock()
	same := bytes.Equal(document, e.document)
	e.mu.Unlock()
	if same {
		return nil
	}
	next, err := e.parseProviders(document)
	if err != nil {
		return err
	}
	if err := next.pollPlugins(ctx); err != nil {
		next.close()
		return err
	}
	next.start()
	before := e.current.Load()
	e.replace(next, document)
	e.notifyReload(before)
	return nil
}

// replace puts providers into use.
func (e *Encryption) replace(next *providers, document []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.current.Swap(next)
	e.document = document
	e.opts.Metrics.configLoaded(document)
	e.retiring[before] = time.AfterFunc(retireDelay, func() { e.closeRetired(before) })
}

// closeRetired closes the providers of an old configuration.
func (e *Encryption) closeRetired(p *providers) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.retiring[p]; there && !e.closed {
		delete(e.retiring, p)
		p.close()
	}
}

// HasPlugins reports whether the configuration has KMS providers, or may get some by a reload.
func (e *Encryption) HasPlugins() bool { return e.opts.Reload || len(e.current.Load().plugins) > 0 }

// Healthy returns an error if a KMS provider does not answer or is not healthy. The result may be up to 20 seconds old.
func (e *Encryption) Healthy(ctx context.Context) error {
	var errs []error
	for _, p := range e.current.Load().plugins {
		if err := p.recentHealth(ctx, maxHealthAge); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Resource returns the transformer of the values of a resource. After a reload it uses the new configuration.
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
	return t.e.current.Load().transformerFor(t.gr).ToStore(t.withResource(ctx), t.authenticatedData(key), plain)
}

// FromStore returns the plain value of the value stored under key, and whether a write would now use another
// provider or key. It never waits for a plug-in: if one must be called, the error is a *storage.PendingError.
func (t *ResourceTransformer) FromStore(ctx context.Context, key string, value []byte) ([]byte, bool, error) {
	return t.e.current.Load().transformerFor(t.gr).FromStore(t.withResource(ctx), t.authenticatedData(key), value)
}

// withResource adds the resource to ctx, for the metrics.
func (t *ResourceTransformer) withResource(ctx context.Context) context.Context {
	return context.WithValue(ctx, resourceKey{}, t.gr.String())
}

// authenticatedData returns the key as it is in etcd, which is authenticated with the value.
func (t *ResourceTransformer) authenticatedData(key string) []byte {
	if t.e.opts.Root != "" && t.e.opts.Root != defaultRoot {
		if rest, ok := strings.CutPrefix(key, defaultRoot); ok {
			return []byte(t.e.opts.Root + rest)
		}
	}
	return []byte(key)
}
