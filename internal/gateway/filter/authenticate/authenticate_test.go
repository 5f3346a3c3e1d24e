package authenticate

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/anonymous"
	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// signIn is an authenticator with a result for each value of the Authorization header.
type signIn map[string]struct {
	user *request.User
	err  error
}

func (s signIn) Authenticate(r *http.Request) (*request.User, error) {
	a := s[r.Header.Get("Authorization")]
	return a.user, a.err
}

func TestFilter(t *testing.T) {
	jane := &request.User{Name: "jane"}
	known := signIn{
		"Bearer good": {user: jane},
		"Bearer bad":  {err: errors.New("a token that does not hold")},
		"both":        {user: jane, err: errors.New("another way failed")},
	}
	for _, c := range []struct {
		name, header string
		rule         anonymous.Rule
		path         string
		user         string // "" is 401
		result       string
		closes       bool
	}{
		{"a user", "Bearer good", anonymous.Rule{Enabled: true}, "/api", "jane", "success", false},
		{"a user after a failure", "both", anonymous.Rule{Enabled: true}, "/api", "jane", "success", false},
		{"wrong credentials are not anonymous", "Bearer bad", anonymous.Rule{Enabled: true}, "/healthz", "", "error", true},
		{"anonymous", "", anonymous.Rule{Enabled: true}, "/api", request.Anonymous, "success", true},
		{"no anonymous", "", anonymous.Rule{}, "/healthz", "", "failure", true},
		{"anonymous on a path", "", anonymous.Rule{Enabled: true, Paths: []string{"/livez", "/healthz"}}, "/healthz",
			request.Anonymous, "success", true},
		{"anonymous elsewhere", "", anonymous.Rule{Enabled: true, Paths: []string{"/healthz"}}, "/healthz/", "", "failure",
			true},
	} {
		var log bytes.Buffer
		seen, result := "", ""
		names := requestheader.DefaultNames()
		h := New(Options{
			Authenticator: known, Anonymous: c.rule.User, Clear: names.Clear,
			Log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Observe: func(r, _ string, _ time.Duration) { result = r },
		})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = request.UserFrom(r.Context()).Name
			for _, name := range []string{"Authorization", "X-Remote-User", "X-Remote-Group", "X-Remote-Uid",
				"X-Remote-Extra-A"} {
				if r.Header.Get(name) != "" {
					t.Errorf("%s: the handler sees %s", c.name, name)
				}
			}
		}))
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Authorization", c.header)
		for _, name := range []string{"X-Remote-User", "X-Remote-Group", "x-remote-uid", "X-Remote-Extra-A"} {
			r.Header.Set(name, "spoofed")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if seen != c.user || (w.Code == http.StatusUnauthorized) != (c.user == "") || result != c.result ||
			(w.Header().Get("Connection") == "close") != c.closes {
			t.Errorf("%s: user %q, %d, %s, %v", c.name, seen, w.Code, result, w.Header())
		}
		for _, token := range []string{"good", "bad"} {
			if strings.Contains(log.String(), token+" ") || strings.Contains(log.String(), "Bearer") {
				t.Errorf("%s: the log has the token: %s", c.name, log.String())
			}
		}
	}
}
