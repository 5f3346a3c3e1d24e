package config

import "time"

// Authentication configures authentication. Without files and webhooks, requests are accepted with client certificates of
// the server's own authority, with service account tokens, and without credentials.
type Authentication struct {
	// NoOwnCredentials accepts only the credentials that the configuration names, as kube-apiserver does: the server then
	// has no client authority, no administrator with a kubeconfig, and no front proxy certificate of its own, and the issuers
	// and keys of service account tokens have to be configured. It makes a serving certificate only if none is configured.
	NoOwnCredentials bool
	// ClientCAFile is a PEM file of the authorities whose client certificates are accepted. The default is the server's own
	// authority (--client-ca-file).
	ClientCAFile string `flag:"client-ca-file"`
	// TokenFile is a CSV file of token, user, uid and groups (--token-auth-file).
	TokenFile string `flag:"token-auth-file"`
	// NoAnonymous refuses requests without credentials, instead of accepting them as system:anonymous
	// (--anonymous-auth=false).
	NoAnonymous bool `flag:"!anonymous-auth"`
	// Audiences are the accepted audiences of tokens. The default are ServiceAccounts.Issuers (--api-audiences).
	Audiences []string `flag:"api-audiences"`
	// ServiceAccounts configures the tokens of service accounts.
	ServiceAccounts ServiceAccounts
	// BootstrapTokens accepts the tokens in Secrets of type bootstrap.kubernetes.io/token (--enable-bootstrap-token-auth).
	BootstrapTokens bool `flag:"enable-bootstrap-token-auth"`
	// RequestHeader configures the front proxies that may name the user in headers.
	RequestHeader RequestHeader
	// ConfigFile is the path of an AuthenticationConfiguration, which is reloaded when it changes. OIDC configures one issuer
	// instead (--authentication-config).
	ConfigFile string `flag:"authentication-config"`
	// OIDC configures one issuer of OpenID Connect.
	OIDC OIDC
	// Webhook configures the webhook that authenticates tokens.
	Webhook TokenWebhook
}

// ServiceAccounts configures how service account tokens are signed and verified.
type ServiceAccounts struct {
	// KeyFiles are PEM files of the keys that verify tokens. The default is the signing key (--service-account-key-file).
	KeyFiles []string `flag:"service-account-key-file"`
	// SigningKeyFile is a PEM file of the key that signs tokens. The default is a key in the data directory, which is created
	// when needed (--service-account-signing-key-file).
	SigningKeyFile string `flag:"service-account-signing-key-file"`
	// SigningEndpoint is the socket of an external signer, which signs instead and returns the verification keys. Empty means
	// none (--service-account-signing-endpoint).
	SigningEndpoint string `flag:"service-account-signing-endpoint"`
	// Issuers are the accepted issuers. The first one is the issuer of new tokens. The default is
	// https://kubernetes.default.svc; with NoOwnCredentials there is none (--service-account-issuer).
	Issuers []string `flag:"service-account-issuer"`
	// JWKSURI is the URL of the keys in the discovery document. Empty means this server (--service-account-jwks-uri).
	JWKSURI string `flag:"service-account-jwks-uri"`
	// NoLookup accepts a legacy token also when the Secret that contained it is gone (--service-account-lookup=false).
	NoLookup bool `flag:"!service-account-lookup"`
	// MaxExpiration is the longest lifetime of a token, at least 1 hour. 0, the default, means no limit
	// (--service-account-max-token-expiration).
	MaxExpiration time.Duration `flag:"service-account-max-token-expiration"`
	// NoExtendExpiration does not extend the lifetime of tokens that are mounted in pods to a year
	// (--service-account-extend-token-expiration=false).
	NoExtendExpiration bool `flag:"!service-account-extend-token-expiration"`
}

// RequestHeader configures the front proxies that may name the user in headers.
type RequestHeader struct {
	// ClientCAFile is a PEM file of the authorities of the certificates of front proxies. Empty accepts none
	// (--requestheader-client-ca-file).
	ClientCAFile string `flag:"requestheader-client-ca-file"`
	// AllowedNames are the accepted common names of the certificates. Empty accepts all (--requestheader-allowed-names).
	AllowedNames []string `flag:"requestheader-allowed-names"`
	// UsernameHeaders are the headers of the user name; the first one in a request is used
	// (--requestheader-username-headers).
	UsernameHeaders []string `flag:"requestheader-username-headers"`
	// UIDHeaders are the headers of the user's UID; the first one in a request is used
	// (--requestheader-uid-headers).
	UIDHeaders []string `flag:"requestheader-uid-headers"`
	// GroupHeaders are the headers of the user's groups (--requestheader-group-headers).
	GroupHeaders []string `flag:"requestheader-group-headers"`
	// ExtraHeaderPrefixes are the prefixes of headers with further attributes of the user
	// (--requestheader-extra-headers-prefix).
	ExtraHeaderPrefixes []string `flag:"requestheader-extra-headers-prefix"`
}

// OIDC configures one issuer of OpenID Connect.
type OIDC struct {
	// IssuerURL is the https URL of the issuer. Empty accepts no tokens of issuers (--oidc-issuer-url).
	IssuerURL string `flag:"oidc-issuer-url"`
	// ClientID is the client for which tokens must be issued, as their audience (--oidc-client-id).
	ClientID string `flag:"oidc-client-id"`
	// CAFile is a PEM file of the authorities of the issuer's certificate. The default are those of the system
	// (--oidc-ca-file).
	CAFile string `flag:"oidc-ca-file"`
	// UsernameClaim is the claim that is the user name. The default is sub (--oidc-username-claim).
	UsernameClaim string `flag:"oidc-username-claim"`
	// UsernamePrefix is a prefix of user names; "-" is none. The default is the issuer and #, and none for the claim email
	// (--oidc-username-prefix).
	UsernamePrefix string `flag:"oidc-username-prefix"`
	// GroupsClaim is the claim that has the groups. Empty means no groups (--oidc-groups-claim).
	GroupsClaim string `flag:"oidc-groups-claim"`
	// GroupsPrefix is a prefix of groups. The default is none (--oidc-groups-prefix).
	GroupsPrefix string `flag:"oidc-groups-prefix"`
	// SigningAlgorithms are the accepted algorithms of signatures. The default is RS256 (--oidc-signing-algs).
	SigningAlgorithms []string `flag:"oidc-signing-algs"`
	// RequiredClaims are claims and values that tokens must have (--oidc-required-claim).
	RequiredClaims map[string]string `flag:"oidc-required-claim"`
}

// TokenWebhook configures the webhook that authenticates tokens.
type TokenWebhook struct {
	// ConfigFile is the kubeconfig of the webhook. Empty disables it (--authentication-token-webhook-config-file).
	ConfigFile string `flag:"authentication-token-webhook-config-file"`
	// Version is the version of TokenReview: v1 or v1beta1. The default is v1beta1, as in kube-apiserver
	// (--authentication-token-webhook-version).
	Version string `flag:"authentication-token-webhook-version"`
	// CacheTTL is how long a response is cached. The default is 2 minutes; with None responses are not cached
	// (--authentication-token-webhook-cache-ttl).
	CacheTTL time.Duration `flag:"authentication-token-webhook-cache-ttl"`
}
