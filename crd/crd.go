// Package crd serves custom resources: it follows the CustomResourceDefinitions,
// gives them their conditions, and serves the resources of those that are
// established.
//
// A definition costs little until somebody asks for its resources: only then is it
// compiled to kinds (compile.go), which the generic pipeline serves like built-in
// ones. Definitions whose schemas are equal share what is compiled of them.
package crd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/crd/convert"
	"github.com/keelson-dev/keelson/crd/openapi"
	"github.com/keelson-dev/keelson/directory"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/registry/informer"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/write"
)

// Options are what custom resources are served with.
type Options struct {
	Registry *registry.Registry
	Rest     *rest.Handler
	// Client writes the status of definitions, Writes deletes the objects of those that are deleted.
	Client *client.Client
	Writes *write.Pipeline
	// Exclusive says that nobody else writes to the store: what was written since a
	// definition took effect need not be pruned and defaulted again when it is read.
	Exclusive bool
	// Converters makes the converter of a definition.
	Converters func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error)
	// Forget is called with the name of each definition that is gone; nil is not called.
	Forget func(name string)
	// Resources is the directory that the resources of definitions are put into.
	Resources *directory.Directory
	// Documents is told which definitions have OpenAPI documents; nil is not.
	Documents Documents
	Log       *slog.Logger
	Now       func() time.Time
}

// Documents are the OpenAPI documents of custom resources.
type Documents interface {
	Set(openapi.Definition)
	Remove(name string)
}

// resource is the resource of definitions.
var resource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// Server follows the definitions and serves their resources.
type Server struct {
	o           Options
	definitions *registry.Resource
	schemas     *compiled
	// served has the *definition of each group and resource.
	served sync.Map // schema.GroupResource -> *definition

	// mu guards what follows, and is held for look-ups and changes in memory only.
	mu     sync.Mutex
	byName map[string]*definition
	// ledgers are those of the groups.
	ledgers map[string]*ledger
	// finishing are the definitions whose objects are being deleted.
	finishing map[string]bool

	// follower brings the definitions; nil before the first of them.
	follower atomic.Pointer[informer.Informer]
	// work has the names of the definitions that reconcile has to look at.
	work  *workqueue.Typed[string]
	ready chan struct{} // closed when the definitions of the start are known
	known sync.Once     // guards the closing of ready
	tasks sync.WaitGroup
}

// New makes a server; Run makes it work.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		o: o, definitions: o.Registry.Resource(resource), schemas: newCompiled(),
		byName: map[string]*definition{}, ledgers: map[string]*ledger{},
		finishing: map[string]bool{}, work: workqueue.NewTyped[string](), ready: make(chan struct{}),
	}
}

// retryAfter is how long the server rests after a failure.
const retryAfter = time.Second

// Run works until ctx ends or the store is closed. What it starts has ended when it returns.
func (s *Server) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.tasks.Wait() // after a panic too: Run is called again then
	defer cancel()
	for {
		f, err := informer.Load(ctx, informer.Options{Resource: s.definitions, Stored: true, Reset: s.reset, Apply: s.apply, Log: s.o.Log})
		if err == nil {
			s.follower.Store(f)
			s.tasks.Go(func() { f.Run(ctx) })
			break
		}
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		s.o.Log.Warn("custom resource definitions: starting over", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
	s.known.Do(func() { close(s.ready) }) // Run may be called again after a failure
	s.reconcile(ctx)
}

// Ready waits until the definitions that were there at the start are known.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset takes in all definitions, and forgets those that are gone.
func (s *Server) reset(all []informer.Change) {
	gone := s.names()
	for _, c := range all {
		delete(gone, c.Name)
	}
	for name := range gone {
		s.drop(name)
	}
	s.apply(all)
}

// apply takes in changes of definitions. One that cannot be read is not served.
func (s *Server) apply(changes []informer.Change) {
	for _, c := range changes {
		if c.Stored == nil {
			s.drop(c.Name)
			continue
		}
		d, err := newDefinition(context.Background(), s.definitions, c.Stored)
		if err != nil {
			s.o.Log.Error("a custom resource definition cannot be read", "name", c.Name, "error", err)
			s.drop(c.Name)
			continue
		}
		s.put(d)
		s.work.Add(d.name)
	}
}

// put makes d the state of its definition.
func (s *Server) put(d *definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[d.name]
	if old != nil && old.uid == d.uid && old.revision >= d.revision {
		return
	}
	if old != nil {
		d.inherit(old)
	}
	s.byName[d.name] = d
	s.enter(old, d)
	s.expose(old, d)
}

// expose serves d in place of old; either may be nil. mu is held. The old kinds are
// closed before the new ones can be compiled: both have the same place in the cache.
func (s *Server) expose(old, d *definition) {
	if old != nil && (d == nil || d.kinds != old.kinds) {
		old.kinds.close()
	}
	if old != nil && (d == nil || d.key() != old.key() || !d.serves()) {
		s.served.Delete(old.key())
	}
	if d != nil && d.serves() {
		s.served.Store(d.key(), d)
	}
	s.list(old, d)
	if s.o.Documents == nil {
		return
	}
	switch {
	case d != nil && d.status.established():
		s.o.Documents.Set(d.document())
	case old != nil:
		s.o.Documents.Remove(old.name)
	}
}

// drop forgets a definition that is gone. The names it had are free.
func (s *Server) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[name]
	if old == nil {
		return
	}
	delete(s.byName, name)
	if s.o.Forget != nil {
		s.o.Forget(name)
	}
	s.enter(old, nil)
	s.expose(old, nil)
	s.reconsider(old.group)
}

