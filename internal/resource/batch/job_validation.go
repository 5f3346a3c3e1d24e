package batch

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the host may have no time zone database

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func isIndexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// validateJob validates a new job.
func (g *jobGates) validateJob(j *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	defer path.Free()
	errs := append(validateGenerated(j), g.validateJobSpec(&j.Spec, nil, path)...)
	errs = append(errs, validateIndexedName(j)...)
	return append(errs, validateScheduling(&j.Spec, nil, g.scheduling, path.Child("scheduling"))...)
}

// validateIndexedName requires that the pods of an indexed job, which have the name of the job and an index, have valid
// host names.
func validateIndexedName(j *batchv1.Job) field.ErrorList {
	n := j.Spec.Completions
	if !isIndexed(&j.Spec) || n == nil || *n <= 0 {
		return nil
	}
	// The last index has the longest name.
	pod := fmt.Sprintf("%s-%d", j.Name, *n-1)
	var errs field.ErrorList
	// kube-apiserver repeats the same error for each rule that the name breaks.
	for range validation.IsDNS1123Label(pod) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name,
			"will not able to create pod with invalid DNS label: "+pod))
	}
	return errs
}

// validateGenerated validates the selector and the labels that the server has generated.
// A client may send them too, but only with the values that the server would generate.
func validateGenerated(j *batchv1.Job) field.ErrorList {
	if m := j.Spec.ManualSelector; m != nil && *m || j.Spec.Selector == nil {
		return nil
	}
	path := field.NewPath("spec")
	var errs field.ErrorList
	uid := string(j.UID)
	for _, want := range []struct{ label, value string }{
		{oldControllerUIDLabel, uid}, {oldJobNameLabel, j.Name}, {batchv1.ControllerUidLabel, uid},
		{batchv1.JobNameLabel, j.Name},
	} {
		at, message := path.Child("template", "metadata", "labels").Key(want.label), fmt.Sprintf("must be '%s'", want.value)
		switch value, ok := j.Spec.Template.Labels[want.label]; {
		case !ok:
			errs = append(errs, field.Required(at, message))
		case value != want.value:
			errs = append(errs, field.Invalid(at, j.Spec.Template.Labels, message))
		}
	}
	made := labels.Set{oldControllerUIDLabel: uid, oldJobNameLabel: j.Name, batchv1.ControllerUidLabel: uid,
		batchv1.JobNameLabel: j.Name}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(made) {
		errs = append(errs, field.Invalid(path.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSpec validates the spec of a job. old is nil for a new job.
func (g *jobGates) validateJobSpec(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := g.validateJobTemplateSpec(s, old, path)
	errs = append(errs, field.RequiredIf(s.Selector == nil, path.Child("selector"), "")...)
	errs = append(errs, field.LabelSelector(path.Child("selector"), s.Selector)...)
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil &&
		!selector.Matches(labels.Set(s.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), s.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobTemplateSpec checks what a job and the template of one have in
// common: all but the selector. old is nil for a new object.
func (g *jobGates) validateJobTemplateSpec(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	nonNegative := func(name string, n *int32) field.ErrorList {
		return field.Optional(path.Child(name), n, field.NonNegative)
	}
	errs := field.Join(nonNegative("parallelism", s.Parallelism), nonNegative("completions", s.Completions),
		nonNegative("backoffLimit", s.BackoffLimit), nonNegative("ttlSecondsAfterFinished", s.TTLSecondsAfterFinished),
		nonNegative("backoffLimitPerIndex", s.BackoffLimitPerIndex), nonNegative("maxFailedIndexes", s.MaxFailedIndexes))
	errs = append(errs, field.Optional(path.Child("activeDeadlineSeconds"), s.ActiveDeadlineSeconds, field.NonNegative)...)
	if m := s.ManagedBy; m != nil {
		// The documentation of the field has this limit.
		const longest = 63
		at := path.Child("managedBy")
		errs = append(errs, validation.IsDomainPrefixedPath(at.K8s(), *m)...)
		errs = append(errs, field.MaxLength(at, *m, longest)...)
	}
	errs = append(errs, validateIndexed(s, path)...)
	if p := s.PodFailurePolicy; p != nil {
		errs = append(errs, validateFailurePolicy(p, s, path.Child("podFailurePolicy"))...)
	}
	if p := s.SuccessPolicy; p != nil {
		if isIndexed(s) {
			errs = append(errs, validateSuccessPolicy(p, s, path.Child("successPolicy"))...)
		} else {
			errs = append(errs,
				field.Invalid(path.Child("successPolicy"), declare.Internal(p), "requires indexed completion mode"))
		}
	}
	// With a pod failure policy only Failed is allowed: the policy decides when a pod has ended, so no replacement
	// may start before.
	allowed := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	if s.PodFailurePolicy != nil {
		allowed = allowed[:1]
	}
	errs = append(errs, field.OptionalOneOf(path.Child("podReplacementPolicy"), s.PodReplacementPolicy, allowed...)...)
	errs = append(errs, validateGang(s, path.Child("scheduling"))...)
	template := path.Child("template")
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Template
	}
	errs = append(errs, g.pods.ValidateTemplate(&s.Template, before, template)...)
	// A pod that always restarts never completes. Always is the default of a pod template, so the error is that
	// the field is missing. A pod failure policy needs Never: with OnFailure the kubelet restarts a container
	// itself, and the controller does not see that it has failed (KEP-3329).
	at := template.Child("spec", "restartPolicy")
	switch p := s.Template.Spec.RestartPolicy; {
	case p == "" || p == corev1.RestartPolicyAlways:
		errs = append(errs, field.Required(at, `valid values: "OnFailure", "Never"`))
	case p != corev1.RestartPolicyOnFailure && p != corev1.RestartPolicyNever:
		errs = append(errs,
			field.NotSupported(at, p, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	case s.PodFailurePolicy != nil && p != corev1.RestartPolicyNever:
		errs = append(errs, field.Invalid(at, p,
			fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever)))
	}
	return errs
}

// validateIndexed validates the fields that depend on the completion mode. The status of an indexed job lists
// indexes as text; the limits keep this text short.
func validateIndexed(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	const most = 100_000
	errs := field.OptionalOneOf(path.Child("completionMode"), s.CompletionMode, batchv1.NonIndexedCompletion,
		batchv1.IndexedCompletion)
	if m := s.CompletionMode; m == nil || *m == batchv1.NonIndexedCompletion {
		if n := s.BackoffLimitPerIndex; n != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *n, "requires indexed completion mode"))
		}
		if n := s.MaxFailedIndexes; n != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, "requires indexed completion mode"))
		}
	} else if isIndexed(s) {
		errs = append(errs, field.RequiredIf(s.Completions == nil, path.Child("completions"),
			"when completion mode is "+string(batchv1.IndexedCompletion))...)
		if p := s.Parallelism; p != nil && *p > most {
			errs = append(errs, field.Invalid(path.Child("parallelism"), *p,
				fmt.Sprintf("must be less than or equal to %d when completion mode is %s", most, batchv1.IndexedCompletion)))
		}
		if n := s.MaxFailedIndexes; n != nil {
			errs = append(errs, field.InvalidIf(s.Completions != nil && *n > *s.Completions, path.Child("maxFailedIndexes"), *n,
				"must be less than or equal to completions")...)
			if *n > most {
				errs = append(errs,
					field.Invalid(path.Child("maxFailedIndexes"), *n, fmt.Sprintf("must be less than or equal to %d", most)))
			}
		}
		if n := s.Completions; n != nil && *n > most && s.BackoffLimitPerIndex != nil {
			errs = append(errs, validateManyIndexes(s, path, most)...)
		}
	}
	return append(errs, field.RequiredIf(s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil,
		path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")...)
}

// validateManyIndexes validates a job with more than many completions whose indexes fail one by one. Its status lists the failed
// indexes, so its size depends on how many may fail, and on how many fail at the same time (KEP-3850).
func validateManyIndexes(s *batchv1.JobSpec, path *field.Path, many int32) field.ErrorList {
	const most = 10_000
	atMost := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff limit per index",
		most, many)
	failed, parallel := s.MaxFailedIndexes, s.Parallelism
	errs := field.RequiredIf(failed == nil, path.Child("maxFailedIndexes"),
		fmt.Sprintf("must be specified when completions is above %d", many))
	if parallel != nil && *parallel > most {
		errs = append(errs, field.Invalid(path.Child("parallelism"), *parallel, atMost))
	}
	if failed != nil && *failed > most {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *failed, atMost))
	}
	return errs
}

