// Package serviceaccount creates the service account "default" in each namespace, without which
// no pod can be created there. kube-controller-manager does the same and, in addition, creates
// an account again that was deleted.
package serviceaccount

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// name is the service account of pods that specify none.
const name = "default"

// manager is the field manager of the objects that the controller creates.
const manager = "kube-controller-manager"

// retryAfter is the time until the next attempt after an error.
const retryAfter = time.Second

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
	for ctx.Err() == nil {
		err := c.watchNamespaces(ctx)
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		c.Activity.Starting()
		c.Log.Warn("cannot watch namespaces for default service accounts; will start again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// watchNamespaces creates the missing default accounts of all namespaces, and then of each new namespace.
func (c *Controller) watchNamespaces(ctx context.Context) error {
	namespaces := c.Registry.Resource(corev1.Resource("namespaces"))
	view, err := namespaces.Current(ctx)
	if err != nil {
		return err
	}
	var failed error
	err = view.Ascend(ctx, "", "", 0, func(o *cache.Object) bool {
		failed = c.ensure(ctx, o.Name)
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	cursor, err := namespaces.Watch(ctx, view.Revision(), cache.Interest{})
	if err != nil {
		return err
	}
	defer cursor.Close()
	c.Activity.Started()
	for {
		events, _, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Prev == nil {
				if err := c.ensure(ctx, e.Object.Name); err != nil {
					return err
				}
			}
		}
	}
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
