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

// AuthenticationConfig says how users are authenticated. Static tokens and client
// authorities are in Config itself.
type AuthenticationConfig struct {
	// Anonymous lets requests without credentials in as system:anonymous.
	// AnonymousSet says that this was asked for, and not left to default.
	Anonymous, AnonymousSet bool
	// APIAudiences are what tokens must be meant for; none is the issuers of service
	// account tokens.
	APIAudiences []string

	ServiceAccounts ServiceAccountConfig
	// BootstrapTokens accepts the secrets of type bootstrap.kubernetes.io/token.
	BootstrapTokens bool
	RequestHeader   RequestHeaderConfig

	// ConfigFile is an AuthenticationConfiguration, whose changes are followed. OIDC
	// names one issuer instead.
	ConfigFile string
	OIDC       OIDCConfig
	Webhook    TokenWebhookConfig
}

// OIDCConfig names an issuer of OpenID Connect.
type OIDCConfig struct {
	// Set says that any of what follows was asked for.
	Set                           bool
	IssuerURL, ClientID, CAFile   string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	SigningAlgorithms             []string
	RequiredClaims                map[string]string
}

// TokenWebhookConfig names a webhook that is asked whose a token is.
type TokenWebhookConfig struct {
	// ConfigFile is a kubeconfig of the webhook; "" asks none.
	ConfigFile string
	// Version of TokenReview that it speaks: v1 or v1beta1.
	Version string
	// CacheTTL is how long an answer is remembered.
	CacheTTL time.Duration
}

// ServiceAccountConfig says how tokens of service accounts are issued and verified.
type ServiceAccountConfig struct {
	// KeyFiles hold keys that tokens are verified with, SigningKeyFile the one that
	// they are signed with. "" is the server's own key, made when it is needed.
	KeyFiles       []string
	SigningKeyFile string
	// SigningEndpoint is the socket of a program that signs instead, and says with
	// which keys tokens are verified; "" is none.
	SigningEndpoint string
	// Issuers are accepted; the first one issues.
	Issuers []string
	// JWKSURI is where relying parties are told to find the keys; "" is this server.
	JWKSURI string
	// Lookup holds legacy tokens to the secret that keeps them.
	Lookup bool
	// MaxExpiration shortens what is asked for; 0 does not.
	MaxExpiration time.Duration
	// ExtendExpiration lets the tokens that are mounted in pods live for a year.
	ExtendExpiration bool
}

// RequestHeaderConfig says which front proxies may name a user in headers.
type RequestHeaderConfig struct {
	// ClientCAFile has the authorities of their certificates; "" believes none.
	ClientCAFile string
	// AllowedNames are the common names of the certificates; none allows all.
	AllowedNames                                                    []string
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeadersPrefixes []string
}

const defaultIssuer = "https://kubernetes.default.svc"

// DefaultAuthentication is that of a cluster whose service accounts are known as
// those of https://kubernetes.default.svc.
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

// audiences are the server's own.
func (c *AuthenticationConfig) audiences() []string {
	if len(c.APIAudiences) > 0 {
		return c.APIAudiences
	}
	return c.ServiceAccounts.Issuers
}

// validate returns what is wrong with the configuration by itself.
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

// abstractSocket is what an abstract socket may be called.
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
