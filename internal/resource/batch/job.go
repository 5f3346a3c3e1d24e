package batch

import (
	"fmt"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// The labels that connect pods with their job, with and without the prefix. Both are set.
// The prefix batch.kubernetes.io was added in 1.27. Older clients select pods by the labels without it.
const (
	oldControllerUIDLabel = "controller-uid"
	oldJobNameLabel       = "job-name"
)

// job returns the kind of Jobs. On create, the server adds a selector and labels to the template that contain the
// UID of the job, so that no other job has the same pods.
func job(gates *jobGates) *registry.Kind {
	spec, status := batchv1.JobSpec{}.SwaggerDoc(), batchv1.JobStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "batch", Resource: "jobs", Name: "Job", Categories: []string{"all"},
			Namespaced: true,
		},
		RunBy:    []string{registry.ControllerManager, registry.Scheduler},
		Versions: []registry.Version{declare.Version[batchv1.Job]("v1", defaultJob)},
		Storage: registry.Storage{
			Version: "v1", Path: "jobs",
			// The labels of a job default to those of its template.
			DefaultOnRead: [][]int32{{1, 11}},
		},
		// Jobs are older than the garbage collector. Old clients delete a job without a propagation policy, and
		// expect that its pods stay.
		Requests: registry.Requests{
			UnconditionalUpdate: true, DefaultOrphan: true,
			OrphanWarning: "child pods are preserved by default when jobs are deleted; set " +
				"propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		},
		Subresources: []registry.Subresource{declare.Status()},
		Selection: registry.Selection{
			// The label is status.successful, but the field is status.succeeded (field 5 of the message).
			Fields:     []registry.Field{{Name: "status.successful", Path: []int32{3, 5}, Type: registry.Int, Default: "0"}},
			FieldError: declare.FieldLabelForKind("Job"),
		},
		Strategy: registry.Strategy[*batchv1.Job]{
			Generation: true,
			PrepareCreate: func(j *batchv1.Job) {
				generateSelector(j)
				gates.dropNew(&j.Spec)
			},
			PrepareUpdate:        func(j, old *batchv1.Job) { gates.drop(&j.Spec, &old.Spec) },
			ValidateCreate:       gates.validateJob,
			ValidateUpdate:       gates.validateJobUpdate,
			ValidateStatusUpdate: validateJobStatusUpdate,
			Warn:                 jobWarnings,
		}.Untyped(),
		Table: registry.Table[*batchv1.Job]{
			Columns: table.WithTemplate(spec["selector"],
				table.Name,
				table.Column("Status", "string", "Status of the job."),
				table.Column("Completions", "string", status["succeeded"]),
				table.Column("Duration", "string", "Time required to complete the job."),
				table.Age),
			Cells: jobCells,
		}.Untyped(),
	}
}

// defaultJob sets the defaults of batch/v1. They depend on each other: the number of retries has no limit if there
// is one for each index, and a pod failure policy needs pods that have ended, so it changes podReplacementPolicy
// to Failed (KEP-3939).
func defaultJob(j *batchv1.Job) {
	// Without completions and parallelism, both are 1. With parallelism only, completions
	// stays nil, and the job is complete when any pod succeeds.
	if j.Spec.Completions == nil && j.Spec.Parallelism == nil {
		j.Spec.Completions, j.Spec.Parallelism = new(int32(1)), new(int32(1))
	}
	declare.Pointer(&j.Spec.Parallelism, 1)
	if j.Spec.BackoffLimitPerIndex != nil {
		declare.Pointer(&j.Spec.BackoffLimit, math.MaxInt32)
	} else {
		declare.Pointer(&j.Spec.BackoffLimit, 6)
	}
	// The map is shared on purpose, so that the labels that PrepareCreate adds to the template
	// are also labels of the job.
	if len(j.Labels) == 0 && len(j.Spec.Template.Labels) != 0 {
		j.Labels = j.Spec.Template.Labels
	}
	declare.Pointer(&j.Spec.CompletionMode, batchv1.NonIndexedCompletion)
	declare.Pointer(&j.Spec.Suspend, false)
	declare.Pointer(&j.Spec.ManualSelector, false)
	if j.Spec.PodFailurePolicy != nil {
		declare.Pointer(&j.Spec.PodReplacementPolicy, batchv1.Failed)
	} else {
		declare.Pointer(&j.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	}
	defaultPodFailurePolicy(j.Spec.PodFailurePolicy)
	core.DefaultPodTemplate(&j.Spec.Template)
}

// defaultPodFailurePolicy sets the status that a condition of a pod must have: True.
func defaultPodFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		conditions := p.Rules[i].OnPodConditions
		for k := range conditions {
			declare.Value(&conditions[k].Status, corev1.ConditionTrue)
		}
	}
}

