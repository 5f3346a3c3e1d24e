package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/auth/anonymous"
	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/auth/bearer"
	"github.com/keelson-dev/keelson/auth/bootstraptoken"
	"github.com/keelson-dev/keelson/auth/externalsigner"
	"github.com/keelson-dev/keelson/auth/identity"
	"github.com/keelson-dev/keelson/auth/requestheader"
	"github.com/keelson-dev/keelson/auth/serviceaccount"
	"github.com/keelson-dev/keelson/auth/token"
	"github.com/keelson-dev/keelson/auth/tokencache"
	"github.com/keelson-dev/keelson/auth/webhooktoken"
	clientcert "github.com/keelson-dev/keelson/auth/x509"
	"github.com/keelson-dev/keelson/controller/legacytokens"
	"github.com/keelson-dev/keelson/filter/authenticate"
	"github.com/keelson-dev/keelson/metrics"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/server/background"
	"github.com/keelson-dev/keelson/server/certs"
	"github.com/keelson-dev/keelson/server/egress"
	"github.com/keelson-dev/keelson/webhook"
)

const (
	accountKeyName = "sa.key"

	// reloadEvery is how often files that may be replaced are looked at.
	reloadEvery = 5 * time.Second
)

// authentication is who is let into a server, and as whom.
type authentication struct {
	audiences  []string
	keys       serviceaccount.KeySource
	ownKeys    *serviceaccount.Keys   // nil: signer has them
	signer     *externalsigner.Signer // nil: this server signs
	clientCAs  *clientcert.Authorities
	proxyCAs   *clientcert.Authorities // nil: no front proxy is believed
	proxyNames requestheader.Names
	anonymous  anonymous.Rule
	issuers    issuers
	legacy     legacytokens.Tracker
	// tokens are asked from top to bottom, and so are authenticators.
	tokens         authn.TokenUnion
	authenticators authn.Union
}

// buildAuthentication reads the keys and authorities, and puts the ways to sign in
// together.
func (s *Server) buildAuthentication(ctx context.Context, reg *registry.Registry) error {
	c := &s.config.Authentication
	a := &authentication{audiences: c.audiences(), anonymous: anonymous.Rule{Enabled: c.Anonymous}}
	a.legacy.Objects, a.legacy.Log, a.legacy.Now = reg, s.log, time.Now
	s.authentication = a
	if err := s.openAuthorities(a); err != nil {
		return err
	}
	if err := s.openAccountKeys(ctx, a); err != nil {
		return err
	}
	if err := s.openIssuers(a); err != nil {
		return err
	}
	if err := s.tokenAuthenticators(a, reg); err != nil {
		return err
	}
	a.authenticators = s.authenticators(a)
	return nil
}

// openAuthorities reads whose client certificates count.
func (s *Server) openAuthorities(a *authentication) (err error) {
	if a.clientCAs, err = clientcert.OpenAuthorities(s.certs.CA, s.config.ClientCAFile); err != nil {
		return fmt.Errorf("--client-ca-file: %w", cause(err))
	}
	h := &s.config.Authentication.RequestHeader
	if h.ClientCAFile == "" {
		return nil
	}
	if a.proxyCAs, err = clientcert.OpenAuthorities(nil, h.ClientCAFile); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", cause(err))
	}
	a.proxyNames = requestheader.Names{
		Users: h.UsernameHeaders, UIDs: h.UIDHeaders, Groups: h.GroupHeaders, ExtraPrefixes: h.ExtraHeadersPrefixes,
	}
	if len(h.AllowedNames) == 0 && clientcert.KeepApart(a.clientCAs, a.proxyCAs) != nil {
		return errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
	}
	return nil
}

func (s *Server) openAccountKeys(ctx context.Context, a *authentication) (err error) {
	c := &s.config.Authentication.ServiceAccounts
	if c.SigningEndpoint != "" {
		return s.openSigner(ctx, a)
	}
	o := serviceaccount.KeyOptions{Files: c.KeyFiles, SigningFile: c.SigningKeyFile, WriteFile: certs.WriteFile}
	if s.config.Storage == StorageEtcd && c.SigningKeyFile == "" {
		s.log.Warn("service account tokens are signed with this server's own key, which other servers on the cluster do not have; see --service-account-signing-key-file")
	}
	if s.config.DataDir != "" {
		o.OwnFile = filepath.Join(s.config.DataDir, pkiName, accountKeyName)
	}
	if a.ownKeys, err = serviceaccount.OpenKeys(o); err != nil {
		return fmt.Errorf("cannot use the keys of service account tokens: %w", err)
	}
	a.keys = a.ownKeys
	s.warnOfLives(c.MaxExpiration, "service-account-max-token-expiration must be set longer than %d seconds (currently %s)",
		"enabling tokens valid up to %d seconds, which is longer than service-account-max-token-expiration set to %s")
	return nil
}

