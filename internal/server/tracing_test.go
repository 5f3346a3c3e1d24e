package server

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// spanCollector is a collector of spans.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex // guards spans
	spans []*otlp.Span
}

// Export implements collector.TraceServiceServer.
func (c *spanCollector) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collectSpans starts a collector and writes a tracing configuration for it.
func collectSpans(t *testing.T, rate string) (*spanCollector, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &spanCollector{}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + l.Addr().String() +
		"\nsamplingRatePerMillion: " + rate + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, file
}

// of returns all spans of the trace that contains a span with this name.
func (c *spanCollector) of(name string) (trace []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name != name {
			continue
		}
		for _, other := range c.spans {
			if string(other.TraceId) == string(s.TraceId) {
				trace = append(trace, other)
			}
		}
		return trace
	}
	return nil
}

// find returns the first span with this name, nil if there is none.
func find(spans []*otlp.Span, name string) *otlp.Span {
	if i := slices.IndexFunc(spans, func(s *otlp.Span) bool { return s.Name == name }); i >= 0 {
		return spans[i]
	}
	return nil
}

func attributeOf(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return strings.Trim(a.Value.String()[strings.IndexByte(a.Value.String(), ':')+1:], `"`)
		}
	}
	return ""
}

// TestTracingOfCustomResources checks that the trace of a request for a custom resource has a span for the verb,
// as for a built-in resource.
func TestTracingOfCustomResources(t *testing.T) {
	spans, file := collectSpans(t, "1000000")
	config := testConfig(t)
	config.Diagnostics.TracingConfigFile = file
	s := start(t, config)
	c := httpClient(t, s, true)
	const widgets = "/apis/example.com/v1/namespaces/default/widgets"
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if a := apitest.Send(t, c, "POST", s.URL()+definitions, apitest.WidgetDefinition); a.Status != http.StatusCreated {
		t.Fatal(a.Status, a.Body)
	}
	wait.Until(t, "the custom resource to be served", func() bool {
		return apitest.Send(t, c, "GET", s.URL()+widgets, "").Status == http.StatusOK
	})
	a := apitest.Send(t, c, "POST", s.URL()+widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
	if a.Status != http.StatusCreated {
		t.Fatal(a.Status, a.Body)
	}
	if err := s.Stop(t.Context()); err != nil { // it sends the spans
		t.Fatal(err)
	}
	trace := spans.of("POST " + strings.Replace(widgets, "default", "{:namespace}", 1))
	create := find(trace, "Create")
	if create == nil {
		t.Fatalf("the create of a custom resource has no span of its verb: %v", trace)
	}
	if got := attributeOf(create, "resource"); got != "widgets" {
		t.Errorf("the span is about the resource %q", got)
	}
}

// TestTracing traces three requests: a create that calls a webhook, one in a trace that an administrator began,
// and one in a trace that another user began.
func TestTracing(t *testing.T) {
	const admins, users = "0af7651916cd43dd8448eb211c80319c", "0bf7651916cd43dd8448eb211c80319c"
	spans, file := collectSpans(t, "1000000")
	config := testConfig(t)
	config.Diagnostics.TracingConfigFile = file
	s, hook := start(t, config), apitest.NewWebhooks(t)
	parents := make(chan string, 1)
	judge := hook.Config.Handler
	hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("Traceparent")
		judge.ServeHTTP(w, r)
	})
	hook.On("/judge", apitest.Allow)
	admin, stranger := httpClient(t, s, true), httpClient(t, s, false)
	judging := hook.Configuration("ValidatingWebhookConfiguration", "judge", "/judge", "")
	for _, made := range []struct{ path, body string }{
		{apitest.AdmissionPath + "validatingwebhookconfigurations", judging}, {apitest.ConfigMapsPath, apitest.ConfigMap("a")},
	} {
		if a := apitest.Send(t, admin, "POST", s.URL()+made.path, made.body); a.Status != http.StatusCreated {
			t.Fatal(a.Status, a.Body)
		}
	}
	apitest.Send(t, admin, "GET", s.URL()+apitest.ConfigMapsPath+"/a", "",
		"Traceparent", "00-"+admins+"-b7ad6b7169203331-01")
	apitest.Send(t, stranger, "GET", s.URL()+"/api/v1/namespaces/default/secrets", "",
		"Traceparent", "00-"+users+"-b7ad6b7169203331-01")
	if err := s.Stop(t.Context()); err != nil { // it sends the spans
		t.Fatal(err)
	}

	create := spans.of("POST /api/v1/namespaces/{:namespace}/configmaps")
	for _, name := range []string{
		"authentication", "audit", "priorityandfairness", "authorization", "Create", "Commit", "HTTP POST",
	} {
		if find(create, name) == nil {
			t.Errorf("the create has no span %q", name)
		}
	}
	if t.Failed() {
		return
	}
	server := find(create, "POST /api/v1/namespaces/{:namespace}/configmaps")
	for key, want := range map[string]string{
		"http.response.status_code": "201", "http.request.method": "POST", "url.path": "/api/v1/namespaces/default/configmaps",
	} {
		if got := attributeOf(server, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	work := find(create, "Create")
	if string(find(create, "Commit").ParentSpanId) != string(work.SpanId) ||
		string(find(create, "HTTP POST").ParentSpanId) != string(work.SpanId) {
		t.Error("the commit or the call of the webhook is not below the create")
	}
	if !slices.ContainsFunc(work.Events, func(e *otlp.Span_Event) bool { return e.Name == "validate" }) {
		t.Errorf("the steps of the write are not events: %v", work.Events)
	}
	call := find(create, "HTTP POST")
	if got, want := <-parents, "00-"+hex.EncodeToString(call.TraceId)+"-"+hex.EncodeToString(call.SpanId)+"-01"; got != want {
		t.Errorf("the webhook got the parent %q, want %q", got, want)
	}

	get := find(spans.of("Get"), "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}")
	if get == nil || hex.EncodeToString(get.TraceId) != admins || hex.EncodeToString(get.ParentSpanId) != "b7ad6b7169203331" {
		t.Errorf("the trace of an administrator was not continued: %v", get)
	}
	refused := find(spans.of("GET /api/v1/namespaces/{:namespace}/secrets"), "GET /api/v1/namespaces/{:namespace}/secrets")
	if refused == nil || hex.EncodeToString(refused.TraceId) == users || len(refused.ParentSpanId) > 0 ||
		len(refused.Links) != 1 || hex.EncodeToString(refused.Links[0].TraceId) != users {
		t.Errorf("the trace of a stranger was continued, or not linked: %v", refused)
	}
}

// TestUnsampledRequests: with a rate of 0 only administrators have their requests traced, and only if they ask for it.
func TestUnsampledRequests(t *testing.T) {
	spans, file := collectSpans(t, "0")
	config := testConfig(t)
	config.Diagnostics.TracingConfigFile = file
	s := start(t, config)
	admin, stranger := httpClient(t, s, true), httpClient(t, s, false)
	apitest.Send(t, admin, "GET", s.URL()+"/api/v1/nodes", "")
	apitest.Send(t, stranger, "GET", s.URL()+"/api/v1/pods", "",
		"Traceparent", "00-0bf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	apitest.Send(t, admin, "GET", s.URL()+"/api/v1/services", "",
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if spans.of("GET /api/v1/nodes") != nil || spans.of("GET /api/v1/pods") != nil {
		t.Error("requests were traced that were not sampled")
	}
	if spans.of("GET /api/v1/services") == nil {
		t.Error("a request was not traced although an administrator asked for it")
	}
}
