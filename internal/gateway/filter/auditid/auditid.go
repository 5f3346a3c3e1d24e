// Package auditid gives each request an audit ID and returns it in the Audit-Id header. If
// the client sent an ID in that header, it is kept.
package auditid

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
)

// Header is the name of the header, in requests and responses.
const Header = "Audit-Id"

// New returns the filter.
func New() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get(Header)
			if id == "" {
				id = newID()
				r.Header.Set(Header, id)
			}
			w.Header()[Header] = []string{id}
			next.ServeHTTP(w, r)
		})
	}
}

// newID returns a random UUID (RFC 9562 section 5.4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[:8], b[:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:], b[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
