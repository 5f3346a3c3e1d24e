package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// conditionTypes are the conditions of a namespace that is being deleted, in the order in which they are added. The
// texts in this file are those of kube-controller-manager.
var conditionTypes = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure,
	corev1.NamespaceDeletionGVParsingFailure,
	corev1.NamespaceDeletionContentFailure,
	corev1.NamespaceContentRemaining,
	corev1.NamespaceFinalizersRemaining,
}

// fine has the reason and the message of each condition when it is False.
var fine = map[corev1.NamespaceConditionType][2]string{
	corev1.NamespaceDeletionDiscoveryFailure: {"ResourcesDiscovered", "All resources successfully discovered"},
	corev1.NamespaceDeletionGVParsingFailure: {"ParsedGroupVersions", "All legacy kube types successfully parsed"},
	corev1.NamespaceDeletionContentFailure: {
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization",
	},
	corev1.NamespaceContentRemaining:    {"ContentRemoved", "All content successfully removed"},
	corev1.NamespaceFinalizersRemaining: {"ContentHasNoFinalizers", "All content-preserving finalizers finished"},
}

// outcome is the result of one pass over the content of a namespace.
type outcome struct {
	// stale are the versions of groups whose resources are not known.
	stale []schema.GroupVersion
	// failed contains the reasons why content could not be deleted.
	failed []error
	// remaining is the number of objects of each resource that still exist, finalizers the number of them that have a
	// finalizer.
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
	// estimate is the expected time in seconds until the remaining objects are gone; 0 means that none are expected to
	// remain.
	estimate int64
}

// conditions returns the conditions of the outcome that are True.
func (o *outcome) conditions() map[corev1.NamespaceConditionType]corev1.NamespaceCondition {
	out := map[corev1.NamespaceConditionType]corev1.NamespaceCondition{}
	add := func(t corev1.NamespaceConditionType, reason, message string) {
		out[t] = corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	if len(o.stale) > 0 {
		add(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", fmt.Sprintf(
			"Discovery failed for some groups, %d failing: %v", len(o.stale), o.discoveryError()))
	}
	if len(o.failed) > 0 {
		texts := make([]string, len(o.failed))
		for i, err := range o.failed {
			texts[i] = shorten(err.Error())
		}
		slices.Sort(texts)
		add(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed", fmt.Sprintf(
			"Failed to delete all resource types, %d remaining: %v", len(texts), strings.Join(texts, ", ")))
	}
	if len(o.remaining) > 0 {
		var texts []string
		for r, n := range o.remaining {
			texts = append(texts, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, n))
		}
		slices.Sort(texts)
		add(corev1.NamespaceContentRemaining, "SomeResourcesRemain",
			"Some resources are remaining: "+strings.Join(texts, ", "))
	}
	if len(o.finalizers) > 0 {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(o.finalizers)) {
			texts = append(texts, fmt.Sprintf("%s in %d resource instances", shorten(name), o.finalizers[name]))
		}
		add(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+strings.Join(texts, ", "))
	}
	return out
}

// maxText limits the bytes of an error or name in a condition. An extension API server can choose both.
const maxText = 1 << 10

// shorten returns at most the first maxText bytes of a text, without a part of a character at the end.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// discoveryError returns an error that names the group versions whose resources are not known, in the words of
// client-go. It is nil if all are known.
func (o *outcome) discoveryError() error {
	if len(o.stale) == 0 {
		return nil
	}
	var texts []string
	for _, gv := range o.stale {
		texts = append(texts, fmt.Sprintf("%s: stale GroupVersion discovery: %s", gv, gv))
	}
	slices.Sort(texts)
	return fmt.Errorf("unable to retrieve the complete list of server APIs: %s", strings.Join(texts, ", "))
}

// setConditions sets the conditions of a namespace. It reports whether any has changed.
func (o *outcome) setConditions(status *corev1.NamespaceStatus, now metav1.Time) (changed bool) {
	found := o.conditions()
	for _, t := range conditionTypes {
		next, ok := found[t]
		if !ok {
			next = corev1.NamespaceCondition{
				Type: t, Status: corev1.ConditionFalse, Reason: fine[t][0], Message: fine[t][1],
			}
		}
		next.LastTransitionTime = now
		i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == t })
		if i < 0 {
			status.Conditions = append(status.Conditions, next)
			changed = true
			continue
		}
		old := &status.Conditions[i]
		if old.Status != next.Status || old.Reason != next.Reason || old.Message != next.Message {
			*old = next
			changed = true
		}
	}
	return changed
}
