// Package requestheader authenticates users by headers that a front proxy sends, such as
// X-Remote-User. The proxy itself authenticates by its client certificate; the headers of
// other clients are ignored.
package requestheader

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	clientcert "github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Names are the names of the headers. The user name and the UID are in the first header of Users and UIDs that has
// a value. All values count in the headers of Groups, and in those that begin with one of ExtraPrefixes.
type Names struct {
	Users, UIDs, Groups, ExtraPrefixes []string
}

// DefaultNames returns the names that proxies use by default.
func DefaultNames() Names {
	return Names{
		Users: []string{"X-Remote-User"}, UIDs: []string{"X-Remote-Uid"}, Groups: []string{"X-Remote-Group"},
		ExtraPrefixes: []string{"X-Remote-Extra-"},
	}
}

// Clear removes the headers, so that neither a handler nor a proxied server trusts values that a client has sent.
func (n *Names) Clear(h http.Header) {
	for _, names := range [][]string{n.Users, n.UIDs, n.Groups} {
		for _, name := range names {
			h.Del(name)
		}
	}
	for _, prefix := range n.ExtraPrefixes {
		for name := range h {
			if hasPrefixFold(name, prefix) {
				delete(h, name) // h.Del would use the canonical form of the name
			}
		}
	}
}

// Authenticator is an authn.Authenticator.
type Authenticator struct {
	// Roots returns the certificate authorities of proxies.
	Roots func() *x509.CertPool
	// AllowedNames are the common names that a proxy's certificate may have. If it is empty,
	// every certificate of Roots is allowed.
	AllowedNames []string
	Names        Names
	Now          func() time.Time
}

// Authenticate implements authn.Authenticator.
func (a *Authenticator) Authenticate(r *http.Request) (*request.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	if err := clientcert.VerifyOnce(r, a.Roots(), a.Now()); err != nil {
		return nil, err
	}
	proxy := r.TLS.PeerCertificates[0].Subject.CommonName
	if len(a.AllowedNames) > 0 && !slices.Contains(a.AllowedNames, proxy) {
		return nil, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", proxy)
	}
	name := firstValue(r.Header, a.Names.Users)
	if name == "" {
		return nil, nil
	}
	user := &request.User{Name: name, UID: firstValue(r.Header, a.Names.UIDs)}
	for _, header := range a.Names.Groups {
		for _, group := range r.Header.Values(header) {
			if group != "" {
				user.Groups = append(user.Groups, group)
			}
		}
	}
	user.Extra = extraOf(r.Header, a.Names.ExtraPrefixes)
	return authn.WithAuthenticated(user), nil
}

func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// extraOf returns the extra values of the user. Keys may be percent-encoded, because the name
// of a header cannot contain every character.
func extraOf(h http.Header, prefixes []string) map[string][]string {
	extra := map[string][]string{}
	for _, prefix := range prefixes {
		for name, values := range h {
			if !hasPrefixFold(name, prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			extra[key] = append(extra[key], values...)
		}
	}
	return extra
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
