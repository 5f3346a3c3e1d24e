package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/anonymous"
	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/bearer"
	"github.com/keelson-dev/keelson/internal/access/auth/bootstraptoken"
	"github.com/keelson-dev/keelson/internal/access/auth/externalsigner"
	"github.com/keelson-dev/keelson/internal/access/auth/localusers"
	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/access/auth/statictoken"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
	tokenreview "github.com/keelson-dev/keelson/internal/access/auth/tokenreview"
	"github.com/keelson-dev/keelson/internal/access/auth/webhooktoken"
	clientcert "github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/controller/legacytokens"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/gateway/filter/authenticate"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

const (
	accountKeyName = "sa.key"

	// reloadEvery is the interval in which files are checked for changes.
	reloadEvery = 5 * time.Second
)

// authentication determines the user of a request.
type authentication struct {
	authenticationOptions
	audiences   []string
	keys        accountKeys
	authorities authorities
	// requestHeader are the headers in which front proxies name users.
	requestHeader config.RequestHeader
	anonymous     anonymous.Rule
	issuers       issuers
	legacy        *legacytokens.Tracker
	local         localusers.Users
	// cached and certificateUsed record metrics.
	cached          tokencache.Recorder
	certificateUsed func(remaining time.Duration)
	// tokens and authenticators are called in order until one recognizes the request.
	tokens         authn.TokenUnion
	authenticators authn.Union
}

// authenticationOptions are the dependencies of authentication.
type authenticationOptions struct {
	config *settings
	ownCA  []byte // the server's own CA of client certificates in PEM; empty if there is none
	// adminToken is a token of the administrator; "" if there is none.
	adminToken string
	// ownFrontProxyCA is the server's own authority of front proxies, PEM; empty unless settings.ownFrontProxy.
	ownFrontProxyCA []byte
	hostPort        string // where clients on this machine reach the server
	advertised      string // host and port at which clients on other machines reach it
	// exclusive is true if no other server uses the store.
	exclusive bool
	registry  *registry.Registry
	outgoing
	metrics *metrics.Metrics
	// work runs the background tasks of OpenID Connect.
	work *background.Group
	log  *slog.Logger
}

// authorities are the certificate authorities of accepted client certificates.
type authorities struct {
	clients    *clientcert.Authorities
	proxies    *clientcert.Authorities // of the front proxy; nil: none is configured
	proxyNames requestheader.Names
}

// accountKeys are the keys of service account tokens.
type accountKeys struct {
	source serviceaccount.KeySource // own or signer
	own    *serviceaccount.Keys     // nil: signer has them
	signer *externalsigner.Signer   // nil: this server signs
	// longest is the longest lifetime of a token, 0 for no limit.
	longest time.Duration
}

// newAuthentication reads the keys and authorities and creates the authenticators.
func newAuthentication(ctx context.Context, o authenticationOptions) (*authentication, error) {
	c := &o.config.Authentication
	a := &authentication{
		authenticationOptions: o, audiences: audiences(c), anonymous: anonymous.Rule{Enabled: !c.NoAnonymous},
		legacy: legacytokens.New(o.registry, o.log, o.config.Testing.Clock.Now),
		cached: tokencache.NewMetrics(o.metrics), certificateUsed: clientcert.NewMetrics(o.metrics),
	}
	if err := a.openAuthorities(); err != nil {
		return nil, err
	}
	keys := func() error { return a.openAccountKeys(ctx) }
	for _, open := range []func() error{keys, a.openIssuers, a.tokenAuthenticators} {
		if err := open(); err != nil {
			return nil, errors.Join(err, a.close())
		}
	}
	a.authenticators = a.authenticatorList()
	access := &o.config.Authorization
	if !c.NoAnonymous && access.ConfigFile == "" && slices.Contains(access.Modes, config.ModeAlwaysAllow) {
		a.log.Warn("AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should " +
			"use a different authorizer")
		a.anonymous.Enabled = false
	}
	return a, nil
}

// close ends the connection to the external signer. authentication may be nil.
func (a *authentication) close() error {
	if a == nil || a.keys.signer == nil {
		return nil
	}
	return a.keys.signer.Close()
}

