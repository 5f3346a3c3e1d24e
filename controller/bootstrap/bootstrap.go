// Package bootstrap makes the objects that every server starts with.
package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/registry"
)

// SystemNamespaces are the namespaces that always exist.
var SystemNamespaces = []string{
	corev1.NamespaceDefault, "kube-system", "kube-public", corev1.NamespaceNodeLease,
}

// manager is the field manager of what the server makes.
const manager = "kube-apiserver"

// Creator creates an object of a resource as a client named manager would.
type Creator interface {
	CreateAs(ctx context.Context, resource, version, group string, obj registry.Object, manager string) error
}

// Namespaces creates the system namespaces that are missing.
func Namespaces(ctx context.Context, reg *registry.Registry, c Creator) error {
	for _, name := range SystemNamespaces {
		state, err := reg.NamespaceState(ctx, name)
		if err != nil {
			return err
		}
		if state != registry.NamespaceMissing {
			continue
		}
		ns := &corev1.Namespace{}
		ns.Name = name
		if err := c.CreateAs(ctx, "namespaces", "v1", "", ns, manager); err != nil && !kerrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}
