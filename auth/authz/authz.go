// Package authz says what it is to authorize a request. Each authorizer has a
// folder of its own beside this one.
package authz

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/request"
)

// Decision is what an authorizer says.
type Decision int

// NoOpinion leaves the decision to the next authorizer; at the end of the list
// it is a refusal.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Attributes are what a decision is about. They are shared and not changed.
type Attributes struct {
	User *request.User
	// Info is the request; Verb may differ from the one that was sent
	// (impersonation asks with a verb of its own).
	Info *request.Info
	// Selectors narrow the objects that a list, watch or deletecollection
	// concerns; nil for none.
	Selectors *Selectors
}

// AttributesOf returns what a request is to be judged by. Only requests for many
// objects have selectors, and not those whose path says that they are a watch:
// they need not keep to them.
func AttributesOf(r *http.Request) Attributes {
	ctx := r.Context()
	a := Attributes{User: request.UserFrom(ctx), Info: request.Named(r, request.InfoFrom(ctx))}
	switch a.Info.Verb {
	case "list", "watch", "deletecollection":
		if !a.Info.VerbInPath {
			a.Selectors = ParseSelectors(r.URL.RawQuery)
		}
	}
	return a
}

// Authorizer decides whether a user may do something. The reason is for the
// message of a refusal and, of an Allow, for reviews and audit; "" adds nothing.
// An error comes with a decision: an authorizer that could not evaluate all it
// wanted to may still allow. It is called concurrently.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (decision Decision, reason string, err error)
}

// Rules are what a user may do in a namespace. Incomplete says that there may be
// more.
type Rules struct {
	Resource    []authorizationv1.ResourceRule
	NonResource []authorizationv1.NonResourceRule
	Incomplete  bool
}

// RuleResolver is an Authorizer that can enumerate. The rules are valid even
// with an error, which says why there may be more. It is called concurrently.
type RuleResolver interface {
	RulesFor(ctx context.Context, user *request.User, namespace string) (Rules, error)
}

// List asks each authorizer in turn until one decides.
type List []Authorizer

// Authorize implements Authorizer. Reasons and errors of those without an opinion
// are returned together if nobody decides.
func (l List) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	var reasons string
	var failed []error
	for _, z := range l {
		decision, reason, err := z.Authorize(ctx, a)
		if decision != NoOpinion {
			return decision, reason, err
		}
		if reason != "" {
			if reasons != "" {
				reasons += "\n"
			}
			reasons += reason
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return NoOpinion, reasons, aggregate(failed)
}

// RulesFor implements RuleResolver: the rules of all members that can enumerate.
func (l List) RulesFor(ctx context.Context, user *request.User, namespace string) (Rules, error) {
	var all Rules
	var failed []error
	for _, z := range l {
		resolver, ok := z.(RuleResolver)
		if !ok {
			continue
		}
		rules, err := resolver.RulesFor(ctx, user, namespace)
		all.Resource = append(all.Resource, rules.Resource...)
		all.NonResource = append(all.NonResource, rules.NonResource...)
		all.Incomplete = all.Incomplete || rules.Incomplete
		if err != nil {
			failed = append(failed, err)
		}
	}
	return all, aggregate(failed)
}

// aggregate joins errors in kube-apiserver's words: "a" of one, "[a, b]" of more.
func aggregate(failed []error) error {
	if len(failed) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(failed)
}

// sanitizer keeps answers from looking like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// Forbidden words a refusal as kube-apiserver does.
func Forbidden(a Attributes, reason string) error {
	message := sanitizer.Replace(forbiddenMessage(a))
	if reason != "" {
		message += ": " + reason
	}
	if !a.Info.IsResource() {
		return &kerrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: "forbidden: " + message, Details: &metav1.StatusDetails{},
		}}
	}
	return kerrors.NewForbidden(schema.GroupResource{Group: a.Info.Group, Resource: a.Info.Resource}, a.Info.Name, errors.New(message))
}

func forbiddenMessage(a Attributes) string {
	name := ""
	if a.User != nil {
		name = a.User.Name
	}
	if !a.Info.IsResource() {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.Info.Verb, a.Info.Path)
	}
	resource := a.Info.Resource
	if a.Info.Subresource != "" {
		resource += "/" + a.Info.Subresource
	}
	where := "at the cluster scope"
	if a.Info.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Info.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.Info.Verb, resource, a.Info.Group, where)
}

// Check asks an authorizer and returns the error to answer unless it allows.
func Check(ctx context.Context, z Authorizer, a Attributes) error {
	decision, reason, err := z.Authorize(ctx, a)
	switch {
	case decision == Allow:
		return nil
	case err != nil:
		return kerrors.NewInternalError(err)
	}
	return Forbidden(a, reason)
}
