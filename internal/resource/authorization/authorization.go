// Package authorization declares the kinds of the authorization.k8s.io API
// group. Their objects are reviews, which are not stored.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const group = "authorization.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		localSubjectAccessReview(), selfSubjectAccessReview(), selfSubjectRulesReview(), subjectAccessReview(),
	}
}

func localSubjectAccessReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authorization", Resource: "localsubjectaccessreviews",
			Singular: "localsubjectaccessreview", Name: "LocalSubjectAccessReview", Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[authorizationv1.LocalSubjectAccessReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}

func selfSubjectAccessReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authorization", Resource: "selfsubjectaccessreviews",
			Singular: "selfsubjectaccessreview", Name: "SelfSubjectAccessReview",
		},
		Versions: []registry.Version{declare.Version[authorizationv1.SelfSubjectAccessReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}

func selfSubjectRulesReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authorization", Resource: "selfsubjectrulesreviews",
			Singular: "selfsubjectrulesreview", Name: "SelfSubjectRulesReview",
		},
		Versions: []registry.Version{declare.Version[authorizationv1.SelfSubjectRulesReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}

func subjectAccessReview() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "authorization", Resource: "subjectaccessreviews",
			Singular: "subjectaccessreview", Name: "SubjectAccessReview",
		},
		Versions: []registry.Version{declare.Version[authorizationv1.SubjectAccessReview]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}
