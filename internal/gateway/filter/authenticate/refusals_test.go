package authenticate

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// TestRefusals checks what is logged about refused credentials, that it is bounded, and that nothing is logged that the client has sent.
func TestRefusals(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1_000_000, 0)
	f := NewRefusals(metrics.New(metrics.Build{}, metrics.Options{}), slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	refuse := func(address string, err error) {
		r := httptest.NewRequest(http.MethodGet, "/secretpath", nil)
		r.RemoteAddr = address
		f.refused(r, err)
	}
	lines := func() int { return strings.Count(log.String(), "\n") }
	expired := authn.Refuse(authn.ReasonExpired, "https://issuer", errors.New("token of jane, claim secret, is expired"))
	for range 100 {
		refuse("192.0.2.1:1000", expired)
	}
	if got := log.String(); lines() != 1 || !strings.Contains(got, `reason=expired issuer=https://issuer address=192.0.2.1`) ||
		strings.Contains(got, "jane") || strings.Contains(got, "secret") {
		t.Errorf("%d lines for one client: %s", lines(), got)
	}
	for i := range 5000 { // other clients
		refuse(fmt.Sprintf("198.51.%d.%d:1000", i/250, i%250), authn.ErrInvalidToken)
	}
	if n := lines(); n != refusalBurst {
		t.Errorf("%d lines at once, want %d", n, refusalBurst)
	}
	now = now.Add(refusalQuiet)
	refuse("192.0.2.1:1000", expired)
	if n, last := lines(), log.String()[strings.LastIndex(strings.TrimSuffix(log.String(), "\n"), "\n")+1:]; n != refusalBurst+1 ||
		!strings.Contains(last, fmt.Sprintf("notLogged=%d", 5000-refusalBurst+1)) {
		t.Errorf("a minute later: %d lines, %s", n, last)
	}
}
