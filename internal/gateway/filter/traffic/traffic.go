// Package traffic records the requests that a server gets, and answers some of them with errors, late or not at all: for
// tests of clients.
package traffic

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// MaxRequests limits the number of recorded requests. Then the oldest are dropped.
const MaxRequests = 100_000

// Request is a request that a server got from a client.
type Request struct {
	Time time.Time
	// User and Groups are the user after impersonation. User is empty if the request was not authenticated.
	User      string
	Groups    []string
	UserAgent string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection. It is the method in lower
	// case, and Resource is empty, if the request is not about a resource.
	Verb                                  string
	Group, Version, Resource, Subresource string
	Namespace                             string
	// Name is the name of the object, also of one that the request has created.
	Name string
	Path string
	// Code is the HTTP status of the answer. It is 0 before the answer, and if the connection was cut off instead.
	Code int
}

// Match selects requests. An empty field matches all.
type Match struct {
	Verb, Group, Resource, Subresource, Namespace, Name, User string
}

// Matches reports whether the request has all values of m.
func (m *Match) Matches(r *Request) bool {
	for _, pair := range [][2]string{
		{m.Verb, r.Verb}, {m.Group, r.Group}, {m.Resource, r.Resource}, {m.Subresource, r.Subresource},
		{m.Namespace, r.Namespace}, {m.Name, r.Name}, {m.User, r.User},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	return true
}

// Fault is something that goes wrong with requests. A request meets the first fault that matches.
type Fault struct {
	// On are the requests. The Name of a create is empty.
	On Match
	// Times is the number of requests to which the fault is applied; 0 means all.
	Times int
	// Latency is the delay of the request before anything else happens.
	Latency time.Duration
	// Code is the HTTP status that is answered, such as 409, 410, 429, 500 or 503, with a Status as kube-apiserver makes it
	// for that code. 0 carries out the request.
	Code int
	// RetryAfter is the header Retry-After of a Code, in whole seconds; 0 leaves it out.
	RetryAfter time.Duration
	// Drop closes the connection without an answer (with HTTP/2 it resets the stream), and does not carry out the request.
	Drop bool
	// DropAnswer carries out the request, and then closes the connection without an answer.
	DropAnswer bool
	// StaleVersion, unless it is empty, is a resource version: a list is answered as it was then. Other requests are not
	// changed.
	StaleVersion string
}

// Traffic has the requests and the faults of one server. Its methods may be called concurrently.
type Traffic struct {
	mu      sync.Mutex // guards what follows, and the Requests of calls
	calls   []*call
	faults  []*injected
	watches map[*call]context.CancelFunc
}

// call is a request in progress or a past one.
type call struct{ Request }

// injected is a fault with the number of requests that may still meet it.
type injected struct {
	Fault
	left int
}

// New returns a Traffic without requests and faults.
func New() *Traffic { return &Traffic{watches: map[*call]context.CancelFunc{}} }

// Requests returns the requests that match, in the order in which they arrived.
func (t *Traffic) Requests(m Match) []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Request
	for _, c := range t.calls {
		if m.Matches(&c.Request) {
			out = append(out, c.Request)
		}
	}
	return out
}

// Forget forgets the requests so far.
func (t *Traffic) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = nil
}

// Inject adds a fault. remove takes it away again; it may be called more than once.
func (t *Traffic) Inject(f Fault) (remove func()) {
	i := &injected{Fault: f, left: f.Times}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, i)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.faults = slices.DeleteFunc(t.faults, func(other *injected) bool { return other == i })
	}
}

// CutWatches ends the watches that match and run now, as a server does that stops. It returns how many they are.
func (t *Traffic) CutWatches(m Match) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for c, cancel := range t.watches {
		if m.Matches(&c.Request) {
			n++
			cancel()
		}
	}
	return n
}

type callKey struct{}

// Record is the filter that records requests. It comes behind package requestinfo.
func (t *Traffic) Record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := request.InfoFrom(r.Context())
		c := &call{Request{
			Time: time.Now(), UserAgent: r.UserAgent(), Verb: info.Verb, Group: info.Group, Version: info.Version,
			Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name, Path: info.Path,
		}}
		t.add(c)
		rw := responserecorder.Wrap(w)
		defer func() { t.answered(c, rw.Status) }()
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}

