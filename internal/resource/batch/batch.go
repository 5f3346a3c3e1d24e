// Package batch declares the kinds of the batch API group.
package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

const group = "batch"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	g := newJobGates(gates)
	return []*registry.Kind{cronJob(g), job(g)}
}

// jobGates are what the feature gates of a server change in jobs and in templates of jobs.
type jobGates struct {
	pods       core.PodGates
	scheduling bool // WorkloadWithJob

	// The fields that may change in a suspended job without active pods even if the job was started before.
	mutableResources  bool // resources of containers (MutablePodResourcesForSuspendedJobs)
	mutableDirectives bool // where its pods are scheduled (MutableSchedulingDirectivesForSuspendedJobs)
}

func newJobGates(gates features.Gates) *jobGates {
	return &jobGates{
		pods: core.NewPodGates(gates), scheduling: gates.Enabled(features.WorkloadWithJob),
		mutableResources:  gates.Enabled(features.MutablePodResourcesForSuspendedJobs),
		mutableDirectives: gates.Enabled(features.MutableSchedulingDirectivesForSuspendedJobs),
	}
}

// dropNew removes the fields of disabled features from a new job.
func (g *jobGates) dropNew(s *batchv1.JobSpec) {
	if !g.scheduling {
		s.Scheduling = nil
	}
	g.pods.DropNew(&s.Template)
}

// drop removes the fields of disabled features from a job that replaces old, except those that old has.
// So a job that was stored while a gate was on can be updated after the gate was turned off.
func (g *jobGates) drop(s, old *batchv1.JobSpec) {
	if !g.scheduling && old.Scheduling == nil {
		s.Scheduling = nil
	}
	g.pods.Drop(&s.Template, &old.Template)
}
