package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestCallsOfWebhooksAreCounted sends a request that three webhooks authenticate, authorize and audit, each on its
// own server.
func TestCallsOfWebhooksAreCounted(t *testing.T) {
	files, c, hosts := newFolder(t), audited(t), map[string]string{}
	hook := func(name string, answer http.HandlerFunc) (kubeconfig string) {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		hosts[name] = strings.TrimPrefix(s.URL, "http://")
		return files.hookFile(name, s.URL, "")
	}
	c.Authentication.Webhook.Version = "v1"
	c.Authentication.Webhook.ConfigFile = hook("authentication", tokenHook("erin"))
	c.Authorization.Modes, c.Authorization.Webhook.Version = []string{config.ModeRBAC, config.ModeWebhook}, "v1"
	c.Authorization.Webhook.ConfigFile = hook("authorization", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)
	})
	c.Audit.Webhook.Mode = sink.ModeBlocking // the response is sent after the event
	c.Audit.Webhook.ConfigFile = hook("audit", func(http.ResponseWriter, *http.Request) {})
	s := start(t, c)
	client := httpClient(t, s, false)
	if a := callWith(t, client, "token-of-erin", "GET", s.URL()+"/api/v1/namespaces/default/configmaps", "", ""); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	text := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
	for name, host := range hosts {
		if !strings.Contains(text, fmt.Sprintf(`rest_client_requests_total{code="200",host=%q,method="POST"}`, host)) {
			t.Errorf("no call of the webhook for %s is counted", name)
		}
	}
}
