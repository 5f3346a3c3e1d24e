// Package bearer authenticates requests by a bearer token, which is in the Authorization
// header or, for browsers, in the subprotocols of a WebSocket request.
package bearer

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// WebSocketProtocol is the prefix of the subprotocol that contains a token. After it follows
// the token in URL-safe base64 without padding.
const WebSocketProtocol = "base64url.bearer.authorization.k8s.io."

const protocolHeader = "Sec-Websocket-Protocol"

// Authenticator reads the token from the Authorization header.
type Authenticator struct {
	Tokens authn.TokenAuthenticator
	// Audiences are the API server's own. A token must be valid for one of them.
	Audiences []string
}

// Authenticate implements authn.Authenticator.
func (a *Authenticator) Authenticate(r *http.Request) (*request.User, error) {
	text, ok := Parse(r.Context(), r.Header.Get("Authorization"))
	if !ok {
		return nil, nil
	}
	return a.authenticate(r, text)
}

func (a *Authenticator) authenticate(r *http.Request, text string) (*request.User, error) {
	identity, err := a.Tokens.AuthenticateToken(r.Context(), authn.NewBearerToken(text), a.Audiences)
	if identity != nil {
		return identity.User, nil
	}
	if err == nil {
		err = authn.ErrInvalidToken
	}
	return nil, err
}

// WebSocket reads the token from the subprotocols of a WebSocket request, and removes it from
// them.
type WebSocket Authenticator

// Authenticate implements authn.Authenticator.
func (s *WebSocket) Authenticate(r *http.Request) (*request.User, error) {
	if len(r.Header[protocolHeader]) == 0 || !isWebSocket(r.Header) {
		return nil, nil
	}
	text, others, err := splitProtocols(r.Header[protocolHeader])
	if err != nil || text == "" {
		return nil, err
	}
	user, err := (*Authenticator)(s).authenticate(r, text)
	if user != nil {
		r.Header.Set(protocolHeader, strings.Join(others, ","))
	}
	return user, err
}

// Parse returns the bearer token of an Authorization header (RFC 6750 section 2.1). Text after
// a further space is ignored. It returns false if there is no token or another scheme.
func Parse(ctx context.Context, header string) (string, bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return "", false
	}
	scheme, rest, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token, _, _ := strings.Cut(rest, " ")
	if token == "" {
		request.Warn(ctx, "the provided Authorization header contains extra space before the bearer token, and is ignored")
		return "", false
	}
	return token, true
}

// splitProtocols returns the token in the subprotocols, "" if there is none, and the other
// subprotocols. There must be at least one other, for the server to select.
func splitProtocols(lines []string) (token string, others []string, err error) {
	found := false
	for protocol := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		protocol = strings.TrimSpace(protocol)
		encoded, ok := strings.CutPrefix(protocol, WebSocketProtocol)
		if !ok {
			others = append(others, protocol)
			continue
		}
		if found {
			return "", nil, errors.New("multiple base64.bearer.authorization tokens specified")
		}
		found = true
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil {
			return "", nil, errors.New("invalid base64.bearer.authorization token encoding")
		}
		if !utf8.Valid(decoded) {
			return "", nil, errors.New("invalid base64.bearer.authorization token")
		}
		token = string(decoded)
	}
	if token != "" && len(others) == 0 {
		return "", nil, errors.New("missing additional subprotocol")
	}
	return token, others, nil
}

func isWebSocket(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket")
}
