// Package tokenreview serves the resources of the API group authentication.k8s.io:
// TokenReview (which user does a token belong to?) and SelfSubjectReview (which user
// sent this request?).
package tokenreview

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/bearer"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Reviewer fills in the status of the reviews that clients post.
type Reviewer struct {
	Tokens authn.TokenAuthenticator
	// Audiences are the API server's own. They are used if a TokenReview names none.
	Audiences []string
	// Now returns the creation time of a SelfSubjectReview.
	Now func() time.Time
}

// CreateFuncs returns the function that handles a POST, for each resource.
func (re *Reviewer) CreateFuncs() map[schema.GroupResource]registry.CreateFunc {
	return map[schema.GroupResource]registry.CreateFunc{
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"}:       re.createTokenReview,
		{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"}: re.createSelfSubjectReview,
	}
}

// createTokenReview sets the status of a TokenReview. A token that is not valid gives
// status.authenticated=false and status.error, not an error of the request. Other
// fields of the status are returned as the client sent them.
func (re *Reviewer) createTokenReview(
	ctx context.Context, _ registry.Access, r registry.CreateRequest,
) (registry.Object, error) {
	review := r.Body.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, kerrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := r.Admitted(ctx); err != nil {
		return nil, err
	}
	audiences := review.Spec.Audiences
	if len(audiences) == 0 {
		audiences = re.Audiences
	}
	review.Status.Authenticated = false
	identity, err := re.authenticate(ctx, review.Spec.Token, audiences)
	if identity == nil {
		// The first error is there because kube-apiserver tries its loopback token before all
		// others, and that always fails with this error.
		review.Status.Error = utilerrors.NewAggregate([]error{authn.ErrInvalidToken, err}).Error()
		return review, nil
	}
	if len(authn.Intersect(audiences, identity.Audiences)) == 0 {
		return nil, kerrors.NewInternalError(errors.New("error validating audiences"))
	}
	review.Status.Authenticated = true
	review.Status.User = identity.User.UserInfo()
	review.Status.Audiences = identity.Audiences
	return review, nil
}

// authenticate returns the identity that a request with this bearer token would have,
// nil if no authenticator accepts it. One case differs from kube-apiserver on purpose:
// there, a token that begins with a space counts as no token, and the review says that
// system:anonymous is authenticated. Here it is not authenticated.
func (re *Reviewer) authenticate(ctx context.Context, token string, audiences []string) (*authn.Identity, error) {
	text, ok := bearer.Parse(ctx, "Bearer "+token)
	if !ok {
		return nil, nil
	}
	return re.Tokens.AuthenticateToken(ctx, authn.NewBearerToken(text), audiences)
}

// createSelfSubjectReview returns the user who sent the request.
func (re *Reviewer) createSelfSubjectReview(
	ctx context.Context, _ registry.Access, r registry.CreateRequest,
) (registry.Object, error) {
	if err := r.Admitted(ctx); err != nil {
		return nil, err
	}
	user := request.UserFrom(ctx)
	if user == nil {
		return nil, kerrors.NewBadRequest("no user present on request")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(re.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: user.UserInfo()},
	}, nil
}
