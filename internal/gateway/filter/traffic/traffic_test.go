package traffic

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// serve sends a request of ann through both filters to a handler. It returns the response, and the value of a
// panic of the filters.
func serve(t *Traffic, method, path string, handler http.HandlerFunc) (w *httptest.ResponseRecorder, panicked any) {
	return serveBody(t, method, path, "", handler)
}

// serveBody is serve with a body.
func serveBody(t *Traffic, method, path, body string, handler http.HandlerFunc) (w *httptest.ResponseRecorder, panicked any) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
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

// TestNamesOfCreatesThatFaultsEnd checks that a create has its name in the record although its body reached no handler.
func TestNamesOfCreatesThatFaultsEnd(t *testing.T) {
	pod, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	proto := string(wire.NewEnvelopeHead("v1", "Pod").Append(nil, pod))
	for _, fault := range []Fault{Fail{Code: 503}, Drop{}} {
		for body, want := range map[string]string{
			`{"kind":"Pod","metadata":{"labels":{"name":"x"},"name":"a"}}`: "a", "metadata:\n  name: a\n": "a", proto: "a",
			`{"metadata":{"generateName":"a-"}}`: "", "": "", "{": "", "k8s\x00": "", proto[:len(proto)-30]: "", "[]": "",
		} {
			traffic := New()
			if _, err := traffic.Inject(All, Match{Verb: "create"}, Delay{For: 1}, fault); err != nil {
				t.Fatal(err)
			}
			serveBody(traffic, "POST", pods, body, ok)
			if got := traffic.Requests(Match{}); len(got) != 1 || got[0].Name != want {
				t.Errorf("%T, %q: %+v", fault, body, got)
			}
		}
	}
	// A handler gets the whole body.
	traffic := New()
	if _, err := traffic.Inject(All, Match{Verb: "create"}, Delay{For: 1}); err != nil {
		t.Fatal(err)
	}
	serveBody(traffic, "POST", pods, "x", func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "x" {
			t.Errorf("%q, %v", body, err)
		}
	})
}

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
		if got[i].Duration <= 0 {
			t.Errorf("%s %s took %v", got[i].Verb, got[i].Path, got[i].Duration)
		}
		got[i].User, got[i].Groups, got[i].Time, got[i].Duration = "", nil, time.Time{}, 0
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

// inject makes faults happen to the next n requests that match.
func inject(t *testing.T, traffic *Traffic, n int, on Match, faults ...Fault) (remove func()) {
	t.Helper()
	remove, err := traffic.Inject(n, on, faults...)
	if err != nil {
		t.Fatal(err)
	}
	return remove
}