var (
	failureActions = []batchv1.PodFailurePolicyAction{batchv1.PodFailurePolicyActionCount,
		batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore}
	exitOperators = []batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn,
		batchv1.PodFailurePolicyOnExitCodesOpNotIn}
)

// validateFailurePolicy validates the rules for failed pods (KEP-3329). Each rule is about exit codes or about
// conditions. FailIndex needs an indexed job with a number of retries for each index.
func validateFailurePolicy(p *batchv1.PodFailurePolicy, s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	const most = 20
	path = path.Child("rules")
	errs := field.MaxItems(path, len(p.Rules), most)
	for i := range p.Rules {
		r, at := &p.Rules[i], path.Index(i)
		action := at.Child("action")
		switch {
		case r.Action == "":
			errs = append(errs, field.Required(action, fmt.Sprintf("valid values: %q", failureActions)))
		case r.Action == batchv1.PodFailurePolicyActionFailIndex:
			errs = append(errs, field.InvalidIf(s.BackoffLimitPerIndex == nil, action, r.Action,
				"requires the backoffLimitPerIndex to be set")...)
		case !slices.Contains(failureActions, r.Action):
			errs = append(errs, field.NotSupported(action, r.Action, failureActions))
		}
		if r.OnExitCodes != nil {
			errs = append(errs, validateExitCodes(r.OnExitCodes, &s.Template.Spec, at.Child("onExitCodes"))...)
		}
		errs = append(errs, field.MaxItems(at.Child("onPodConditions"), len(r.OnPodConditions), most)...)
		for k, c := range r.OnPodConditions {
			at := at.Child("onPodConditions").Index(k)
			errs = append(errs, field.LabelKey(at.Child("type"), c.Type)...)
			statuses := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
			switch {
			case c.Status == "":
				errs = append(errs, field.Required(at.Child("status"), fmt.Sprintf("valid values: %q", statuses)))
			case !slices.Contains(statuses, c.Status):
				errs = append(errs, field.NotSupported(at.Child("status"), c.Status, statuses))
			}
		}
		errs = append(errs, field.InvalidIf(r.OnExitCodes != nil && len(r.OnPodConditions) > 0, at, field.OmitValueType{},
			"specifying both OnExitCodes and OnPodConditions is not supported")...)
		errs = append(errs, field.InvalidIf(r.OnExitCodes == nil && len(r.OnPodConditions) == 0, at, field.OmitValueType{},
			"specifying one of OnExitCodes and OnPodConditions is required")...)
	}
	return errs
}

