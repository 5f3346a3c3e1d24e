// Package apiservice maintains an APIService for each version of each group that this server
// serves itself: for the built-in groups, which are created at the start, and for custom
// resources, which follow their definitions.
package apiservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Label is the label of the APIServices that this server maintains. With the value OnStart, an
// APIService is created at the start and clients may change it. With the value Always, it is
// reset after changes, and deleted when its group version is no longer served.
const (
	Label   = "kube-aggregator.kubernetes.io/automanaged"
	OnStart = "onstart"
	Always  = "true"
)

// These are the priorities of groups of custom resources. They are lower than those of all built-in groups. Custom
// groups are ordered by name.
const (
	customGroup   = 1000
	customVersion = 100
)

var apiServices = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

var resource = schema.GroupResource{Group: apiregistrationv1.GroupName, Resource: "apiservices"}

// Controller maintains the APIServices.
type Controller struct {
	Registry  *registry.Registry
	Client    *client.Client
	Resources *directory.Directory
	// Ready waits until Resources contains the custom resources that were defined before the start.
	Ready func(context.Context) error
	// Priority returns the groupPriorityMinimum of a built-in group.
	Priority func(group string) int
	Log      *slog.Logger
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// Start creates the missing APIServices of built-in groups, and resets those that were
// changed.
func (c *Controller) Start(ctx context.Context) error {
	// All are created concurrently, so that the store can sync them together.
	versions := c.Resources.GroupVersions()
	errs := make([]error, len(versions))
	var creates sync.WaitGroup
	for i, gv := range versions {
		if gv.Group == apiregistrationv1.GroupName || c.source(gv) != builtIn {
			continue // the aggregator's own group has no APIService
		}
		creates.Go(func() {
			errs[i] = c.create(ctx, gv, OnStart, c.Priority(gv.Group), versionPriority(gv))
		})
	}
	creates.Wait()
	return errors.Join(errs...)
}

type resourceSource int

const (
	nobody resourceSource = iota
	builtIn
	custom
)

// source reports whether a version of a group is built in, consists of custom resources, or is
// not served.
func (c *Controller) source(gv schema.GroupVersion) resourceSource {
	found := nobody
	for _, r := range c.Resources.Resources(gv) {
		if r.Source == directory.BuiltIn {
			return builtIn
		}
		found = custom
	}
	return found
}

// versionPriority returns the versionPriority of a version of a built-in group.
func versionPriority(gv schema.GroupVersion) int {
	const ga, other = 15, 9
	if p, ok := versionPriorities[gv.String()]; ok {
		return p
	}
	if gv.Version == "v1" {
		return ga
	}
	return other
}

// versionPriorities are the priorities that cannot be computed from the maturity of the version.
var versionPriorities = map[string]int{
	"v1":                                   1,
	"autoscaling/v2":                       30,
	"flowcontrol.apiserver.k8s.io/v1":      21,
	"resource.k8s.io/v1":                   21,
	"resource.k8s.io/v1beta2":              15,
	"resource.k8s.io/v1alpha3":             1,
	"admissionregistration.k8s.io/v1beta1": 12,
	"certificates.k8s.io/v1alpha1":         1,
	"coordination.k8s.io/v1beta1":          13,
	"coordination.k8s.io/v1alpha2":         12,
	"scheduling.k8s.io/v1alpha2":           2,
}

// firstDelay is the time after which a version whose APIService could not be written is tried again. It doubles up to maxDelay.
const firstDelay, maxDelay = 100 * time.Millisecond, 10 * time.Second

// Run maintains the APIServices of custom resources until ctx is done. It checks a version when its resources are
// added or removed, and when its APIService has changed.
func (c *Controller) Run(ctx context.Context) {
	if c.Ready(ctx) != nil {
		return // ctx is done
	}
	queue := workers.New[schema.GroupVersion](workers.Options{
		Name: "autoregister", FirstDelay: firstDelay, MaxDelay: maxDelay, Activity: c.Activity,
	})
	changes := c.Resources.Watch()
	c.Activity.Pending(changes.Pending)
	defer c.Activity.Stopped()
	var sources sync.WaitGroup
	defer sources.Wait()
	sources.Go(func() {
		defer changes.Close()
		for {
			changed, err := changes.Next(ctx)
			if err != nil {
				return // ctx is done
			}
			for _, gv := range changed {
				queue.Add(gv)
			}
		}
	})
	sources.Go(func() {
		workers.Restart(ctx, c.Log, "cannot watch APIServices; will start again", c.Activity, func(ctx context.Context) error {
			return c.follow(ctx, queue.Add)
		})
	})
	queue.Run(ctx, 1, func(ctx context.Context, gv schema.GroupVersion) error {
		err := c.apply(ctx, gv)
		if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrClosed) {
			c.Log.Warn("cannot update an APIService; will try again", "version", gv, "error", err)
		}
		return err
	})
}

