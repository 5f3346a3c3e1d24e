package webhookauthorizer

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// reviewSpec returns the spec of the SubjectAccessReview for a request.
func reviewSpec(at authz.Attributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: at.User.Name, UID: at.User.UID, Groups: at.User.Groups,
		Extra: request.ConvertExtra[authorizationv1.ExtraValue](at.User.Extra),
	}
	i := at.Info
	if !i.IsResource() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: i.Path, Verb: i.Verb}
		return spec
	}
	r := &authorizationv1.ResourceAttributes{
		Namespace: i.Namespace, Verb: i.Verb, Group: i.Group, Version: i.Version,
		Resource: i.Resource, Subresource: i.Subresource, Name: i.Name,
	}
	// Requirements that cannot be parsed are left out. The review then is about a broader request.
	ofFields, _ := at.Selectors.Fields()
	if list := fieldRequirements(ofFields); len(list) > 0 {
		r.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: list}
	}
	ofLabels, _ := at.Selectors.Labels()
	if list := labelRequirements(ofLabels); len(list) > 0 {
		r.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: list}
	}
	spec.ResourceAttributes = r
	return spec
}

// fieldRequirements converts requirements for a review. It omits requirements that a review cannot express, so the
// review is about a broader request.
func fieldRequirements(in fields.Requirements) []metav1.FieldSelectorRequirement {
	var out []metav1.FieldSelectorRequirement
	for _, r := range in {
		operator := metav1.FieldSelectorOpIn
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
		case selection.NotEquals, selection.NotIn:
			operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
	}
	return out
}

func labelRequirements(in labels.Requirements) []metav1.LabelSelectorRequirement {
	var out []metav1.LabelSelectorRequirement
	for i := range in {
		r := metav1.LabelSelectorRequirement{Key: in[i].Key(), Values: in[i].ValuesUnsorted()}
		switch in[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			r.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			r.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			r.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			r.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		out = append(out, r)
	}
	return out
}
