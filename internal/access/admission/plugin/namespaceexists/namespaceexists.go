// Package namespaceexists refuses writes in namespaces that do not exist (NamespaceExists). It is off by default:
// NamespaceLifecycle refuses creates and updates there too, but not deletions.
package namespaceexists

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// namespaces is the resource of the namespaces themselves.
var namespaces = corev1.Resource("namespaces")

// Plugin returns the plug-in. Its error is 404 for a missing namespace.
func Plugin(in admission.Namespaces) admission.Plugin {
	validate := func(ctx context.Context, a *admission.Attributes) error {
		if a.Operation == admission.Connect || a.Namespace == "" || a.Resource == namespaces {
			return nil
		}
		state, err := in.NamespaceState(ctx, a.Namespace)
		switch {
		case err != nil:
			return kerrors.NewInternalError(err)
		case state == registry.NamespaceMissing:
			return kerrors.NewNotFound(namespaces, a.Namespace)
		}
		return nil
	}
	return admission.Plugin{Name: "NamespaceExists", Validate: validate}
}
