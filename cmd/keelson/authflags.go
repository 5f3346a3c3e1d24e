package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// authenticationFlags adds the flags of authentication.
func authenticationFlags(f *pflag.FlagSet, c *config.Authentication) {
	offVar(
		f, &c.NoAnonymous, "anonymous-auth",
		"let requests without credentials in as system:anonymous, of the group system:unauthenticated",
	)
	f.StringSliceVar(
		&c.Audiences, "api-audiences", nil,
		"what tokens must be meant for; the issuers of service account tokens where none is given",
	)
	f.BoolVar(
		&c.BootstrapTokens, "enable-bootstrap-token-auth", false,
		"accept secrets of type bootstrap.kubernetes.io/token in kube-system as tokens of joining nodes",
	)
	f.StringVar(
		&c.ConfigFile, "authentication-config", "",
		"file of the AuthenticationConfiguration that names issuers of tokens and says who may go without; its changes are followed",
	)
	serviceAccountFlags(f, &c.ServiceAccounts)
	requestHeaderFlags(f, &c.RequestHeader)
	oidcFlags(f, &c.OIDC)
	f.StringVar(
		&c.Webhook.ConfigFile, "authentication-token-webhook-config-file", "",
		"kubeconfig of the webhook that is asked whose a token is",
	)
	f.StringVar(
		&c.Webhook.Version, "authentication-token-webhook-version", c.Webhook.Version,
		"version of TokenReview that the webhook speaks: v1 or v1beta1",
	)
	f.DurationVar(
		&c.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", c.Webhook.CacheTTL,
		"how long an answer of the webhook is remembered",
	)
}

func oidcFlags(f *pflag.FlagSet, c *config.OIDC) {
	f.StringVar(&c.IssuerURL, "oidc-issuer-url", "", "https URL of an OpenID Connect issuer whose ID tokens are accepted")
	f.StringVar(
		&c.ClientID, "oidc-client-id", "", "client that the tokens must be meant for; needed with --oidc-issuer-url",
	)
	f.StringVar(
		&c.CAFile, "oidc-ca-file", "", "PEM file of the authorities of the issuer's certificate, instead of the system's",
	)
	f.StringVar(&c.UsernameClaim, "oidc-username-claim", c.UsernameClaim, "claim that is the user name")
	f.StringVar(
		&c.UsernamePrefix, "oidc-username-prefix", "",
		"what user names are prefixed with; - is nothing, and by default it is the issuer and #, but nothing for email",
	)
	f.StringVar(&c.GroupsClaim, "oidc-groups-claim", "", "claim that has the groups, a text or a list of them")
	f.StringVar(&c.GroupsPrefix, "oidc-groups-prefix", "", "what groups are prefixed with")
	f.StringSliceVar(
		&c.SigningAlgorithms, "oidc-signing-algs", c.SigningAlgorithms,
		"signatures that are accepted: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512",
	)
	f.Var(&claimsValue{&c.RequiredClaims}, "oidc-required-claim", "claim=value that the tokens must have; may be repeated")
}

// claimsValue is the value of a flag of the form name=value. The value may contain commas.
type claimsValue struct{ claims *map[string]string }

// Set implements pflag.Value.
func (v *claimsValue) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("malformed pair, expect string=string")
	}
	if *v.claims == nil {
		*v.claims = map[string]string{}
	}
	(*v.claims)[strings.TrimSpace(name)] = strings.TrimSpace(value)
	return nil
}

// String implements pflag.Value.
func (v *claimsValue) String() string {
	if v.claims == nil || len(*v.claims) == 0 {
		return ""
	}
	return fmt.Sprint(*v.claims)
}

// Type implements pflag.Value.
func (v *claimsValue) Type() string { return "claim=value" }

func serviceAccountFlags(f *pflag.FlagSet, c *config.ServiceAccounts) {
	f.StringArrayVar(
		&c.KeyFiles, "service-account-key-file", nil,
		"PEM file of RSA or ECDSA keys, public or private, that service account tokens are verified with; may be repeated",
	)
	f.StringVar(
		&c.SigningKeyFile, "service-account-signing-key-file", "",
		"PEM file of the private key that service account tokens are signed with, instead of the server's own",
	)
	f.StringVar(
		&c.SigningEndpoint, "service-account-signing-endpoint", "",
		"socket of a program that signs service account tokens and tells the keys they are verified with; not with key files. @ begins the name of an abstract socket",
	)
	f.StringArrayVar(
		&c.Issuers, "service-account-issuer", c.Issuers,
		"issuer of service account tokens; of several, the first issues and all are accepted",
	)
	f.StringVar(
		&c.JWKSURI, "service-account-jwks-uri", "",
		"where relying parties are told to find the keys of service account tokens, instead of this server",
	)
	offVar(
		f, &c.NoLookup, "service-account-lookup",
		"accept a secret's service account token only as long as the secret is there",
	)
	f.DurationVar(
		&c.MaxExpiration, "service-account-max-token-expiration", 0,
		"longest life of a service account token; longer ones that are asked for are shortened",
	)
	offVar(
		f, &c.NoExtendExpiration, "service-account-extend-token-expiration",
		"let the tokens that are mounted in pods live for a year, and count late uses",
	)
}

func requestHeaderFlags(f *pflag.FlagSet, c *config.RequestHeader) {
	f.StringVar(
		&c.ClientCAFile, "requestheader-client-ca-file", "",
		"PEM file of the authorities of front proxies that may name a user in headers",
	)
	f.StringSliceVar(
		&c.AllowedNames, "requestheader-allowed-names", nil,
		"common names of the front proxies' certificates; all that the authorities signed where none is given",
	)
	f.StringSliceVar(
		&c.UsernameHeaders, "requestheader-username-headers", nil,
		"headers of the user name; the first that is there counts. X-Remote-User is common",
	)
	f.StringSliceVar(
		&c.UIDHeaders, "requestheader-uid-headers", nil,
		"headers of the user's UID; the first that is there counts. X-Remote-Uid is common",
	)
	f.StringSliceVar(
		&c.GroupHeaders, "requestheader-group-headers", nil, "headers of the user's groups. X-Remote-Group is common",
	)
	f.StringSliceVar(
		&c.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil,
		"what headers begin with that say more of the user. X-Remote-Extra- is common",
	)
}
