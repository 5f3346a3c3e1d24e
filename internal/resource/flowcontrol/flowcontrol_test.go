package flowcontrol

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(), kindtest.Options{SetByOthers: map[string][]string{"flowschemas": {"status"}}})
}

func TestCases(t *testing.T) { kindtest.Cases(t, Kinds()) }

// TestPreserveZeroAnnotation refuses the annotation of v1beta3, before errors of the spec.
func TestPreserveZeroAnnotation(t *testing.T) {
	errs := validatePriorityLevel(&flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
			"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{LimitResponse: flowcontrolv1.LimitResponse{Type: "X"}}},
	})
	const want = "metadata.annotations: Forbidden: annotation " +
		"'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden"
	if len(errs) != 2 || errs[0].Error() != want {
		t.Errorf("got %v, want first %s", errs, want)
	}
}
