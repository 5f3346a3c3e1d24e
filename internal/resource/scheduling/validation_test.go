package scheduling

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSystemPriorityClassesAreReserved(t *testing.T) {
	for name, c := range map[string]struct {
		class schedulingv1.PriorityClass
		want  string
	}{
		"high": {schedulingv1.PriorityClass{Value: 1000000000}, ""},
		"too-high": {schedulingv1.PriorityClass{Value: 1000000001},
			"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		"system-x": {schedulingv1.PriorityClass{},
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. " +
				"error: system-x is not a known system priority class"},
		"system-node-critical": {schedulingv1.PriorityClass{Value: 1},
			"value of system-node-critical PriorityClass must be 2000001000"},
		"system-cluster-critical": {schedulingv1.PriorityClass{Value: 2000000000, GlobalDefault: true},
			"globalDefault of system-cluster-critical PriorityClass must be false"},
	} {
		c.class.ObjectMeta = metav1.ObjectMeta{Name: name}
		err := validateClass(&c.class).ToAggregate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	whenever := corev1.PreemptionPolicy("Whenever")
	if errs := validatePreemption(&whenever); len(errs) != 1 {
		t.Errorf("%v", errs)
	}
	if err := forbidSystemClassDeletion("system-node-critical"); !kerrors.IsForbidden(err) {
		t.Errorf("a class of the system goes: %v", err)
	}
	if err := forbidSystemClassDeletion("mine"); err != nil {
		t.Error(err)
	}
}