// validateExitCodes validates a set of exit codes. 255 values are all codes of failure (1 to 255). In cannot have
// 0, because a container that succeeds never matches a rule.
func validateExitCodes(
	c *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	operator := path.Child("operator")
	switch {
	case c.Operator == "":
		errs = append(errs, field.Required(operator, fmt.Sprintf("valid values: %q", exitOperators)))
	case !slices.Contains(exitOperators, c.Operator):
		errs = append(errs, field.NotSupported(operator, c.Operator, exitOperators))
	}
	if c.ContainerName != nil &&
		!slices.ContainsFunc(slices.Concat(pod.Containers, pod.InitContainers),
			func(k corev1.Container) bool { return k.Name == *c.ContainerName }) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *c.ContainerName,
			"must be one of the container or initContainer names in the pod template"))
	}
	const most = 255
	values := path.Child("values")
	errs = append(errs, field.InvalidIf(len(c.Values) == 0, values, c.Values, "at least one value is required")...)
	errs = append(errs, field.MaxItems(values, len(c.Values), most)...)
	seen, ordered := sets.New[int32](), true
	for i, v := range c.Values {
		errs = append(errs, field.InvalidIf(v == 0 && c.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn,
			values.Index(i), v, "must not be 0 for the In operator")...)
		errs = append(errs, field.Unique(seen, values.Index(i), v)...)
		ordered = ordered && (i == 0 || c.Values[i-1] <= v)
	}
	return append(errs, field.InvalidIf(!ordered, values, c.Values, "must be ordered")...)
}

