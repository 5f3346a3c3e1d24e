// Package bootstrap creates and maintains the objects that every cluster has from its start.
package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// SystemNamespaces are the namespaces that always exist.
var SystemNamespaces = []string{
	corev1.NamespaceDefault, "kube-system", "kube-public", corev1.NamespaceNodeLease,
}

// manager is the field manager of the objects that the server creates.
const manager = "kube-apiserver"

// Namespaces creates the system namespaces that are missing.
func Namespaces(ctx context.Context, reg *registry.Registry, c *client.Client) error {
	return forEachConcurrently(SystemNamespaces, func(name string) error {
		state, err := reg.NamespaceState(ctx, name)
		if err != nil || state != registry.NamespaceMissing {
			return err
		}
		ns := &corev1.Namespace{}
		ns.Name = name
		_, err = c.Create(ctx,
			client.CreateRequest{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Object: ns})
		if err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		return nil
	})
}
