// Package authz has the interfaces of authorization. Each authorizer is a package in a
// folder beside this one.
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

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Decision is the result of an authorizer.
type Decision int

// NoOpinion leaves the decision to the next authorizer. If no authorizer has another decision,
// the request is refused.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Attributes describe the request to authorize. They are shared and must not be changed.
type Attributes struct {
	User *request.User
	// Info describes the request. Its verb is not always the verb of the HTTP request:
	// impersonation, for example, is authorized with the verb impersonate.
	Info *request.Info
	// Selectors are the field and label selectors of a list, watch or deletecollection; nil
	// if there are none.
	Selectors *Selectors
}

// AttributesOf returns the attributes of an HTTP request. Only list, watch and
// deletecollection have selectors. A watch by the deprecated path prefix /watch/ has none.
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

// Authorizer decides whether a user may make a request. The reason is part of the message of a
// refusal; the reason of an Allow appears in reviews and audit events. It may be "". An error
// can come with any decision, Allow included: the authorizer then could not evaluate
// everything. Authorize is called concurrently.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (decision Decision, reason string, err error)
}

// Rules are the permissions of a user in a namespace. If Incomplete is true, the user may have more.
type Rules struct {
	Resource    []authorizationv1.ResourceRule
	NonResource []authorizationv1.NonResourceRule
	Incomplete  bool
}

// RuleResolver is an Authorizer that can list a user's permissions. If it returns an error,
// the rules are valid but incomplete. RulesFor is called concurrently.
type RuleResolver interface {
	RulesFor(ctx context.Context, user *request.User, namespace string) (Rules, error)
}

// List calls the authorizers in order until one of them allows or denies.
type List []Authorizer

// Authorize implements Authorizer. If no authorizer decides, it returns the reasons and errors
// of all of them.
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
	return NoOpinion, reasons, utilerrors.NewAggregate(failed)
}

// RulesFor implements RuleResolver. It returns the rules of all members that are
// RuleResolvers.
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
	return all, utilerrors.NewAggregate(failed)
}

// sanitizer escapes text so that a response does not look like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// Forbidden returns the error 403 with kube-apiserver's message.
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
	return kerrors.NewForbidden(schema.GroupResource{Group: a.Info.Group, Resource: a.Info.Resource}, a.Info.Name,
		errors.New(message))
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
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.Info.Verb, resource, a.Info.Group,
		where)
}

// Check returns nil if the authorizer allows a permission that a request needs in addition to its verb (see
// Further), and otherwise the error for the response.
func Check(ctx context.Context, z Authorizer, a Attributes) error {
	decision, reason, err := Further(ctx, z, a)
	switch {
	case decision == Allow:
		return nil
	case err != nil:
		return kerrors.NewInternalError(err)
	}
	return Forbidden(a, reason)
}

// CheckPermission is like Check, but returns the error 403 also if the authorizer has failed, with that failure in
// the message. It is for permissions that a part of a request needs.
func CheckPermission(ctx context.Context, z Authorizer, a Attributes) error {
	decision, reason, err := Further(ctx, z, a)
	switch {
	case decision == Allow:
		return nil
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return Forbidden(a, reason)
}
