// Package storageversionmigrator carries out StorageVersionMigrations (KEP-4192): it writes every object of a
// resource again, unchanged, so that it is stored in the present storage version and with the present encryption
// key. In kube-controller-manager, the storage-version-migrator-controller does the same.
//
// A migration goes through these states. Each state is stored in its status, so that a controller that starts
// again can continue:
//
//	no condition      waits, while another migration of the resource is running
//	Running           the definition of a custom resource has the condition StorageMigrating
//	resourceVersion   objects that were last written up to it are written again; later ones need no migration
//	Succeeded/Failed  Running becomes False; status.storedVersions of a definition is pruned after success
//
// Files: objects.go writes objects again, status.go the status of migrations, and definitions.go the status of
// definitions.
package storageversionmigrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "storage-version-migrator-controller"

// Resource are the migrations. The controller can only run if they are served in this version.
var Resource = migrationv1.SchemeGroupVersion.WithResource("storageversionmigrations")

// firstDelay is the time after which a resource is handled again after an error. The delay doubles up to maxDelay.
const firstDelay, maxDelay = 100 * time.Millisecond, time.Minute

// concurrent is the number of resources that are migrated concurrently, as in kube-controller-manager.
const concurrent = 5

const (
	// patience is how long a migration waits for its resource, from its creation on.
	patience = time.Minute
	// lookAgain is the time after which a resource that was missing is looked for again.
	lookAgain = time.Second
)

// API reads and writes objects of one server: this one or extension API servers.
type API interface {
	ListMetadata(ctx context.Context, r client.ListRequest, yield func(client.Metadata) bool) (int64, error)
	Update(ctx context.Context, r client.UpdateRequest) (registry.Object, error)
}

// Resources are the resources in discovery.
type Resources interface {
	// Preferred is that of discovery.Handler.
	Preferred() (resources []discovery.Resource, stale []schema.GroupVersion)
}

// Controller migrates objects.
type Controller struct {
	Client *client.Client
	// Remote is for the resources of extension API servers.
	Remote    API
	Resources Resources
	// Ready waits until the definitions of custom resources are known.
	Ready func(context.Context) error
	Log   *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Metrics counts what happens in the queue.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// migration is a request to migrate, resource the name of the resource to migrate.
type (
	migration = migrationv1.StorageVersionMigration
	resource  = metav1.GroupResource
)

// Run works until ctx ends, or until following the migrations fails.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.Ready(ctx); err != nil {
		return nil // ctx has ended
	}
	q := workers.New[resource](workers.Options{
		Name: "storage_version_migrator", FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: c.Metrics, Activity: c.Activity,
	})
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		q.Run(ctx, concurrent, func(ctx context.Context, r resource) error { return c.handle(ctx, q, r) })
		return nil
	})
	tasks.Go(func() error { return c.follow(ctx, q) })
	if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// follow adds the resources of all migrations to the queue, and adds a resource again when one of its migrations
// changes. When a migration ends or is deleted, the next migration of the resource can begin.
func (c *Controller) follow(ctx context.Context, q *workers.Queue[resource]) error {
	revision, err := c.Client.List(ctx, client.ListRequest{Resource: Resource}, func(o registry.Object) bool {
		q.Add(o.(*migration).Spec.Resource)
		return true
	})
	if err != nil {
		return err
	}
	w, err := c.Client.Watch(ctx, client.WatchRequest{Resource: Resource, From: revision})
	if err != nil {
		return err
	}
	defer w.Close()
	c.Activity.Started()
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, change := range changes {
			q.Add(change.Object.(*migration).Spec.Resource)
		}
	}
}

// handle performs the next step for the migrations of a resource.
func (c *Controller) handle(ctx context.Context, q *workers.Queue[resource], r resource) error {
	err := c.sync(ctx, q, r)
	if err == nil || errors.Is(err, errChanged) || ctx.Err() != nil {
		return nil // a change of a migration has added its resource to the queue
	}
	c.Log.Warn("cannot migrate the objects of a resource; will try again", "resource", r.String(), "error", err)
	return err
}

// sync marks the migrations of a resource that have succeeded or failed as no longer running, and works on one of
// the others.
func (c *Controller) sync(ctx context.Context, q *workers.Queue[resource], r resource) error {
	all, err := c.migrations(ctx, r)
	if err != nil {
		return err
	}
	for _, m := range all {
		if isTrue(m, migrationv1.MigrationRunning) && ended(m) {
			if err := c.end(ctx, m); err != nil {
				return err
			}
		}
	}
	m := next(all)
	if m == nil {
		return nil
	}
	if !isTrue(m, migrationv1.MigrationRunning) {
		if m, err = c.begin(ctx, m); err != nil {
			return err
		}
	}
	return c.run(ctx, q, m)
}

func (c *Controller) migrations(ctx context.Context, r resource) (all []*migration, err error) {
	_, err = c.Client.List(ctx, client.ListRequest{Resource: Resource}, func(o registry.Object) bool {
		if m := o.(*migration); m.Spec.Resource == r {
			all = append(all, m)
		}
		return true
	})
	return all, err
}

