package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: a, user: u}}],
clusters: [{name: a, cluster: {server: %q}}], users: [{name: u, user: {token: credential}}]}`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, h http.HandlerFunc, backoff time.Duration, report audit.Report) *Webhook {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	client, err := webhook.FromKubeconfig(kubeconfig(t, s.URL+"/events"), os.ReadFile, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, backoff, report)
}

var events = []*audit.Event{{AuditID: "a", Verb: "get"}, {AuditID: "b"}}

func TestEventsAreSent(t *testing.T) {
	var list auditv1.EventList
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &list)
		}
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/events" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer credential" {
			t.Errorf("%s %s %v %v", r.Method, r.URL, r.Header, err)
		}
	}, time.Hour, nil)
	if !w.Write(t.Context(), events) {
		t.Fatal("not taken")
	}
	if list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" || len(list.Items) != 2 ||
		list.Items[0].AuditID != "a" || list.Items[0].Kind != "" || list.Items[1].AuditID != "b" {
		t.Errorf("%+v", list)
	}
}

// TestEveryFailureIsTriedAgain checks that events are sent again even after an error that is usually final (403).
func TestEveryFailureIsTriedAgain(t *testing.T) {
	var calls atomic.Int32
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusForbidden)
		}
	}, time.Millisecond, nil)
	if !w.Write(t.Context(), events) || calls.Load() != 3 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestFiveFailuresAreReported(t *testing.T) {
	var calls atomic.Int32
	lost := 0
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}, time.Millisecond, func(part string, _ error, events []*audit.Event) {
		if part == "webhook" {
			lost += len(events)
		}
	})
	if w.Write(t.Context(), events) || calls.Load() != 5 || lost != 2 {
		t.Errorf("%d calls, %d lost", calls.Load(), lost)
	}
}

// TestRedirectsAreNotFollowed: events and credentials are for one server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer elsewhere.Close()
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}, time.Millisecond, func(string, error, []*audit.Event) {})
	if w.Write(t.Context(), events) {
		t.Error("taken")
	}
}

func TestTheEndOfTheServerEndsAttempts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusInternalServerError)
	}, time.Hour, func(string, error, []*audit.Event) {})
	if w.Write(ctx, events) {
		t.Error("taken")
	}
}
