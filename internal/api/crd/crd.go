// Package crd serves custom resources: it watches the CustomResourceDefinitions, sets their conditions, and serves
// the resources of the established ones.
//
// A definition is compiled to kinds (compile.go) when the first request for its resource arrives; until then it
// costs little memory. The generic pipeline serves these kinds like built-in ones. Definitions whose schemas are
// equal share the compiled schema.
package crd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/crd/convert"
	"github.com/keelson-dev/keelson/internal/api/crd/openapi"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Options are the dependencies and settings of a Server.
type Options struct {
	Registry *registry.Registry
	Rest     *rest.Handler
	// Client writes the status of definitions. Writes deletes the objects of deleted definitions.
	Client *client.Client
	Writes *write.Pipeline
	// Exclusive is true if no other process writes to the store. Objects written after a definition took effect then
	// need no pruning and defaulting when they are read.
	Exclusive bool
	// ReadOnly means that another server sets the conditions of definitions, and deletes the objects of those that are deleted.
	ReadOnly bool
	// Converters returns the converter of a definition.
	Converters func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error)
	// Forget is called with the name of each definition that was removed. It may be nil.
	Forget func(name string)
	// Resources is the directory that the resources of definitions are put into.
	Resources *directory.Directory
	// Documents gets the definitions that have OpenAPI documents. It may be nil.
	Documents *openapi.Source
	// Rules records the times of validation rules. It may be nil.
	Rules *RuleMetrics
	Log   *slog.Logger
	Now   func() time.Time
	// Activity counts the pending work on definitions; nil records nothing.
	Activity *activity.Part
}

var resource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// Server watches the definitions and serves their resources.
type Server struct {
	o           Options
	definitions *registry.Resource
	caches      *caches
	catchUpTime time.Duration // less than the constant in tests
	// served maps a group and resource to the *definition that serves it.
	served sync.Map // schema.GroupResource -> *definition

	// mu guards the fields up to deletingObjects. It is held only for look-ups and changes in memory.
	mu     sync.Mutex
	byName map[string]*definition
	// namesByGroup has the accepted names of each API group.
	namesByGroup map[string]*groupNames
	// deletingObjects has the UIDs of the definitions whose objects are being deleted.
	deletingObjects map[types.UID]bool

	// follower watches the definitions. It is nil until Run has started it.
	follower atomic.Pointer[informer.Informer]
	// work is the queue of the names of the definitions that reconcile has to process.
	work  *workqueue.Typed[string]
	ready chan struct{} // closed when the first list of definitions has been processed
	known sync.Once     // closes ready
	tasks sync.WaitGroup
}

// New returns a server. It does nothing until Run is called.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Activity.Starting()
	return &Server{
		o: o, definitions: o.Registry.Resource(resource), caches: &caches{schemas: structuralschema.NewCache()}, catchUpTime: catchUpTime,
		byName: map[string]*definition{}, namesByGroup: map[string]*groupNames{},
		deletingObjects: map[types.UID]bool{}, work: newWork(o.Activity), ready: make(chan struct{}),
	}
}

// countedQueue counts the names in the queue as activity.
type countedQueue struct {
	workqueue.Queue[string]
	activity *activity.Part
}

func newWork(p *activity.Part) *workqueue.Typed[string] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Queue: &countedQueue{workqueue.DefaultQueue[string](), p},
	})
}

// Push implements workqueue.Queue. reconcileOne removes the activity.
func (q *countedQueue) Push(name string) {
	q.activity.Add(1)
	q.Queue.Push(name)
}

// addLater queues a definition again after a failure.
func (s *Server) addLater(name string) {
	s.o.Activity.Add(1)
	time.AfterFunc(retryAfter, func() {
		s.work.Add(name)
		s.o.Activity.Add(-1)
	})
}

// retryAfter is the time between a failure and the next try.
const retryAfter = time.Second

