package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/server"
)

// authenticationFlags say who is let in, and as whom.
func authenticationFlags(f *pflag.FlagSet, c *server.AuthenticationConfig) {
	f.BoolVar(&c.Anonymous, "anonymous-auth", c.Anonymous, "let requests without credentials in as system:anonymous, of the group system:unauthenticated")
	f.StringSliceVar(&c.APIAudiences, "api-audiences", nil, "what tokens must be meant for; the issuers of service account tokens where none is given")
	f.BoolVar(&c.BootstrapTokens, "enable-bootstrap-token-auth", false, "accept secrets of type bootstrap.kubernetes.io/token in kube-system as tokens of joining nodes")
	serviceAccountFlags(f, &c.ServiceAccounts)
	requestHeaderFlags(f, &c.RequestHeader)
}

func serviceAccountFlags(f *pflag.FlagSet, c *server.ServiceAccountConfig) {
	f.StringArrayVar(&c.KeyFiles, "service-account-key-file", nil, "PEM file of RSA or ECDSA keys, public or private, that service account tokens are verified with; may be repeated")
	f.StringVar(&c.SigningKeyFile, "service-account-signing-key-file", "", "PEM file of the private key that service account tokens are signed with, instead of the server's own")
	f.StringArrayVar(&c.Issuers, "service-account-issuer", c.Issuers, "issuer of service account tokens; of several, the first issues and all are accepted")
	f.StringVar(&c.JWKSURI, "service-account-jwks-uri", "", "where relying parties are told to find the keys of service account tokens, instead of this server")
	f.BoolVar(&c.Lookup, "service-account-lookup", c.Lookup, "accept a secret's service account token only as long as the secret is there")
	f.DurationVar(&c.MaxExpiration, "service-account-max-token-expiration", 0, "longest life of a service account token; longer ones that are asked for are shortened")
	f.BoolVar(&c.ExtendExpiration, "service-account-extend-token-expiration", c.ExtendExpiration, "let the tokens that are mounted in pods live for a year, and count late uses")
}

func requestHeaderFlags(f *pflag.FlagSet, c *server.RequestHeaderConfig) {
	f.StringVar(&c.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of the authorities of front proxies that may name a user in headers")
	f.StringSliceVar(&c.AllowedNames, "requestheader-allowed-names", nil, "common names of the front proxies' certificates; all that the authorities signed where none is given")
	f.StringSliceVar(&c.UsernameHeaders, "requestheader-username-headers", nil, "headers of the user name; the first that is there counts. X-Remote-User is common")
	f.StringSliceVar(&c.UIDHeaders, "requestheader-uid-headers", nil, "headers of the user's UID; the first that is there counts. X-Remote-Uid is common")
	f.StringSliceVar(&c.GroupHeaders, "requestheader-group-headers", nil, "headers of the user's groups. X-Remote-Group is common")
	f.StringSliceVar(&c.ExtraHeadersPrefixes, "requestheader-extra-headers-prefix", nil, "what headers begin with that say more of the user. X-Remote-Extra- is common")
}
