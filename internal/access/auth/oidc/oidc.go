// Package oidc authenticates the ID tokens of OpenID Connect issuers. The --oidc-* flags or an
// AuthenticationConfiguration configure the issuers (KEP-3331).
package oidc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	// requestTimeout limits one HTTP request to an issuer.
	requestTimeout = 30 * time.Second
	// retryDiscovery is the delay before another request to an issuer that did not respond.
	retryDiscovery = 10 * time.Second

	wellKnown = "/.well-known/openid-configuration"
)

// Algorithms returns the supported signature algorithms.
func Algorithms() []string {
	return []string{
		oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.RS256, oidc.RS384, oidc.RS512,
	}
}

// Options are common to all issuers.
type Options struct {
	// Algorithms are the signature algorithms that are accepted.
	Algorithms []string
	Log        *slog.Logger
	// Observe is called after each token with its issuer, whether the token
	// is valid, and how long that took.
	Observe func(issuer string, ok bool, took time.Duration)
	// Cached records the use of the token cache.
	Cached tokencache.Recorder
	// Dialer returns the function that opens connections to the issuers of an egress
	// network, or an error if that network is not configured. It is nil without an egress
	// configuration.
	Dialer func(network string) (DialFunc, error)
	Now    func() time.Time
}

// A DialFunc opens connections like (*net.Dialer).DialContext.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Issuer authenticates the tokens of one issuer. It is an authn.AudienceAgnosticAuthenticator.
type Issuer struct {
	o       Options
	config  *apiserver.JWTAuthenticator
	mapping *Mapping
	groups  *distributedClaim // nil if groups do not come from a claim

	client   *http.Client
	verifier atomic.Pointer[oidc.IDTokenVerifier]
	health   atomic.Pointer[error]
}

// NewIssuer returns an issuer for a configuration, with the mapping that Validate returned for
// it. It can fetch keys until ctx is done. The caller has to call Discover.
func NewIssuer(ctx context.Context, config *apiserver.JWTAuthenticator, mapping *Mapping, o Options) (*Issuer, error) {
	for _, alg := range o.Algorithms {
		if !slices.Contains(Algorithms(), alg) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", alg)
		}
	}
	client, err := newClient(&config.Issuer, o.Dialer)
	if err != nil {
		return nil, err
	}
	i := &Issuer{o: o, config: config, mapping: mapping, client: client}
	i.setUnhealthy(fmt.Errorf("oidc: authenticator for issuer %q is not initialized", config.Issuer.URL))
	if claim := config.ClaimMappings.Groups.Claim; claim != "" {
		i.groups = newDistributedClaim(ctx, claim, i)
	}
	return i, nil
}

func newClient(c *apiserver.Issuer, dialer func(string) (DialFunc, error)) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if network := string(c.EgressSelectorType); network != "" {
		if dialer == nil {
			return nil, fmt.Errorf("oidc: egress lookup required with egress selector type %q", network)
		}
		dial, err := dialer(network)
		if err != nil {
			return nil, fmt.Errorf("oidc: %w", err)
		}
		transport.DialContext = dial
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CertificateAuthority != "" {
		pool, err := parsePool(c.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	bounded := boundedTransport{transport}
	client := &http.Client{Transport: bounded, Timeout: requestTimeout}
	discovery := ptr.Deref(c.DiscoveryURL, "")
	if discovery == "" {
		return client, nil
	}
	target, err := url.Parse(discovery)
	if err != nil {
		return nil, fmt.Errorf("oidc: invalid discovery URL: %w", err)
	}
	client.Transport = &discoveryTransport{from: strings.TrimSuffix(c.URL, "/") + wellKnown, to: target, next: bounded}
	return client, nil
}

// discoveryTransport sends the request for one document (from) to another URL (to).
type discoveryTransport struct {
	from string
	to   *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.String() == t.from {
		r = r.Clone(r.Context())
		r.URL, r.Host = t.to, ""
	}
	return t.next.RoundTrip(r)
}

// Discover requests the metadata of the issuer until it gets a response or ctx is done.
func (i *Issuer) Discover(ctx context.Context) {
	for {
		verifier, err := i.newVerifier(ctx, i.config.Issuer.URL)
		if err == nil {
			i.verifier.Store(verifier)
			i.health.Store(nil)
			return
		}
		if ctx.Err() != nil {
			return
		}
		i.setUnhealthy(err)
		i.o.Log.Error("cannot reach a token issuer", "issuer", i.config.Issuer.URL, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryDiscovery):
		}
	}
}

// newVerifier requests the address of an issuer's keys. The verifier uses ctx to fetch keys whenever a token has an
// unknown key ID, so ctx must live as long as the issuer is used.
func (i *Issuer) newVerifier(ctx context.Context, issuer string) (*oidc.IDTokenVerifier, error) {
	ctx = oidc.ClientContext(ctx, i.client)
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, err
	}
	var metadata struct {
		KeysURI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return nil, err
	}
	if metadata.KeysURI == "" {
		return nil, errors.New("provider did not return JWKS URL")
	}
	paced := *i.client
	paced.Transport = &keysTransport{next: i.client.Transport, now: i.o.Now}
	keys := oidc.NewRemoteKeySet(oidc.ClientContext(ctx, &paced), metadata.KeysURI)
	// The method verify compares the audiences, because several may be configured.
	return oidc.NewVerifier(issuer, keys,
		&oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: i.o.Algorithms, Now: i.o.Now}), nil
}

