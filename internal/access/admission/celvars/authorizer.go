package celvars

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Authorizer implements the authorizer checks of expressions for one write. It calls the server's authorizer only once
// for equal checks. It must not be used concurrently.
type Authorizer struct {
	ctx      context.Context
	ask      authz.Authorizer
	user     *user.DefaultInfo
	decision map[string]decision
}

type decision struct {
	made   authorizer.Decision
	reason string
	err    error
}

// NewAuthorizer returns the Authorizer for a write.
func NewAuthorizer(ctx context.Context, ask authz.Authorizer, a *admission.Attributes) *Authorizer {
	u := a.Sender()
	return &Authorizer{
		ctx: ctx, ask: ask, decision: map[string]decision{},
		user: &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra},
	}
}

func (au *Authorizer) value() ref.Val {
	if au == nil {
		return nil
	}
	return library.NewAuthorizerVal(au.user, au)
}

func (au *Authorizer) requestResource(a *admission.Attributes) ref.Val {
	if au == nil {
		return nil
	}
	return library.NewResourceAuthorizerVal(au.user, au, requestedResource{a})
}

// requestedResource is the resource of a write.
type requestedResource struct{ a *admission.Attributes }

func (r requestedResource) GetName() string                          { return r.a.Name }
func (r requestedResource) GetNamespace() string                     { return r.a.NamespaceName() }
func (r requestedResource) GetResource() schema.GroupVersionResource { return r.a.Requested.Resource }
func (r requestedResource) GetSubresource() string                   { return r.a.Subresource }

// Authorize implements authorizer.Authorizer for the functions of expressions. These call it without a useful
// context, so it uses the context of NewAuthorizer.
func (au *Authorizer) Authorize(_ context.Context, at authorizer.Attributes) (authorizer.Decision, string, error) {
	key := keyOf(at)
	d, ok := au.decision[key]
	if !ok {
		d = au.authorize(at)
		au.decision[key] = d
	}
	return d.made, d.reason, d.err
}

// keyOf returns a key that is equal for equal checks.
func keyOf(at authorizer.Attributes) string {
	fields, fieldsErr := at.GetFieldSelector()
	labels, labelsErr := at.GetLabelSelector()
	u := at.GetUser()
	return fmt.Sprintf("%q %q %q %q %q %q %q %t %q %q %q %q %v %v %v %v", at.GetVerb(), at.GetNamespace(), at.GetAPIGroup(),
		at.GetAPIVersion(), at.GetResource(), at.GetSubresource(), at.GetName(), at.IsResourceRequest(), at.GetPath(),
		u.GetName(), u.GetUID(), u.GetGroups(), fields, fieldsErr, labels, labelsErr)
}

func (au *Authorizer) authorize(at authorizer.Attributes) decision {
	u := at.GetUser()
	question := authz.Attributes{
		User: &request.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()},
		Info: &request.Info{
			Path: at.GetPath(), Verb: at.GetVerb(), Group: at.GetAPIGroup(), Version: at.GetAPIVersion(),
			Resource: at.GetResource(), Subresource: at.GetSubresource(), Namespace: at.GetNamespace(), Name: at.GetName(),
			AsksResource: at.IsResourceRequest(),
		},
	}
	if at.IsResourceRequest() {
		question.Selectors = authz.ParsedSelectors(
			func() (fields.Requirements, error) { return at.GetFieldSelector() },
			func() (labels.Requirements, error) { return at.GetLabelSelector() })
	}
	made, reason, err := au.ask.Authorize(au.ctx, question)
	switch made {
	case authz.Allow:
		return decision{authorizer.DecisionAllow, reason, err}
	case authz.Deny:
		return decision{authorizer.DecisionDeny, reason, err}
	}
	return decision{authorizer.DecisionNoOpinion, reason, err}
}
