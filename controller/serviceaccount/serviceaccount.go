// Package serviceaccount gives every namespace its service account "default",
// without which no pod can be created in it. kube-controller-manager does the same
// where it runs, and also makes an account anew that was deleted.
package serviceaccount

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/storage"
)

// name is the account that pods have when they name none.
const name = "default"

// manager is the field manager of what the controller makes.
const manager = "kube-controller-manager"

// retryAfter is how long the controller rests after a failure.
const retryAfter = time.Second

// Controller follows the namespaces.
type Controller struct {
	Registry *registry.Registry
	Client   *client.Client
	Log      *slog.Logger
}

// Run works until ctx ends or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.watchNamespaces(ctx)
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		c.Log.Warn("default service accounts: starting over", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// follow makes the missing accounts of all namespaces, and then those of each new
// one.
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

// ensure makes the account of a namespace. One that is there, or a namespace that
// takes nothing new, is no error.
func (c *Controller) ensure(ctx context.Context, namespace string) error {
	state, err := c.Registry.NamespaceState(ctx, namespace)
	if err != nil || state != registry.NamespaceActive {
		return err
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, name
	_, err = c.Client.As(manager).Create(ctx, client.CreateRequest{Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Object: account})
	if kerrors.IsAlreadyExists(err) || kerrors.IsNotFound(err) || kerrors.IsForbidden(err) {
		return nil
	}
	return err
}
