package oidc

import "net/http"

// Login has the data with which a program logs people in at an issuer, to get ID tokens that the server accepts.
type Login struct {
	URL string // the issuer in the tokens
	// ClientID is the first of the audiences that are accepted.
	ClientID string
	// Client calls the issuer with the certificates and the network of its configuration. Reading more than
	// maxAnswer of a response fails.
	Client *http.Client
}

// Logins returns the issuers of the current configuration, in its order.
func (s *IssuerSet) Logins() []Login {
	var out []Login
	for _, i := range s.current.Load().issuers {
		out = append(out, Login{URL: i.config.Issuer.URL, ClientID: i.config.Issuer.Audiences[0], Client: i.client})
	}
	return out
}