// Run watches and reconciles definitions until ctx ends or the store is closed. All goroutines that it started have
// ended when it returns.
func (s *Server) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.tasks.Wait() // after a panic too: Run is called again then
	defer cancel()
	for {
		f, err := informer.Load(
			ctx, informer.Options{Resource: s.definitions, Stored: true, Reset: s.reset, Apply: s.apply, Log: s.o.Log},
		)
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
	s.o.Activity.Started()
	s.reconcile(ctx)
}

// Ready waits until the first list of definitions has been processed. It returns the error of ctx if ctx ends
// before.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset processes a list of all definitions, and drops those that are not in it.
func (s *Server) reset(all []informer.Change) {
	s.mu.Lock()
	gone := maps.Clone(s.byName)
	s.mu.Unlock()
	for _, c := range all {
		delete(gone, c.Name)
	}
	for name := range gone {
		s.drop(name)
	}
	s.apply(all)
}

// apply processes changes of definitions. A definition that cannot be decoded is not served.
func (s *Server) apply(changes []informer.Change) {
	for i, d := range s.decodeAll(changes) {
		if d == nil {
			s.drop(changes[i].Name)
			continue
		}
		s.put(d)
		s.work.Add(d.name)
	}
}

// decodeAll returns the changed definitions in the order of changes. An element is nil if the definition is gone
// or cannot be decoded. All processors decode, because a server with thousands of definitions is not ready before
// they are decoded.
func (s *Server) decodeAll(changes []informer.Change) []*definition {
	decoded := make([]*definition, len(changes))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(changes), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(changes); i = int(next.Add(1)) - 1 {
				c := changes[i]
				if c.Stored == nil {
					continue
				}
				d, err := newDefinition(context.Background(), s.definitions, c.Stored)
				if err != nil {
					s.o.Log.Error("a custom resource definition cannot be read", "name", c.Name, "error", err)
					continue
				}
				decoded[i] = d
			}
		})
	}
	workers.Wait()
	return decoded
}

// put stores d as the current state of its definition, unless a newer state is known.
func (s *Server) put(d *definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[d.name]
	if old != nil && old.uid == d.uid && old.revision >= d.revision {
		return
	}
	if old != nil {
		d.follow(old)
	}
	d.creates.SetClosed(d.refusesCreates())
	s.byName[d.name] = d
	s.updateGroupNames(old, d)
	s.expose(old, d)
}

// expose serves d instead of old; either may be nil. The caller holds mu. The old kinds are closed before the new ones
// can be compiled, because both use the same resource of the cache.
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
	s.updateDirectory(old, d)
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

// drop removes a definition that no longer exists. Definitions that wait for one of its names are queued again.
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
	s.updateGroupNames(old, nil)
	s.expose(old, nil)
	s.reconsider(old.group)
}

// reconsider queues the definitions of a group that have a name conflict. The caller holds mu.
func (s *Server) reconsider(group string) {
	if l := s.namesByGroup[group]; l != nil {
		for name := range l.conflicting {
			s.work.Add(name)
		}
	}
}

// Serves reports whether a request is for the resource of a definition.
func (s *Server) Serves(info *request.Info) bool {
	d := s.find(info)
	if d == nil || !d.servesRequest(info) {
		s.catchUp(info)
		d = s.find(info) // the definition may have been added meanwhile even if there was nothing to wait for
	}
	return d != nil && d.servesRequest(info)
}

// catchUpTime is the longest time that a request waits until the server has processed changes of definitions. A busy
// machine may need some of it, and most clients wait longer.
const catchUpTime = 10 * time.Second

// catchUp waits until the server has processed the state of a definition that the cache already returns to readers.
// So a client that has read that a definition is established can use its resource at once.
func (s *Server) catchUp(info *request.Info) {
	ctx, cancel := context.WithTimeout(context.Background(), s.catchUpTime)
	defer cancel()
	f := s.follower.Load()
	if f == nil {
		return
	}
	view, err := s.definitions.Reader.NotOlderThan(ctx, 0)
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

// CatchUp waits until the server has processed the states of all definitions that the cache returns to readers, at most catchUpTime.
func (s *Server) CatchUp() {
	f := s.follower.Load()
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.catchUpTime)
	defer cancel()
	if err := f.Sync(ctx); err != nil {
		s.o.Log.Debug("definitions are behind what readers see", "error", err)
	}
}

