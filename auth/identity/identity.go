// Package identity answers the questions of the authentication.k8s.io API group:
// whose is this token, and who am I?
package identity

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/auth/bearer"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// Reviews are what the answers are made of.
type Reviews struct {
	Tokens authn.TokenAuthenticator
	// Audiences are the server's own, which a question that names none means.
	Audiences []string
	Now       func() time.Time
}

// Answers returns what answers a POST of each kind.
func (a *Reviews) Answers() map[schema.GroupResource]registry.CreateFunc {
	return map[schema.GroupResource]registry.CreateFunc{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"}:       a.token,
		{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"}: a.self,
	}
}

// token answers whose a token is. A token that does not hold is an answer, too.
// What else the sender wrote into the status it gets back.
func (a *Reviews) token(ctx context.Context, _ registry.Access, r registry.CreateRequest) (registry.Object, error) {
	review := r.Body.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, kerrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := r.Admitted(ctx); err != nil {
		return nil, err
	}
	audiences := review.Spec.Audiences
	if len(audiences) == 0 {
		audiences = a.Audiences
	}
	review.Status.Authenticated = false
	identity, err := a.identify(ctx, review.Spec.Token, audiences)
	if identity == nil {
		// kube-apiserver asks for the server's own token first, which fails plainly.
		review.Status.Error = utilerrors.NewAggregate([]error{authn.ErrInvalidToken, err}).Error()
		return review, nil
	}
	if len(authn.Intersect(audiences, identity.Audiences)) == 0 {
		return nil, kerrors.NewInternalError(errors.New("error validating audiences"))
	}
	review.Status.Authenticated = true
	review.Status.User = userInfo(identity.User)
	review.Status.Audiences = identity.Audiences
	return review, nil
}

// identify reads a token as it would be read from a request. kube-apiserver takes one
// that begins with a space for none, and its sender for authenticated as anonymous:
// that is not done here, since who asks about a token takes it for somebody's.
func (a *Reviews) identify(ctx context.Context, token string, audiences []string) (*authn.Identity, error) {
	text, ok := bearer.Parse(ctx, "Bearer "+token)
	if !ok {
		return nil, nil
	}
	return a.Tokens.AuthenticateToken(ctx, authn.NewBearerToken(text), audiences)
}

// self answers who the user is.
func (a *Reviews) self(ctx context.Context, _ registry.Access, r registry.CreateRequest) (registry.Object, error) {
	if err := r.Admitted(ctx); err != nil {
		return nil, err
	}
	user := request.UserFrom(ctx)
	if user == nil {
		return nil, kerrors.NewBadRequest("no user present on request")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(a.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(user)},
	}, nil
}

func userInfo(u *request.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = make(map[string]authenticationv1.ExtraValue, len(u.Extra))
		for key, values := range u.Extra {
			info.Extra[key] = values
		}
	}
	return info
}
