package garbagecollector

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// parallelOrphans is the number of dependents of one object that are changed concurrently.
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
	for _, dependent := range c.graph.dependents(uid) {
		d, ok := c.graph.object(dependent)
		if !ok {
			continue
		}
		changes.Go(func() error { return c.removeOwners(ctx, d, []types.UID{uid}) })
	}
	if err := changes.Wait(); err != nil { // the first error; all dependents are tried
		return fmt.Errorf("not all dependents could be orphaned: %w", err)
	}
	return c.removeFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}
