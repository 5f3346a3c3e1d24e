package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Fault is something that happens to a request: Fail, Delay, Drop, DropAnswer or Stale.
type Fault interface {
	// check returns an error if the fault can have no effect on requests that match.
	check(on *Match) error
	// before returns a handler that makes the fault happen to a request. The handler calls next unless the fault
	// ends the request.
	before(next http.Handler) http.Handler
}

// Fail answers the request with an error, and does not carry it out.
type Fail struct {
	// Code is the HTTP status, from 400 on. The Status in the body is as kube-apiserver makes it for that code.
	Code int
	// RetryAfter is the header Retry-After, in whole seconds; 0 leaves it out. The codes 429, 503 and 504 can have it.
	RetryAfter time.Duration
}

// Delay makes the request wait before it is carried out.
type Delay struct{ For time.Duration }

// Drop closes the connection without an answer (with HTTP/2 it resets the stream), and does not carry out the request.
type Drop struct{}

// DropAnswer carries out the request, and then closes the connection without an answer.
type DropAnswer struct{}

// Stale answers a list with the state at an older resource version.
type Stale struct{ ResourceVersion string }

// check returns an error if faults could not happen to n requests that match.
func check(n int, on *Match, faults []Fault) error {
	if n < 1 {
		return fmt.Errorf("the number of requests must be positive, but is %d", n)
	}
	if err := on.Check(); err != nil {
		return err
	}
	if on.Verb == "create" && on.Name != "" && on.Subresource == "" {
		return errors.New("a Match with the Verb create must not have a Name: the name of a new object is in the body, " +
			"which is read later")
	}
	if len(faults) == 0 {
		return errors.New("there is no fault")
	}
	for i, f := range faults {
		if err := f.check(on); err != nil {
			return err
		}
		if ends(f) && i < len(faults)-1 {
			return errors.New("Fail and Drop must be the last fault: they end the request")
		}
	}
	return nil
}

// ends reports whether a fault ends a request before it is carried out.
func ends(f Fault) bool {
	switch f.(type) {
	case Fail, Drop:
		return true
	}
	return false
}

func (f Fail) check(*Match) error {
	switch {
	case f.Code < http.StatusBadRequest || http.StatusText(f.Code) == "":
		return fmt.Errorf("the Code of Fail must be an HTTP status from 400 on, but is %d", f.Code)
	case f.RetryAfter < 0 || f.RetryAfter%time.Second != 0:
		return fmt.Errorf("the RetryAfter of Fail must be in whole seconds, but is %v", f.RetryAfter)
	}
	switch f.Code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil
	}
	if f.RetryAfter != 0 {
		return fmt.Errorf("the RetryAfter of Fail needs the Code 429, 503 or 504, but the Code is %d", f.Code)
	}
	return nil
}

func (f Fail) before(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		apiresponse.Error(w, r, f.answer(request.InfoFrom(r.Context())))
	})
}

// answer returns the error that is answered with the Code, as kube-apiserver makes it.
func (f Fail) answer(info *request.Info) error {
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

func (d Delay) check(*Match) error {
	if d.For <= 0 {
		return fmt.Errorf("the time of Delay must be positive, but is %v", d.For)
	}
	return nil
}

func (d Delay) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := time.NewTimer(d.For)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.Context().Done():
		}
		next.ServeHTTP(w, r)
	})
}

func (Drop) check(*Match) error { return nil }

func (Drop) before(http.Handler) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

func (DropAnswer) check(*Match) error { return nil }

func (DropAnswer) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&nowhere{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
}

// nowhere is a http.ResponseWriter for an answer that is not sent.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

func (s Stale) check(on *Match) error {
	if on.Verb != "list" {
		return errors.New("Stale needs a Match with the Verb list: it has no effect on other requests")
	}
	if n, err := strconv.ParseUint(s.ResourceVersion, 10, 63); err != nil || n == 0 {
		return fmt.Errorf("the ResourceVersion of Stale must be that of an object or a list, but is %q", s.ResourceVersion)
	}
	return nil
}

func (s Stale) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.URL.RawQuery = stale(r.URL.Query(), s.ResourceVersion)
		next.ServeHTTP(w, r)
	})
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
