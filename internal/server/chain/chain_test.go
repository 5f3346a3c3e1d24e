package chain

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/bearer"
	"github.com/keelson-dev/keelson/internal/access/auth/staticauthorizer"
	"github.com/keelson-dev/keelson/internal/access/auth/statictoken"
	"github.com/keelson-dev/keelson/internal/gateway/filter/audit"
	"github.com/keelson-dev/keelson/internal/gateway/filter/authenticate"
	"github.com/keelson-dev/keelson/internal/gateway/filter/fairness"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestmetrics"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	events "github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/audit/policy"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	auditlog "github.com/keelson-dev/keelson/internal/machinery/audit/sink/log"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func testChain(tb testing.TB, h http.HandlerFunc) http.Handler { return auditedChain(tb, h, nil) }

func auditedChain(tb testing.TB, h http.HandlerFunc, auditor *audit.Auditor) http.Handler {
	tb.Helper()
	return limitedChain(tb, h, auditor, inflight.New(400, 200).Filter)
}

func limitedChain(
	tb testing.TB, h http.HandlerFunc, auditor *audit.Auditor, limit func(http.Handler) http.Handler,
) http.Handler {
	tb.Helper()
	tokens := &statictoken.Authenticator{}
	if err := tokens.Replace([]byte("admintoken,admin,1,system:masters\n")); err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	counts := metrics.New(nil, metrics.Options{})
	requests := requestmetrics.NewRequests(counts, func(_, _, resource string) bool { return resource == "pods" })
	own := []string{"here"}
	return New(h, Options{
		Log: log, Metrics: counts, Requests: requests,
		Authentication: authenticate.Options{
			Authenticator: &bearer.Authenticator{Tokens: authn.WrapAudienceAgnostic(own, tokens), Audiences: own},
			Anonymous:     func(*http.Request) *request.User { return authn.AnonymousUser() },
			Clear:         func(http.Header) {}, Log: log, Observe: authenticate.NewMetrics(counts),
		},
		Authorization: Authorization{Authorizer: authz.List{staticauthorizer.SystemMasters{}}},
		Limit:         limit, RequestTimeout: time.Minute, Audit: auditor,
		Stop: Stop{Begun: context.Background(), Refusing: func() bool { return false }},
	})
}

func TestWarningsComeWithTheHeaders(t *testing.T) {
	h := testChain(t, func(w http.ResponseWriter, r *http.Request) {
		request.Warn(r.Context(), "old version")
		request.Warn(r.Context(), "old version")
		w.WriteHeader(http.StatusCreated)
		request.Warn(r.Context(), "too late")
	})
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("Authorization", "Bearer admintoken")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header()["Warning"]; w.Code != http.StatusCreated || len(got) != 1 || got[0] != `299 - "old version"` {
		t.Errorf("%d %q", w.Code, got)
	}
}

// TestHandlersKnowTheResponse checks that the Response in the context is the ResponseWriter that a handler gets,
// because handlers count memory and release the seat there. The filter deadline runs some requests on another
// goroutine, with another ResponseWriter.
func TestHandlersKnowTheResponse(t *testing.T) {
	fair := flowcontrol.New(flowcontrol.Options{ReadOnly: 400, Mutating: 200})
	for name, limit := range map[string]func(http.Handler) http.Handler{
		"inflight": inflight.New(400, 200).Filter, "fairness": fairness.New(fair, time.Minute),
	} {
		for _, of := range []string{"GET /api/v1/pods", "GET /api/v1/pods?watch=1", "POST /api/v1/namespaces/a/pods", "GET /version"} {
			called := false
			h := limitedChain(t, func(w http.ResponseWriter, r *http.Request) {
				called = true
				if got, _ := request.ResponseFrom(r.Context()).(http.ResponseWriter); got != w {
					t.Errorf("%s, %s: the Response is %T %p, the ResponseWriter %T %p", name, of, got, got, w, w)
				}
			}, nil, limit)
			method, target, _ := strings.Cut(of, " ")
			r := httptest.NewRequest(method, target, strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer admintoken")
			if h.ServeHTTP(httptest.NewRecorder(), r); !called {
				t.Errorf("%s, %s: refused", name, of)
			}
		}
	}
}

func TestFlushReachesTheConnection(t *testing.T) {
	h := testChain(t, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := r.Context().Err(); err != nil {
			t.Error(err)
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("the handler sees the token")
		}
	})
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil)
	r.Header.Set("Authorization", "Bearer admintoken")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !w.Flushed || w.Code != http.StatusOK {
		t.Errorf("flushed %v, %d", w.Flushed, w.Code)
	}
}

// discard is a ResponseWriter that drops the response, at no cost for benchmarks.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkChain(b *testing.B) { benchmark(b, nil) }

// BenchmarkAuditedChain is BenchmarkChain with two audit events of the level Metadata for each request. The sink
// drops the events.
func BenchmarkAuditedChain(b *testing.B) {
	p, err := policy.Parse([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]"), slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, &audit.Auditor{
		Policy: p, Sink: sink.NewBlocking(auditlog.New(io.Discard, auditlog.FormatJSON, nil), false, time.Minute, nil),
		Observe: func(events.Level) {}, Count: func() {}, Rejected: func() {},
	})
}

// BenchmarkFairChain is the same as BenchmarkChain with API priority and fairness.
func BenchmarkFairChain(b *testing.B) {
	c := flowcontrol.New(flowcontrol.Options{ReadOnly: 400, Mutating: 200})
	benchmarkHandler(b, limitedChain(b, smallBody, nil, fairness.New(c, time.Minute)))
}

func smallBody(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }

func benchmark(b *testing.B, auditor *audit.Auditor) {
	benchmarkHandler(b, auditedChain(b, smallBody, auditor))
}

func benchmarkHandler(b *testing.B, h http.Handler) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods/a", nil)
	auth := []string{"Bearer admintoken"}
	w := &discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		r.Header["Authorization"] = auth
		h.ServeHTTP(w, r)
	}
}
