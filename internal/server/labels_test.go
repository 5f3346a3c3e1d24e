package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// oddMarker is part of every name that oddRequests makes up.
const oddMarker = "zqzq"

// oddRequests returns requests of many shapes whose names no server knows. Two rounds
// have the same shapes and other names.
func oddRequests(round int) []*http.Request {
	var out []*http.Request
	serial := 0
	odd := func(kind string) string {
		serial++
		name := fmt.Sprintf("%s-%d-%d", oddMarker, round, serial)
		switch kind {
		case "bytes":
			return name + "\xff\xfe"
		case "long":
			return name + strings.Repeat("x", 8<<10)
		}
		return name
	}
	add := func(method, path, query string) {
		for _, token := range []string{"", "admintoken", "davetoken"} {
			r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader("{}"))
			r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
			r = r.WithContext(x509.WithConnection(r.Context()))
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			r.Header.Set("User-Agent", odd(""))
			r.Header.Set("Audit-Id", odd(""))
			r.Header.Set("Content-Type", odd(""))
			if token == "admintoken" && query != "" { // the administrator's own watches would not end
				r.Header.Set("Impersonate-User", odd(""))
			}
			out = append(out, r)
		}
	}
	known := []string{
		"/apis/apps/v1/deployments", "/api/v1/pods", "/api/v1/namespaces/default/pods", "/apis/example.com/v1/widgets",
	}
	for _, kind := range []string{"", "bytes", "long"} {
		for _, method := range []string{"GET", "POST", "DELETE", odd(kind)} {
			n := func() string { return odd(kind) }
			for _, path := range []string{
				"/" + n(), "/healthz/" + n(), "/livez/" + n(), "/openapi/v3/apis/" + n(), "/debug/pprof/" + n(), "/version/" + n(),
				"/apis/" + n() + "/v1//x", "/apis/" + n() + "/v1/pods", "/apis/apps/" + n() + "/deployments",
				"/apis/apps/v1/" + n(),
				"/api/" + n() + "/pods", "/api/v1/" + n(), "/api/v1//" + n(), "/api/v1/watch/" + n(), "/api/v1/proxy/" + n() + "/x",
				"/apis/apps//deployments/" + n(), "/apis//" + n() + "/deployments",
				"/api/v1/namespaces/" + n() + "/" + n() + "/x/y",
			} {
				add(method, path, "")
				add(method, path, "watch=1&dryRun="+n())
			}
			for _, path := range known {
				add(method, path+"/name/"+n(), "")
				add(method, path+"/name/"+n()+"/"+n(), "watch=true")
				add(method, path, "dryRun="+n()+"&fieldManager="+n())
				add(method, path, "fieldSelector=metadata.name%3D"+n())
			}
		}
	}
	return out
}

// TestRequestsMakeNoSeries sends unusual requests and checks that no metric has a label with text from them.
func TestRequestsMakeNoSeries(t *testing.T) {
	c := testConfig(t)
	c.Storage.Backend, c.Storage.DataDir = config.StorageMemory, ""
	s := start(t, c)
	defineWidgets(t, s)
	scrape := func() (string, int) {
		text := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
		return text, strings.Count(text, "\n")
	}
	send := func(round int) int {
		requests := oddRequests(round)
		for _, r := range requests {
			w := httptest.NewRecorder()
			s.http.server.Handler.ServeHTTP(w, r)
			if strings.Contains(w.Body.String(), "caused apiserver to panic") {
				t.Errorf("%s %.80q: a panic", r.Method, r.URL.Path)
			}
		}
		return len(requests)
	}
	send(1)
	scrape()
	_, before := scrape()
	sent := send(2)
	text, after := scrape()
	t.Logf("%d requests: %d lines of metrics before, %d after", sent, before, after)
	if after > before {
		t.Errorf("%d requests made %d lines", sent, after-before)
	}
	if i := strings.Index(text, oddMarker); i >= 0 {
		t.Errorf("a label is what a client sent: %.200q", text[max(0, i-100):])
	}
	if !utf8.ValidString(text) {
		t.Error("a label is no UTF-8")
	}
}

// defineWidgets makes a custom resource and waits until it is served.
func defineWidgets(t *testing.T, s *Server) {
	t.Helper()
	const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"widgets","singular":"widget","kind":"Widget",
			"listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	admin := httpClient(t, s, true)
	w, err := admin.Post(
		s.URL()+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", strings.NewReader(definition),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close() //nolint:errcheck // only the status counts
	if body, _ := io.ReadAll(w.Body); w.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	for {
		if a := apitest.Send(t, admin, "GET", s.URL()+"/apis/example.com/v1/widgets", ""); a.Status == http.StatusOK {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the custom resource is not served")
		default:
		}
	}
}
