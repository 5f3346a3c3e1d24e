package oidc

import "net/http"

// Login is what a program needs to log people in at an issuer, so that they get ID tokens that the server accepts.
type Login struct {
	URL string // the issuer in the tokens
	// ClientID is the first of the audiences that are accepted.
	ClientID string
	// Client reaches the issuer as its configuration says. Reading more than maxAnswer of a response fails.
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
