package blockers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// negative has the conditions that should be False: True means that something is wrong or not finished. The same
// holds for all names that end with one of negativeEndings. All other conditions should be True.
var (
	negative = []string{
		"Conflicted", "Dangling", "Degraded", "Deleting", "Denied", "DisruptionTarget", "Failed", "FailureTarget", "InvalidRequest", "Issuing",
		"KernelDeadlock", "NonStructuralSchema", "Paused", "ReadonlyFilesystem", "Reconciling", "Resizing", "ScalingLimited", "Stalled",
		"Suspended", "Terminating",
	}
	negativeEndings = []string{"Error", "Failed", "Failure", "Pending", "Pressure", "Problem", "Remaining", "Unavailable"}
)

// isNegative reports whether a condition should be False.
func isNegative(name string) bool {
	ends := func(end string) bool { return strings.HasSuffix(name, end) }
	return slices.Contains(negative, name) || slices.ContainsFunc(negativeEndings, ends)
}

// addConditions adds the conditions of the object that do not hold.
func (s *search) addConditions() {
	var status struct{ Conditions []json.RawMessage }
	if json.Unmarshal(s.status, &status) != nil {
		return // a custom resource may have anything there
	}
	_, isNode := s.obj.(*corev1.Node) // all conditions of a Node but Ready report problems
	for _, text := range status.Conditions {
		var c metav1.Condition
		if json.Unmarshal(text, &c) != nil || c.Type == "" || c.Status == "" {
			continue
		}
		good := metav1.ConditionTrue
		if isNegative(c.Type) || isNode && c.Type != string(corev1.NodeReady) {
			good = metav1.ConditionFalse
		}
		if c.Status == good || c.Reason == "PodCompleted" {
			continue // a pod that has ended is not Ready, and that is normal
		}
		b := Blocker{Type: Condition, Name: c.Type, Message: fmt.Sprintf("It is %s", c.Status)}
		if c.Reason != "" {
			b.Message += " with the reason " + c.Reason
		}
		if c.Message == "" {
			b.Message += "."
		} else {
			b.Message += ": " + shorten(c.Message)
		}
		if !c.LastTransitionTime.IsZero() {
			b.Since = &c.LastTransitionTime
		}
		s.add(b)
	}
}

// addGeneration adds a Blocker if status.observedGeneration is less than metadata.generation: a controller has not
// acted on the last change.
func (s *search) addGeneration() {
	var status struct{ ObservedGeneration *int64 }
	if json.Unmarshal(s.status, &status) != nil || status.ObservedGeneration == nil || *status.ObservedGeneration >= s.obj.GetGeneration() {
		return
	}
	s.add(Blocker{Type: Generation, Name: "observedGeneration", Message: fmt.Sprintf(
		"Its controller has not acted on the last change: the generation is %d, it has observed %d.",
		s.obj.GetGeneration(), *status.ObservedGeneration)})
}
