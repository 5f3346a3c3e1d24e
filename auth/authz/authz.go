// Package authz says what it is to authorize a request. Each authorizer has a
// folder of its own beside this one.
package authz

import (
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// Attributes are what a decision is about.
type Attributes struct {
	User *request.User
	// Info is the request; Verb may differ from the one that was sent
	// (impersonation asks with a verb of its own).
	Info *request.Info
}

// Authorizer decides whether a user may do something. The reason is for the
// message of a refusal; "" adds nothing. It is called concurrently.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (decision Decision, reason string, err error)
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
	return NoOpinion, reasons, errors.Join(failed...)
}

// Forbidden words a refusal as the reference does.
func Forbidden(a Attributes, reason string) error {
	message := forbiddenMessage(a)
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
	if !a.Info.IsResource() {
		return fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Info.Verb, a.Info.Path)
	}
	resource := a.Info.Resource
	if a.Info.Subresource != "" {
		resource += "/" + a.Info.Subresource
	}
	where := "at the cluster scope"
	if a.Info.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Info.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Name, a.Info.Verb, resource, a.Info.Group, where)
}