// openSigner asks the program that signs tokens what it can do.
func (s *Server) openSigner(ctx context.Context, a *authentication) (err error) {
	c := &s.config.Authentication.ServiceAccounts
	a.signer, err = externalsigner.Open(ctx, externalsigner.Options{
		Socket: c.SigningEndpoint, Log: s.log, Metrics: s.signerMetrics, Now: time.Now,
	})
	if err != nil {
		return fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	a.keys = a.signer
	longest := a.signer.MaxLife()
	switch {
	case c.MaxExpiration == 0:
		c.MaxExpiration = longest
	case c.MaxExpiration > longest:
		return fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: %s > %s", c.MaxExpiration, longest)
	}
	s.warnOfLives(c.MaxExpiration, "token lifetime supported by external-jwt-signer must be longer than %d seconds (currently %s)",
		"tokens validity will be caped at the smaller of %d seconds and maximum token lifetime supported by external-jwt-signer (%s)")
	return nil
}

// warnOfLives says where tokens that are mounted in pods cannot live as long as is
// asked for; longest is 0 for no limit.
func (s *Server) warnOfLives(longest time.Duration, tooShort, shortened string) {
	if !s.config.Authentication.ServiceAccounts.ExtendExpiration || longest == 0 {
		return
	}
	const on = "service-account-extend-token-expiration is true, "
	if longest < serviceaccount.MountedLife {
		s.log.Warn(fmt.Sprintf(on+"in order to correctly trigger safe transition logic, "+tooShort, int(serviceaccount.MountedLife/time.Second), longest))
	}
	if longest < serviceaccount.ExtendedLife {
		s.log.Warn(fmt.Sprintf(on+shortened, int(serviceaccount.ExtendedLife/time.Second), longest))
	}
}

// tokenAuthenticators are asked from top to bottom. Those that look into memory
// come before those that ask others.
func (s *Server) tokenAuthenticators(a *authentication, reg *registry.Registry) error {
	c := &s.config.Authentication
	if s.config.TokenAuthFile != "" {
		static, err := token.ReadFile(s.config.TokenAuthFile)
		if err != nil {
			return fmt.Errorf("--token-auth-file: %w", err)
		}
		a.tokens = append(a.tokens, authn.ForAudiences(a.audiences, static))
	}
	a.tokens = append(a.tokens, serviceaccount.New(serviceaccount.Options{
		Keys: a.keys, Issuers: c.ServiceAccounts.Issuers, Audiences: a.audiences,
		Objects: reg, Lookup: c.ServiceAccounts.Lookup, Tracker: &a.legacy, Count: s.countTokenUse, Cached: s.tokensCached(), Now: time.Now,
	}))
	if c.BootstrapTokens {
		a.tokens = append(a.tokens, authn.ForAudiences(a.audiences, &bootstraptoken.Authenticator{Objects: reg, Log: s.log, Now: time.Now}))
	}
	if a.issuers.set != nil {
		a.tokens = append(a.tokens, a.issuers.set)
	}
	if c.Webhook.ConfigFile == "" {
		return nil
	}
	hook, err := s.tokenWebhook(a)
	if err != nil {
		return fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	a.tokens = append(a.tokens, hook)
	return nil
}

// tokenWebhook asks another program whose a token is.
func (s *Server) tokenWebhook(a *authentication) (authn.TokenAuthenticator, error) {
	c := &s.config.Authentication.Webhook
	client, err := webhook.FromKubeconfig(c.ConfigFile, webhook.Options{Dial: s.egress.Dialer(egress.ControlPlane)})
	if err != nil {
		return nil, err
	}
	hook, err := webhooktoken.New(webhooktoken.Options{
		Client: client, Version: c.Version, Audiences: a.audiences, Backoff: webhook.DefaultBackoff(),
	})
	if err != nil {
		return nil, err
	}
	return tokencache.NewRecent(hook, c.CacheTTL, c.CacheTTL, time.Now, s.tokensCached()), nil
}

// authenticators are asked from top to bottom.
func (s *Server) authenticators(a *authentication) authn.Union {
	var u authn.Union
	if a.proxyCAs != nil {
		u = append(u, &requestheader.Authenticator{
			Roots: a.proxyCAs.Pool, AllowedNames: s.config.Authentication.RequestHeader.AllowedNames, Names: a.proxyNames, Now: time.Now,
		})
	}
	tokens := bearer.Authenticator{Tokens: a.tokens, Audiences: a.audiences}
	return append(u,
		&clientcert.Authenticator{
			Roots: a.clientCAs.Pool, Observe: func(remaining time.Duration) { s.metrics.ClientCertificate(remaining) },
		},
		&tokens, (*bearer.WebSocket)(&tokens),
	)
}

// tokenUses are the names under which uses of tokens are counted.
var tokenUses = map[serviceaccount.Use]string{
	serviceaccount.UseWithoutAudience: metrics.TokensLegacy,
	serviceaccount.UseStale:           metrics.TokensStale,
	serviceaccount.UseValid:           metrics.TokensValid,
	serviceaccount.UseAutoGenerated:   metrics.TokensAutoGenerated,
	serviceaccount.UseManual:          metrics.TokensManual,
	serviceaccount.UseInvalidated:     metrics.TokensInvalidated,
}

// tokensCached counts tokens that need not be looked at again.
func (s *Server) tokensCached() tokencache.Counter {
	return tokencache.Counter{Hit: func() { s.metrics.TokenCached() }, Miss: func(ok bool) { s.metrics.TokenFetched(ok) }}
}

func (s *Server) countTokenUse(use serviceaccount.Use) { s.metrics.Token(tokenUses[use]) }

// serveAuthentication gives the verbs what answers about users and tokens.
func (s *Server) serveAuthentication(o *rest.Options) {
	a, c := s.authentication, &s.config.Authentication.ServiceAccounts
	reviews := identity.Reviews{Tokens: a.tokens, Audiences: a.audiences, Now: time.Now}
	issuer := &serviceaccount.Issuer{
		Keys: a.keys, Name: c.Issuers[0], Audiences: a.audiences, MaxLife: c.MaxExpiration, Extend: c.ExtendExpiration, Now: time.Now,
	}
	if a.signer != nil {
		issuer.MostExtended = a.signer.MaxLife()
	}
	if o.Answers == nil {
		o.Answers = map[schema.GroupResource]registry.CreateFunc{}
	}
	maps.Copy(o.Answers, reviews.Answers())
	o.Answers[schema.GroupResource{Resource: "serviceaccounts/token"}] = issuer.Create
}

// issuerDiscovery tells relying parties about the issuer of tokens; nil where its
// name is none that can be discovered.
func (s *Server) issuerDiscovery() *serviceaccount.Discovery {
	c := &s.config.Authentication.ServiceAccounts
	d, err := serviceaccount.NewDiscovery(s.authentication.keys, c.Issuers[0], c.JWKSURI, s.hostPort())
	if err != nil {
		s.log.Info("the issuer of service account tokens cannot be discovered", "reason", err)
		return nil
	}
	return d
}

// authenticationFilter is what the chain asks.
func (s *Server) authenticationFilter() authenticate.Options {
	a := s.authentication
	standard := requestheader.Standard()
	return authenticate.Options{
		Authenticator: a.authenticators, Anonymous: a.anonymous.User,
		Clear: func(h http.Header) {
			standard.Clear(h)
			a.proxyNames.Clear(h)
		},
		Log: s.log, Observe: s.metrics.Authentication,
	}
}

// followAuthentication takes up changes of files until the server stops.
func (s *Server) followAuthentication() {
	failed := func(err error) {
		s.log.Error("client authorities cannot be reloaded; those before stay in use", "error", err)
	}
	follow := func(name string, authorities *clientcert.Authorities) {
		if authorities != nil {
			s.work.Go(name, background.Forever(func(ctx context.Context) { authorities.Follow(ctx, s.reloadEvery(), failed) }))
		}
	}
	follow("client authorities", s.authentication.clientCAs)
	follow("front proxy authorities", s.authentication.proxyCAs)
	if s.config.Authentication.ConfigFile != "" {
		s.work.Go("authentication configuration", background.Forever(s.followIssuers))
	}
	if s.authentication.signer != nil {
		s.work.Go("keys of the token signer", background.Forever(s.authentication.signer.Follow))
	} else {
		// Controllers that sign tokens themselves read the key of a new data directory.
		s.work.Go("key of service account tokens", s.authentication.ownKeys.KeepOwn)
	}
	s.authentication.legacy.Creator = s.api.handler
	s.work.Go("use of legacy tokens", background.Forever(s.authentication.legacy.Run))
}

// reloadEvery is how often files that may be replaced are looked at.
func (s *Server) reloadEvery() time.Duration { return cmp.Or(s.config.fileReload, reloadEvery) }

// tlsConfig asks clients for a certificate of the authorities in use.
func (s *Server) tlsConfig() *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.serving},
		ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
	}
	hints := &clientHints{base: base, authentication: s.authentication}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return hints.config(), nil }
	return base
}

// clientHints keeps a TLS configuration that names the authorities in use, so that
// clients with several certificates send the right one.
type clientHints struct {
	base           *tls.Config
	authentication *authentication

	mu             sync.Mutex // guards what follows
	clients, proxy *x509.CertPool
	current        *tls.Config
}

func (h *clientHints) config() *tls.Config {
	clients := h.authentication.clientCAs.Pool()
	var proxy *x509.CertPool
	if h.authentication.proxyCAs != nil {
		proxy = h.authentication.proxyCAs.Pool()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil && h.clients == clients && h.proxy == proxy {
		return h.current
	}
	h.clients, h.proxy = clients, proxy
	h.current = h.base.Clone()
	h.current.GetConfigForClient = nil
	h.current.ClientCAs = clients
	if proxy != nil {
		h.current.ClientCAs = clients.Clone()
		h.current.ClientCAs.AppendCertsFromPEM(h.authentication.proxyCAs.PEM())
	}
	return h.current
}
