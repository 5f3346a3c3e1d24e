// Package unenforced adds a warning to writes of objects that the server stores but does not enforce yet, such as a
// kind of policy without an admission plug-in. An entry is removed from the list when the server enforces it.
package unenforced

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// unenforced is a resource that is stored and not enforced.
type unenforced struct {
	resource schema.GroupResource
	// labels restrict the entry to objects with one of these labels; nil means all objects.
	labels []string
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
		{of("mutatingadmissionpolicies"), nil, "MutatingAdmissionPolicies " + policies},
		{of("mutatingadmissionpolicybindings"), nil, "MutatingAdmissionPolicyBindings " + policies},
		{corev1.Resource("namespaces"), []string{
			"pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn",
		}, "Pod Security labels of a namespace are stored, but they are not enforced yet: pods are not compared with them"},
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
	if u, ok := p[a.Resource]; ok && a.Is(u.resource, admission.Create, admission.Update) && u.concerns(a.Object) {
		request.Warn(ctx, u.warning)
	}
	return nil
}

func (u *unenforced) concerns(obj registry.Object) bool {
	if u.labels == nil {
		return true
	}
	has := obj.GetLabels()
	return slices.ContainsFunc(u.labels, func(label string) bool { _, ok := has[label]; return ok })
}
