package authn

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// fixed is an Authenticator with a fixed result.
type fixed struct {
	user *request.User
	err  error
}

func (f fixed) Authenticate(*http.Request) (*request.User, error) { return f.user, f.err }

func (f fixed) AuthenticateToken(context.Context, BearerToken, []string) (*Identity, error) {
	if f.user == nil {
		return nil, f.err
	}
	return &Identity{User: f.user}, nil
}

func (f fixed) UserOfToken(context.Context, BearerToken) (*request.User, error) { return f.user, f.err }

func TestFirstAuthenticatorDecides(t *testing.T) {
	ann, bob := &request.User{Name: "ann"}, &request.User{Name: "bob"}
	one, two := errors.New("one"), errors.New("two")
	for _, c := range []struct {
		asked []fixed
		user  *request.User
		err   string
	}{
		{nil, nil, ""},
		{[]fixed{{}, {ann, nil}, {bob, nil}}, ann, ""},
		{[]fixed{{nil, one}, {bob, nil}}, bob, ""},
		{[]fixed{{nil, one}, {}, {nil, two}, {nil, one}}, nil, "[one, two]"},
		{[]fixed{{nil, one}}, nil, "one"},
	} {
		var requests Union
		var tokens TokenUnion
		for _, f := range c.asked {
			requests, tokens = append(requests, f), append(tokens, f)
		}
		user, err := requests.Authenticate(httptest.NewRequest(http.MethodGet, "/", nil))
		identity, tokenErr := tokens.AuthenticateToken(t.Context(), NewBearerToken("x"), nil)
		if user != c.user || text(err) != c.err || text(tokenErr) != c.err || (identity == nil) != (c.user == nil) ||
			identity != nil && identity.User != c.user {
			t.Errorf("%v: %v %v, %v %v", c.asked, user, err, identity, tokenErr)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWithAuthenticated(t *testing.T) {
	for _, c := range []struct {
		user request.User
		want []string
	}{
		{request.User{Name: "a"}, []string{"system:authenticated"}},
		{request.User{Name: "a", Groups: []string{"g"}}, []string{"g", "system:authenticated"}},
		{request.User{Name: "a", Groups: []string{"system:authenticated", "g"}}, []string{"system:authenticated", "g"}},
		{request.User{Name: "a", Groups: []string{"system:unauthenticated"}}, []string{"system:unauthenticated"}},
		{request.User{Name: "system:anonymous"}, nil},
	} {
		before := slices.Clone(c.user.Groups)
		if got := WithAuthenticated(&c.user).Groups; !slices.Equal(got, c.want) || !slices.Equal(c.user.Groups, before) {
			t.Errorf("%+v: %q", c.user, got)
		}
	}
}

func TestWrapAudienceAgnostic(t *testing.T) {
	ann := &request.User{Name: "ann"}
	a := WrapAudienceAgnostic([]string{"one", "two"}, fixed{user: ann})
	for _, c := range []struct{ asked, meant []string }{
		{[]string{"one", "two"}, []string{"one", "two"}},
		{[]string{"two", "one"}, []string{"two", "one"}}, // as the question has them
		{[]string{"x", "two"}, []string{"two"}},
		{[]string{"x"}, nil},
		{nil, nil},
	} {
		identity, err := a.AuthenticateToken(t.Context(), NewBearerToken("x"), c.asked)
		if err != nil || (identity == nil) != (c.meant == nil) || identity != nil &&
			!slices.Equal(identity.Audiences, c.meant) {
			t.Errorf("%q: %v %v", c.asked, identity, err)
		}
	}
}

func TestLongTokensAreHashed(t *testing.T) {
	long := make([]byte, 3*stackBuffer)
	a, b := NewBearerToken(string(long)), NewBearerToken(string(long))
	long[len(long)-1] = 1
	if a.Hash != b.Hash || a.Hash == NewBearerToken(string(long)).Hash {
		t.Error("wrong")
	}
}
