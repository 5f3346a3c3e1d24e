package tokenreview

import (
	"context"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// ann accepts one token, its own text, for the audiences "one" and "two", and returns the user ann.
type ann string

func (a ann) AuthenticateToken(_ context.Context, t authn.BearerToken, audiences []string) (*authn.Identity, error) {
	accepted := authn.Intersect([]string{"one", "two"}, audiences)
	if t.Text != string(a) || len(accepted) == 0 {
		return nil, nil
	}
	return &authn.Identity{User: &request.User{Name: "ann", UID: "1"}, Audiences: accepted}, nil
}

func TestTokenReviews(t *testing.T) {
	a := &Reviewer{Tokens: ann("good"), Audiences: []string{"one"}, Now: time.Now}
	for _, c := range []struct {
		token     string
		audiences []string
		want      []string // nil: not authenticated
	}{
		{"good", nil, []string{"one"}},
		{"good", []string{"two", "x", "one"}, []string{"two", "one"}},
		{"good", []string{"x"}, nil},
		{"bad", nil, nil},
		{"good and more", nil, []string{"one"}}, // an Authorization header is cut at the space, too
		{"good\n", nil, []string{"one"}},
		{" good", nil, nil},
		{" ", nil, nil},
	} {
		review := &authenticationv1.TokenReview{
			Spec:   authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.audiences},
			Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "forged"}},
		}
		if _, err := a.createTokenReview(t.Context(), nil, registry.CreateRequest{Body: review}); err != nil {
			t.Fatal(err)
		}
		got := review.Status
		if got.Authenticated != (c.want != nil) || !slices.Equal(got.Audiences, c.want) ||
			got.Authenticated != (got.User.Username == "ann") || got.Authenticated == (got.Error != "") {
			t.Errorf("%q for %q: %+v", c.token, c.audiences, got)
		}
	}
}
