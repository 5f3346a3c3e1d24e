// Package requestheader authenticates the users that a front proxy names in
// headers. The proxy itself is known by its client certificate: nobody else's
// headers count.
package requestheader

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/auth/authn"
	clientcert "github.com/keelson-dev/keelson/auth/x509"
	"github.com/keelson-dev/keelson/request"
)

// Names are the headers that a proxy uses. The first of Users, and of UIDs, that
// has a value counts; of Groups and of the headers that begin with ExtraPrefixes
// all values do.
type Names struct {
	Users, UIDs, Groups, ExtraPrefixes []string
}

// Standard are the names that proxies use without configuration.
func Standard() Names {
	return Names{
		Users: []string{"X-Remote-User"}, UIDs: []string{"X-Remote-Uid"}, Groups: []string{"X-Remote-Group"},
		ExtraPrefixes: []string{"X-Remote-Extra-"},
	}
}

// Clear removes the headers. Whoever is behind the server must not take for
// authenticated what a client wrote.
func (n *Names) Clear(h http.Header) {
	for _, names := range [][]string{n.Users, n.UIDs, n.Groups} {
		for _, name := range names {
			h.Del(name)
		}
	}
	for _, prefix := range n.ExtraPrefixes {
		for name := range h {
			if hasPrefixFold(name, prefix) {
				delete(h, name) // as it stands, whatever its canonical form
			}
		}
	}
}

// Authenticator is an authn.Authenticator.
type Authenticator struct {
	// Roots returns the authorities that the proxy's certificate is verified with.
	Roots func() *x509.CertPool
	// AllowedNames are the common names of the proxies; none allows every
	// certificate of Roots.
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
	name := first(r.Header, a.Names.Users)
	if name == "" {
		return nil, nil
	}
	user := &request.User{Name: name, UID: first(r.Header, a.Names.UIDs)}
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

func first(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// extraOf returns what else is known of the user. Keys may be percent-encoded: a
// header's name cannot have every character.
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
