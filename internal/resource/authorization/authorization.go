// Package authorization declares the kinds of the authorization.k8s.io API
// group. Their objects are reviews, which are not stored.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	const pkg = "authorization"
	return []*registry.Kind{
		declare.Review[authorizationv1.LocalSubjectAccessReview](pkg, true),
		declare.Review[authorizationv1.SelfSubjectAccessReview](pkg, false),
		declare.Review[authorizationv1.SelfSubjectRulesReview](pkg, false),
		declare.Review[authorizationv1.SubjectAccessReview](pkg, false),
	}
}
