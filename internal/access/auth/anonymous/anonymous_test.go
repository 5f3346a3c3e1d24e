package anonymous

import (
	"net/http/httptest"
	"testing"
)

func TestUser(t *testing.T) {
	for _, test := range []struct {
		rule    Rule
		path    string
		allowed bool
	}{
		{Rule{}, "/healthz", false},
		{Rule{Paths: []string{"/healthz"}}, "/healthz", false},
		{Rule{Enabled: true}, "/api/v1/pods", true},
		{Rule{Enabled: true, Paths: []string{"/livez", "/healthz"}}, "/healthz?verbose", true},
		{Rule{Enabled: true, Paths: []string{"/livez", "/healthz"}}, "/healthz/ping", false},
		{Rule{Enabled: true, Paths: []string{"/livez", "/healthz"}}, "/api", false},
	} {
		user := test.rule.User(httptest.NewRequest("GET", test.path, nil))
		if (user != nil) != test.allowed || user != nil && user.Name != "system:anonymous" {
			t.Errorf("%+v, %s: %+v", test.rule, test.path, user)
		}
	}
}