func TestFaults(t *testing.T) {
	late, lists := Delay{time.Millisecond}, Match{Verb: "list"}
	for name, test := range map[string]struct {
		on       Match
		faults   []Fault
		method   string
		path     string
		code     int
		reason   metav1.StatusReason // of the Status; "" if the handler wrote the body
		served   string              // the query of the request that was carried out; "-" if none was
		panicked any
	}{
		"none matches":   {Match{Verb: "get"}, []Fault{Fail{Code: 500}}, "GET", pods, 200, "", "", nil},
		"conflict":       {Match{}, []Fault{Fail{Code: 409}}, "PUT", pods + "/a", 409, "Conflict", "-", nil},
		"exists":         {Match{}, []Fault{Fail{Code: 409}}, "POST", pods, 409, "AlreadyExists", "-", nil},
		"forbidden":      {Match{}, []Fault{Fail{Code: 403}}, "GET", pods, 403, "Forbidden", "-", nil},
		"not found":      {Match{}, []Fault{Fail{Code: 404}}, "GET", pods + "/a", 404, "NotFound", "-", nil},
		"expired":        {Match{}, []Fault{Fail{Code: 410}}, "GET", pods, 410, "Expired", "-", nil},
		"too many":       {Match{}, []Fault{Fail{429, 3 * time.Second}}, "GET", pods, 429, "TooManyRequests", "-", nil},
		"internal":       {Match{}, []Fault{Fail{Code: 500}}, "GET", pods, 500, "InternalError", "-", nil},
		"unavailable":    {Match{}, []Fault{Fail{503, 3 * time.Second}}, "GET", pods, 503, "ServiceUnavailable", "-", nil},
		"timeout":        {Match{}, []Fault{Fail{504, 3 * time.Second}}, "GET", pods, 504, "Timeout", "-", nil},
		"dropped":        {Match{}, []Fault{Drop{}}, "POST", pods, 200, "", "-", http.ErrAbortHandler},
		"answer dropped": {Match{}, []Fault{DropAnswer{}}, "POST", pods, 200, "", "", http.ErrAbortHandler},
		"late":           {Match{}, []Fault{late}, "GET", pods, 200, "", "", nil},
		"late, refused":  {Match{}, []Fault{late, Fail{Code: 503}}, "GET", pods, 503, "ServiceUnavailable", "-", nil},
		"late, dropped":  {Match{}, []Fault{late, DropAnswer{}}, "GET", pods, 200, "", "", http.ErrAbortHandler},
		"stale and answer dropped": {
			lists, []Fault{DropAnswer{}, Stale{"7"}}, "GET", pods, 200, "", "resourceVersion=7&resourceVersionMatch=Exact",
			http.ErrAbortHandler,
		},
	} {
		traffic, served := New(), "-"
		inject(t, traffic, All, test.on, test.faults...)
		w, panicked := serve(traffic, test.method, test.path, func(w http.ResponseWriter, r *http.Request) {
			served = r.URL.RawQuery
			ok(w, r)
		})
		var status metav1.Status
		_ = json.Unmarshal(w.Body.Bytes(), &status) // the handler's body is none
		if w.Code != test.code || status.Reason != test.reason || served != test.served || panicked != test.panicked {
			t.Errorf("%s: %d %s, served: %q, panic: %v", name, w.Code, w.Body, served, panicked)
		}
		fail, _ := test.faults[0].(Fail)
		if want := map[bool]string{true: "3"}[fail.RetryAfter > 0]; w.Header().Get("Retry-After") != want {
			t.Errorf("%s: Retry-After %q", name, w.Header().Get("Retry-After"))
		}
		code := test.code
		if panicked != nil {
			code = 0
		}
		if got := traffic.Requests(Match{}); len(got) != 1 || got[0].Code != code || got[0].Duration <= 0 {
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
	inject(t, traffic, All, Match{Verb: "list"}, Stale{"7"})
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

// TestFaultsEnd checks that an injection ends after its number of requests, and when it is removed.
func TestFaultsEnd(t *testing.T) {
	traffic := New()
	inject(t, traffic, 2, Match{}, Fail{Code: 500})
	remove := inject(t, traffic, All, Match{}, Fail{Code: 503})
	for i, want := range []int{500, 500, 503, 200, 200} {
		if i >= 3 {
			remove()
		}
		if w, _ := serve(traffic, "GET", pods, ok); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
}

// TestMistakes checks that an injection that could have no effect is refused, with an error that names the
// mistake.
func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		want   string // "" for an injection that is accepted
		n      int
		on     Match
		faults []Fault
	}{
		{"", All, Match{Verb: "deletecollection", Group: "apps", Resource: "deployments", Namespace: "n"}, []Fault{Drop{}}},
		{"", 1, Match{Verb: "create", Resource: "pods", Subresource: "eviction", Name: "a:b"}, []Fault{Fail{Code: 400}}},
		{"", 1, Match{Verb: "post", User: "Jane"}, []Fault{Fail{Code: 511}}},
		{"number of requests", 0, Match{}, []Fault{Drop{}}},
		{"number of requests", -1, Match{}, []Fault{Drop{}}},
		{`Verb "Update"`, 1, Match{Verb: "Update"}, []Fault{Drop{}}},
		{`Verb "apply"`, 1, Match{Verb: "apply"}, []Fault{Drop{}}},
		{`Verb "post"`, 1, Match{Verb: "post", Resource: "pods"}, []Fault{Drop{}}},
		{`Resource "ConfigMap"`, 1, Match{Resource: "ConfigMap"}, []Fault{Drop{}}},
		{`Resource "pods/status"`, 1, Match{Resource: "pods/status"}, []Fault{Drop{}}},
		{`Subresource "Status"`, 1, Match{Resource: "pods", Subresource: "Status"}, []Fault{Drop{}}},
		{`Group "apps/v1"`, 1, Match{Group: "apps/v1"}, []Fault{Drop{}}},
		{`Namespace "Team"`, 1, Match{Namespace: "Team"}, []Fault{Drop{}}},
		{`Name "team/a"`, 1, Match{Name: "team/a"}, []Fault{Drop{}}},
		{"Verb create must not have a Name", 1, Match{Verb: "create", Resource: "pods", Name: "a"}, []Fault{Drop{}}},
		{"no fault", 1, Match{}, nil},
		{"last fault", 1, Match{}, []Fault{Fail{Code: 500}, Delay{1}}},
		{"last fault", 1, Match{}, []Fault{Drop{}, DropAnswer{}}},
		{"is 42", 1, Match{}, []Fault{Fail{Code: 42}}},
		{"is 200", 1, Match{}, []Fault{Fail{Code: 200}}},
		{"is 0", 1, Match{}, []Fault{Fail{}}},
		{"is 499", 1, Match{}, []Fault{Fail{Code: 499}}},
		{"is 1.5s", 1, Match{}, []Fault{Fail{Code: 429, RetryAfter: 1500 * time.Millisecond}}},
		{"is -1s", 1, Match{}, []Fault{Fail{Code: 429, RetryAfter: -time.Second}}},
		{"429, 503 or 504", 1, Match{}, []Fault{Fail{Code: 409, RetryAfter: time.Second}}},
		{"is 0s", 1, Match{}, []Fault{Delay{}}},
		{"is -1ns", 1, Match{}, []Fault{Delay{-1}}},
		{"Verb list", 1, Match{}, []Fault{Stale{"7"}}},
		{"Verb list", 1, Match{Verb: "get"}, []Fault{Stale{"7"}}},
		{`is ""`, 1, Match{Verb: "list"}, []Fault{Stale{}}},
		{`is "0"`, 1, Match{Verb: "list"}, []Fault{Stale{"0"}}},
	} {
		_, err := New().Inject(test.n, test.on, test.faults...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%d %+v %+v: %v, want %q", test.n, test.on, test.faults, err, test.want)
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
