// Package lifecycle refuses new objects in namespaces that do not exist or are being deleted (NamespaceLifecycle). Objects
// that have outlived their namespace may be updated and deleted.
package lifecycle

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	// namespaces is the resource of the namespaces themselves.
	namespaces = corev1.Resource("namespaces")
	// reviews can be made in any namespace, because they only ask whether something is allowed there.
	reviews = schema.GroupResource{Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews"}
)

// Plugin returns the plug-in. Its errors are 404 for a missing namespace, and 403 with the cause NamespaceTerminating
// for one that is being deleted.
func Plugin(in admission.Namespaces) admission.Plugin {
	check := func(ctx context.Context, a *admission.Attributes) error {
		if a.Operation != admission.Create || a.Namespace == "" || a.Resource == namespaces || a.Resource == reviews {
			return nil
		}
		state, err := in.NamespaceState(ctx, a.Namespace)
		switch {
		case err != nil:
			return err
		case state == registry.NamespaceMissing:
			return kerrors.NewNotFound(namespaces, a.Namespace)
		case state == registry.NamespaceTerminating:
			return terminating(a)
		}
		return nil
	}
	return admission.Plugin{Name: "NamespaceLifecycle", Mutate: check}
}

func terminating(a *admission.Attributes) error {
	err := a.Forbiddenf("unable to create new content in namespace %s because it is being terminated", a.Namespace)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
