package ttlafterfinished

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpiry(t *testing.T) {
	at := time.Unix(1000, 0)
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus, at time.Time) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(at)}
	}
	ttl := func(n int32) *int32 { return &n }
	for name, test := range map[string]struct {
		ttl        *int32
		conditions []batchv1.JobCondition
		deleted    bool
		want       time.Time // zero: never
		fails      bool
	}{
		"complete":  {ttl(10), []batchv1.JobCondition{condition(batchv1.JobComplete, corev1.ConditionTrue, at)}, false, at.Add(10 * time.Second), false},
		"failed":    {ttl(0), []batchv1.JobCondition{condition(batchv1.JobFailed, corev1.ConditionTrue, at)}, false, at, false},
		"no ttl":    {nil, []batchv1.JobCondition{condition(batchv1.JobComplete, corev1.ConditionTrue, at)}, false, time.Time{}, false},
		"running":   {ttl(10), nil, false, time.Time{}, false},
		"suspended": {ttl(10), []batchv1.JobCondition{condition(batchv1.JobSuspended, corev1.ConditionTrue, at)}, false, time.Time{}, false},
		"false":     {ttl(10), []batchv1.JobCondition{condition(batchv1.JobComplete, corev1.ConditionFalse, at)}, false, time.Time{}, false},
		"deleted":   {ttl(10), []batchv1.JobCondition{condition(batchv1.JobComplete, corev1.ConditionTrue, at)}, true, time.Time{}, false},
		"no time":   {ttl(10), []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}, false, time.Time{}, true},
	} {
		job := &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: test.ttl}, Status: batchv1.JobStatus{Conditions: test.conditions}}
		if test.deleted {
			job.DeletionTimestamp = &metav1.Time{Time: at}
		}
		got, ok, err := expiry(job)
		if !got.Equal(test.want) || ok == test.want.IsZero() || (err != nil) != test.fails {
			t.Errorf("%s: %v %v %v, want %v", name, got, ok, err, test.want)
		}
	}
}