// openAuthorities reads the authorities of client certificates.
func (a *authentication) openAuthorities() (err error) {
	if a.authorities.clients, err = a.openFile("--client-ca-file", a.ownCA, a.config.Authentication.ClientCAFile); err != nil {
		return err
	}
	a.requestHeader = a.config.Authentication.RequestHeader
	h := &a.requestHeader
	switch {
	case a.ownFrontProxyCA != nil:
		*h = ownRequestHeaders()
	case h.ClientCAFile == "":
		return nil
	}
	a.authorities.proxies, err = a.openFile("--requestheader-client-ca-file", a.ownFrontProxyCA, h.ClientCAFile)
	if err != nil {
		return err
	}
	a.authorities.proxyNames = requestheader.Names{
		Users: h.UsernameHeaders, UIDs: h.UIDHeaders, Groups: h.GroupHeaders, ExtraPrefixes: h.ExtraHeaderPrefixes,
	}
	if len(h.AllowedNames) == 0 && clientcert.ForbidOverlap(a.authorities.clients, a.authorities.proxies) != nil {
		return config.Errorf("{Authentication.RequestHeader.ClientCAFile} and {Authentication.ClientCAFile} contain overlapping certificates; " +
			"{Authentication.RequestHeader.AllowedNames} must be specified to ensure regular client certificates cannot set authenticating " +
			"proxy headers for arbitrary users")
	}
	return nil
}

// openFile returns the certificate authorities in fixed and in the file of a flag, unless path is "".
func (a *authentication) openFile(flag string, fixed []byte, path string) (*clientcert.Authorities, error) {
	out := clientcert.NewAuthorities(fixed, path)
	if path == "" {
		return out, nil
	}
	if err := a.config.files.File(flag, path, out.Use); err != nil {
		return nil, reload.OfField(flag, datadir.Cause(err))
	}
	return out, nil
}

func (a *authentication) openAccountKeys(ctx context.Context) (err error) {
	signerMetrics := externalsigner.NewMetrics(a.metrics)
	c := &a.config.Authentication.ServiceAccounts
	if c.SigningEndpoint != "" {
		return a.openSigner(ctx, signerMetrics)
	}
	o := serviceaccount.KeyOptions{Files: c.KeyFiles, SigningFile: c.SigningKeyFile, WriteFile: certs.WriteFile}
	if !a.exclusive && c.SigningKeyFile == "" {
		a.log.Warn("service account tokens are signed with this server's own key, which other servers on the cluster " +
			"do not have; " +
			"see --service-account-signing-key-file")
	}
	if a.config.Storage.DataDir != "" {
		o.OwnFile = filepath.Join(a.config.Storage.DataDir, datadir.PKI, accountKeyName)
		o.ReadFile = filewatch.ReadFile
	}
	if origin := a.config.origin; origin != nil && origin.keys != nil {
		a.keys.own = origin.keys
	} else if err = a.openOwnKeys(o); err != nil {
		return fmt.Errorf("cannot use the keys of service account tokens: %w", err)
	}
	a.keys.source, a.keys.longest = a.keys.own, c.MaxExpiration
	a.warnOfLives("service-account-max-token-expiration must be set longer than %d seconds (currently %s)",
		"enabling tokens valid up to %d seconds, which is longer than service-account-max-token-expiration set to %s")
	return nil
}

// openOwnKeys reads the keys in files.
func (a *authentication) openOwnKeys(o serviceaccount.KeyOptions) (err error) {
	if a.keys.own, err = serviceaccount.OpenKeys(o); err != nil {
		return err
	}
	p := reload.Part{Flag: "--service-account-signing-key-file", Path: o.SigningFile, Apply: a.keys.own.Load}
	switch {
	case len(o.Files) > 0:
		p.Flag, p.Path = "--service-account-key-file", o.Files[0]
	case o.SigningFile == "":
		return nil
	}
	_, err = a.config.files.Load(p)
	return err
}

// openSigner connects to the external signer and reads its capabilities.
func (a *authentication) openSigner(ctx context.Context, counts *externalsigner.Metrics) (err error) {
	c := &a.config.Authentication.ServiceAccounts
	a.keys.signer, err = externalsigner.Open(ctx, externalsigner.Options{
		Socket: c.SigningEndpoint, Log: a.log, Metrics: counts, Now: time.Now,
	})
	if err != nil {
		a.keys.signer = nil
		return fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	a.keys.source = a.keys.signer
	longest := a.keys.signer.MaxLife()
	if c.MaxExpiration > longest {
		return fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by "+
			"service-account-signing-endpoint: %s > %s", c.MaxExpiration, longest)
	}
	a.keys.longest = cmp.Or(c.MaxExpiration, longest)
	a.warnOfLives("token lifetime supported by external-jwt-signer must be longer than %d seconds (currently %s)",
		"tokens validity will be caped at the smaller of %d seconds and maximum token lifetime supported by "+
			"external-jwt-signer (%s)")
	return nil
}

