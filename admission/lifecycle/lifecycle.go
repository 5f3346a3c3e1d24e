// Package lifecycle refuses new objects in namespaces that do not exist or are
// being deleted (the NamespaceLifecycle admission plug-in).
package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/registry"
)

// namespaces is the resource that decides.
var namespaces = corev1.Resource("namespaces")

// Check returns the check on reg's namespaces. Its error is the answer: 404 for a
// missing namespace, 403 with the cause NamespaceTerminating for one that is
// being deleted.
func Check(reg *registry.Registry) func(ctx context.Context, gr schema.GroupResource, namespace, name string) error {
	return func(ctx context.Context, gr schema.GroupResource, namespace, name string) error {
		state, err := reg.NamespaceState(ctx, namespace)
		switch {
		case err != nil:
			return err
		case state == registry.NamespaceMissing:
			return kerrors.NewNotFound(namespaces, namespace)
		case state == registry.NamespaceTerminating:
			return terminating(gr, namespace, name)
		}
		return nil
	}
}

func terminating(gr schema.GroupResource, namespace, name string) error {
	err := kerrors.NewForbidden(gr, name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field:   "metadata.namespace",
	})
	return err
}
