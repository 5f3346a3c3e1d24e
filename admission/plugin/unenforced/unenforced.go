// Package unenforced adds a warning to writes of objects that the server stores but does not enforce yet, such as a
// kind of policy without an admission plug-in. An entry is removed from the list when the server enforces it.
package unenforced

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/request"
)

// unenforced is a resource whose objects are stored and not enforced.
type unenforced struct {
	resource schema.GroupResource
	// warning is one sentence. test/contract has a copy of each.
	warning string
}

// list returns everything that is not enforced yet.
func list() []unenforced {
	const (
		policies = "are stored, but they are not evaluated yet: they refuse and change nothing"
	)
	of := func(resource string) schema.GroupResource {
		return admissionregistrationv1.SchemeGroupVersion.WithResource(resource).GroupResource()
	}
	return []unenforced{
		{of("mutatingadmissionpolicies"), "MutatingAdmissionPolicies " + policies},
		{of("mutatingadmissionpolicybindings"), "MutatingAdmissionPolicyBindings " + policies},
	}
}

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	p := plugin{}
	for _, u := range list() {
		p[u.resource] = u
	}
	return admission.Plugin{Name: "KeelsonUnenforced", Validate: p.validate}
}

type plugin map[schema.GroupResource]unenforced

func (p plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if u, ok := p[a.Resource]; ok && a.Is(u.resource, admission.Create, admission.Update) {
		request.Warn(ctx, u.warning)
	}
	return nil
}
