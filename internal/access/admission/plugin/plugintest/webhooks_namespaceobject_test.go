package plugintest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestNamespaceObjectInMatchConditions checks that the match conditions of webhooks see the Namespace of a write, and null for a Namespace
// itself.
func TestNamespaceObjectInMatchConditions(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/", apitest.Allow)
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"labelled","labels":{"a":"b"}}}`)
	body := h.Configuration("MutatingWebhookConfiguration", "chosen", "/", `,"matchConditions":[{"name":"c","expression":`+
		`"namespaceObject == null ? request.resource.resource == 'namespaces' : has(namespaceObject.metadata.labels.a)"}]`)
	s.Create(apitest.AdmissionPath+"mutatingwebhookconfigurations", strings.Replace(body, `"configmaps",`, `"configmaps","namespaces",`, 1))
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/api/v1/namespaces/labelled/configmaps", apitest.ConfigMap("m"), 1},
		{apitest.ConfigMapsPath, apitest.ConfigMap("m"), 0},
		{"/api/v1/namespaces", `{"metadata":{"name":"new"}}`, 1},
	} {
		h.Requests("/")
		if a := s.Send("POST", c.path, c.body); a.Status != http.StatusCreated {
			t.Fatalf("POST %s: %d %.500s", c.path, a.Status, a.Body)
		}
		if got := len(h.Requests("/")); got != c.want {
			t.Errorf("POST %s: the webhook was called %d times, want %d", c.path, got, c.want)
		}
	}
}
