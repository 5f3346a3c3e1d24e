package bearer

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// tokens are the names of users, by token.
type tokens map[string]string

func (tok tokens) AuthenticateToken(_ context.Context, t authn.BearerToken, audiences []string) (*authn.Identity, error) {
	if name, ok := tok[t.Text]; ok && slices.Equal(audiences, []string{"here"}) {
		return &authn.Identity{User: &request.User{Name: name}}, nil
	}
	return nil, nil
}

func TestHeader(t *testing.T) {
	a := &Authenticator{Tokens: tokens{"a": "ann"}, Audiences: []string{"here"}}
	for _, c := range []struct {
		header, user string
		err          error
	}{
		{"Bearer a", "ann", nil},
		{"bearer a", "ann", nil},
		{"BEARER a more", "ann", nil},
		{"Bearer b", "", authn.ErrInvalidToken},
		{"Bearer", "", nil},
		{"Bearer ", "", nil},
		{"Bearer  a", "", nil},
		{"Basic a", "", nil},
		{"a", "", nil},
		{"", "", nil},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", c.header)
		user, err := a.Authenticate(r)
		if (user == nil) != (c.user == "") || user != nil && user.Name != c.user || !errors.Is(err, c.err) {
			t.Errorf("%q: %+v %v", c.header, user, err)
		}
	}
}

func TestWebSocket(t *testing.T) {
	protocol := func(token string) string {
		return WebSocketProtocol + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	a := (*WebSocket)(&Authenticator{Tokens: tokens{"a": "ann"}, Audiences: []string{"here"}})
	for name, c := range map[string]struct {
		protocols []string
		user      string
		left      string
		fails     bool
	}{
		"a token":       {[]string{"v4.channel.k8s.io, " + protocol("a")}, "ann", "v4.channel.k8s.io", false},
		"two lines":     {[]string{protocol("a"), "x", "y"}, "ann", "x,y", false},
		"no token":      {[]string{"x"}, "", "x", false},
		"wrong":         {[]string{"x, " + protocol("b")}, "", "x, " + protocol("b"), true},
		"alone":         {[]string{protocol("a")}, "", protocol("a"), true},
		"twice":         {[]string{"x", protocol("a"), protocol("a")}, "", "x", true},
		"not base64":    {[]string{"x", WebSocketProtocol + "?"}, "", "x", true},
		"not UTF-8":     {[]string{"x", protocol("\xff")}, "", "x", true},
		"an empty one":  {[]string{"x", WebSocketProtocol}, "", "x", false},
		"nothing there": {nil, "", "", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", "keep-alive, Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header[protocolHeader] = c.protocols
		user, err := a.Authenticate(r)
		if (user == nil) != (c.user == "") || user != nil && user.Name != c.user || (err != nil) != c.fails ||
			r.Header.Get(protocolHeader) != c.left {
			t.Errorf("%s: %+v %v %q", name, user, err, r.Header[protocolHeader])
		}
		plain := httptest.NewRequest(http.MethodGet, "/", nil)
		plain.Header[protocolHeader] = c.protocols
		if user, err := a.Authenticate(plain); user != nil || err != nil {
			t.Errorf("%s, not a WebSocket: %+v %v", name, user, err)
		}
	}
}

func FuzzWebSocket(f *testing.F) {
	a := (*WebSocket)(&Authenticator{Tokens: tokens{}, Audiences: []string{"here"}})
	f.Add("x, " + WebSocketProtocol + "YQ")
	f.Add(",,")
	f.Fuzz(func(t *testing.T, protocols string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header[protocolHeader] = []string{protocols}
		if user, _ := a.Authenticate(r); user != nil {
			t.Errorf("%q signs in", protocols)
		}
	})
}