// follow calls changed with the version of each existing APIService, and later with the version of each APIService
// that changes.
func (c *Controller) follow(ctx context.Context, changed func(schema.GroupVersion)) error {
	add := func(o *cache.Object) {
		version, group, _ := strings.Cut(o.Name, ".") // as validation requires
		changed(schema.GroupVersion{Group: group, Version: version})
	}
	cursor, err := workers.Begin(ctx, c.Registry.Resource(resource), func(o *cache.Object) error {
		add(o)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	c.Activity.Started()
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		add(cmp.Or(e.Object, e.Prev))
		return nil
	})
}

// apply creates or deletes the APIService of a version, depending on whether the version has
// resources.
func (c *Controller) apply(ctx context.Context, gv schema.GroupVersion) error {
	switch c.source(gv) {
	case custom:
		return c.create(ctx, gv, Always, customGroup, customVersion)
	case nobody:
		return c.remove(ctx, gv)
	}
	return nil
}

func name(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// create creates an APIService. If it exists and belongs to the controller, its spec is
// restored. Otherwise it is left alone, because a user may have registered another server for
// the group.
func (c *Controller) create(ctx context.Context, gv schema.GroupVersion, kept string, group, version int) error {
	spec := apiregistrationv1.APIServiceSpec{
		Group: gv.Group, Version: gv.Version,
		GroupPriorityMinimum: int32(group), VersionPriority: int32(version),
	}
	found, err := c.Registry.Lookup(ctx, resource, "", name(gv))
	if err != nil {
		return err
	}
	if found != nil {
		return c.restore(ctx, found.(*apiregistrationv1.APIService), spec)
	}
	s := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name(gv), Labels: map[string]string{Label: kept}}, Spec: spec}
	_, err = c.Client.Create(ctx, client.CreateRequest{Resource: apiServices, Object: s})
	if err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("APIService %s: %w", s.Name, err)
	}
	return nil
}

// restore sets the spec of an APIService that belongs to the controller.
func (c *Controller) restore(
	ctx context.Context, s *apiregistrationv1.APIService, spec apiregistrationv1.APIServiceSpec,
) error {
	if l := s.Labels[Label]; l != OnStart && l != Always || equality.Semantic.DeepEqual(s.Spec, spec) {
		return nil
	}
	_, err := c.Client.Update(ctx,
		client.UpdateRequest{Ref: client.Ref{Resource: apiServices, Name: s.Name}, Change: func(obj registry.Object) error {
			obj.(*apiregistrationv1.APIService).Spec = spec
			return nil
		}})
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("APIService %s: %w", s.Name, err)
	}
	return nil
}

// remove deletes an APIService that belongs to the controller.
func (c *Controller) remove(ctx context.Context, gv schema.GroupVersion) error {
	found, err := c.Registry.Lookup(ctx, resource, "", name(gv))
	if err != nil || found == nil || found.GetLabels()[Label] != Always {
		return err
	}
	_, err = c.Client.Delete(ctx, client.DeleteRequest{Ref: client.Ref{Resource: apiServices, Name: name(gv)}})
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("APIService %s: %w", name(gv), err)
	}
	return nil
}
