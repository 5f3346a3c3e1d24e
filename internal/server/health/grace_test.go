package health

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestLivezPassesAtFirst checks that /livez does not fail while the server may still be starting, and that the
// other endpoints can fail.
func TestLivezPassesAtFirst(t *testing.T) {
	starting := true
	checks := []Check{{Name: "slow", On: Everywhere, Probe: func(context.Context) error { return errors.New("not yet") }}}
	h := New(checks, slog.New(slog.DiscardHandler), func(string, string, bool) {})
	h.LivezPasses = func() bool { return starting }
	for _, c := range []struct {
		path     string
		starting bool
		want     int
	}{
		{"/livez", true, http.StatusOK}, {"/livez/slow", true, http.StatusOK},
		{"/readyz", true, http.StatusInternalServerError},
		{"/healthz", true, http.StatusInternalServerError}, {"/livez", false, http.StatusInternalServerError},
	} {
		starting = c.starting
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", c.path, nil))
		if w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}
