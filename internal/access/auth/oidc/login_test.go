package oidc

import (
	"net/http"
	"testing"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

func TestLogins(t *testing.T) {
	one, two := newProvider(t), newProvider(t)
	c := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{one.config(), two.config()}}
	mappings, errs := Validate(c, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s, err := NewIssuerSet(t.Context(), c, mappings, nil, options())
	if err != nil {
		t.Fatal(err)
	}
	logins := s.Logins()
	if len(logins) != 2 || logins[0].URL != one.URL || logins[1].URL != two.URL || logins[0].ClientID != client {
		t.Fatalf("%+v", logins)
	}
	r, err := logins[1].Client.Get(two.URL + wellKnown) // it knows the authority of the issuer
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("%d", r.StatusCode)
	}
}
