package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"
)

const (
	secretBytes = 32
	// linkTTL is how long a link can be opened.
	linkTTL = 10 * time.Minute
	// maxSessions is how many browsers can use a Proxy. One more ends the oldest session.
	maxSessions = 4
)

// newSecret returns 256 random bits as text.
func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// equal compares two secrets in a time that does not depend on where they differ.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// A session has two secrets, and a request needs both. Scripts cannot read the cookie, but the browser sends it to all ports of the
// host. The page sends the other one itself, to its own origin only.
type session struct{ cookie, page string }

// sessions are the link and the sessions by which a Proxy knows the person who has started it.
type sessions struct {
	mu   sync.Mutex // guards the fields below
	link string     // "" if it was opened
	ends time.Time  // expiry time of the link
	all  []session  // the oldest first
}

// newLink returns the secret of a new link. The one before is not valid any more.
func (s *sessions) newLink(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.ends = newSecret(), now.Add(linkTTL)
	return s.link
}

// open begins a session with the secret of a link, which is not valid any more then.
func (s *sessions) open(link string, now time.Time) (begun session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == "" || !equal(link, s.link) || !now.Before(s.ends) {
		return session{}, false
	}
	s.link, begun = "", session{newSecret(), newSecret()}
	s.all = append(s.all, begun)
	if n := len(s.all); n > maxSessions {
		s.all = s.all[n-maxSessions:]
	}
	return begun, true
}

func (s *sessions) find(cookie string) (found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if equal(cookie, one.cookie) {
			found, ok = one, true
		}
	}
	return found, ok
}
