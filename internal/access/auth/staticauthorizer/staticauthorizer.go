// Package staticauthorizer has the authorizers that need neither objects nor a policy
// file: AlwaysAllow, AlwaysDeny, AlwaysAllowPaths and SystemMasters.
package staticauthorizer

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// AlwaysAllow allows every request. It is the authorization mode AlwaysAllow.
type AlwaysAllow struct{}

// Authorize implements authz.Authorizer.
func (AlwaysAllow) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return authz.Allow, "", nil
}

// RulesFor implements authz.RuleResolver.
func (AlwaysAllow) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	all := []string{"*"}
	return authz.Rules{
		Resource:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		NonResource: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
	}, nil
}

// AlwaysDeny is the authorization mode AlwaysDeny. Like kube-apiserver's, it returns
// NoOpinion, so that an authorizer after it in the list can still allow the request.
type AlwaysDeny struct{}

// Authorize implements authz.Authorizer.
func (AlwaysDeny) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return authz.NoOpinion, "Everything is forbidden.", nil
}

// RulesFor implements authz.RuleResolver.
func (AlwaysDeny) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	return authz.Rules{}, nil
}