func (t *Traffic) add(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.calls) >= MaxRequests {
		t.calls = slices.Delete(t.calls, 0, MaxRequests/2)
	}
	t.calls = append(t.calls, c)
}

func (t *Traffic) answered(c *call, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Code == 0 {
		c.Code = status
	}
}

// Disturb is the filter that makes requests meet faults. It comes behind the filters that determine the user.
func (t *Traffic) Disturb(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(callKey{}).(*call)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		f := t.meet(c, request.UserFrom(r.Context()))
		rw := responserecorder.Wrap(w)
		before := rw.Started
		rw.Started = func(status int) {
			if before != nil {
				before(status)
			}
			t.answered(c, status)
		}
		if c.Verb == "watch" {
			ctx, cancel := context.WithCancel(r.Context())
			defer t.watching(c, cancel)()
			r = r.WithContext(ctx)
		}
		if f == nil {
			next.ServeHTTP(rw, r)
			return
		}
		f.apply(rw, r, next)
	})
}

// meet records the user of a request, and returns the fault to apply, nil if there is none.
func (t *Traffic) meet(c *call, user *request.User) *Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if user != nil {
		c.User, c.Groups = user.Name, user.Groups
	}
	for _, f := range t.faults {
		if !f.On.Matches(&c.Request) || f.Times > 0 && f.left == 0 {
			continue
		}
		f.left--
		return &f.Fault
	}
	return nil
}

// watching notes a watch that runs. The result has to be called when it ends.
func (t *Traffic) watching(c *call, cancel context.CancelFunc) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches[c] = cancel
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watches, c)
		cancel()
	}
}

// apply makes one request meet the fault.
func (f *Fault) apply(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if f.Latency > 0 {
		wait := time.NewTimer(f.Latency)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.Context().Done():
		}
	}
	info := request.InfoFrom(r.Context())
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.DropAnswer:
		next.ServeHTTP(&nowhere{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case f.Code != 0:
		apiresponse.Error(w, r, f.answer(info))
		return
	case f.StaleVersion != "" && info.Verb == "list":
		r = r.Clone(r.Context())
		r.URL.RawQuery = stale(r.URL.Query(), f.StaleVersion)
	}
	next.ServeHTTP(w, r)
}

// answer returns the error that is answered with the Code, as kube-apiserver makes it.
func (f *Fault) answer(info *request.Info) error {
	const message = "an injected fault"
	gr, seconds := schema.GroupResource{Group: info.Group, Resource: info.Resource}, int(f.RetryAfter/time.Second)
	switch f.Code {
	case http.StatusForbidden:
		return kerrors.NewForbidden(gr, info.Name, errors.New(message))
	case http.StatusNotFound:
		return kerrors.NewNotFound(gr, info.Name)
	case http.StatusConflict:
		if info.Verb == "create" {
			return kerrors.NewAlreadyExists(gr, info.Name)
		}
		return kerrors.NewConflict(gr, info.Name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	case http.StatusGone:
		return kerrors.NewResourceExpired(message)
	case http.StatusTooManyRequests:
		return kerrors.NewTooManyRequests(message, seconds)
	case http.StatusInternalServerError:
		return kerrors.NewInternalError(errors.New(message))
	case http.StatusGatewayTimeout:
		return kerrors.NewTimeoutError(message, seconds)
	}
	const unexpected = true // keeps the message
	return kerrors.NewGenericServerResponse(f.Code, info.Verb, gr, info.Name, message, seconds, unexpected)
}

// stale returns a query for the state at an old resource version. The next page of a list is not changed, because it
// continues at the version of the first.
func stale(q url.Values, version string) string {
	if q.Get("continue") == "" {
		q.Set("resourceVersion", version)
		q.Set("resourceVersionMatch", "Exact")
	}
	return q.Encode()
}

// nowhere is a http.ResponseWriter for an answer that is not sent.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// Plugin returns the admission plug-in that records the names of created objects. It refuses nothing.
func (t *Traffic) Plugin() admission.Plugin {
	return admission.Plugin{Name: "traffic", Validate: func(ctx context.Context, a *admission.Attributes) error {
		if c, ok := ctx.Value(callKey{}).(*call); ok && a.Operation == admission.Create && a.Subresource == "" && a.Object != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			if c.Verb == "create" && c.Name == "" {
				c.Name = a.Object.GetName()
			}
		}
		return nil
	}}
}