// reconsider looks again at the definitions of a group that lack a name. mu is
// held.
func (s *Server) reconsider(group string) {
	if l := s.ledgers[group]; l != nil {
		for name := range l.lacking {
			s.work.Add(name)
		}
	}
}

func (s *Server) names() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[string]bool, len(s.byName))
	for name := range s.byName {
		names[name] = true
	}
	return names
}

// Serves says whether a request is for a resource of a definition.
func (s *Server) Serves(info *request.Info) bool {
	d := s.find(info)
	if d == nil || !d.fits(info) {
		s.catchUp(info)
		d = s.find(info) // it may have come before there was something to wait for
	}
	return d != nil && d.fits(info)
}

// catchUpTime bounds the wait of catchUp.
const catchUpTime = time.Second

// catchUp waits until the definition of a request's resource is taken in as readers
// see it already: who has read that it is established may use it.
func (s *Server) catchUp(info *request.Info) {
	ctx, cancel := context.WithTimeout(context.Background(), catchUpTime)
	defer cancel()
	f := s.follower.Load()
	if f == nil {
		return
	}
	view, err := s.definitions.NotOlderThan(ctx, 0)
	if err != nil {
		return
	}
	name := info.Resource + "." + info.Group
	o, ok, err := view.Get(ctx, name)
	if !ok || err != nil {
		return
	}
	s.mu.Lock()
	d := s.byName[name]
	s.mu.Unlock()
	if d != nil && d.revision >= o.Revision {
		return
	}
	if err := f.Sync(ctx); err != nil {
		s.o.Log.Debug("definitions are behind what readers see", "resource", name, "error", err)
	}
}

func (s *Server) find(info *request.Info) *definition {
	d, ok := s.served.Load(schema.GroupResource{Group: info.Group, Resource: info.Resource})
	if !ok {
		return nil
	}
	return d.(*definition)
}

// ServeHTTP serves a request for which Serves holds.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	d := s.find(info)
	if d == nil || !d.fits(info) {
		apiresponse.NotFoundPage(w)
		return
	}
	if err := s.serve(w, r, info, d); err != nil {
		apiresponse.Error(w, r, err)
	}
}

// A request begins again when its definition changes under it, up to maxChanges
// times, the later the longer after the change.
const (
	maxChanges  = 60
	changePause = time.Millisecond
)

// serve serves a request by its definition, and again where that changed before
// anything was done.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, info *request.Info, d *definition) error {
	body := keepBody(r)
	for try := 0; ; try++ {
		err := s.serveBy(w, r, info, d)
		if !errors.Is(err, cache.ErrRemoved) {
			return err
		}
		if d = s.find(info); d == nil || !d.fits(info) {
			apiresponse.NotFoundPage(w)
			return nil
		}
		select {
		case <-time.After(time.Duration(try) * changePause):
		case <-r.Context().Done():
			return r.Context().Err()
		}
		if try == maxChanges {
			return kerrors.NewServerTimeout(schema.GroupResource{Group: info.Group, Resource: info.Resource}, info.Verb, 1)
		}
		r.Body = body.again()
	}
}

func (s *Server) serveBy(w http.ResponseWriter, r *http.Request, info *request.Info, d *definition) error {
	bound, err := s.bound(d, info.Version)
	if err != nil {
		return err
	}
	if !d.kinds.enter() {
		return cache.ErrRemoved
	}
	if info.Verb != "watch" {
		defer d.kinds.inFlight.end()
	} else {
		d.kinds.inFlight.end() // watches write nothing
	}
	return bound.Serve(w, r)
}

// kept is a body that can be read again.
type kept struct {
	io.Reader
	io.Closer
	read bytes.Buffer
}

// keepBody keeps what is read of a request's body.
func keepBody(r *http.Request) *kept {
	k := &kept{Closer: http.NoBody}
	if r.Body != nil && r.Body != http.NoBody {
		k.Closer = r.Body
		k.Reader = io.TeeReader(r.Body, &k.read)
		r.Body = k
	}
	return k
}

// again is the body from its beginning.
func (k *kept) again() io.ReadCloser {
	if k.Reader == nil {
		return http.NoBody
	}
	rest := k.Reader
	return &kept{Reader: io.MultiReader(bytes.NewReader(k.read.Bytes()), rest), Closer: k.Closer}
}

// Objects calls f with the number of objects of each custom resource that is in
// memory.
func (s *Server) Objects(f func(group, resource string, objects int)) {
	s.served.Range(func(_, value any) bool {
		d := value.(*definition)
		if n, ok := d.kinds.loaded(); ok {
			f(d.group, d.status.names.Plural, n)
		}
		return true
	})
}
