package blockers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// maxChecks bounds how often one answer asks the authorizer, which may be a webhook.
const maxChecks = 100

// access decides what the user of a request may see of other objects.
type access struct {
	authorizer authz.Authorizer // nil allows everything
	info       *request.Info
	known      map[permission]bool
	// limited means that there were more than maxChecks questions. The answer to each further question was no,
	// without asking.
	limited bool
}

type permission struct {
	verb      string
	resource  schema.GroupResource
	namespace string
}

// mayList reports whether the user may list a resource in a namespace. The namespace "" means all namespaces.
func (a *access) mayList(ctx context.Context, gvr schema.GroupVersionResource, namespace string) bool {
	return a.may(ctx, "list", gvr, namespace, "")
}

// may reports whether the user has a permission. If the authorizer fails, the user does not have it.
func (a *access) may(ctx context.Context, verb string, gvr schema.GroupVersionResource, namespace, name string) bool {
	if a.authorizer == nil {
		return true
	}
	p := permission{verb, gvr.GroupResource(), namespace}
	allowed, known := a.known[p]
	switch {
	case known:
		return allowed
	case len(a.known) >= maxChecks:
		a.limited = true
		return false
	}
	asked := *a.info
	asked.Verb, asked.Group, asked.Version, asked.Resource = verb, gvr.Group, gvr.Version, gvr.Resource
	asked.Namespace, asked.Name, asked.Subresource, asked.Rest = namespace, name, "", ""
	err := authz.Check(ctx, a.authorizer, authz.Attributes{User: request.UserFrom(ctx), Info: &asked})
	a.known[p] = err == nil
	return err == nil
}
