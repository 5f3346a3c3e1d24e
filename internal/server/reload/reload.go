// Package reload applies the parts of the configuration that are read from files, and applies them again when a file changes.
package reload

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// Files has the parts of the configuration that are read from files. Every file that may be replaced while the
// server runs is read through Load. With a nil Files, parts are applied only once. The methods may be called
// concurrently.
type Files struct {
	// Wake makes the server check all files now. Call its method Fire.
	Wake filewatch.Signal

	every   time.Duration
	log     *slog.Logger
	metrics *fileMetrics

	mu    sync.Mutex // guards the fields below
	parts []*followedPart
	work  *background.Group // nil before Start
}

// Part is a part of the configuration that is read from files.
type Part struct {
	// Flag, with its dashes, is the name of the part in the log and in metrics. Path is its first file.
	Flag, Path string
	// Apply is filewatch.Watch.Apply. It is called while requests are served. A request that has begun may
	// continue with the previous content.
	Apply func(read filewatch.Read) error
	// Observe, unless it is nil, is called with the result of applying a change.
	Observe func(error)
}

type followedPart struct {
	Part
	watch *filewatch.Watch
	bad   bool // its files cannot be used; guarded by Files.mu
}

// New returns Files that are checked in the given interval. It registers their metrics.
func New(every time.Duration, log *slog.Logger, m *metrics.Metrics) *Files {
	return &Files{every: every, log: log, metrics: newMetrics(m)}
}

// Load applies a part for the first time. If that succeeds, its files are followed, but not before Start is called.
func (f *Files) Load(p Part) (*filewatch.Watch, error) {
	followed := &followedPart{Part: p, watch: &filewatch.Watch{Apply: p.Apply}}
	if err := followed.watch.Load(); err != nil || f == nil {
		return followed.watch, err
	}
	followed.watch.Report = func(err error) { f.report(followed, err) }
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts = append(f.parts, followed)
	f.metrics.followed(p.Flag)
	if f.work != nil {
		f.follow(followed)
	}
	return followed.watch, nil
}

// report logs and counts the result of applying a change.
func (f *Files) report(p *followedPart, err error) {
	if err == nil {
		f.log.Info("a changed file is in effect", "flag", p.Flag, "file", p.Path)
	} else {
		f.log.Error("a changed file cannot be used; its content before stays in effect",
			"flag", p.Flag, "file", p.Path, "error", config.CommandLine(err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.bad = err != nil
	inEffect := true
	for _, other := range f.parts {
		inEffect = inEffect && (other.Flag != p.Flag || !other.bad)
	}
	f.metrics.reloaded(p.Flag, err == nil, inEffect)
	if p.Observe != nil {
		p.Observe(err)
	}
}

// Start follows the files of all parts, including parts that are loaded later, until work is stopped.
func (f *Files) Start(work *background.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.work = work
	for _, p := range f.parts {
		f.follow(p)
	}
}

// Context returns a context that ends when the files are not followed any more. Start must have been called.
func (f *Files) Context() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.work.Context()
}

// Check looks at all files and returns when their changes are in effect. It is for tests.
func (f *Files) Check() {
	f.mu.Lock()
	parts := slices.Clone(f.parts)
	f.mu.Unlock()
	for _, p := range parts {
		p.watch.Check()
	}
}

// follow follows the files of a part. Each part has its own goroutine, because some parts wait for the answer of
// another program while they are applied. mu is held.
func (f *Files) follow(p *followedPart) {
	name := "changes of " + p.Flag
	for i, same := 0, 0; f.parts[i] != p; i++ {
		if f.parts[i].Flag == p.Flag {
			same++
			name = "changes of " + p.Flag + " " + strconv.Itoa(same+1)
		}
	}
	f.work.Go(name, background.Forever(func(ctx context.Context) { p.watch.Run(ctx, f.every, &f.Wake) }))
}

// Pair has the files of a certificate and its key.
type Pair struct {
	Flag, CertFile, KeyFile string
	// Use, unless it is nil, is called with each version of the certificate before connections have it.
	Use func(*tls.Certificate)
}

// Pair returns a function that returns the certificate. If the files have changed the function reads them, so that the
// next connection has the new certificate.
func (f *Files) Pair(p Pair) (func() (*tls.Certificate, error), error) {
	var current atomic.Pointer[tls.Certificate]
	watch, err := f.Load(Part{Flag: p.Flag, Path: p.CertFile, Apply: func(read filewatch.Read) error {
		cert, err := read(p.CertFile)
		if err != nil {
			return err
		}
		key, err := read(p.KeyFile)
		if err != nil {
			return err
		}
		parsed, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("%s and %s: %w", p.CertFile, p.KeyFile, err)
		}
		if p.Use != nil {
			p.Use(&parsed)
		}
		current.Store(&parsed)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return func() (*tls.Certificate, error) {
		watch.Refresh()
		return current.Load(), nil
	}, nil
}

// Authorities follows the certificate authorities in a file. use is called with the first version and each later
// one.
func (f *Files) Authorities(flag, path string, use func(*x509.CertPool)) error {
	return f.File(flag, path, func(content []byte) error {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(content) {
			return fmt.Errorf("%s has no certificates", path)
		}
		use(pool)
		return nil
	})
}

// ClientTLS returns a function that returns the TLS configuration for a new connection to another server. It has
// the authorities in caFile, or those of the system if caFile is "", and the certificate of p if that has files.
// If there are no files at all, ClientTLS returns nil without an error. Changes do not affect open connections.
func (f *Files) ClientTLS(caFlag, caFile string, p Pair) (func() *tls.Config, error) {
	if caFile == "" && p.CertFile == "" {
		return nil, nil
	}
	var roots atomic.Pointer[x509.CertPool]
	if caFile != "" {
		if err := f.Authorities(caFlag, caFile, roots.Store); err != nil {
			return nil, OfField(caFlag, err)
		}
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CertFile != "" {
		certificate, err := f.Pair(p)
		if err != nil {
			return nil, OfField(p.Flag, err)
		}
		base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	}
	return func() *tls.Config {
		c := base.Clone()
		c.RootCAs = roots.Load()
		return c
	}, nil
}

// Webhook returns a client of the webhook in a kubeconfig. The client follows changes of the kubeconfig and of the
// files named in it.
func (f *Files) Webhook(flag, path string, o webhook.Options) (*webhook.Client, error) {
	var client *webhook.Client
	_, err := f.Load(Part{Flag: flag, Path: path, Apply: func(read filewatch.Read) error {
		next, err := webhook.FromKubeconfig(path, read, o)
		switch {
		case err != nil:
			return err
		case client == nil:
			client = next
		default:
			client.Use(next)
		}
		return nil
	}})
	return client, err
}

// File follows one file: apply is called with its content now, and after each change.
func (f *Files) File(flag, path string, apply func(content []byte) error) error {
	_, err := f.Load(Part{Flag: flag, Path: path, Apply: func(read filewatch.Read) error {
		content, err := read(path)
		if err != nil {
			return err
		}
		return apply(content)
	}})
	return err
}

// OfField returns err with the name of the configuration field that a flag sets. flag begins with its dashes.
func OfField(flag string, err error) error {
	for _, f := range config.Fields() {
		if slices.Contains(f.Flags, strings.TrimPrefix(flag, "--")) {
			return config.Errorf("{%s}: %w", f.Path, err)
		}
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// Hash returns the hash of a configuration in the format of metrics.
func Hash(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
