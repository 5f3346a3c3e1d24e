// Package authentication declares the kinds of the authentication.k8s.io API
// group. Their objects are reviews, which are not stored.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const group = "authentication.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{selfSubjectReview(), tokenReview()} }

func selfSubjectReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authentication", Resource: "selfsubjectreviews",
			Singular: "selfsubjectreview", Name: "SelfSubjectReview",
		},
		Versions: []registry.Version{declare.Version[authenticationv1.SelfSubjectReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}

func tokenReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authentication", Resource: "tokenreviews", Singular: "tokenreview",
			Name: "TokenReview",
		},
		Versions: []registry.Version{declare.Version[authenticationv1.TokenReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}