func (s *Server) find(info *request.Info) *definition {
	d, ok := s.served.Load(schema.GroupResource{Group: info.Group, Resource: info.Resource})
	if !ok {
		return nil
	}
	return d.(*definition)
}

// syncOwn waits until the server has processed every change of a definition that this process has acknowledged. So
// every later request follows the change, and no object is stored in an earlier storage version any more. After
// catchUpTime it fails with a ServerTimeout error, and the request must not go on.
func (s *Server) syncOwn(ctx context.Context, gr schema.GroupResource, verb string) error {
	f := s.follower.Load()
	if f == nil || f.HasOwn() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, s.catchUpTime)
	defer cancel()
	if err := f.SyncOwn(limited); err != nil {
		if ctx.Err() == nil { // else the client has left
			s.o.Log.Warn("custom resource definitions are behind what was written", "resource", gr, "error", err)
		}
		return kerrors.NewServerTimeout(gr, verb, 1)
	}
	return nil
}

// ServeHTTP serves a request for which Serves returned true.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	gr := schema.GroupResource{Group: info.Group, Resource: info.Resource}
	if err := s.syncOwn(r.Context(), gr, info.Verb); err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	d := s.find(info)
	if d == nil || !d.servesRequest(info) {
		apiresponse.NotFoundPage(w)
		return
	}
	if err := s.serve(w, r, info, d); err != nil {
		apiresponse.Error(w, r, err)
	}
}

// A request is started again if its definition is replaced before the request has done anything, at most maxChanges
// times. The pause before try n is n times changePause.
const (
	maxChanges  = 60
	changePause = time.Millisecond
)

// serve serves a request by its definition. If the definition is replaced before anything was done, it starts again
// with the new one.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, info *request.Info, d *definition) error {
	body := recordBody(r)
	for try := 0; ; try++ {
		err := s.serveBy(w, r, info, d)
		if !errors.Is(err, cache.ErrRemoved) {
			return err
		}
		if d = s.find(info); d == nil || !d.servesRequest(info) {
			apiresponse.NotFoundPage(w)
			return nil
		}
		select {
		case <-time.After(time.Duration(try) * changePause):
		case <-r.Context().Done():
			return r.Context().Err()
		}
		if try == maxChanges {
			return kerrors.NewServerTimeout(d.key(), info.Verb, 1)
		}
		r.Body = body.replay()
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
		d.kinds.inFlight.end() // watches do not write, so normalSince need not wait for them
	}
	return bound.Serve(w, r)
}

// replayableBody is a request body that can be read again from its beginning.
type replayableBody struct {
	io.Reader
	io.Closer
	read bytes.Buffer
}

// recordBody replaces the body of a request by one that records what is read.
func recordBody(r *http.Request) *replayableBody {
	k := &replayableBody{Closer: http.NoBody}
	if r.Body != nil && r.Body != http.NoBody {
		k.Closer = r.Body
		k.Reader = io.TeeReader(r.Body, &k.read)
		r.Body = k
	}
	return k
}

// replay returns the body from its beginning.
func (b *replayableBody) replay() io.ReadCloser {
	if b.Reader == nil {
		return http.NoBody
	}
	rest := b.Reader
	return &replayableBody{Reader: io.MultiReader(bytes.NewReader(b.read.Bytes()), rest), Closer: b.Closer}
}

// Objects calls f with the number of objects of each custom resource whose objects are counted, and with the bytes that
// they take in memory.
func (s *Server) Objects(f func(group, resource string, objects int, bytes int64)) {
	s.served.Range(func(_, value any) bool {
		d := value.(*definition)
		if n, bytes, ok := d.kinds.size(); ok {
			f(d.group, d.status.names.Plural, n, bytes)
		}
		return true
	})
}
