// Package webhooktoken authenticates bearer tokens by a webhook, which gets a TokenReview.
package webhooktoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// requestTimeout limits one review with all its retries.
const requestTimeout = 10 * time.Second

// maxAnswer is the largest answer that is read, in bytes. Users of tokens are cached.
const maxAnswer = 1 << 20

// Options configure an Authenticator.
type Options struct {
	Client *webhook.Client
	// Version is the version of TokenReview that the webhook supports: v1 or v1beta1.
	Version string
	// Audiences are the API server's own. They are used for a webhook that does not support audiences.
	Audiences []string
	Backoff   webhook.Backoff
}

// Authenticator is an authn.TokenAuthenticator.
type Authenticator struct{ o Options }

// New returns the authenticator.
func New(o Options) (*Authenticator, error) {
	if o.Version != "v1" && o.Version != "v1beta1" {
		return nil, fmt.Errorf("unsupported authentication webhook version %q, supported versions are %q, %q", o.Version,
			"v1", "v1beta1")
	}
	return &Authenticator{o}, nil
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (a *Authenticator) AuthenticateToken(
	ctx context.Context, t authn.BearerToken, audiences []string,
) (*authn.Identity, error) {
	status, err := a.review(ctx, t.Text, audiences)
	if err != nil {
		return nil, err
	}
	accepted := a.o.Audiences
	if len(status.Audiences) > 0 {
		accepted = status.Audiences
	}
	accepted = authn.Intersect(audiences, accepted)
	switch {
	case len(accepted) == 0:
		return nil, nil
	case !status.Authenticated && status.Error != "":
		return nil, errors.New(status.Error)
	case !status.Authenticated:
		return nil, nil
	}
	return &authn.Identity{User: authn.WithAuthenticated(userOf(&status.User)), Audiences: accepted}, nil
}

func userOf(u *authenticationv1.UserInfo) *request.User {
	return &request.User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: request.ConvertExtra[[]string](u.Extra)}
}

// review calls the webhook. Both versions of TokenReview have the same fields.
func (a *Authenticator) review(
	ctx context.Context, token string, audiences []string,
) (*authenticationv1.TokenReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.GroupName + "/" + a.o.Version, Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	var response []byte
	err = webhook.Retry(ctx, a.o.Backoff, webhook.IsTransient, func(ctx context.Context) (err error) {
		response, err = a.o.Client.Post(ctx, webhook.Call{Body: body, Timeout: requestTimeout, MaxResponse: maxAnswer})
		return err
	})
	if err != nil {
		return nil, err
	}
	var answer authenticationv1.TokenReview
	if err := json.Unmarshal(response, &answer); err != nil {
		return nil, errors.New("the response of the webhook is not a TokenReview")
	}
	if answer.APIVersion != review.APIVersion || answer.Kind != review.Kind {
		return nil, fmt.Errorf("the response of the webhook has apiVersion %q, kind %q; expected a %s of %s",
			answer.APIVersion, answer.Kind, review.Kind, review.APIVersion)
	}
	return &answer.Status, nil
}