// keysInterval is the least time between two requests for an issuer's keys. Without it, every
// token with a made-up key ID would cause a request.
const keysInterval = time.Second

var errAskedRecently = errors.New("the keys of the issuer were requested less than a second ago")

// keysTransport does not send a request that comes sooner than keysInterval after the last one. It returns the
// last answer, so that the error for a token with a wrong signature is always about the signature. Without a last
// answer the request fails.
type keysTransport struct {
	next http.RoundTripper
	now  func() time.Time

	mu      sync.Mutex // guards what follows
	askedAt time.Time
	keys    []byte // the last answer, at most maxAnswer bytes; nil if there was none
}

// RoundTrip implements http.RoundTripper.
func (t *keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	keys, ask := t.begin()
	if !ask {
		if keys == nil {
			return nil, errAskedRecently
		}
		return &http.Response{
			StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r,
			Body: io.NopCloser(bytes.NewReader(keys)), ContentLength: int64(len(keys)),
		}, nil
	}
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body) // i.client bounds it
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys, response.Body = body, io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// begin reports whether the issuer is asked now, and returns its last answer if not.
func (t *keysTransport) begin() (keys []byte, ask bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.askedAt) < keysInterval {
		return t.keys, false
	}
	t.askedAt, t.keys = now, nil
	return nil, true
}

func (i *Issuer) setUnhealthy(err error) { i.health.Store(&err) }

// Health returns nil if tokens can be verified, and otherwise the reason.
func (i *Issuer) Health() error {
	if err := i.health.Load(); err != nil {
		return fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", i.config.Issuer.URL, *err)
	}
	return nil
}

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (i *Issuer) UserOfToken(ctx context.Context, t authn.BearerToken) (*request.User, error) {
	if issuerOf(t.Text) != i.config.Issuer.URL {
		return nil, nil
	}
	start := time.Now()
	user, err := i.userOf(ctx, t.Text)
	if err != nil {
		err = authn.Refuse(reasonOf(err), i.config.Issuer.URL, err)
	}
	i.o.Observe(i.config.Issuer.URL, err == nil, time.Since(start))
	return user, err
}

func (i *Issuer) userOf(ctx context.Context, token string) (*request.User, error) {
	verifier := i.verifier.Load()
	if verifier == nil {
		return nil, authn.Refuse(authn.ReasonIssuer, i.config.Issuer.URL, errors.New("oidc: authenticator not initialized"))
	}
	c, err := i.verify(ctx, verifier, token)
	if err != nil {
		return nil, fmt.Errorf(verifyToken+"%w", err)
	}
	if i.groups != nil {
		if err := i.groups.fetch(ctx, c); err != nil {
			return nil, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
		}
	}
	user, err := i.mapping.user(ctx, c)
	if err != nil {
		return nil, err
	}
	return authn.WithAuthenticated(user), nil
}

// reasonOf returns the reason of an error of the verifier, of the claims, or of the mapping. It looks at texts,
// because the verifier has an error type only for expired tokens.
func reasonOf(err error) authn.Reason {
	text := err.Error()
	switch {
	case errors.As(err, new(*oidc.TokenExpiredError)):
		return authn.ReasonExpired
	case !strings.HasPrefix(text, verifyToken):
		return authn.ReasonClaims
	case strings.Contains(text, "fetching keys"):
		return authn.ReasonIssuer
	case strings.Contains(text, "failed to verify signature"), strings.Contains(text, "signed with unsupported algorithm"):
		return authn.ReasonSignature
	case strings.Contains(text, "(not before)"):
		return authn.ReasonNotYet
	case strings.Contains(text, "expected audience in"):
		return authn.ReasonAudience
	}
	return authn.ReasonMalformed
}

// verifyToken is the prefix of the errors of the verifier.
const verifyToken = "oidc: verify token: "

// notBeforeLeeway is the tolerated difference if the clock of an issuer is ahead, as in kube-apiserver. The verifier of
// package oidc accepts five minutes.
const notBeforeLeeway = time.Minute

// checkNotBefore returns an error if a token is not valid yet (RFC 7519, section 4.1.5).
func (i *Issuer) checkNotBefore(id *oidc.IDToken) error {
	var c struct {
		NotBefore *float64 `json:"nbf"`
	}
	if err := id.Claims(&c); err != nil || c.NotBefore == nil {
		return err
	}
	begin := time.Unix(int64(*c.NotBefore), 0)
	if now := i.o.Now(); now.Add(notBeforeLeeway).Before(begin) {
		return fmt.Errorf("oidc: current time %v before the nbf (not before) time: %v", now, begin)
	}
	return nil
}

// verify returns the claims of a token if its signature, times and audiences are valid.
func (i *Issuer) verify(ctx context.Context, verifier *oidc.IDTokenVerifier, token string) (claims, error) {
	id, err := verifier.Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	if err := i.checkNotBefore(id); err != nil {
		return nil, err
	}
	if len(authn.Intersect(i.config.Issuer.Audiences, id.Audience)) == 0 {
		return nil, fmt.Errorf("oidc: expected audience in %q got %q",
			slices.Sorted(slices.Values(i.config.Issuer.Audiences)), id.Audience)
	}
	var raw json.RawMessage
	if err := id.Claims(&raw); err != nil {
		return nil, err
	}
	var c claims
	return c, json.Unmarshal(raw, &c)
}
