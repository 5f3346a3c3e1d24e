// Package rootca publishes the certificates with which pods verify the API server. They are in the ConfigMap
// kube-root-ca.crt of each namespace, which admission mounts into pods beside the service account token. In
// kube-controller-manager, the root-ca-certificate-publisher-controller does the same.
package rootca

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// Name is the name of the ConfigMaps, and key the key of the certificates in them.
	Name = "kube-root-ca.crt"
	key  = "ca.crt"

	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal " +
		"endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across " +
		"distributions of Kubernetes clusters."
)

// firstDelay is the time after which a namespace is handled again after an error. The delay doubles up to maxDelay.
const firstDelay, maxDelay = 100 * time.Millisecond, time.Minute

// changedDelay is the time after which a changed ConfigMap is corrected. If another program publishes other
// certificates, for instance a kube-controller-manager without a Lease, each of the two overwrites the ConfigMap
// of the other again and again. The delay limits how often.
const changedDelay = time.Second

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// Controller publishes the certificates.
type Controller struct {
	Registry *registry.Registry
	Client   *client.Client
	// Roots are the certificates in PEM format.
	Roots string
	Log   *slog.Logger
	// Metrics counts what happens in the queue.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// queue has the names of namespaces.
type queue = workers.Queue[string]

// Run works until ctx ends, or until following the namespaces or the ConfigMaps fails.
func (c *Controller) Run(ctx context.Context) error {
	published := c.Registry.Resource(configMaps.GroupResource())
	revision, err := published.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	// A ConfigMap that is changed or deleted later is published again.
	changed, err := published.Reader.Watch(ctx, revision, cache.Interest{Name: Name})
	if err != nil {
		return err
	}
	q := workers.New[string](workers.Options{
		Name: "root_ca_cert_publisher", FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: c.Metrics, Activity: c.Activity,
	})
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		q.Run(ctx, 1, c.handle)
		return nil
	})
	tasks.Go(func() error { return c.followNamespaces(ctx, q) })
	tasks.Go(func() error {
		return workers.Follow(ctx, changed, func(e *cache.Event) error {
			switch {
			case e.Prev == nil: // created
			case e.Object == nil:
				q.Add(e.Prev.Namespace)
			default:
				q.AddAfter(e.Prev.Namespace, changedDelay)
			}
			return nil
		})
	})
	if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// followNamespaces adds all namespaces to the queue, and later each new namespace.
func (c *Controller) followNamespaces(ctx context.Context, q *queue) error {
	cursor, err := workers.Begin(ctx, c.Registry.Resource(corev1.Resource("namespaces")), func(o *cache.Object) error {
		q.Add(o.Name)
		return nil
	})
	if err != nil {
		return err
	}
	c.Activity.Started()
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		if e.Prev == nil {
			q.Add(e.Object.Name)
		}
		return nil
	})
}

// handle publishes the certificates in a namespace. If it returns an error, the queue calls it again later.
func (c *Controller) handle(ctx context.Context, namespace string) error {
	err := workers.Protect(func() error { return c.ensure(ctx, namespace) })
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		c.Log.Warn("cannot publish the certificates of the server in a namespace; will try again",
			"namespace", namespace, "configmap", Name, "error", err)
	}
	return err
}

// ensure creates or corrects the ConfigMap of a namespace. It does nothing in a namespace that is being deleted.
func (c *Controller) ensure(ctx context.Context, namespace string) error {
	state, err := c.Registry.NamespaceState(ctx, namespace)
	if err != nil || state != registry.NamespaceActive {
		return err
	}
	ref := client.Ref{Resource: configMaps, Namespace: namespace, Name: Name}
	found, err := c.Client.Get(ctx, ref)
	switch {
	case kerrors.IsNotFound(err):
		published := &corev1.ConfigMap{}
		published.Namespace, published.Name = namespace, Name
		c.set(published)
		_, err = c.Client.Create(ctx, client.CreateRequest{Resource: configMaps, Object: published})
	case err == nil && !c.isPublished(found.(*corev1.ConfigMap)):
		_, err = c.Client.Update(ctx, client.UpdateRequest{Ref: ref, Change: func(latest registry.Object) error {
			c.set(latest.(*corev1.ConfigMap))
			return nil
		}})
	}
	return c.ignoreGone(ctx, namespace, err)
}

func (c *Controller) set(m *corev1.ConfigMap) {
	m.Data = map[string]string{key: c.Roots}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, descriptionAnnotation, description)
}

func (c *Controller) isPublished(m *corev1.ConfigMap) bool {
	return maps.Equal(m.Data, map[string]string{key: c.Roots}) && m.Annotations[descriptionAnnotation] != ""
}

// ignoreGone returns nil for errors that need no further attempt: another process has created or deleted the
// ConfigMap, or the namespace is being deleted.
func (c *Controller) ignoreGone(ctx context.Context, namespace string, err error) error {
	if kerrors.IsAlreadyExists(err) || kerrors.IsNotFound(err) {
		return nil
	}
	if kerrors.IsForbidden(err) {
		if state, failed := c.Registry.NamespaceState(ctx, namespace); failed == nil && state != registry.NamespaceActive {
			return nil
		}
	}
	return err
}
