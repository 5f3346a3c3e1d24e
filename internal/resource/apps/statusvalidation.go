package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

const moreThanReplicas = "cannot be greater than status.replicas"

// statusCounts collects the errors of the numbers in a status.
type statusCounts struct {
	path *field.Path
	errs field.ErrorList
}

// countsOf returns a collector for a status. It checks observedGeneration, which all kinds have, before the
// counts: clients see errors in this order.
func countsOf(generation int64) *statusCounts {
	c := &statusCounts{path: field.NewPath("status")}
	c.nonNegative("observedGeneration", generation)
	return c
}

func (c *statusCounts) nonNegative(name string, n int64) {
	c.errs = append(c.errs, field.NonNegative(c.path.Child(name), n)...)
}

func (c *statusCounts) optional(name string, n *int32) {
	if n != nil {
		c.nonNegative(name, int64(*n))
	}
}

func (c *statusCounts) atMost(name string, n, most int32, message string) {
	c.errs = append(c.errs, field.InvalidIf(n > most, c.path.Child(name), n, message)...)
}

// part is a number of replicas that are in some state.
type part struct {
	name string
	n    int32
}

// partsOf requires that no part is larger than the number of all replicas, and that no number is negative.
func (c *statusCounts) partsOf(replicas int32, parts ...part) {
	c.nonNegative("replicas", int64(replicas))
	for _, p := range parts {
		c.nonNegative(p.name, int64(p.n))
	}
	for _, p := range parts {
		c.atMost(p.name, p.n, replicas, moreThanReplicas)
	}
}

// notDecremented requires that a collision count never becomes smaller or is removed.
// The controller hashes the count into the name of the next ReplicaSet or ControllerRevision. With a smaller
// count, it would try names again that are already taken.
func (c *statusCounts) notDecremented(name string, is, was *int32) {
	if was == nil || is != nil && *is >= *was {
		return
	}
	c.errs = append(c.errs, field.Invalid(c.path.Child(name), ptr.Deref(is, 0), "cannot be decremented"))
}

// validateReplicaSetStatus requires that each count is a part of replicas. terminatingReplicas has no upper limit,
// because replicas does not include terminating pods. A pod is available only after it was ready for
// minReadySeconds, so there are no more available pods than ready ones.
func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &r.Status
	c := countsOf(s.ObservedGeneration)
	c.partsOf(s.Replicas, part{"fullyLabeledReplicas", s.FullyLabeledReplicas}, part{"readyReplicas", s.ReadyReplicas},
		part{"availableReplicas", s.AvailableReplicas})
	c.optional("terminatingReplicas", s.TerminatingReplicas)
	c.atMost("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	return c.errs
}

// validateDeploymentStatus has the rules of validateReplicaSetStatus. unavailableReplicas has no upper limit,
// because it includes pods that are not created yet.
func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s := &d.Status
	c := countsOf(s.ObservedGeneration)
	c.partsOf(s.Replicas, part{"updatedReplicas", s.UpdatedReplicas}, part{"readyReplicas", s.ReadyReplicas},
		part{"availableReplicas", s.AvailableReplicas})
	c.nonNegative("unavailableReplicas", int64(s.UnavailableReplicas))
	c.optional("terminatingReplicas", s.TerminatingReplicas)
	c.optional("collisionCount", s.CollisionCount)
	c.atMost("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	c.notDecremented("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return c.errs
}

// validateStatefulSetStatus limits all counts by replicas. The message about available replicas has the prefix
// "status." unlike that of the other kinds, as in kube-apiserver.
func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s := &set.Status
	c := countsOf(s.ObservedGeneration)
	c.partsOf(s.Replicas, part{"readyReplicas", s.ReadyReplicas}, part{"currentReplicas", s.CurrentReplicas},
		part{"updatedReplicas", s.UpdatedReplicas}, part{"availableReplicas", s.AvailableReplicas})
	c.optional("collisionCount", s.CollisionCount)
	c.atMost("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than status.readyReplicas")
	c.notDecremented("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return c.errs
}

// validateDaemonSetStatus does not compare the counts with each other, because no count includes all others:
// desiredNumberScheduled leaves out the nodes that run a pod but should not.
func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s := &d.Status
	c := countsOf(s.ObservedGeneration)
	c.nonNegative("currentNumberScheduled", int64(s.CurrentNumberScheduled))
	c.nonNegative("numberMisscheduled", int64(s.NumberMisscheduled))
	c.nonNegative("desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	c.nonNegative("numberReady", int64(s.NumberReady))
	c.nonNegative("updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	c.nonNegative("numberAvailable", int64(s.NumberAvailable))
	c.nonNegative("numberUnavailable", int64(s.NumberUnavailable))
	c.optional("collisionCount", s.CollisionCount)
	c.notDecremented("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return c.errs
}