// warnOfLives logs a warning if tokens that are mounted in pods cannot get the requested lifetime.
func (a *authentication) warnOfLives(tooShort, shortened string) {
	longest := a.keys.longest
	if a.config.Authentication.ServiceAccounts.NoExtendExpiration || longest == 0 {
		return
	}
	const on = "service-account-extend-token-expiration is true, "
	if longest < serviceaccount.MountedLife {
		a.log.Warn(fmt.Sprintf(on+"in order to correctly trigger safe transition logic, "+tooShort,
			int(serviceaccount.MountedLife/time.Second), longest))
	}
	if longest < serviceaccount.ExtendedLife {
		a.log.Warn(fmt.Sprintf(on+shortened, int(serviceaccount.ExtendedLife/time.Second), longest))
	}
}

// tokenAuthenticators sets the token authenticators in the order of their calls: those that use only memory come before
// those that call other programs.
func (a *authentication) tokenAuthenticators() error {
	c := &a.config.Authentication
	if a.adminToken != "" {
		admin := &request.User{Name: certs.AdminUser, Groups: []string{certs.AdminGroup}}
		a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, statictoken.Single(a.adminToken, admin)))
	}
	a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, &a.local))
	if a.config.Authentication.TokenFile != "" {
		const flag = "--token-auth-file"
		static := &statictoken.Authenticator{}
		if err := a.config.files.File(flag, a.config.Authentication.TokenFile, static.Replace); err != nil {
			return reload.OfField(flag, err)
		}
		a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, static))
	}
	a.tokens = append(a.tokens, serviceaccount.New(serviceaccount.Options{
		Keys: a.keys.source, Issuers: c.ServiceAccounts.Issuers, Audiences: a.audiences,
		Objects: a.registry, Lookup: !c.ServiceAccounts.NoLookup, Tracker: a.legacy,
		Count: serviceaccount.NewMetrics(a.metrics), Cached: a.cached, Now: a.config.Testing.Clock.Now,
	}))
	if c.BootstrapTokens {
		tokens := &bootstraptoken.Authenticator{Objects: a.registry, Log: a.log, Now: a.config.Testing.Clock.Now}
		a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, tokens))
	}
	if a.issuers.set != nil {
		a.tokens = append(a.tokens, a.issuers.set)
	}
	if c.Webhook.ConfigFile == "" {
		return nil
	}
	hook, err := a.tokenWebhook()
	if err != nil {
		return config.Errorf("{Authentication.Webhook.ConfigFile}: %w", err)
	}
	a.tokens = append(a.tokens, hook)
	return nil
}

// tokenWebhook returns the authenticator that sends tokens to the configured webhook.
func (a *authentication) tokenWebhook() (authn.TokenAuthenticator, error) {
	c := &a.config.Authentication.Webhook
	client, err := a.config.files.Webhook("--authentication-token-webhook-config-file", c.ConfigFile, a.calls)
	if err != nil {
		return nil, err
	}
	hook, err := webhooktoken.New(webhooktoken.Options{
		Client: client, Version: c.Version, Audiences: a.audiences, Backoff: webhook.DefaultBackoff(),
	})
	if err != nil {
		return nil, err
	}
	return tokencache.NewAuthenticator(hook, c.CacheTTL, c.CacheTTL, a.config.Testing.Clock.Now, a.cached), nil
}

// authenticatorList returns the authenticators in the order of their calls.
func (a *authentication) authenticatorList() authn.Union {
	var u authn.Union
	if a.authorities.proxies != nil {
		u = append(u, &requestheader.Authenticator{
			Roots: a.authorities.proxies.Pool, AllowedNames: a.requestHeader.AllowedNames,
			Names: a.authorities.proxyNames, Now: time.Now,
		})
	}
	if len(a.authorities.clients.PEM()) > 0 {
		u = append(u, &clientcert.Authenticator{Roots: a.authorities.clients.Pool, Observe: a.certificateUsed})
	}
	tokens := bearer.Authenticator{Tokens: a.tokens, Audiences: a.audiences}
	return append(u, &tokens, (*bearer.WebSocket)(&tokens))
}

