package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// jobProgress is the progress of a job according to its status.
type jobProgress struct {
	complete, failed, criteriaMet, failing, finished bool
}

func progressOf(s *batchv1.JobStatus) jobProgress {
	p := jobProgress{
		complete:    hasCondition(s, batchv1.JobComplete, corev1.ConditionTrue),
		failed:      hasCondition(s, batchv1.JobFailed, corev1.ConditionTrue),
		criteriaMet: hasCondition(s, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue),
		failing:     hasCondition(s, batchv1.JobFailureTarget, corev1.ConditionTrue),
	}
	p.finished = p.complete || p.failed
	return p
}

func hasCondition(s *batchv1.JobStatus, kind batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(s.Conditions,
		func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == status })
}

// A statusValidator validates the status of a job. It does not validate fields that the update
// does not change, so that a status that is already wrong can be corrected step by step.
type statusValidator struct {
	job, old *batchv1.Job
	is, was  jobProgress
	path     *field.Path
	errs     field.ErrorList
}

// validateJobStatusUpdate checks the guarantees that clients rely on, whichever controller
// manages the job: for example, a finished job stays finished, and counts do not decrease.
// The controller named in spec.managedBy may be one of another vendor (KEP-4368).
func validateJobStatusUpdate(j, old *batchv1.Job) field.ErrorList {
	c := &statusValidator{job: j, old: old, is: progressOf(&j.Status), was: progressOf(&old.Status),
		path: field.NewPath("status")}
	c.counts()
	c.uncountedPods()
	c.conditions()
	c.times()
	c.indexes()
	c.monotonic()
	return c.errs
}

func (v *statusValidator) add(errs field.ErrorList) { v.errs = append(v.errs, errs...) }

func (v *statusValidator) invalid(name string, value any, detail string) {
	v.errs = append(v.errs, field.Invalid(v.path.Child(name), value, detail))
}

// forbid adds an error about a combination of conditions if it is found.
func (v *statusValidator) forbid(found bool, detail string) {
	v.add(field.InvalidIf(found, v.path.Child("conditions"), field.OmitValueType{}, detail))
}

// counts validates the numbers of pods. A finished job has no pods that run or terminate: since 1.31, the
// controller adds Complete or Failed only when all pods have ended. Before that, FailureTarget or
// SuccessCriteriaMet show how the job will finish.
func (v *statusValidator) counts() {
	s, before := &v.job.Status, &v.old.Status
	v.add(field.NonNegative(v.path.Child("active"), s.Active))
	v.add(field.NonNegative(v.path.Child("succeeded"), s.Succeeded))
	v.add(field.NonNegative(v.path.Child("failed"), s.Failed))
	v.add(field.Optional(v.path.Child("ready"), s.Ready, field.NonNegative))
	v.add(field.Optional(v.path.Child("terminating"), s.Terminating, field.NonNegative))
	ended := v.is.finished != v.was.finished
	v.add(field.InvalidIf(v.is.finished && s.Active > 0 && (ended || s.Active != before.Active), v.path.Child("active"),
		s.Active, "active>0 is invalid for finished job"))
	if v.is.finished && s.Terminating != nil && *s.Terminating > 0 && (ended || !ptr.Equal(s.Terminating, before.Terminating)) {
		v.invalid("terminating", s.Terminating, "terminating>0 is invalid for finished job")
	}
	if s.Ready != nil && *s.Ready > s.Active && (!ptr.Equal(s.Ready, before.Ready) || s.Active != before.Active) {
		v.invalid("ready", *s.Ready, "cannot set more ready pods than active")
	}
}

// uncountedPods validates the list of terminated pods that are not counted yet.
// The controller adds the UID of a pod to the list before it removes the finalizer of the pod. It removes the UID
// when it counts the pod. So no pod is counted twice, and none is lost (KEP-2307). A pod cannot have both
// succeeded and failed, so both lists share the set of UIDs.
func (v *statusValidator) uncountedPods() {
	pods := v.job.Status.UncountedTerminatedPods
	if pods == nil {
		return
	}
	path, seen := v.path.Child("uncountedTerminatedPods"), sets.New[types.UID]()
	check := func(name string, uids []types.UID) {
		for i, uid := range uids {
			at := path.Child(name).Index(i)
			switch {
			case uid == "":
				v.errs = append(v.errs, field.Invalid(at, uid, "must not be empty"))
			case seen.Has(uid):
				v.errs = append(v.errs, field.Duplicate(at, uid))
			}
			seen.Insert(uid)
		}
	}
	check("succeeded", pods.Succeeded)
	check("failed", pods.Failed)
	changed := v.is.finished != v.was.finished || !equality.Semantic.DeepEqual(pods, v.old.Status.UncountedTerminatedPods)
	if v.is.finished && len(pods.Succeeded)+len(pods.Failed) > 0 && changed {
		v.invalid("uncountedTerminatedPods", declare.Internal(pods), "must be empty for finished job")
	}
}

