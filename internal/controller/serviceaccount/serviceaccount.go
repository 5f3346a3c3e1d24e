// Package serviceaccount creates the service account "default" in each namespace, without which no pod can be
// created there. kube-controller-manager does the same, and also creates a deleted account again.
package serviceaccount

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// name is the service account of pods that specify none.
const name = "default"

// manager is the field manager of the objects that the controller creates.
const manager = "kube-controller-manager"

// Controller watches the namespaces.
type Controller struct {
	Registry *registry.Registry
	Client   *client.Client
	Log      *slog.Logger
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// Run works until ctx is done or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	workers.Restart(ctx, c.Log, "cannot watch namespaces for default service accounts; will start again", c.Activity,
		c.watchNamespaces)
}

// watchNamespaces creates the missing default accounts of all namespaces, and then of each new namespace.
func (c *Controller) watchNamespaces(ctx context.Context) error {
	cursor, err := workers.Begin(ctx, c.Registry.Resource(corev1.Resource("namespaces")), func(o *cache.Object) error {
		return c.ensure(ctx, o.Name)
	})
	if err != nil {
		return err
	}
	c.Activity.Started()
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		if e.Prev != nil {
			return nil
		}
		return c.ensure(ctx, e.Object.Name)
	})
}

// ensure creates the account of a namespace. It returns no error if the account exists, or if
// the namespace is being deleted.
func (c *Controller) ensure(ctx context.Context, namespace string) error {
	state, err := c.Registry.NamespaceState(ctx, namespace)
	if err != nil || state != registry.NamespaceActive {
		return err
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, name
	_, err = c.Client.As(manager).Create(ctx,
		client.CreateRequest{Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Object: account})
	if kerrors.IsAlreadyExists(err) || kerrors.IsNotFound(err) || kerrors.IsForbidden(err) {
		return nil
	}
	return err
}
