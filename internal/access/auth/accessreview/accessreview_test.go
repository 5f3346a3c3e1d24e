package accessreview

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// fakeAuthorizer gives the same answer to every call and records the attributes of the last one.
type fakeAuthorizer struct {
	decision authz.Decision
	reason   string
	err      error
	rules    authz.Rules
	got      authz.Attributes
}

func (f *fakeAuthorizer) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	f.got = a
	return f.decision, f.reason, f.err
}

func (f *fakeAuthorizer) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	return f.rules, f.err
}

func post(t *testing.T, z *fakeAuthorizer, name string, body registry.Object) (registry.Object, error) {
	t.Helper()
	ctx := request.WithUser(t.Context(), &request.User{Name: "dave", Groups: []string{"system:authenticated"}})
	create := CreateFuncs(z, z)[resource(name)]
	return create(ctx, nil, registry.CreateRequest{Namespace: body.GetNamespace(), Name: body.GetName(), Body: body})
}

func TestAttributesOfSubjectAccessReview(t *testing.T) {
	z := &fakeAuthorizer{decision: authz.Allow, reason: "because"}
	out, err := post(t, z, "subjectaccessreviews",
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "jane", UID: "u", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "ns", Verb: "list", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "d",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
					{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"n"}}, {Key: "x", Operator: "Exists"},
				}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a==="},
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	status := out.(*authorizationv1.SubjectAccessReview).Status
	want := "spec.resourceAttributes.fieldSelector partially ignored due to parse error; " +
		"spec.resourceAttributes.labelSelector ignored due to parse error"
	if !status.Allowed || status.Denied || status.Reason != "because" || status.EvaluationError != want {
		t.Errorf("status %+v", status)
	}
	i, u := z.got.Info, z.got.User
	if i.Verb != "list" || i.Group != "apps" || i.Version != "*" || i.Resource != "deployments" ||
		i.Subresource != "scale" || i.Name != "d" || i.Namespace != "ns" {
		t.Errorf("authorized %+v", i)
	}
	if u.Name != "jane" || u.UID != "u" || u.Groups[0] != "g" || u.Extra["k"][0] != "v" ||
		!z.got.Selectors.FieldEquals("spec.nodeName", "n") {
		t.Errorf("authorized for %+v, %+v", u, z.got.Selectors)
	}
}

func TestStatusOfEachDecision(t *testing.T) {
	spec := authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}}
	for decision, want := range map[authz.Decision][2]bool{authz.Allow: {true, false}, authz.Deny: {false, true},
		authz.NoOpinion: {false, false}} {
		z := &fakeAuthorizer{decision: decision, err: errors.New("broken")}
		out, err := post(t, z, "selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{
			Spec: spec, Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "forged"},
		})
		if err != nil {
			t.Fatal(err)
		}
		status := out.(*authorizationv1.SelfSubjectAccessReview).Status
		if status.Allowed != want[0] || status.Denied != want[1] || status.Reason != "" ||
			status.EvaluationError != "broken" {
			t.Errorf("%v: %+v", decision, status)
		}
		if z.got.User.Name != "dave" || z.got.Info.IsResource() || z.got.Info.Path != "/x" {
			t.Errorf("authorized %+v for %+v", z.got.Info, z.got.User)
		}
	}
}

func TestEmptyResourceAttributesAreAResourceRequest(t *testing.T) {
	z := &fakeAuthorizer{}
	if _, err := post(t, z, "subjectaccessreviews",
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "a", ResourceAttributes: &authorizationv1.ResourceAttributes{},
		}}); err != nil {
		t.Fatal(err)
	}
	if !z.got.Info.IsResource() {
		t.Error("empty resourceAttributes are authorized as a non-resource path")
	}
}

func TestInvalidReviews(t *testing.T) {
	resources, paths := &authorizationv1.ResourceAttributes{Namespace: "ns"},
		&authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}
	spec := func(r *authorizationv1.ResourceAttributes,
		n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: "a", ResourceAttributes: r, NonResourceAttributes: n}
	}
	selecting := func(f *authorizationv1.FieldSelectorAttributes,
		l *authorizationv1.LabelSelectorAttributes) authorizationv1.SubjectAccessReviewSpec {
		return spec(&authorizationv1.ResourceAttributes{FieldSelector: f, LabelSelector: l}, nil)
	}
	in := metav1.ObjectMeta{Namespace: "ns"}
	for name, c := range map[string]struct {
		kind string
		body registry.Object
		want string
	}{
		"nothing": {"subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec(nil, nil)},
			"spec: Invalid value: null: exactly one of nonResourceAttributes or " +
				"resourceAttributes must be specified"},
		"both": {"subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec(resources, paths)},
			`spec: Invalid value: {"Path":"/x","Verb":"get"}: exactly one of nonResourceAttributes or ` +
				`resourceAttributes must be specified`},
		"nobody": {"subjectaccessreviews",
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: resources}},
			`spec.user: Invalid value: "": at least one of user or group must be specified`},
		"a name": {"subjectaccessreviews",
			&authorizationv1.SubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: spec(resources, nil)},
			"must be empty"},
		"two forms of a selector": {"subjectaccessreviews",
			&authorizationv1.SubjectAccessReview{Spec: selecting(&authorizationv1.FieldSelectorAttributes{
				RawSelector:  "x=y",
				Requirements: []metav1.FieldSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}}},
			}, nil)}, `spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "x=y": may not specified at ` +
				`the same time as requirements`},
		"an empty selector": {"subjectaccessreviews",
			&authorizationv1.SubjectAccessReview{Spec: selecting(nil, &authorizationv1.LabelSelectorAttributes{})},
			"spec.resourceAttributes.labelSelector.requirements: Required value: when " +
				"spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"},
		"another namespace": {"localsubjectaccessreviews",
			&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "other"},
				Spec: spec(resources, nil)},
			`spec.resourceAttributes.namespace: Invalid value: "ns": must match metadata.namespace`},
		"a path in a namespace": {"localsubjectaccessreviews",
			&authorizationv1.LocalSubjectAccessReview{ObjectMeta: in, Spec: spec(nil, paths)},
			"disallowed on this kind of request"},
		"nothing of oneself": {"selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{}, "exactly one of"},
	} {
		z := &fakeAuthorizer{decision: authz.Allow}
		_, err := post(t, z, c.kind, c.body)
		if !kerrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if z.got.Info != nil {
			t.Errorf("%s: the authorizer was called for an invalid review", name)
		}
	}
}

func TestSelfSubjectRulesReview(t *testing.T) {
	z := &fakeAuthorizer{err: errors.New("cannot tell"),
		rules: authz.Rules{Incomplete: true, Resource: []authorizationv1.ResourceRule{{Verbs: []string{"get"}}}}}
	if _, err := post(t, z, "selfsubjectrulesreviews",
		&authorizationv1.SelfSubjectRulesReview{}); !kerrors.IsBadRequest(err) {
		t.Errorf("without a namespace: %v", err)
	}
	out, err := post(t, z, "selfsubjectrulesreviews",
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "ns"}})
	if err != nil {
		t.Fatal(err)
	}
	r := out.(*authorizationv1.SelfSubjectRulesReview)
	if !r.Status.Incomplete || r.Status.EvaluationError != "cannot tell" || len(r.Status.ResourceRules) != 1 ||
		r.Status.NonResourceRules == nil || r.Spec.Namespace != "" {
		t.Errorf("%+v", r)
	}
}
