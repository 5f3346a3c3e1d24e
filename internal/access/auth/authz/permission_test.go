package authz

import (
	"context"
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

type answer struct {
	decision Decision
	reason   string
	err      error
}

func (a answer) Authorize(context.Context, Attributes) (Decision, string, error) {
	return a.decision, a.reason, a.err
}

// TestCheckPermission compares the errors for different decisions of the authorizer with those of kube-apiserver.
func TestCheckPermission(t *testing.T) {
	a := Attributes{User: &request.User{Name: "u"}, Info: &request.Info{
		Verb: "update", Group: "g", Resource: "rs", Subresource: "sub", Namespace: "n", Name: "x", AsksResource: true}}
	const refused = `rs.g "x" is forbidden: User "u" cannot update resource "rs/sub" in API group "g" in the namespace "n"`
	broken := errors.New("broken")
	for _, c := range []struct {
		answer
		want string
	}{
		{answer{Allow, "", nil}, ""},
		{answer{Allow, "yes", broken}, ""},
		{answer{NoOpinion, "", nil}, refused},
		{answer{Deny, "no", nil}, refused + ": no"},
		{answer{NoOpinion, "", broken}, refused + ": broken"},
		{answer{NoOpinion, "no", broken}, refused + ": broken: no"},
	} {
		got := ""
		if err := CheckPermission(t.Context(), c.answer, a); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got  %s\nwant %s", c.answer, got, c.want)
		}
	}
}
