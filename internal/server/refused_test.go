package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// lockedLog is a log that tests read while the server writes it.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestRefusedCredentialsAreLogged checks that the log has the reason why credentials were rejected, and no data
// from the client.
func TestRefusedCredentialsAreLogged(t *testing.T) {
	var log lockedLog
	c := testConfig(t)
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := start(t, c)
	anybody := httpClient(t, s, false)
	const wrong = "VERYSECRETTOKEN"
	for range 30 {
		if a := apitest.Send(t, anybody, "GET", s.URL()+"/api", "", "Authorization", "Bearer "+wrong); a.Status != http.StatusUnauthorized {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if a := apitest.Send(t, anybody, "GET", s.URL()+"/api/v1/pods", ""); a.Status != http.StatusForbidden {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	const line = `msg="the credentials of a request are not accepted" reason=unknown issuer="" address=127.0.0.1 notLogged=0`
	if got := log.String(); strings.Count(got, "are not accepted") != 1 || !strings.Contains(got, line) || strings.Contains(got, wrong) {
		t.Errorf("the log is\n%.3000s", got)
	}
	text := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
	if !strings.Contains(text, `keelson_refused_credentials_total{reason="unknown"} 30`) {
		t.Error("the metric does not count 30 requests")
	}
}
