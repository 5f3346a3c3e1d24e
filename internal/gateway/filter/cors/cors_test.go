package cors

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOrigins(t *testing.T) {
	served := false
	h := New([]string{`//example\.com(:|$)`})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
	for _, test := range []struct {
		method, origin  string
		allowed, served bool
	}{
		{"GET", "", false, true},
		{"GET", "https://example.com", true, true},
		{"GET", "https://example.com:8443", true, true},
		{"OPTIONS", "https://example.com", true, false},
		{"OPTIONS", "https://example.com.evil.org", false, true},
		{"GET", "https://notexample.com", false, true},
	} {
		served = false
		r := httptest.NewRequest(test.method, "/", nil)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Header().Get("Access-Control-Allow-Origin")
		if (got != "") != test.allowed || test.allowed && got != test.origin || served != test.served {
			t.Errorf("%s %s: allowed %q, served %v", test.method, test.origin, got, served)
		}
		if test.allowed &&
			(w.Header().Get("Access-Control-Allow-Credentials") != "true" ||
				w.Header().Get("Access-Control-Allow-Methods") != "POST, GET, OPTIONS, PUT, DELETE, PATCH") {
			t.Errorf("%v", w.Header())
		}
		if !test.served && w.Code != http.StatusNoContent {
			t.Errorf("preflight: %d", w.Code)
		}
	}
	if New(nil) != nil {
		t.Error("a filter for nothing")
	}
}

func TestPatternsMustMatchTheWholeHost(t *testing.T) {
	for pattern, want := range map[string]string{
		`//example\.com(:|$)`:       "",
		`^https://example\.com$`:    "",
		``:                          "empty value in Requests.CORSAllowedOrigins",
		`example\.com`:              "regular expression does not pin to start/end of host in the origin header",
		`//example\.com`:            "regular expression does not pin to start/end of host in the origin header",
		`^https://example\.com:443`: "",
		`https?://`:                 "",
		`https://example\.com/`:     "an origin has no slash behind the host, so the expression can never match",
		`^https://example\.com/$`:   "an origin has no slash behind the host, so the expression can never match",
		`^(https://example\.com$`:   "Requests.CORSAllowedOrigins has an invalid regular expression: error parsing regexp",
	} {
		err := Validate([]string{pattern})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
