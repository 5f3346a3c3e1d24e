// Package always has authorizers that decide the same for everybody.
package always

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

// Allow allows everything.
type Allow struct{}

// Authorize implements authz.Authorizer.
func (Allow) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return authz.Allow, "", nil
}

// RulesFor implements authz.RuleResolver.
func (Allow) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	all := []string{"*"}
	return authz.Rules{
		Resource:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		NonResource: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
	}, nil
}

// Deny allows nothing, and leaves it to the authorizers behind it to decide
// otherwise.
type Deny struct{}

// Authorize implements authz.Authorizer.
func (Deny) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return authz.NoOpinion, "Everything is forbidden.", nil
}

// RulesFor implements authz.RuleResolver.
func (Deny) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	return authz.Rules{}, nil
}
