// Package traffic records the requests that a server gets, and answers some of them with errors, late or not at all:
// for tests of clients.
package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// MaxRequests limits the number of recorded requests. Above it, the oldest ones are dropped.
const MaxRequests = 100_000

// Request is a request that a server got from a client.
type Request struct {
	Time time.Time
	// User and Groups are the user after impersonation. User is empty if the request was not authenticated.
	User      string
	Groups    []string
	UserAgent string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection. It is the method
	// in lower case, and Resource is empty, if the request is not about a resource.
	Verb                                  string
	Group, Version, Resource, Subresource string
	Namespace                             string
	// Name is the name of the object. For a create it is the name that the object got, or would have got without a
	// fault.
	Name string
	Path string
	// Code is the HTTP status of the answer. It is 0 before the answer, and if the connection was cut off instead.
	Code int
	// Duration is the time from the arrival of the request to the end of its answer. It is 0 before that end, for
	// example for a running watch.
	Duration time.Duration
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

// apiVerbs are the verbs of requests about resources. otherVerbs are those of other requests: the method in lower
// case.
var (
	apiVerbs   = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	otherVerbs = []string{"get", "head", "post", "put", "patch", "delete", "options"}
)

// Check returns an error if no request can match.
func (m *Match) Check() error {
	aboutResource := *m != Match{Verb: m.Verb, User: m.User}
	switch {
	case m.Verb == "" || slices.Contains(apiVerbs, m.Verb):
	case aboutResource || !slices.Contains(otherVerbs, m.Verb):
		return fmt.Errorf("no request for a resource has the Verb %q; the verbs are %s", m.Verb, strings.Join(apiVerbs, ", "))
	}
	for _, f := range []struct{ field, value string }{
		{"Group", m.Group}, {"Resource", m.Resource}, {"Subresource", m.Subresource}, {"Namespace", m.Namespace},
	} {
		if f.value != strings.ToLower(f.value) || strings.Contains(f.value, "/") {
			return fmt.Errorf("no request has the %s %q: it must be in lower case and without a slash", f.field, f.value)
		}
	}
	if strings.Contains(m.Name, "/") {
		return fmt.Errorf("no request has the Name %q: it must be without a slash", m.Name)
	}
	return nil
}

// Traffic has the requests and the faults of one server. Its methods may be called concurrently.
type Traffic struct {
	mu         sync.Mutex // guards what follows, and the Requests of calls
	calls      []*call
	injections []*injection
	watches    map[*call]context.CancelFunc
}

// call is a request in progress or a past one.
type call struct{ Request }

// injection has the faults for requests that match on.
type injection struct {
	on     Match
	faults []Fault
	left   int // the number of requests to which the faults may still happen
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

// Running describes the requests that are being served, except watches, the newest first. It returns at most most lines.
func (t *Traffic) Running(most int) (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range slices.Backward(t.calls) {
		if c.Duration == 0 && c.Verb != "watch" && len(lines) < most {
			lines = append(lines, c.String())
		}
	}
	return lines
}

// Last describes the last request, "" if there was none.
func (t *Traffic) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.calls) == 0 {
		return ""
	}
	return t.calls[len(t.calls)-1].String()
}

// String describes a call for people.
func (c *call) String() string {
	out := c.Verb + " " + c.Path
	if c.Verb == "create" && c.Name != "" {
		out += "/" + c.Name
	}
	if c.UserAgent != "" {
		program, _, _ := strings.Cut(c.UserAgent, " ")
		out += " of " + program
	}
	return out
}

// Forget forgets the requests so far.
func (t *Traffic) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = nil
}

// All is an argument n of Inject that no test exceeds, so that the faults happen to all requests that match.
const All = math.MaxInt

// Inject makes faults happen to the next n requests that match. The faults happen in their order, until one ends
// the request. If several injections match a request, only the first one that has requests left takes effect.
// remove removes the injection; it may be called more than once. The error says why the injection would have no
// effect, or another one than expected.
func (t *Traffic) Inject(n int, on Match, faults ...Fault) (remove func(), err error) {
	if err := check(n, &on, faults); err != nil {
		return nil, err
	}
	i := &injection{on: on, faults: slices.Clone(faults), left: n}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.injections = append(t.injections, i)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.injections = slices.DeleteFunc(t.injections, func(other *injection) bool { return other == i })
	}, nil
}

// CutWatches ends the running watches that match, as a server that stops does. It returns their number.
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
		defer func() { t.ended(c, rw.Status) }()
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

func (t *Traffic) ended(c *call, status int) {
	t.answered(c, status)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Duration = time.Since(c.Time)
}

// Disturb is the filter that makes faults happen to requests. It comes behind the filters that determine the user.
func (t *Traffic) Disturb(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(callKey{}).(*call)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		faults := t.meet(c, request.UserFrom(r.Context()))
		if slices.ContainsFunc(faults, ends) {
			t.name(c, r)
		}
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
		handler := next
		for _, f := range slices.Backward(faults) {
			handler = f.before(handler)
		}
		handler.ServeHTTP(rw, r)
	})
}

// meet records the user of a request, and returns the faults that happen to it.
func (t *Traffic) meet(c *call, user *request.User) []Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if user != nil {
		c.User, c.Groups = user.Name, user.Groups
	}
	for _, i := range t.injections {
		if i.left > 0 && i.on.Matches(&c.Request) {
			i.left--
			return i.faults
		}
	}
	return nil
}

// name records the name of the object that a create would have created. It is for a create that a fault ends,
// because Plugin does not see its object. It consumes the body. The name stays empty if the server would have
// generated it, and if the body cannot be read.
func (t *Traffic) name(c *call, r *http.Request) {
	if c.Verb != "create" || c.Name != "" || c.Resource == "" || c.Subresource != "" {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, scheme.MaxBytes))
	if err != nil {
		return
	}
	name := nameIn(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Name = name
}

// nameIn returns metadata.name of an object in protobuf, JSON or YAML, "" if there is none.
func nameIn(body []byte) string {
	if bytes.HasPrefix(body, []byte(wire.EnvelopePrefix)) {
		raw, err := wire.Raw(body)
		if err != nil {
			return ""
		}
		meta, err := wire.Metadata(raw)
		const nameField = 1 // of ObjectMeta
		for err == nil && len(meta) > 0 {
			var number int32
			var value []byte
			var size int
			if number, _, value, size, err = wire.NextField(meta); err == nil && number == nameField {
				return string(value)
			}
			meta = meta[size:]
		}
		return ""
	}
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	doc, err := scheme.YAMLToJSON(body) // JSON is YAML
	if err == nil {
		_ = json.Unmarshal(doc, &object) // without a name
	}
	return object.Metadata.Name
}

// watching registers a running watch for CutWatches. The caller has to call end when the watch ends.
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
