// Package authentication connects the methods of authentication: it reads keys, authorities and trusted issuers, and finds the user of a
// request.
package authentication

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
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// AccountKeyName is the name of the file, beside the server's certificates, with the key that signs service account tokens.
const AccountKeyName = "sa.key"

// LegacyRunner is the name of the background runner that records the use of legacy tokens.
const LegacyRunner = "use of legacy tokens"

// Authentication determines the user of a request.
type Authentication struct {
	Options
	// Keys are the keys of service account tokens.
	Keys AccountKeys
	// Authorities are the certificate authorities of accepted client certificates.
	Authorities Authorities
	// RequestHeader are the headers in which front proxies name users.
	RequestHeader config.RequestHeader
	// Anonymous says which requests without credentials are allowed.
	Anonymous anonymous.Rule
	// Local are users of the program that runs the server.
	Local localusers.Users

	audiences []string
	issuers   issuers
	legacy    *legacytokens.Tracker
	// cached and certificateUsed record metrics.
	cached          tokencache.Recorder
	certificateUsed func(remaining time.Duration)
	// tokens and authenticators are called in order until one recognizes the request.
	tokens         authn.TokenUnion
	authenticators authn.Union
}

// Own has the certificates, the token and the keys that the server has generated itself.
type Own struct {
	CA []byte // of client certificates, PEM; empty if there is none
	// FrontProxyCA is the authority of front proxies, PEM; nil if there is none.
	FrontProxyCA []byte
	// AdminToken is a token of the administrator; "" if there is none.
	AdminToken string
	// Keys, unless they are nil, are used in place of the keys of service account tokens in files.
	Keys *serviceaccount.Keys
}

// Options are the dependencies of Authentication.
type Options struct {
	Config *config.Config
	// FlagGiven reports whether a flag was given on the command line, by its name without dashes.
	FlagGiven  func(name string) bool
	Files      *reload.Files
	Own        Own
	HostPort   string // where clients on this machine reach the server
	Advertised string // host and port at which clients on other machines reach it
	// Exclusive is true if no other server uses the store, or all that do have the keys of this one.
	Exclusive bool
	Registry  *registry.Registry
	Egress    *egress.Selector // nil: connections are opened directly
	Calls     webhook.Options  // for webhooks outside the cluster
	Metrics   *metrics.Metrics
	// Work runs the background tasks of OpenID Connect.
	Work *background.Group
	Log  *slog.Logger
}

// Authorities are the certificate authorities of accepted client certificates.
type Authorities struct {
	Clients    *clientcert.Authorities
	Proxies    *clientcert.Authorities // of the front proxy; nil: none is configured
	proxyNames requestheader.Names
}

// AccountKeys are the keys of service account tokens.
type AccountKeys struct {
	Source serviceaccount.KeySource // Own or signer
	Own    *serviceaccount.Keys     // nil: signer has them
	signer *externalsigner.Signer   // nil: this server signs
	// longest is the longest lifetime of a token, 0 for no limit.
	longest time.Duration
}

