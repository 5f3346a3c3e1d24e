package garbagecollector

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// parallelOrphans is how many dependents of one object are changed at a time.
const parallelOrphans = 20

// orphanDependents removes the references to an object from all of its dependents, and then its finalizer "orphan".
func (c *Collector) orphanDependents(ctx context.Context, uid types.UID) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	o, ok := c.graph.object(uid)
	if !ok || !o.deleting || !o.orphans {
		return nil
	}
	var changes errgroup.Group
	changes.SetLimit(parallelOrphans)
	errs := make(chan error, 1) // the first error
	for _, dependent := range c.graph.dependents(uid) {
		d, ok := c.graph.object(dependent)
		if !ok {
			continue
		}
		changes.Go(func() error {
			if err := c.removeOwners(ctx, d, []types.UID{uid}); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
			return nil
		})
	}
	_ = changes.Wait() // the functions return no errors
	select {
	case err := <-errs:
		return errors.Join(errors.New("not all dependents could be orphaned"), err)
	default:
	}
	return c.removeFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}
