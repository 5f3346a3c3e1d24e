// Package ttlafterfinished deletes Jobs that have finished, after the time in spec.ttlSecondsAfterFinished.
// kube-controller-manager does the same as the ttl-after-finished-controller.
package ttlafterfinished

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// firstDelay is the time after which a Job is handled again after an error. The delay doubles up to maxDelay.
const firstDelay, maxDelay = 100 * time.Millisecond, time.Minute

// concurrent is the number of Jobs that are deleted concurrently, as by default in kube-controller-manager.
const concurrent = 5

var jobs = batchv1.SchemeGroupVersion.WithResource("jobs")

// Controller deletes finished Jobs.
type Controller struct {
	Client *client.Client
	Log    *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Metrics counts what happens in the queue.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// Run works until ctx ends, or until following the Jobs fails.
func (c *Controller) Run(ctx context.Context) error {
	q := workers.New[types.NamespacedName](workers.Options{
		Name: "ttl_jobs_to_delete", FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: c.Metrics, Activity: c.Activity,
	})
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		q.Run(ctx, concurrent, func(ctx context.Context, name types.NamespacedName) error { return c.handle(ctx, q, name) })
		return nil
	})
	tasks.Go(func() error { return c.follow(ctx, q) })
	if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// follow adds the Jobs that have to be deleted to the queue, to be handled when they have expired.
func (c *Controller) follow(ctx context.Context, q *workers.Queue[types.NamespacedName]) error {
	revision, err := c.Client.List(ctx, client.ListRequest{Resource: jobs}, func(o registry.Object) bool {
		c.consider(q, o)
		return true
	})
	if err != nil {
		return err
	}
	w, err := c.Client.Watch(ctx, client.WatchRequest{Resource: jobs, From: revision})
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
			if change.Type != watch.Deleted {
				c.consider(q, change.Object)
			}
		}
	}
}

// consider adds a Job to the queue, with a delay, if it has to be deleted at some time.
func (c *Controller) consider(q *workers.Queue[types.NamespacedName], o registry.Object) {
	job, ok := o.(*batchv1.Job)
	if !ok {
		return
	}
	due, ok, err := expiry(job)
	switch {
	case err != nil:
		c.Log.Warn("a finished Job is not deleted", "namespace", job.Namespace, "job", job.Name, "error", err)
	case ok:
		q.AddAfter(types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, max(due.Sub(c.Now()), 0))
	}
}

// expiry returns the time at which a Job has to be deleted. It returns false if the Job must not be deleted: it
// has no time to live, has not finished, or is being deleted already.
func expiry(job *batchv1.Job) (time.Time, bool, error) {
	if job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return time.Time{}, false, nil
	}
	for _, condition := range job.Status.Conditions {
		finished := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if !finished || condition.Status != corev1.ConditionTrue {
			continue
		}
		if condition.LastTransitionTime.IsZero() {
			return time.Time{}, false, fmt.Errorf("its condition %s has no time", condition.Type)
		}
		ttl := time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second
		return condition.LastTransitionTime.Add(ttl), true, nil
	}
	return time.Time{}, false, nil
}

// handle deletes a Job whose time has come. It reads the Job again, because the time may have been changed.
func (c *Controller) handle(
	ctx context.Context, q *workers.Queue[types.NamespacedName], name types.NamespacedName,
) error {
	ref := client.Ref{Resource: jobs, Namespace: name.Namespace, Name: name.Name}
	o, err := c.Client.Get(ctx, ref)
	if kerrors.IsNotFound(err) || ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	due, ok, err := expiry(o.(*batchv1.Job))
	if err != nil || !ok {
		return nil // the change of the Job has put it into the queue again, if necessary
	}
	if wait := due.Sub(c.Now()); wait > 0 {
		q.AddAfter(name, wait)
		return nil
	}
	_, err = c.Client.Delete(ctx, client.DeleteRequest{Ref: ref, Options: &metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{UID: new(o.GetUID())},
	}})
	if err == nil || kerrors.IsNotFound(err) || ctx.Err() != nil {
		return nil
	}
	c.Log.Warn("cannot delete a finished Job; will try again", "namespace", name.Namespace, "job", name.Name, "error", err)
	return err
}
