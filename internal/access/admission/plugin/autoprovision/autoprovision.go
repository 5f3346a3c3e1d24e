// Package autoprovision creates the namespace of a new object if it does not exist (NamespaceAutoProvision). It is off
// by default.
package autoprovision

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// namespaces is the resource of the namespaces themselves.
var namespaces = corev1.Resource("namespaces")

// Create creates a namespace with a name and nothing else, in the name of the server.
type Create func(ctx context.Context, name string) error

// Plugin returns the plug-in. It creates no namespace for a dry run.
func Plugin(in admission.Namespaces, create Create) admission.Plugin {
	mutate := func(ctx context.Context, a *admission.Attributes) error {
		if a.Operation != admission.Create || a.Options.DryRun || a.Namespace == "" || a.Resource == namespaces {
			return nil
		}
		state, err := in.NamespaceState(ctx, a.Namespace)
		if err != nil {
			return a.Forbidden(err)
		}
		if state != registry.NamespaceMissing {
			return nil
		}
		if err := create(ctx, a.Namespace); err != nil && !kerrors.IsAlreadyExists(err) {
			return a.Forbidden(err)
		}
		return nil
	}
	return admission.Plugin{Name: "NamespaceAutoProvision", Mutate: mutate}
}