// generateSelector adds labels with the job's identity to the pods, and a selector for them,
// unless manualSelector is true.
// The job must already have its UID. Labels that the client has set stay; validateGenerated refuses wrong ones. A
// copy of another job with its labels is therefore refused, and cannot adopt the pods of that job.
func generateSelector(j *batchv1.Job) {
	if m := j.Spec.ManualSelector; m != nil && *m {
		return
	}
	template := &j.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	uid := string(j.UID)
	for label, value := range map[string]string{
		oldControllerUIDLabel: uid, batchv1.ControllerUidLabel: uid,
		oldJobNameLabel: j.Name, batchv1.JobNameLabel: j.Name,
	} {
		if _, there := template.Labels[label]; !there {
			template.Labels[label] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, there := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !there {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = uid
	}
}

// validateJobUpdate forbids changes of fields on which the counts of a running job depend. Among the fields that
// may change are parallelism, suspend, the deadlines, backoffLimit and maxFailedIndexes. managedBy cannot change,
// so that no two controllers work on one job (KEP-4368).
func (g *jobGates) validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	errs := g.validateJobSpec(&j.Spec, &old.Spec, path)
	errs = append(errs, g.validateJobTemplateUpdate(j, old, path.Child("template"))...)
	immutable := func(name string, value, before any) {
		errs = append(errs, declare.Immutable(value, before, path.Child(name))...)
	}
	errs = append(errs, validateCompletions(j, old, path.Child("completions"))...)
	immutable("selector", j.Spec.Selector, old.Spec.Selector)
	immutable("completionMode", j.Spec.CompletionMode, old.Spec.CompletionMode)
	immutable("podFailurePolicy", j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy)
	immutable("backoffLimitPerIndex", j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex)
	immutable("managedBy", j.Spec.ManagedBy, old.Spec.ManagedBy)
	immutable("successPolicy", j.Spec.SuccessPolicy, old.Spec.SuccessPolicy)
	scheduling := path.Child("scheduling")
	errs = append(errs, validateGangUpdate(j.Spec.Scheduling, old.Spec.Scheduling, scheduling)...)
	errs = append(errs, validateIndexedName(j)...)
	return append(errs, validateScheduling(&j.Spec, &old.Spec, g.scheduling, scheduling)...)
}

// validateJobTemplateUpdate forbids changes of the template, with two exceptions for a suspended job without active
// pods. The fields that decide where its pods are scheduled may change (gate
// MutableSchedulingDirectivesForSuspendedJobs; with the gate off, only before the first start). The resources of its
// containers may change (gate MutablePodResourcesForSuspendedJobs; with the gate off, never).
// A queue such as Kueue suspends a new job, and chooses its nodes before it lets the job start (KEP-2926).
func (g *jobGates) validateJobTemplateUpdate(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	suspended, unstarted := ptr.Deref(old.Spec.Suspend, false), old.Status.StartTime == nil
	// The condition Suspended shows that the controller has seen the suspension of a job that was started.
	idle := suspended && old.Status.Active == 0 &&
		(unstarted || hasCondition(&old.Status, batchv1.JobSuspended, corev1.ConditionTrue))
	was, is := &old.Spec.Template, &j.Spec.Template
	if g.mutableDirectives && idle || !g.mutableDirectives && suspended && unstarted {
		was = was.DeepCopy()
		copyDirectives(was, is)
	}
	if !g.mutableResources || !idle {
		return unchanged(is, was, path)
	}
	spec := was.Spec.DeepCopy()
	copyResources(spec.Containers, is.Spec.Containers)
	copyResources(spec.InitContainers, is.Spec.InitContainers)
	return unchanged(&is.Spec, spec, path.Child("spec"))
}

// unchanged is declare.Immutable for values of one type. The error has the new value.
func unchanged[T any](is, was *T, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(is, was, path.K8s())
	for _, err := range errs {
		err.BadValue = declare.Internal(is)
	}
	return errs
}

// copyDirectives sets what decides where pods are scheduled, and their metadata, in was to those in is.
// It leaves podAffinity and podAntiAffinity, so that a change of them is an error.
func copyDirectives(was, is *corev1.PodTemplateSpec) {
	var nodes *corev1.NodeAffinity
	if is.Spec.Affinity != nil {
		nodes = is.Spec.Affinity.NodeAffinity
	}
	if is.Spec.Affinity != nil || was.Spec.Affinity != nil {
		affinity := ptr.Deref(was.Spec.Affinity, corev1.Affinity{})
		affinity.NodeAffinity = nodes
		was.Spec.Affinity = &affinity
	}
	// An empty affinity would differ from a missing one in the comparison.
	if is.Spec.Affinity == nil && was.Spec.Affinity != nil && *was.Spec.Affinity == (corev1.Affinity{}) {
		was.Spec.Affinity = nil
	}
	was.Labels, was.Annotations, was.Spec.NodeSelector = is.Labels, is.Annotations, is.Spec.NodeSelector
	was.Spec.Tolerations, was.Spec.SchedulingGates = is.Spec.Tolerations, is.Spec.SchedulingGates
}

// copyResources sets the resources of containers in was to those of the same containers in is.
func copyResources(was, is []corev1.Container) {
	for i := range min(len(was), len(is)) {
		was[i].Resources = is[i].Resources
	}
}

// validateCompletions allows completions of an indexed job to change together with
// parallelism.
// Such a job can be scaled (KEP-3715). The number of completions of other jobs cannot change.
func validateCompletions(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	same := declare.Immutable(j.Spec.Completions, old.Spec.Completions, path)
	mode := j.Spec.CompletionMode
	if len(same) == 0 || mode == nil || *mode != batchv1.IndexedCompletion || j.Spec.Completions == nil {
		if j.Spec.Completions == nil && mode != nil && *mode == batchv1.IndexedCompletion {
			return nil // another check reports it as required
		}
		return same
	}
	if p := j.Spec.Parallelism; p == nil || *p != *j.Spec.Completions {
		return field.ErrorList{
			field.Invalid(path, *j.Spec.Completions, "can only be modified in tandem with spec.parallelism")}
	}
	return nil
}

// jobWarnings returns the warnings about the name of a new job and about a new or changed template. It also warns
// about jobs whose status may become too large: the status lists completed and failed indexes as text, such as
// "1,3-5", and etcd limits the size of an object (by default to 1.5 MiB).
func jobWarnings(j, old *batchv1.Job) []string {
	const manyCompletions, manyAtOnce = 100_000, 10_000
	path := field.NewPath("spec", "template")
	var warnings []string
	if old == nil {
		warnings = append(declare.PodNameWarnings(j.Name), core.PodTemplateWarnings(path, &j.Spec.Template)...)
	} else if j.Generation != old.Generation {
		warnings = core.PodTemplateWarnings(path, &j.Spec.Template)
	}
	if mode := j.Spec.CompletionMode; mode != nil && *mode == batchv1.IndexedCompletion &&
		j.Spec.Completions != nil && *j.Spec.Completions > manyCompletions &&
		j.Spec.Parallelism != nil && *j.Spec.Parallelism > manyAtOnce {
		warnings = append(warnings,
			"In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
				"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return warnings
}

// jobCells shows completions as 2/5. A job without a number of completions shows 0/1 of 3: it has parallelism 3
// and is complete when one pod has succeeded.
func jobCells(j *batchv1.Job) []any {
	completions := fmt.Sprintf("%d/1", j.Status.Succeeded)
	if n := j.Spec.Completions; n != nil {
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *n)
	} else if p := j.Spec.Parallelism; p != nil && *p > 1 {
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *p)
	}
	var duration any = ""
	if start := j.Status.StartTime; start != nil {
		if end := j.Status.CompletionTime; end != nil {
			duration = table.Duration(end.Sub(start.Time))
		} else {
			duration = table.AgeOf(*start)
		}
	}
	names, images := core.ContainerNames(&j.Spec.Template.Spec)
	return []any{
		j.Name, jobStatusText(j), completions, duration, table.AgeOf(j.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

// jobStatusText returns the cell with the status of a job, from its most important condition.
// FailureTarget and SuccessCriteriaMet come last: they say how a job will finish that still has pods.
func jobStatusText(j *batchv1.Job) string {
	has := func(t batchv1.JobConditionType) bool { return hasCondition(&j.Status, t, corev1.ConditionTrue) }
	switch {
	case has(batchv1.JobComplete):
		return "Complete"
	case has(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case has(batchv1.JobSuspended):
		return "Suspended"
	case has(batchv1.JobFailureTarget):
		return "FailureTarget"
	case has(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}
