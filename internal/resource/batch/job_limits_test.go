package batch

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestLimitsOfJobs checks the limits that keep the status of a Job small, with the errors of kube-apiserver 1.37.2.
func TestLimitsOfJobs(t *testing.T) {
	indexed := func(change func(*batchv1.JobSpec)) *batchv1.JobSpec {
		s := &batchv1.JobSpec{
			CompletionMode: new(batchv1.IndexedCompletion), Completions: new(int32(100_001)), Parallelism: new(int32(10_000)),
			BackoffLimitPerIndex: new(int32(1)), MaxFailedIndexes: new(int32(10_000)),
		}
		change(s)
		return s
	}
	const above = ": must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
	for name, c := range map[string]struct {
		spec *batchv1.JobSpec
		want []string
	}{
		"as much as is allowed": {indexed(func(*batchv1.JobSpec) {}), nil},
		"no limit of failures": {indexed(func(s *batchv1.JobSpec) { s.MaxFailedIndexes = nil }),
			[]string{"s.maxFailedIndexes: Required value: must be specified when completions is above 100000"}},
		"too much": {indexed(func(s *batchv1.JobSpec) { *s.MaxFailedIndexes, *s.Parallelism = 10_001, 10_001 }),
			[]string{"s.parallelism: Invalid value: 10001" + above, "s.maxFailedIndexes: Invalid value: 10001" + above}},
		"no completions": {indexed(func(s *batchv1.JobSpec) { s.Completions, *s.MaxFailedIndexes = nil, 100_001 }), []string{
			"s.completions: Required value: when completion mode is Indexed",
			"s.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000",
		}},
		"fewer completions": {indexed(func(s *batchv1.JobSpec) {
			*s.Completions, *s.Parallelism, s.MaxFailedIndexes = 100_000, 10_001, nil
		}), nil},
		"no limit for each index": {indexed(func(s *batchv1.JobSpec) {
			*s.Parallelism, s.MaxFailedIndexes, s.BackoffLimitPerIndex = 10_001, nil, nil
		}), nil},
	} {
		if got := texts(validateIndexed(c.spec, field.NewPath("s"))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	conditions := make([]batchv1.PodFailurePolicyOnPodConditionsPattern, 21)
	for i := range conditions {
		conditions[i] = batchv1.PodFailurePolicyOnPodConditionsPattern{Type: "Ready", Status: corev1.ConditionTrue}
	}
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: conditions},
	}}
	if got, want := texts(validateFailurePolicy(policy, &batchv1.JobSpec{}, field.NewPath("p"))),
		[]string{"p.rules[0].onPodConditions: Too many: 21: must have at most 20 items"}; !slices.Equal(got, want) {
		t.Errorf("conditions: %q, want %q", got, want)
	}

	success := &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new(strings.Repeat("1,", 32<<10) + "1")}}}
	got := texts(validateSuccessPolicy(success, &batchv1.JobSpec{Completions: new(int32(10))}, field.NewPath("p")))
	if len(got) != 2 || got[0] != "p.rules[0].succeededIndexes: Too long: may not be more than 65536 bytes" {
		t.Errorf("indexes: %.200q", got)
	}
}

func texts(errs field.ErrorList) (out []string) {
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}
