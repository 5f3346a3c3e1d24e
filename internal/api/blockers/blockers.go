// Package blockers finds out why an object is stuck: what its deletion waits for, and which of its conditions do
// not hold. An answer contains only what is stored and what this server has seen of webhooks; it has no guesses.
// Package rest serves it as the subresource blockers; docs/history.md describes it for users.
//
// Files: blockers.go declares the answer, finder.go puts it together, access.go decides what a user may see,
// finalizers.go and conditions.go read the object itself, scan.go looks for other objects, kinds.go handles pods,
// volumes and definitions, and failing.go handles failing webhooks and APIServices.
package blockers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// Kind and APIVersion are the kind and the apiVersion of an ObjectBlockers.
const (
	Kind       = "ObjectBlockers"
	APIVersion = history.APIVersion
)

// ObjectBlockers is the answer of the subresource blockers of an object.
type ObjectBlockers struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Object          Object `json:"object"`
	// DeletionTimestamp is metadata.deletionTimestamp of the object: the time of the delete request plus the grace
	// period. It is nil if the object is not being deleted.
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	// Deletion is the change that began the deletion, if the history reaches back to it and the user may read it.
	Deletion *history.Change `json:"deletion,omitempty"`
	// LastChange is the last change of the object, from the history, or from managedFields if the history cannot
	// be read.
	LastChange *history.Change `json:"lastChange,omitempty"`
	// Items are in the order in which it is best to look at them. The list is empty if nothing was found that the object waits
	// for.
	Items []Blocker `json:"items"`
	// NotExamined lists in sentences what was not examined, because a limit was reached or because it cannot be
	// read.
	NotExamined []string `json:"notExamined,omitempty"`
}

// Type is what kind of thing an object waits for.
type Type string

const (
	// GracePeriod means that the containers of a Pod have not ended, or that the kubelet has not confirmed it.
	GracePeriod Type = "GracePeriod"
	// Finalizer is an entry of metadata.finalizers, or of spec.finalizers of a Namespace.
	Finalizer Type = "Finalizer"
	// Dependent are objects of a resource that refer to the object and have to go first.
	Dependent Type = "Dependent"
	// NamespaceContent are the objects of a resource in a Namespace that is being deleted.
	NamespaceContent Type = "NamespaceContent"
	// APIService is an APIService whose server is not available, so that the server cannot know all content of a
	// Namespace.
	APIService Type = "APIService"
	// Webhook is a webhook that fails, and that is called for changes of the object.
	Webhook Type = "Webhook"
	// Generation means that a controller has not acted on the last change of the object.
	Generation Type = "Generation"
	// Condition is a condition of the object that does not hold.
	Condition Type = "Condition"
)

// Blocker is one thing that an object waits for.
type Blocker struct {
	Type Type `json:"type"`
	// Name is the name of the finalizer, the condition, the webhook or the APIService. For other objects it is their resource with its
	// group.
	Name string `json:"name"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Since is when the object began to wait for it; nil if that is not known.
	Since *metav1.Time `json:"since,omitempty"`
	// Owner is who has to act; "" if that is not known.
	Owner string `json:"owner,omitempty"`
	// Change is the change that added the finalizer. If the history does not have it, it is the last change of the
	// field manager that owns the finalizer. It is nil for other types.
	Change *history.Change `json:"change,omitempty"`
	// Count is the number of objects that the item is about. Objects names some of them: at most 20, and only
	// objects that the user may list.
	Count   int      `json:"count,omitempty"`
	Objects []Object `json:"objects,omitempty"`
}

// Object names an object.
type Object struct {
	Group     string    `json:"group,omitempty"`
	Version   string    `json:"version"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// Deleting means that the deletion of the object has begun. It is not set in ObjectBlockers.Object; see
	// DeletionTimestamp there.
	Deleting bool `json:"deleting,omitempty"`
	// Finalizers are the finalizers of the object, at most 20.
	Finalizers []Holder `json:"finalizers,omitempty"`
}

// Holder is a finalizer of another object. Owner has to remove it; "" if the owner is not known.
type Holder struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
}
