package server

import (
	"context"
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
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// reloads are the parts of the configuration that are read from files, and are applied again when a file changes. Every
// file that may be replaced while the server runs is read through load, at the start and later. A nil reloads applies
// files once.
type reloads struct {
	every  time.Duration
	wake   filewatch.Signal
	log    *slog.Logger
	counts *reloadMetrics

	mu    sync.Mutex // guards what follows
	parts []*reloadedPart
	work  *background.Group // nil before start
}

// part is a part of the configuration that is read from files.
type part struct {
	// flag names the part in the log and in metrics. path is its first file.
	flag, path string
	// apply is filewatch.Watch.Apply. What it puts into effect must be safe while requests are served: requests that have
	// begun go on with what they have.
	apply func(read filewatch.Read) error
	// observe, unless it is nil, is called with the result of applying a change.
	observe func(error)
}

// reloadedPart is a part that is followed.
type reloadedPart struct {
	part
	watch *filewatch.Watch
	bad   bool // its files cannot be used; guarded by reloads.mu
}

func newReloads(every time.Duration, log *slog.Logger, counts *reloadMetrics) *reloads {
	return &reloads{every: every, log: log, counts: counts}
}

// load applies a part for the first time. If that succeeds, its files are followed, but not before start is called.
func (r *reloads) load(p part) (*filewatch.Watch, error) {
	followed := &reloadedPart{part: p, watch: &filewatch.Watch{Apply: p.apply}}
	if err := followed.watch.Load(); err != nil || r == nil {
		return followed.watch, err
	}
	followed.watch.Report = func(err error) { r.report(followed, err) }
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, followed)
	r.counts.followed(p.flag)
	if r.work != nil {
		r.follow(followed)
	}
	return followed.watch, nil
}

// report logs and counts the result of applying a change.
func (r *reloads) report(p *reloadedPart, err error) {
	if err == nil {
		r.log.Info("a changed file is in effect", "flag", p.flag, "file", p.path)
	} else {
		r.log.Error("a changed file cannot be used; its content before stays in effect",
			"flag", p.flag, "file", p.path, "error", config.CommandLine(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.bad = err != nil
	inEffect := true
	for _, other := range r.parts {
		inEffect = inEffect && (other.flag != p.flag || !other.bad)
	}
	r.counts.reloaded(p.flag, err == nil, inEffect)
	if p.observe != nil {
		p.observe(err)
	}
}

// start follows the files of all parts, including parts that are loaded later, until work is stopped.
func (r *reloads) start(work *background.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work = work
	for _, p := range r.parts {
		r.follow(p)
	}
}

// context returns a context that ends when the files are not followed any more.
func (r *reloads) context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.work.Context()
}

// follow follows the files of a part. Each part has a goroutine, because applying some parts takes as long as another
// program needs to answer. mu is held.
func (r *reloads) follow(p *reloadedPart) {
	name := "changes of " + p.flag
	for i, same := 0, 0; r.parts[i] != p; i++ {
		if r.parts[i].flag == p.flag {
			same++
			name = "changes of " + p.flag + " " + strconv.Itoa(same+1)
		}
	}
	r.work.Go(name, background.Forever(func(ctx context.Context) { p.watch.Run(ctx, r.every, &r.wake) }))
}

// pair is a certificate with its key in files.
type pair struct {
	flag, certFile, keyFile string
	// use, unless it is nil, is called with each version of the certificate before connections have it.
	use func(*tls.Certificate)
}

// pair returns a function that returns the certificate. If the files have changed the function reads them, so that the
// next connection has the new certificate.
func (r *reloads) pair(p pair) (func() (*tls.Certificate, error), error) {
	var current atomic.Pointer[tls.Certificate]
	watch, err := r.load(part{flag: p.flag, path: p.certFile, apply: func(read filewatch.Read) error {
		cert, err := read(p.certFile)
		if err != nil {
			return err
		}
		key, err := read(p.keyFile)
		if err != nil {
			return err
		}
		parsed, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("%s and %s: %w", p.certFile, p.keyFile, err)
		}
		if p.use != nil {
			p.use(&parsed)
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

// authorities applies the certificate authorities in a file. use is called with each version of them.
func (r *reloads) authorities(flag, path string, use func(*x509.CertPool)) error {
	return r.file(flag, path, func(content []byte) error {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(content) {
			return fmt.Errorf("%s has no certificates", path)
		}
		use(pool)
		return nil
	})
}

// clientTLS returns a function that returns the TLS configuration for a new connection to another server: the
// certificate authorities in caFile (those of the system if it is ""), and the certificate of p, unless its files are
// "". It returns nil without an error if all are "". Changes do not affect open connections.
func (r *reloads) clientTLS(caFlag, caFile string, p pair) (func() *tls.Config, error) {
	if caFile == "" && p.certFile == "" {
		return nil, nil
	}
	var roots atomic.Pointer[x509.CertPool]
	if caFile != "" {
		if err := r.authorities(caFlag, caFile, roots.Store); err != nil {
			return nil, ofField(caFlag, err)
		}
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.certFile != "" {
		certificate, err := r.pair(p)
		if err != nil {
			return nil, ofField(p.flag, err)
		}
		base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	}
	return func() *tls.Config {
		c := base.Clone()
		c.RootCAs = roots.Load()
		return c
	}, nil
}

// webhook returns a client of the webhook in a kubeconfig. The client follows changes of the kubeconfig and of the
// files named in it.
func (r *reloads) webhook(flag, path string, o webhook.Options) (*webhook.Client, error) {
	var client *webhook.Client
	_, err := r.load(part{flag: flag, path: path, apply: func(read filewatch.Read) error {
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

// file applies the content of one file.
func (r *reloads) file(flag, path string, apply func(content []byte) error) error {
	_, err := r.load(part{flag: flag, path: path, apply: func(read filewatch.Read) error {
		content, err := read(path)
		if err != nil {
			return err
		}
		return apply(content)
	}})
	return err
}

// ofField returns err with the name of the configuration field that a flag sets. flag begins with its dashes.
func ofField(flag string, err error) error {
	for _, f := range config.Fields() {
		if slices.Contains(f.Flags, strings.TrimPrefix(flag, "--")) {
			return config.Errorf("{%s}: %w", f.Path, err)
		}
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// Alive returns an error if the server cannot go on as it is and has to be started again. An etcd cluster that does not answer is
// no such error.
func (s *Server) Alive(ctx context.Context) error { return s.http.routes.health.Alive(ctx, "etcd") }

// Reload makes the server check at once whether configured files have changed, which it otherwise does every few
// seconds.
func (s *Server) Reload() { s.config.files.wake.Fire() }
