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

// sessions are the link and the cookies by which a Proxy knows the person who has started it.
type sessions struct {
	mu      sync.Mutex // guards what follows
	link    string     // "" if it was opened
	ends    time.Time  // of the link
	cookies []string   // the oldest first
}

// newLink returns the secret of a new link. The one before is not valid any more.
func (s *sessions) newLink(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.ends = newSecret(), now.Add(linkTTL)
	return s.link
}

// open begins a session with the secret of a link, which is not valid any more then. It returns the cookie.
func (s *sessions) open(link string, now time.Time) (cookie string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == "" || !equal(link, s.link) || !now.Before(s.ends) {
		return "", false
	}
	s.link, cookie = "", newSecret()
	s.cookies = append(s.cookies, cookie)
	if n := len(s.cookies); n > maxSessions {
		s.cookies = s.cookies[n-maxSessions:]
	}
	return cookie, true
}

// valid reports whether a cookie is that of a session.
func (s *sessions) valid(cookie string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := false
	for _, c := range s.cookies {
		ok = equal(cookie, c) || ok
	}
	return ok
}
