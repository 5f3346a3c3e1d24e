package auditid

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

// TestAuditID checks that handler and response have the same ID: the one that the client sent, or else a random UUID.
func TestAuditID(t *testing.T) {
	random := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, sent := range []string{"", "mine", ""} {
		r := httptest.NewRequest("GET", "/", nil)
		if sent != "" {
			r.Header.Set(Header, sent)
		}
		w := httptest.NewRecorder()
		var inside string
		New()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inside = r.Header.Get(Header) })).ServeHTTP(w, r)
		got := w.Header().Get(Header)
		if inside != got || sent != "" && got != sent || sent == "" && !random.MatchString(got) || seen[got] {
			t.Errorf("sent %q: the handler has %q, the client gets %q", sent, inside, got)
		}
		seen[got] = true
	}
}