// validateSuccessPolicy validates the rules by which an indexed job succeeds early (KEP-3998). For example,
// succeededIndexes "1-4" with succeededCount 3 means any three of these four indexes; a count of 5 is refused.
func validateSuccessPolicy(p *batchv1.SuccessPolicy, s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	const most, mostIndexes = 20, 64 << 10
	path = path.Child("rules")
	if len(p.Rules) == 0 {
		return field.ErrorList{
			field.Required(path, "at least one rules must be specified when the successPolicy is specified")}
	}
	errs := field.MaxItems(path, len(p.Rules), most)
	completions := ptr.Deref(s.Completions, 0)
	for i, r := range p.Rules {
		at := path.Index(i)
		errs = append(errs, field.RequiredIf(r.SucceededCount == nil && r.SucceededIndexes == nil, at,
			"at least one of succeededCount or succeededIndexes must be specified")...)
		var indexes int32
		if r.SucceededIndexes != nil {
			if len(*r.SucceededIndexes) > mostIndexes {
				errs = append(errs, field.TooLong(at.Child("succeededIndexes"), "", mostIndexes))
			}
			n, err := countIndexes(*r.SucceededIndexes, completions)
			if err != nil {
				errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *r.SucceededIndexes,
					fmt.Sprintf("error parsing succeededIndexes: %v", err)))
			}
			indexes = n
		}
		if n := r.SucceededCount; n != nil {
			count := at.Child("succeededCount")
			errs = append(errs, field.NonNegative(count, *n)...)
			if *n > completions {
				errs = append(errs, field.Invalid(count, *n,
					fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
			}
			if r.SucceededIndexes != nil && *n > indexes {
				errs = append(errs, field.Invalid(count, *n,
					fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)",
						indexes)))
			}
		}
	}
	return errs
}

// validateCronJob validates a CronJob. old is nil for a new one; its time zone, and a zone in its schedule, stay valid.
func (g *jobGates) validateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	path, s := field.NewPath("spec"), &c.Spec
	var errs field.ErrorList
	var before *batchv1.JobSpec
	zoned := false
	if old != nil {
		before, zoned = &old.Spec.JobTemplate.Spec, strings.Contains(old.Spec.Schedule, "TZ")
	}
	if s.Schedule == "" {
		errs = append(errs, field.Required(path.Child("schedule"), ""))
	} else {
		errs = append(errs, validateSchedule(s.Schedule, zoned, s.TimeZone, path.Child("schedule"))...)
	}
	if old == nil || !ptr.Equal(s.TimeZone, old.Spec.TimeZone) {
		errs = append(errs, field.Optional(path.Child("timeZone"), s.TimeZone, validateTimeZone)...)
	}
	errs = append(errs, field.Optional(path.Child("startingDeadlineSeconds"), s.StartingDeadlineSeconds,
		field.NonNegative)...)
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	errs = append(errs, field.RequiredOneOf(path.Child("concurrencyPolicy"), s.ConcurrencyPolicy, policies...)...)
	errs = append(errs, field.Optional(path.Child("successfulJobsHistoryLimit"), s.SuccessfulJobsHistoryLimit,
		field.NonNegative)...)
	errs = append(errs, field.Optional(path.Child("failedJobsHistoryLimit"), s.FailedJobsHistoryLimit,
		field.NonNegative)...)
	job := path.Child("jobTemplate", "spec")
	errs = append(errs, g.validateJobTemplateSpec(&s.JobTemplate.Spec, before, job)...)
	// Each job needs a selector of its own; the jobs of one CronJob would share one in the template.
	if m := s.JobTemplate.Spec.ManualSelector; m != nil && *m {
		errs = append(errs, field.NotSupported(job.Child("manualSelector"), *m, []string{"nil", "false"}))
	}
	selector := s.JobTemplate.Spec.Selector
	errs = append(errs, field.InvalidIf(selector != nil, job.Child("selector"), selector,
		"`selector` will be auto-generated")...)
	return append(errs, validateScheduling(&s.JobTemplate.Spec, before, g.scheduling, job.Child("scheduling"))...)
}

// validateSchedule validates a schedule. zoned allows it to name its time zone, if zone does not.
// Such schedules came in before the field timeZone (KEP-3140), without a guarantee. A CronJob that has one keeps
// it.
func validateSchedule(schedule string, zoned bool, zone *string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if err := checkSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	switch {
	case !strings.Contains(schedule, "TZ"):
		return errs
	case !zoned:
		return append(errs, field.Invalid(path, schedule,
			"cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return append(errs, field.InvalidIf(zone != nil, path, schedule,
		"cannot use both timeZone field and TZ or CRON_TZ in schedule")...)
}

// validateTimeZone requires a name of the IANA database, such as Europe/Berlin. "Local" is refused in any case: Go
// would take the zone of the host that runs the controller.
func validateTimeZone(path *field.Path, zone string) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	if strings.EqualFold(zone, "Local") {
		return field.ErrorList{
			field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(zone); err != nil {
		// The text of err depends on where the zones are.
		return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
	}
	return nil
}
