// Package accessreview serves the resources of the API group authorization.k8s.io:
// SubjectAccessReview and its variants (may a user do something?) and
// SelfSubjectRulesReview (what may the sender of this request do?).
package accessreview

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// CreateFuncs returns the function that handles a POST, for each of the four resources.
func CreateFuncs(z authz.Authorizer, rules authz.RuleResolver) map[schema.GroupResource]registry.CreateFunc {
	a := reviewer{z, rules}
	return map[schema.GroupResource]registry.CreateFunc{
		resource("subjectaccessreviews"):      a.createSubjectAccessReview,
		resource("localsubjectaccessreviews"): a.createLocalSubjectAccessReview,
		resource("selfsubjectaccessreviews"):  a.createSelfSubjectAccessReview,
		resource("selfsubjectrulesreviews"):   a.createSelfSubjectRulesReview,
	}
}

func resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: authorizationv1.GroupName, Resource: name}
}

type reviewer struct {
	authorizer authz.Authorizer
	rules      authz.RuleResolver
}

func (re reviewer) createSubjectAccessReview(
	ctx context.Context, _ registry.Access, req registry.CreateRequest,
) (registry.Object, error) {
	r := req.Body.(*authorizationv1.SubjectAccessReview)
	errs := append(validateSpec(&r.Spec), validateMeta(&r.ObjectMeta, false)...)
	return re.answer(ctx, req, r, errs, &r.Spec, &r.Status)
}

func (re reviewer) createLocalSubjectAccessReview(
	ctx context.Context, _ registry.Access, req registry.CreateRequest,
) (registry.Object, error) {
	r := req.Body.(*authorizationv1.LocalSubjectAccessReview)
	errs := append(validateSpec(&r.Spec), validateMeta(&r.ObjectMeta, true)...)
	errs = append(errs, validateLocal(r)...)
	return re.answer(ctx, req, r, errs, &r.Spec, &r.Status)
}

// answer sets the status of a review of any user. errs are the errors in the review.
func (re reviewer) answer(
	ctx context.Context, req registry.CreateRequest, review registry.Object, errs field.ErrorList,
	spec *authorizationv1.SubjectAccessReviewSpec, status *authorizationv1.SubjectAccessReviewStatus,
) (registry.Object, error) {
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	if err := req.Admitted(ctx); err != nil {
		return nil, err
	}
	*status = re.decide(ctx, attributesOf(spec))
	return review, nil
}

func (re reviewer) createSelfSubjectAccessReview(
	ctx context.Context, _ registry.Access, req registry.CreateRequest,
) (registry.Object, error) {
	r := req.Body.(*authorizationv1.SelfSubjectAccessReview)
	errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	errs = append(errs, validateMeta(&r.ObjectMeta, false)...)
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	u := request.UserFrom(ctx)
	if u == nil {
		return nil, kerrors.NewBadRequest("no user present on request")
	}
	if err := req.Admitted(ctx); err != nil {
		return nil, err
	}
	r.Status = re.decide(ctx, attributes(u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes))
	return r, nil
}

func (re reviewer) createSelfSubjectRulesReview(
	ctx context.Context, _ registry.Access, req registry.CreateRequest,
) (registry.Object, error) {
	r := req.Body.(*authorizationv1.SelfSubjectRulesReview)
	u := request.UserFrom(ctx)
	if u == nil {
		return nil, kerrors.NewBadRequest("no user present on request")
	}
	if r.Spec.Namespace == "" {
		return nil, kerrors.NewBadRequest("no namespace on request")
	}
	if err := req.Admitted(ctx); err != nil {
		return nil, err
	}
	rules, err := re.rules.RulesFor(ctx, u, r.Spec.Namespace)
	// Like kube-apiserver, this returns the status only, without the spec of the request.
	out := &authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    append([]authorizationv1.ResourceRule{}, rules.Resource...),
		NonResourceRules: append([]authorizationv1.NonResourceRule{}, rules.NonResource...),
		Incomplete:       rules.Incomplete,
	}}
	if err != nil {
		out.Status.EvaluationError = err.Error()
	}
	return out, nil
}

func (re reviewer) decide(ctx context.Context, at authz.Attributes) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := re.authorizer.Authorize(ctx, at)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason,
		EvaluationError: evaluationError(err, at.Selectors),
	}
}

// invalid returns the error for an invalid review. Like kube-apiserver's, it names
// neither the kind nor the object.
func invalid(errs field.ErrorList) error {
	return kerrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

// attributesOf returns the attributes to authorize for a SubjectAccessReview.
func attributesOf(spec *authorizationv1.SubjectAccessReviewSpec) authz.Attributes {
	u := &request.User{
		Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: request.ConvertExtra[[]string](spec.Extra),
	}
	return attributes(u, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// attributes returns the attributes to authorize for user u. Exactly one of r and n is not nil.
func attributes(
	u *request.User, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes,
) authz.Attributes {
	if r == nil {
		return authz.Attributes{User: u, Info: &request.Info{Verb: n.Verb, Path: n.Path}}
	}
	return authz.Attributes{
		User: u,
		Info: &request.Info{
			Verb: r.Verb, Group: r.Group, Version: cmp.Or(r.Version, "*"), Resource: r.Resource, Subresource: r.Subresource,
			Namespace: r.Namespace, Name: r.Name, AsksResource: true,
		},
		Selectors: selectors(r),
	}
}

// selectors returns the field and label selectors of a review, nil if it has neither. If a selector has
// requirements, its rawSelector is ignored.
func selectors(r *authorizationv1.ResourceAttributes) *authz.Selectors {
	if r.FieldSelector == nil && r.LabelSelector == nil {
		return nil
	}
	var field, label string
	if r.FieldSelector != nil {
		field = r.FieldSelector.RawSelector
	}
	if r.LabelSelector != nil {
		label = r.LabelSelector.RawSelector
	}
	s := cmp.Or(authz.NewSelectors(field, label), &authz.Selectors{})
	if r.FieldSelector != nil && len(r.FieldSelector.Requirements) > 0 {
		s.RequireFields(r.FieldSelector.Requirements)
	}
	if r.LabelSelector != nil && len(r.LabelSelector.Requirements) > 0 {
		s.RequireLabels(r.LabelSelector.Requirements)
	}
	return s
}

// evaluationError returns the text of status.evaluationError: the error of the
// authorizer, if any, and which selectors could not be parsed.
func evaluationError(err error, s *authz.Selectors) string {
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	ignored := func(name string, parsed int, err error) {
		switch {
		case err == nil:
		case parsed > 0:
			texts = append(texts, fmt.Sprintf("spec.resourceAttributes.%s partially ignored due to parse error", name))
		default:
			texts = append(texts, fmt.Sprintf("spec.resourceAttributes.%s ignored due to parse error", name))
		}
	}
	fields, err := s.Fields()
	ignored("fieldSelector", len(fields), err)
	labels, err := s.Labels()
	ignored("labelSelector", len(labels), err)
	return strings.Join(texts, "; ")
}
