package server

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// AuthenticationConfig configures authentication. Static tokens and client authorities are in Config.
type AuthenticationConfig struct {
	// Anonymous accepts requests without credentials as system:anonymous.
	Anonymous, AnonymousSet bool
	// APIAudiences are the accepted audiences of tokens. Empty means the issuers of service account tokens.
	APIAudiences []string

	ServiceAccounts ServiceAccountConfig
	// BootstrapTokens accepts the tokens in secrets of type bootstrap.kubernetes.io/token.
	BootstrapTokens bool
	RequestHeader   RequestHeaderConfig

	// ConfigFile is the path of an AuthenticationConfiguration, which is reloaded when it changes. OIDC configures
	// one issuer instead.
	ConfigFile string
	OIDC       OIDCConfig
	Webhook    TokenWebhookConfig
}

// OIDCConfig configures one issuer of OpenID Connect.
type OIDCConfig struct {
	// Set is true if any of the following fields was set explicitly.
	Set                           bool
	IssuerURL, ClientID, CAFile   string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	SigningAlgorithms             []string
	RequiredClaims                map[string]string
}

// TokenWebhookConfig configures the webhook that authenticates tokens.
type TokenWebhookConfig struct {
	// ConfigFile is the kubeconfig of the webhook. Empty disables it.
	ConfigFile string
	// Version is the version of TokenReview: v1 or v1beta1.
	Version string
	// CacheTTL is how long a response is cached.
	CacheTTL time.Duration
}

// ServiceAccountConfig configures how service account tokens are signed and verified.
type ServiceAccountConfig struct {
	// KeyFiles have the keys that verify tokens. SigningKeyFile has the key that signs them; empty means a key in
	// the data directory, which is created when needed.
	KeyFiles       []string
	SigningKeyFile string
	// SigningEndpoint is the socket of an external signer, which signs instead and returns the verification keys.
	// Empty means none.
	SigningEndpoint string
	// Issuers are the accepted issuers. The first one is the issuer of new tokens.
	Issuers []string
	// JWKSURI is the URL of the keys in the discovery document. Empty means this server.
	JWKSURI string
	// Lookup rejects a legacy token if the secret that contained it is gone.
	Lookup bool
	// MaxExpiration is the longest lifetime of a token. 0 means no limit.
	MaxExpiration time.Duration
	// ExtendExpiration extends the lifetime of tokens that are mounted in pods to a year.
	ExtendExpiration bool
}

// RequestHeaderConfig configures the front proxies that may name the user in headers.
type RequestHeaderConfig struct {
	// ClientCAFile has the authorities of the certificates of front proxies. Empty accepts none.
	ClientCAFile string
	// AllowedNames are the accepted common names of the certificates. Empty accepts all.
	AllowedNames                                                    []string
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeadersPrefixes []string
}

const defaultIssuer = "https://kubernetes.default.svc"

// DefaultAuthentication returns the configuration of a cluster whose service account issuer is
// https://kubernetes.default.svc.
func DefaultAuthentication() AuthenticationConfig {
	return AuthenticationConfig{
		Anonymous: true,
		ServiceAccounts: ServiceAccountConfig{
			Issuers: []string{defaultIssuer}, Lookup: true, ExtendExpiration: true,
		},
		OIDC:    OIDCConfig{UsernameClaim: "sub", SigningAlgorithms: []string{"RS256"}},
		Webhook: TokenWebhookConfig{Version: "v1beta1", CacheTTL: 2 * time.Minute},
	}
}

// audiences returns the audiences of the server.
func (c *AuthenticationConfig) audiences() []string {
	if len(c.APIAudiences) > 0 {
		return c.APIAudiences
	}
	return c.ServiceAccounts.Issuers
}

// validate returns the errors of the configuration that can be found without reading files.
func (c *AuthenticationConfig) validate() []error {
	errs := append(c.ServiceAccounts.validate(), c.RequestHeader.validate()...)
	switch {
	case c.ConfigFile != "" && c.OIDC.Set:
		errs = append(errs, errors.New("authentication-config file and oidc-* flags are mutually exclusive"))
	case c.ConfigFile == "" && c.OIDC.Set && (c.OIDC.IssuerURL == "" || c.OIDC.ClientID == ""):
		errs = append(errs, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* "+
			"flags are set"))
	}
	return errs
}

func (c *ServiceAccountConfig) validate() []error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Issuers) == 0 {
		add("service-account-issuer is a required flag")
	}
	for i, issuer := range c.Issuers {
		_, err := url.Parse(issuer)
		switch {
		case strings.Contains(issuer, ":") && err != nil:
			add("service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err)
		case issuer == "":
			add("service-account-issuer should not be an empty string")
		case slices.Contains(c.Issuers[:i], issuer):
			add("service-account-issuer %q is already specified", issuer)
		}
	}
	if c.JWKSURI != "" {
		if u, err := url.Parse(c.JWKSURI); err != nil {
			add("service-account-jwks-uri must be a valid URL: %w", err)
		} else if u.Scheme != "https" {
			add("service-account-jwks-uri requires https scheme, parsed as: %v", u.String())
		}
	}
	if c.SigningEndpoint != "" {
		errs = append(errs, c.validateEndpoint()...)
	}
	const shortest, longest = time.Hour, 1 << 32 * time.Second
	if c.MaxExpiration != 0 && (c.MaxExpiration < shortest || c.MaxExpiration > longest) {
		add("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	return errs
}

// validateKeys returns errors if the keys of tokens are not configured, for a server that makes none.
func (c *ServiceAccountConfig) validateKeys() []error {
	var errs []error
	if c.SigningEndpoint != "" {
		return nil
	}
	if len(c.KeyFiles) == 0 {
		errs = append(errs, errors.New("either `--service-account-key-file` or `--service-account-signing-endpoint` must be set"))
	}
	if c.SigningKeyFile == "" {
		errs = append(errs, errors.New("--service-account-signing-key-file and --service-account-issuer are required flags"))
	}
	return errs
}

// abstractSocket matches the names of abstract sockets.
var abstractSocket = regexp.MustCompile(`^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$`)

func (c *ServiceAccountConfig) validateEndpoint() []error {
	var errs []error
	if c.SigningKeyFile != "" || len(c.KeyFiles) > 0 {
		errs = append(errs, errors.New("can't set `--service-account-signing-key-file` and/or "+
			"`--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)"))
	}
	if strings.HasPrefix(c.SigningEndpoint, "@") && !abstractSocket.MatchString(c.SigningEndpoint) {
		errs = append(errs, fmt.Errorf("invalid value %q passed for `--service-account-signing-endpoint`, when "+
			"prefixed with @ must be a valid abstract socket name", c.SigningEndpoint))
	}
	return errs
}

func (c *RequestHeaderConfig) validate() []error {
	var errs []error
	for flag, values := range map[string][]string{
		"requestheader-username-headers": c.UsernameHeaders, "requestheader-uid-headers": c.UIDHeaders,
		"requestheader-group-headers": c.GroupHeaders, "requestheader-extra-headers-prefix": c.ExtraHeadersPrefixes,
		"requestheader-allowed-names": c.AllowedNames,
	} {
		for _, value := range values {
			if strings.TrimSpace(value) == "" {
				errs = append(errs, fmt.Errorf("empty value in %q", flag))
				break
			}
		}
	}
	return errs
}
