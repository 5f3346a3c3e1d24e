// Package authentication declares the kinds of the authentication.k8s.io API
// group. Their objects are reviews, which are not stored.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	const pkg = "authentication"
	return []*registry.Kind{
		declare.Review[authenticationv1.SelfSubjectReview](pkg, false),
		declare.Review[authenticationv1.TokenReview](pkg, false),
	}
}