// New reads the keys and authorities and creates the authenticators.
func New(ctx context.Context, o Options) (*Authentication, error) {
	c := &o.Config.Authentication
	a := &Authentication{
		Options: o, audiences: audiences(c), Anonymous: anonymous.Rule{Enabled: !c.NoAnonymous},
		legacy: legacytokens.New(o.Registry, o.Log, o.Config.Testing.Clock.Now),
		cached: tokencache.NewMetrics(o.Metrics), certificateUsed: clientcert.NewMetrics(o.Metrics),
	}
	if err := a.openAuthorities(); err != nil {
		return nil, err
	}
	keys := func() error { return a.openAccountKeys(ctx) }
	for _, open := range []func() error{keys, a.openIssuers, a.tokenAuthenticators} {
		if err := open(); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	a.authenticators = a.authenticatorList()
	access := &o.Config.Authorization
	if !c.NoAnonymous && access.ConfigFile == "" && slices.Contains(access.Modes, config.ModeAlwaysAllow) {
		a.Log.Warn("AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should " +
			"use a different authorizer")
		a.Anonymous.Enabled = false
	}
	return a, nil
}

// Close ends the connection to the external signer. a may be nil.
func (a *Authentication) Close() error {
	if a == nil || a.Keys.signer == nil {
		return nil
	}
	return a.Keys.signer.Close()
}

// openAuthorities reads the authorities of client certificates.
func (a *Authentication) openAuthorities() (err error) {
	if a.Authorities.Clients, err = a.openFile("--client-ca-file", a.Own.CA, a.Config.Authentication.ClientCAFile); err != nil {
		return err
	}
	a.RequestHeader = a.Config.Authentication.RequestHeader
	h := &a.RequestHeader
	switch {
	case a.Own.FrontProxyCA != nil:
		*h = ownRequestHeaders()
	case h.ClientCAFile == "":
		return nil
	}
	a.Authorities.Proxies, err = a.openFile("--requestheader-client-ca-file", a.Own.FrontProxyCA, h.ClientCAFile)
	if err != nil {
		return err
	}
	a.Authorities.proxyNames = requestheader.Names{
		Users: h.UsernameHeaders, UIDs: h.UIDHeaders, Groups: h.GroupHeaders, ExtraPrefixes: h.ExtraHeaderPrefixes,
	}
	if len(h.AllowedNames) == 0 && clientcert.ForbidOverlap(a.Authorities.Clients, a.Authorities.Proxies) != nil {
		return config.Errorf("{Authentication.RequestHeader.ClientCAFile} and {Authentication.ClientCAFile} contain overlapping certificates; " +
			"{Authentication.RequestHeader.AllowedNames} must be specified to ensure regular client certificates cannot set authenticating " +
			"proxy headers for arbitrary users")
	}
	return nil
}

// openFile returns the certificate authorities in fixed and, unless path is "", in that file, which is then
// followed.
func (a *Authentication) openFile(flag string, fixed []byte, path string) (*clientcert.Authorities, error) {
	out := clientcert.NewAuthorities(fixed, path)
	if path == "" {
		return out, nil
	}
	if err := a.Files.File(flag, path, out.Use); err != nil {
		return nil, reload.OfField(flag, datadir.Cause(err))
	}
	return out, nil
}

func (a *Authentication) openAccountKeys(ctx context.Context) (err error) {
	signerMetrics := externalsigner.NewMetrics(a.Metrics)
	c := &a.Config.Authentication.ServiceAccounts
	if c.SigningEndpoint != "" {
		return a.openSigner(ctx, signerMetrics)
	}
	o := serviceaccount.KeyOptions{Files: c.KeyFiles, SigningFile: c.SigningKeyFile, WriteFile: certs.WriteFile}
	if !a.Exclusive && c.SigningKeyFile == "" {
		a.Log.Warn("service account tokens are signed with this server's own key, which other servers on the cluster " +
			"do not have; " +
			"see --service-account-signing-key-file")
	}
	if a.Config.Storage.DataDir != "" {
		o.OwnFile = filepath.Join(a.Config.Storage.DataDir, datadir.PKI, AccountKeyName)
		o.ReadFile = filewatch.ReadFile
	}
	if a.Own.Keys != nil {
		a.Keys.Own = a.Own.Keys
	} else if err = a.openOwnKeys(o); err != nil {
		return fmt.Errorf("cannot use the keys of service account tokens: %w", err)
	}
	a.Keys.Source, a.Keys.longest = a.Keys.Own, c.MaxExpiration
	a.warnOfLives("service-account-max-token-expiration must be set longer than %d seconds (currently %s)",
		"enabling tokens valid up to %d seconds, which is longer than service-account-max-token-expiration set to %s")
	return nil
}

// openOwnKeys reads the keys in files.
func (a *Authentication) openOwnKeys(o serviceaccount.KeyOptions) (err error) {
	if a.Keys.Own, err = serviceaccount.OpenKeys(o); err != nil {
		return err
	}
	p := reload.Part{Flag: "--service-account-signing-key-file", Path: o.SigningFile, Apply: a.Keys.Own.Load}
	switch {
	case len(o.Files) > 0:
		p.Flag, p.Path = "--service-account-key-file", o.Files[0]
	case o.SigningFile == "":
		return nil
	}
	_, err = a.Files.Load(p)
	return err
}

// openSigner connects to the external signer and reads its capabilities.
func (a *Authentication) openSigner(ctx context.Context, counts *externalsigner.Metrics) (err error) {
	c := &a.Config.Authentication.ServiceAccounts
	a.Keys.signer, err = externalsigner.Open(ctx, externalsigner.Options{
		Socket: c.SigningEndpoint, Log: a.Log, Metrics: counts, Now: time.Now,
	})
	if err != nil {
		a.Keys.signer = nil
		return fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	a.Keys.Source = a.Keys.signer
	longest := a.Keys.signer.MaxLife()
	if c.MaxExpiration > longest {
		return fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by "+
			"service-account-signing-endpoint: %s > %s", c.MaxExpiration, longest)
	}
	a.Keys.longest = cmp.Or(c.MaxExpiration, longest)
	a.warnOfLives("token lifetime supported by external-jwt-signer must be longer than %d seconds (currently %s)",
		"tokens validity will be caped at the smaller of %d seconds and maximum token lifetime supported by "+
			"external-jwt-signer (%s)")
	return nil
}

// warnOfLives logs a warning if tokens that are mounted in pods cannot get the requested lifetime.
func (a *Authentication) warnOfLives(tooShort, shortened string) {
	longest := a.Keys.longest
	if a.Config.Authentication.ServiceAccounts.NoExtendExpiration || longest == 0 {
		return
	}
	const on = "service-account-extend-token-expiration is true, "
	if longest < serviceaccount.MountedLife {
		a.Log.Warn(fmt.Sprintf(on+"in order to correctly trigger safe transition logic, "+tooShort,
			int(serviceaccount.MountedLife/time.Second), longest))
	}
	if longest < serviceaccount.ExtendedLife {
		a.Log.Warn(fmt.Sprintf(on+shortened, int(serviceaccount.ExtendedLife/time.Second), longest))
	}
}

// tokenAuthenticators sets the token authenticators in the order of their calls: those that use only memory come before
// those that call other programs.
func (a *Authentication) tokenAuthenticators() error {
	c := &a.Config.Authentication
	if a.Own.AdminToken != "" {
		admin := &request.User{Name: certs.AdminUser, Groups: []string{certs.AdminGroup}}
		a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, statictoken.Single(a.Own.AdminToken, admin)))
	}
	a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, &a.Local))
	if a.Config.Authentication.TokenFile != "" {
		const flag = "--token-auth-file"
		static := &statictoken.Authenticator{}
		if err := a.Files.File(flag, a.Config.Authentication.TokenFile, static.Replace); err != nil {
			return reload.OfField(flag, err)
		}
		a.tokens = append(a.tokens, authn.WrapAudienceAgnostic(a.audiences, static))
	}
	a.tokens = append(a.tokens, serviceaccount.New(serviceaccount.Options{
		Keys: a.Keys.Source, Issuers: c.ServiceAccounts.Issuers, Audiences: a.audiences,
		Objects: a.Registry, Lookup: !c.ServiceAccounts.NoLookup, Tracker: a.legacy,
		Count: serviceaccount.NewMetrics(a.Metrics), Cached: a.cached, Now: a.Config.Testing.Clock.Now,
	}))
	if c.BootstrapTokens {
		tokens := &bootstraptoken.Authenticator{Objects: a.Registry, Log: a.Log, Now: a.Config.Testing.Clock.Now}
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
func (a *Authentication) tokenWebhook() (authn.TokenAuthenticator, error) {
	c := &a.Config.Authentication.Webhook
	client, err := a.Files.Webhook("--authentication-token-webhook-config-file", c.ConfigFile, a.Calls)
	if err != nil {
		return nil, err
	}
	hook, err := webhooktoken.New(webhooktoken.Options{
		Client: client, Version: c.Version, Audiences: a.audiences, Backoff: webhook.DefaultBackoff(),
	})
	if err != nil {
		return nil, err
	}
	return tokencache.NewAuthenticator(hook, c.CacheTTL, c.CacheTTL, a.Config.Testing.Clock.Now, a.cached), nil
}

// authenticatorList returns the authenticators in the order of their calls.
func (a *Authentication) authenticatorList() authn.Union {
	var u authn.Union
	if a.Authorities.Proxies != nil {
		u = append(u, &requestheader.Authenticator{
			Roots: a.Authorities.Proxies.Pool, AllowedNames: a.RequestHeader.AllowedNames,
			Names: a.Authorities.proxyNames, Now: time.Now,
		})
	}
	if len(a.Authorities.Clients.PEM()) > 0 {
		u = append(u, &clientcert.Authenticator{Roots: a.Authorities.Clients.Pool, Observe: a.certificateUsed})
	}
	tokens := bearer.Authenticator{Tokens: a.tokens, Audiences: a.audiences}
	return append(u, &tokens, (*bearer.WebSocket)(&tokens))
}

// Answers returns the synthesized resources about users and tokens, such as TokenReview.
func (a *Authentication) Answers() map[schema.GroupResource]registry.CreateFunc {
	c := &a.Config.Authentication.ServiceAccounts
	reviewer := tokenreview.Reviewer{Tokens: a.tokens, Audiences: a.audiences, Now: a.Config.Testing.Clock.Now}
	issuer := &serviceaccount.Issuer{
		Keys: a.Keys.Source, Name: c.Issuers[0], Audiences: a.audiences, MaxLife: a.Keys.longest, Extend: !c.NoExtendExpiration,
		Now: a.Config.Testing.Clock.Now,
	}
	if a.Keys.signer != nil {
		issuer.MostExtended = a.Keys.signer.MaxLife()
	}
	answers := reviewer.CreateFuncs()
	answers[schema.GroupResource{Resource: "serviceaccounts/token"}] = issuer.Create
	return answers
}

// IssuerDiscovery returns the discovery documents of the token issuer, nil if the URL of the issuer does not allow
// discovery.
func (a *Authentication) IssuerDiscovery() *serviceaccount.Discovery {
	c := &a.Config.Authentication.ServiceAccounts
	d, err := serviceaccount.NewDiscovery(a.Keys.Source, c.Issuers[0], c.JWKSURI, a.Advertised)
	if err != nil {
		a.Log.Info("the issuer of service account tokens cannot be discovered", "reason", err)
		return nil
	}
	return d
}

// Filter returns the options of the authentication filter.
func (a *Authentication) Filter() authenticate.Options {
	standard := requestheader.DefaultNames()
	return authenticate.Options{
		Authenticator: a.authenticators, Anonymous: a.Anonymous.User,
		Clear: func(h http.Header) {
			standard.Clear(h)
			a.Authorities.proxyNames.Clear(h)
		},
		Log: a.Log, Observe: authenticate.NewMetrics(a.Metrics), Refusals: authenticate.NewRefusals(a.Metrics, a.Log, time.Now),
	}
}

// Start does what Follow does, or creates the server's own key file if there is no external signer. It also
// starts the tracker of legacy tokens, which records the use of tokens through writer.
func (a *Authentication) Start(writer legacytokens.Writer) {
	if !a.Follow() {
		// Controllers that sign tokens read the key file of a new data directory, so its creation cannot wait for
		// a request.
		a.Work.Go("key of service account tokens", func(ctx context.Context) error {
			if !workers.Pause(ctx, keyDelay) {
				return nil
			}
			return a.Keys.Own.EnsureOwnKeyFile(ctx)
		})
	}
	a.Work.Go(LegacyRunner, background.Forever(func(ctx context.Context) { a.legacy.Run(ctx, writer) }))
}

// Follow starts the work that follows the keys of an external signer. It reports whether there is one.
func (a *Authentication) Follow() bool {
	if a.Keys.signer == nil {
		return false
	}
	a.Work.Go("keys of the token signer", background.Forever(a.Keys.signer.Follow))
	return true
}

// keyDelay is the time from the start until the key of service account tokens is generated, if no request needs it
// earlier. Generating it takes a processor 20 to 200 ms, during which it would delay the first requests.
const keyDelay = 100 * time.Millisecond

// audiences returns the audiences of the server.
func audiences(c *config.Authentication) []string {
	if len(c.Audiences) > 0 {
		return c.Audiences
	}
	return c.ServiceAccounts.Issuers
}

// TLSConfig makes base request client certificates of the current authorities. It changes and returns base.
func (a *Authorities) TLSConfig(base *tls.Config) *tls.Config {
	hints := &clientHints{base: base, authorities: a}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return hints.config(), nil }
	return base
}

// clientHints keeps a TLS configuration that names the current authorities, so that clients with several
// certificates send the right one.
type clientHints struct {
	base        *tls.Config
	authorities *Authorities

	mu             sync.Mutex // guards the fields below
	clients, proxy *x509.CertPool
	current        *tls.Config
}

func (h *clientHints) config() *tls.Config {
	clients := h.authorities.Clients.Pool()
	var proxy *x509.CertPool
	if h.authorities.Proxies != nil {
		proxy = h.authorities.Proxies.Pool()
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
		h.current.ClientCAs.AppendCertsFromPEM(h.authorities.Proxies.PEM())
	}
	return h.current
}

// ownRequestHeaders returns the headers in which the server sends the names of users to extension API servers, and
// the name in the client certificate that it uses for that.
func ownRequestHeaders() config.RequestHeader {
	return config.RequestHeader{
		AllowedNames:    []string{certs.FrontProxyName},
		UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
}
