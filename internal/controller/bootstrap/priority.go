package bootstrap

import (
	"context"

	schedulingv1 "k8s.io/api/scheduling/v1"
)

// The system priority classes (k8s.io/api/scheduling/v1 has no names for them).
const (
	clusterCritical = "system-cluster-critical"
	nodeCritical    = "system-node-critical"

	// highestUserPriority is the largest value of a class that is not a system class.
	highestUserPriority = 1000000000
	clusterPriority     = 2 * highestUserPriority
	nodePriority        = clusterPriority + 1000
)

var priorityClasses = schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")

// priorityClasses creates the system priority classes.
func (k *Keeper) priorityClasses(ctx context.Context) error {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		c := &schedulingv1.PriorityClass{Value: value, Description: description}
		c.Name = name
		return c
	}
	return forEachConcurrently([]*schedulingv1.PriorityClass{
		class(nodeCritical, nodePriority, "Used for system critical pods that must not be moved from their current node."),
		class(clusterCritical, clusterPriority,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	}, func(c *schedulingv1.PriorityClass) error {
		_, found, err := stored[*schedulingv1.PriorityClass](ctx, k, priorityClasses, "", c.Name)
		if err != nil || found {
			return err
		}
		return k.create(ctx, priorityClasses, c, manager)
	})
}
