package namespace

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestConditionsAreBounded uses an extension API server that returns long errors and many long finalizers.
func TestConditionsAreBounded(t *testing.T) {
	f := &found{finalizers: map[string]int{}}
	for i := range 10 * maxFinalizers {
		f.count([]string{"known", fmt.Sprintf("%d-%s", i, strings.Repeat("ü", maxText))})
	}
	if len(f.finalizers) != maxFinalizers || f.finalizers["known"] != 10*maxFinalizers {
		t.Errorf("%d finalizers, one of them %d times", len(f.finalizers), f.finalizers["known"])
	}
	o := &outcome{
		failed:     []error{errors.New("short"), errors.New(strings.Repeat("x", 1<<20))},
		remaining:  map[schema.GroupVersionResource]int{{Resource: "foos"}: 1},
		finalizers: f.finalizers,
	}
	var status corev1.NamespaceStatus
	o.setConditions(&status, metav1.Now())
	const most = (maxFinalizers + 1) * (maxText + 100)
	for _, c := range status.Conditions {
		if len(c.Message) > most {
			t.Errorf("%s has %d bytes", c.Type, len(c.Message))
		}
		if c.Type == corev1.NamespaceDeletionContentFailure &&
			!strings.HasPrefix(c.Message, "Failed to delete all resource types, 2 remaining: short, xxx") {
			t.Errorf("%.100s", c.Message)
		}
	}
}
