package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// serve sends a request of ann through both filters to a handler. It returns the response, and what the filters panicked
// with.
func serve(t *Traffic, method, path string, handler http.HandlerFunc) (w *httptest.ResponseRecorder, panicked any) {
	r := httptest.NewRequest(method, path, nil)
	info := request.ParseInfo(r)
	w = httptest.NewRecorder()
	defer func() { panicked = recover() }()
	t.Record(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Disturb(handler).ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &request.User{Name: "ann", Groups: []string{"g"}})))
	})).ServeHTTP(w, r.WithContext(request.WithInfo(r.Context(), info)))
	return w, nil
}

func ok(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("served " + r.URL.RawQuery)) }

const pods = "/api/v1/namespaces/n/pods"

func TestRequests(t *testing.T) {
	traffic := New()
	serve(traffic, "GET", pods, ok)
	serve(traffic, "DELETE", pods+"/a", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	serve(traffic, "POST", pods, func(w http.ResponseWriter, r *http.Request) {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "generated"}}
		for _, a := range []*admission.Attributes{
			{Operation: admission.Create, Object: object, Subresource: "binding"},
			{Operation: admission.Create, Object: object},
			{Operation: admission.Create, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "later"}}},
		} {
			if err := traffic.Plugin().Validate(r.Context(), a); err != nil {
				t.Error(err)
			}
		}
		w.WriteHeader(201)
	})
	serve(traffic, "GET", "/healthz", ok)
	got := traffic.Requests(Match{})
	for i, want := range []Request{
		{Verb: "list", Version: "v1", Resource: "pods", Namespace: "n", Path: pods, Code: 200},
		{Verb: "delete", Version: "v1", Resource: "pods", Namespace: "n", Name: "a", Path: pods + "/a", Code: 404},
		{Verb: "create", Version: "v1", Resource: "pods", Namespace: "n", Name: "generated", Path: pods, Code: 201},
		{Verb: "get", Path: "/healthz", Code: 200},
	} {
		if len(got) != 4 || got[i].User != "ann" || len(got[i].Groups) != 1 || got[i].Time.IsZero() {
			t.Fatalf("%+v", got)
		}
		got[i].User, got[i].Groups, got[i].Time = "", nil, time.Time{}
		if a, b := text(t, got[i]), text(t, want); a != b {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	}
	for want, match := range map[int]Match{
		3: {Resource: "pods", Namespace: "n", User: "ann"}, 1: {Verb: "delete", Name: "a"}, 0: {User: "eve"},
	} {
		if n := len(traffic.Requests(match)); n != want {
			t.Errorf("%+v: %d requests, want %d", match, n, want)
		}
	}
	traffic.Forget()
	if n := len(traffic.Requests(Match{})); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

func text(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOldRequestsAreForgotten adds more requests than are kept.
func TestOldRequestsAreForgotten(t *testing.T) {
	traffic := New()
	for range MaxRequests {
		traffic.add(&call{})
	}
	serve(traffic, "GET", pods, ok)
	if got := traffic.Requests(Match{}); len(got) != MaxRequests/2+1 || got[len(got)-1].Resource != "pods" {
		t.Errorf("%d requests", len(got))
	}
}

func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		fault    Fault
		method   string
		path     string
		code     int
		reason   metav1.StatusReason // of the Status; "" if the handler wrote the body
		served   bool
		panicked any
	}{
		"none matches":     {Fault{On: Match{Verb: "get"}, Code: 500}, "GET", pods, 200, "", true, nil},
		"conflict":         {Fault{Code: 409}, "PUT", pods + "/a", 409, "Conflict", false, nil},
		"exists":           {Fault{Code: 409}, "POST", pods, 409, "AlreadyExists", false, nil},
		"forbidden":        {Fault{Code: 403}, "GET", pods, 403, "Forbidden", false, nil},
		"not found":        {Fault{Code: 404}, "GET", pods + "/a", 404, "NotFound", false, nil},
		"expired":          {Fault{Code: 410}, "GET", pods, 410, "Expired", false, nil},
		"too many":         {Fault{Code: 429, RetryAfter: 3 * time.Second}, "GET", pods, 429, "TooManyRequests", false, nil},
		"internal":         {Fault{Code: 500}, "GET", pods, 500, "InternalError", false, nil},
		"unavailable":      {Fault{Code: 503}, "GET", pods, 503, "ServiceUnavailable", false, nil},
		"timeout":          {Fault{Code: 504}, "GET", pods, 504, "Timeout", false, nil},
		"dropped":          {Fault{Drop: true}, "POST", pods, 200, "", false, http.ErrAbortHandler},
		"answer dropped":   {Fault{DropAnswer: true}, "POST", pods, 200, "", true, http.ErrAbortHandler},
		"late":             {Fault{Latency: time.Millisecond}, "GET", pods, 200, "", true, nil},
		"stale get":        {Fault{StaleVersion: "7"}, "GET", pods + "/a", 200, "", true, nil},
		"late and refused": {Fault{Latency: time.Millisecond, Code: 503}, "GET", pods, 503, "ServiceUnavailable", false, nil},
	} {
		traffic, served := New(), false
		traffic.Inject(test.fault)
		w, panicked := serve(traffic, test.method, test.path, func(w http.ResponseWriter, r *http.Request) {
			served = true
			ok(w, r)
		})
		var status metav1.Status
		_ = json.Unmarshal(w.Body.Bytes(), &status) // the handler's body is none
		if w.Code != test.code || status.Reason != test.reason || served != test.served || panicked != test.panicked {
			t.Errorf("%s: %d %s, served: %t, panic: %v", name, w.Code, w.Body, served, panicked)
		}
		if want := map[bool]string{true: "3"}[test.fault.RetryAfter > 0]; w.Header().Get("Retry-After") != want {
			t.Errorf("%s: Retry-After %q", name, w.Header().Get("Retry-After"))
		}
		code := test.code
		if panicked != nil {
			code = 0
		}
		if got := traffic.Requests(Match{}); len(got) != 1 || got[0].Code != code {
			t.Errorf("%s: recorded %+v", name, got)
		}
		if panicked != nil && w.Body.Len() > 0 {
			t.Errorf("%s: %s was sent", name, w.Body)
		}
	}
}