// next returns the migration of a resource to work on: the running one, or else the oldest one that waits. It
// returns nil if all have ended.
func next(all []*migration) *migration {
	open := slices.DeleteFunc(slices.Clone(all), ended)
	if len(open) == 0 {
		return nil
	}
	return slices.MinFunc(open, func(a, b *migration) int {
		return cmp.Or(
			rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// rank returns 0 for a migration that is running, and 1 for one that waits.
func rank(m *migration) int {
	if isTrue(m, migrationv1.MigrationRunning) {
		return 0
	}
	return 1
}

// begin marks a migration as running.
func (c *Controller) begin(ctx context.Context, m *migration) (*migration, error) {
	if err := c.markDefinition(ctx, m); err != nil {
		return nil, err
	}
	return c.update(ctx, m, func(s *status) { c.set(s, running(runningText)) })
}

// end marks a migration that has succeeded or failed as one that is no longer running.
func (c *Controller) end(ctx context.Context, m *migration) error {
	if err := c.unmarkDefinition(ctx, m); err != nil {
		return err
	}
	_, err := c.update(ctx, m, func(s *status) {
		c.set(s, metav1.Condition{
			Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionFalse, Reason: "MigrationCompleted",
			Message: "Migration completed", ObservedGeneration: m.Generation,
		})
	})
	return err
}

// verbs are what a resource has to support.
var verbs = []string{"update", "patch", "list"}

// run migrates the objects of a running migration.
func (c *Controller) run(ctx context.Context, q *workers.Queue[resource], m *migration) error {
	r, err := c.find(m.Spec.Resource)
	switch {
	case err != nil:
		return err
	case r == nil && c.Now().Before(m.CreationTimestamp.Add(patience)):
		q.AddAfter(m.Spec.Resource, lookAgain)
		return nil
	case r == nil:
		return c.fail(ctx, m, "resource does not exist in discovery")
	case slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.Verbs, v) }):
		return c.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v", r.GroupVersionResource, verbs))
	}
	api := API(c.Client.As(Name))
	if r.Remote {
		api = c.Remote
	}
	if m.Status.ResourceVersion == "" {
		revision, err := api.ListMetadata(
			ctx, client.ListRequest{Resource: r.GroupVersionResource}, func(client.Metadata) bool { return false })
		switch {
		case err != nil:
			return fmt.Errorf("error getting latest resourceVersion for %s: %w", r.GroupVersionResource, err)
		case revision == 0: // an extension API server has resource versions that are not numbers
			return c.fail(ctx, m, fmt.Sprintf("latest resourceVersion for %s is not valid", r.GroupVersionResource))
		}
		if m, err = c.update(ctx, m, func(s *status) {
			s.ResourceVersion = cmp.Or(s.ResourceVersion, strconv.FormatInt(revision, 10))
		}); err != nil {
			return err
		}
	}
	checkpoint, err := strconv.ParseInt(m.Status.ResourceVersion, 10, 64)
	if err != nil {
		return c.fail(ctx, m, unhandled+err.Error())
	}
	return c.finish(ctx, m, rewriteAll(ctx, api, r.GroupVersionResource, checkpoint))
}

// find returns the resource, in the version that discovery prefers for its group, nil if there is none. It fails
// if an extension API server that may serve the resource does not answer.
func (c *Controller) find(name resource) (*discovery.Resource, error) {
	all, stale := c.Resources.Preferred()
	for i := range all {
		if all[i].Group == name.Group && all[i].Resource == name.Resource {
			return &all[i], nil
		}
	}
	for _, gv := range stale {
		if gv.Group == name.Group {
			return nil, fmt.Errorf("the extension API server of %s does not answer", gv)
		}
	}
	return nil, nil
}

// finish writes the result of a migration to its status. If the error may go away, finish returns it, and the
// migration is tried again.
func (c *Controller) finish(ctx context.Context, m *migration, r result) error {
	if ctx.Err() != nil {
		return nil // the migration goes on with the next start
	}
	switch {
	case r.err == nil:
		_, err := c.update(ctx, m, func(s *status) {
			c.set(s, running(r.text()))
			c.set(s, metav1.Condition{
				Type: string(migrationv1.MigrationSucceeded), Status: metav1.ConditionTrue,
				Reason: "StorageVersionMigrationSucceeded", Message: "Migration completed",
			})
		})
		return err
	case transient(r.err):
		if _, err := c.update(ctx, m, func(s *status) {
			c.set(s, running(r.text()+"; transient error: "+r.err.Error()))
		}); err != nil {
			return err
		}
		return r.err
	}
	_, err := c.update(ctx, m, func(s *status) {
		c.set(s, running(r.text()))
		c.set(s, failed(fmt.Sprintf("%d/%d not yet migrated. %s%s", r.left, r.total, unhandled, r.err)))
	})
	return err
}

// fail ends a migration whose objects cannot be migrated.
func (c *Controller) fail(ctx context.Context, m *migration, message string) error {
	_, err := c.update(ctx, m, func(s *status) { c.set(s, failed(message)) })
	return err
}