// conditions validates combinations of conditions and their changes. SuccessCriteriaMet comes before Complete, and
// FailureTarget before Failed; the two pairs exclude each other. Clients act once when a job finishes, so none of
// the four can be removed.
func (v *statusValidator) conditions() {
	is, was := v.is, v.was
	completed, failed := is.complete != was.complete, is.failed != was.failed
	v.forbid(is.complete && is.failed && (completed || failed), "cannot set Complete=True and Failed=true conditions")
	v.forbid(is.complete && is.failing && (completed || is.failing != was.failing),
		"cannot set Complete=True and FailureTarget=true conditions")
	// As in kube-apiserver, a change of failedIndexes repeats this check, and a change of FailureTarget does not.
	v.forbid(is.failed && !is.failing && (failed || !ptr.Equal(v.job.Status.FailedIndexes, v.old.Status.FailedIndexes)),
		"cannot set Failed=True condition without the FailureTarget=true condition")
	v.forbid(is.complete && !is.criteriaMet && (completed || is.criteriaMet != was.criteriaMet),
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	v.forbid(is.criteriaMet && is.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	v.forbid(is.criteriaMet && is.failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	v.forbid(v.job.Spec.SuccessPolicy != nil && !is.criteriaMet && is.complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, lost := range []struct {
		name    batchv1.JobConditionType
		was, is bool
	}{
		{batchv1.JobFailed, was.failed, is.failed}, {batchv1.JobComplete, was.complete, is.complete},
		{batchv1.JobFailureTarget, was.failing, is.failing},
	} {
		if lost.was && !lost.is {
			v.forbid(true, fmt.Sprintf("cannot disable the terminal %s=True condition", lost.name))
		}
	}
	v.forbid(was.criteriaMet && !is.criteriaMet, "cannot disable the SuccessCriteriaMet=True condition")
	v.forbid(was.complete && !was.criteriaMet && is.criteriaMet,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

// times validates startTime and completionTime. Only a complete job has a completionTime; a failed job has none.
// The controller resets startTime when a job is suspended or resumed, because activeDeadlineSeconds counts from
// it.
func (v *statusValidator) times() {
	s, before, spec := &v.job.Status, &v.old.Status, &v.job.Spec
	// Times are compared like in kube-apiserver, which ignores the location.
	started, completed := !s.StartTime.Equal(before.StartTime), !s.CompletionTime.Equal(before.CompletionTime)
	completion := v.path.Child("completionTime")
	if v.is.complete != v.was.complete || completed {
		v.add(field.InvalidIf(s.CompletionTime != nil && !v.is.complete, completion, s.CompletionTime,
			"cannot set completionTime when there is no Complete=True condition"))
		v.add(field.RequiredIf(s.CompletionTime == nil && v.is.complete, completion,
			"completionTime is required for Complete jobs"))
	}
	v.add(field.InvalidIf(s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) &&
		(started || completed), completion, s.CompletionTime, "must be equal to or after `startTime`"))
	suspended := spec.Suspend != nil && *spec.Suspend
	// A suspended job that needs no completions finishes without a start.
	nothingToDo := suspended && spec.Completions != nil && *spec.Completions == 0
	start := v.path.Child("startTime")
	v.add(field.RequiredIf(v.is.finished && s.StartTime == nil && (v.is.finished != v.was.finished || started) &&
		!nothingToDo, start, "startTime is required for finished job"))
	v.add(field.InvalidIf(completed && s.CompletionTime != nil && before.CompletionTime != nil, completion,
		s.CompletionTime, "field is immutable"))
	resumes := hasCondition(before, batchv1.JobSuspended, corev1.ConditionTrue) &&
		hasCondition(s, batchv1.JobSuspended, corev1.ConditionFalse)
	v.add(field.InvalidIf(started && before.StartTime != nil && !suspended && !resumes, start, s.StartTime,
		"field is immutable for unsuspended job once set"))
}

// indexes validates the lists of indexes of an indexed job. failedIndexes exists only with backoffLimitPerIndex:
// otherwise an index that fails is tried again until the whole job fails. No index is in both lists.
func (v *statusValidator) indexes() {
	s, before, spec := &v.job.Status, &v.old.Status, &v.job.Spec
	completed, failed := s.CompletedIndexes != before.CompletedIndexes, !ptr.Equal(s.FailedIndexes, before.FailedIndexes)
	if completed && spec.Completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, *spec.Completions); err != nil {
			v.invalid("completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
		}
	}
	v.add(field.InvalidIf(completed && s.CompletedIndexes != "" && !isIndexed(spec), v.path.Child("completedIndexes"),
		s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
	if s.FailedIndexes == nil {
		return
	}
	if failed && spec.Completions != nil && spec.BackoffLimitPerIndex != nil {
		if _, err := countIndexes(*s.FailedIndexes, *spec.Completions); err != nil {
			v.invalid("failedIndexes", *s.FailedIndexes, "error parsing failedIndexes: "+err.Error())
		}
	}
	v.add(field.InvalidIf(failed && spec.BackoffLimitPerIndex == nil, v.path.Child("failedIndexes"), *s.FailedIndexes,
		"cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	if (failed || completed) && spec.Completions != nil {
		if index, both := firstCommonIndex(s.CompletedIndexes, *s.FailedIndexes, *spec.Completions); both {
			v.invalid("failedIndexes", *s.FailedIndexes,
				fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index))
		}
	}
}

// monotonic requires that counts do not decrease.
func (v *statusValidator) monotonic() {
	s, before, spec := &v.job.Status, &v.old.Status, &v.job.Spec
	v.add(field.InvalidIf(s.Failed < before.Failed, v.path.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	// If an indexed job is scaled down, its completed indexes may decrease.
	scaled := isIndexed(spec) && ptr.Equal(spec.Completions, spec.Parallelism)
	v.add(field.InvalidIf(s.Succeeded < before.Succeeded && !scaled, v.path.Child("succeeded"), s.Succeeded,
		"cannot decrease the succeeded counter"))
}

// firstCommonIndex returns the first index that is in both lists. It ignores intervals that
// cannot be parsed, because other checks report them.
// Both lists have to be sorted: it walks through them once.
func firstCommonIndex(a, b string, completions int32) (int32, bool) {
	left, right := readableIntervals(a, completions), readableIntervals(b, completions)
	for len(left) > 0 && len(right) > 0 {
		if left[0].first <= right[0].last && right[0].first <= left[0].last {
			return max(left[0].first, right[0].first), true
		}
		if left[0].first <= right[0].first {
			left = left[1:]
		} else {
			right = right[1:]
		}
	}
	return 0, false
}

// An indexInterval is a range of indexes, including first and last.
type indexInterval struct{ first, last int32 }

func readableIntervals(text string, completions int32) []indexInterval {
	var out []indexInterval
	for part := range strings.SplitSeq(text, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			out = append(out, i)
		}
	}
	return out
}

// parseInterval parses "3" or "3-5". Indexes have to be less than completions.
// "3-3" is refused. There are no negative indexes, because a hyphen separates two indexes.
func parseInterval(text string, completions int32) (indexInterval, error) {
	parse := func(s string) (int32, error) {
		n, err := strconv.Atoi(s)
		switch {
		case err != nil:
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", s)
		case n >= int(completions):
			return 0, fmt.Errorf("too large index: %q", s)
		}
		return int32(n), nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if strings.Contains(to, "-") {
		return indexInterval{},
			fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts "+
				"separated by '-'", text)
	}
	first, err := parse(from)
	if err != nil || !isRange {
		return indexInterval{first, first}, err
	}
	last, err := parse(to)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return indexInterval{first, last}, err
}

// countIndexes returns the number of indexes in a text like "1,3-5". They have to be sorted
// and less than completions.
func countIndexes(text string, completions int32) (int32, error) {
	if text == "" {
		return 0, nil
	}
	var total int32
	var before *indexInterval
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if before != nil && i.first <= before.last {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", before.last, i.first)
		}
		total += i.last - i.first + 1
		before = &i
	}
	return total, nil
}