// TestStaleLists changes the query of a list, unless it is continued.
func TestStaleLists(t *testing.T) {
	traffic := New()
	traffic.Inject(Fault{StaleVersion: "7"})
	for query, want := range map[string]string{
		"limit=5":                   "limit=5&resourceVersion=7&resourceVersionMatch=Exact",
		"continue=c&limit=5":        "continue=c&limit=5",
		"resourceVersion=0&limit=1": "limit=1&resourceVersion=7&resourceVersionMatch=Exact",
	} {
		if w, _ := serve(traffic, "GET", pods+"?"+query, ok); w.Body.String() != "served "+want {
			t.Errorf("%s: %s, want %s", query, w.Body, want)
		}
	}
}

// TestFaultsEnd has a fault for two requests, and one that is taken away.
func TestFaultsEnd(t *testing.T) {
	traffic := New()
	traffic.Inject(Fault{Code: 500, Times: 2})
	remove := traffic.Inject(Fault{Code: 503})
	for i, want := range []int{500, 500, 503, 200, 200} {
		if i >= 3 {
			remove()
		}
		if w, _ := serve(traffic, "GET", pods, ok); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
}

// TestCutWatches ends a watch, and no request of another kind.
func TestCutWatches(t *testing.T) {
	traffic := New()
	serve(traffic, "GET", pods+"?watch=true", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(nil)
		if n := traffic.CutWatches(Match{Namespace: "other"}); n != 0 || r.Context().Err() != nil {
			t.Errorf("%d watches of another namespace were cut: %v", n, r.Context().Err())
		}
		if n := traffic.CutWatches(Match{Namespace: "n"}); n != 1 || r.Context().Err() != context.Canceled {
			t.Errorf("%d watches were cut: %v", n, r.Context().Err())
		}
	})
	if n := traffic.CutWatches(Match{}); n != 0 {
		t.Errorf("%d watches run after the end", n)
	}
	serve(traffic, "GET", pods, func(http.ResponseWriter, *http.Request) {
		if n := traffic.CutWatches(Match{}); n != 0 {
			t.Errorf("%d lists were cut", n)
		}
	})
}