// answers returns the synthesized resources about users and tokens, such as TokenReview.
func (a *authentication) answers() map[schema.GroupResource]registry.CreateFunc {
	c := &a.config.Authentication.ServiceAccounts
	reviewer := tokenreview.Reviewer{Tokens: a.tokens, Audiences: a.audiences, Now: a.config.Testing.Clock.Now}
	issuer := &serviceaccount.Issuer{
		Keys: a.keys.source, Name: c.Issuers[0], Audiences: a.audiences, MaxLife: a.keys.longest, Extend: !c.NoExtendExpiration,
		Now: a.config.Testing.Clock.Now,
	}
	if a.keys.signer != nil {
		issuer.MostExtended = a.keys.signer.MaxLife()
	}
	answers := reviewer.CreateFuncs()
	answers[schema.GroupResource{Resource: "serviceaccounts/token"}] = issuer.Create
	return answers
}

// issuerDiscovery returns the discovery documents of the token issuer, nil if the URL of the issuer does not allow
// discovery.
func (a *authentication) issuerDiscovery() *serviceaccount.Discovery {
	c := &a.config.Authentication.ServiceAccounts
	d, err := serviceaccount.NewDiscovery(a.keys.source, c.Issuers[0], c.JWKSURI, a.advertised)
	if err != nil {
		a.log.Info("the issuer of service account tokens cannot be discovered", "reason", err)
		return nil
	}
	return d
}

// filter returns the options of the authentication filter.
func (a *authentication) filter() authenticate.Options {
	standard := requestheader.DefaultNames()
	return authenticate.Options{
		Authenticator: a.authenticators, Anonymous: a.anonymous.User,
		Clear: func(h http.Header) {
			standard.Clear(h)
			a.authorities.proxyNames.Clear(h)
		},
		Log: a.log, Observe: authenticate.NewMetrics(a.metrics), Refusals: authenticate.NewRefusals(a.metrics, a.log, time.Now),
	}
}

// start starts to follow the keys of an external signer and the secrets of tokens. writer writes what the tracker of
// legacy tokens records.
func (a *authentication) start(writer legacytokens.Writer) {
	if a.keys.signer != nil {
		a.work.Go("keys of the token signer", background.Forever(a.keys.signer.Follow))
	} else {
		// Controllers that sign tokens themselves read the key of a new data directory, so it does not wait for a request.
		a.work.Go("key of service account tokens", func(ctx context.Context) error {
			if !workers.Pause(ctx, keyDelay) {
				return nil
			}
			return a.keys.own.EnsureOwnKeyFile(ctx)
		})
	}
	a.work.Go(legacyRunner, background.Forever(func(ctx context.Context) { a.legacy.Run(ctx, writer) }))
}

// keyDelay is the time from the start until the key of service account tokens is generated, if no request needs it
// earlier. That occupies a processor for 20 to 200 ms, which the first requests need.
const keyDelay = 100 * time.Millisecond

// audiences returns the audiences of the server.
func audiences(c *config.Authentication) []string {
	if len(c.Audiences) > 0 {
		return c.Audiences
	}
	return c.ServiceAccounts.Issuers
}

// reloadEvery returns the interval in which files are checked for changes.
func (c *settings) reloadEvery() time.Duration { return cmp.Or(c.fileReload, reloadEvery) }

// tlsConfig has base request client certificates of the current authorities.
func (a *authorities) tlsConfig(base *tls.Config) *tls.Config {
	hints := &clientHints{base: base, authorities: a}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return hints.config(), nil }
	return base
}

// clientHints keeps a TLS configuration that names the current authorities, so that clients with several
// certificates send the right one.
type clientHints struct {
	base        *tls.Config
	authorities *authorities

	mu             sync.Mutex // guards what follows
	clients, proxy *x509.CertPool
	current        *tls.Config
}

func (h *clientHints) config() *tls.Config {
	clients := h.authorities.clients.Pool()
	var proxy *x509.CertPool
	if h.authorities.proxies != nil {
		proxy = h.authorities.proxies.Pool()
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
		h.current.ClientCAs.AppendCertsFromPEM(h.authorities.proxies.PEM())
	}
	return h.current
}
