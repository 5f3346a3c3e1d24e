// Package blockers answers why an object is stuck: what its deletion waits for, and which of its conditions do not hold. It tells
// what is stored, and what this server has seen of webhooks; it does not guess. Package rest serves it as the subresource blockers;
// docs/history.md describes it for users.
//
// Files: blockers.go has the answer, finder.go the order in which it is put together, access.go what a user may see,
// finalizers.go and conditions.go read the object itself, scan.go looks for other objects, kinds.go has what is special about
// pods, volumes and definitions, failing.go the webhooks and APIServices.
package blockers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// Kind and APIVersion are those of the answer.
const (
	Kind       = "ObjectBlockers"
	APIVersion = history.APIVersion
)

// ObjectBlockers is the answer of the subresource blockers of an object.
type ObjectBlockers struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Object          Object `json:"object"`
	// DeletionTimestamp is when the deletion was asked for, or with a grace period when that ends; nil if the object is not being
	// deleted.
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	// Deletion is the change that began the deletion, if the history reaches back to it and the user may read it.
	Deletion *history.Change `json:"deletion,omitempty"`
	// LastChange is what last touched the object: from the history, or what managedFields say about it.
	LastChange *history.Change `json:"lastChange,omitempty"`
	// Items are in the order in which it is best to look at them. The list is empty if nothing was found that the object waits
	// for.
	Items []Blocker `json:"items"`
	// NotExamined says in sentences what was left out, because a limit was reached or it cannot be read.
	NotExamined []string `json:"notExamined,omitempty"`
}

// Type is what kind of thing an object waits for.
type Type string

const (
	// GracePeriod is the time that the containers of a Pod have to end, and the kubelet that confirms it.
	GracePeriod Type = "GracePeriod"
	// Finalizer is an entry of metadata.finalizers, or of spec.finalizers of a Namespace.
	Finalizer Type = "Finalizer"
	// Dependent are objects of a resource that refer to the object and have to go first.
	Dependent Type = "Dependent"
	// NamespaceContent are the objects of a resource in a Namespace that is being deleted.
	NamespaceContent Type = "NamespaceContent"
	// APIService is a version of a group whose server is not available, so that the content of a Namespace is not known.
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
	// Change is the change that made it: it added the finalizer.
	Change *history.Change `json:"change,omitempty"`
	// Count is the number of objects that the item is about, Objects those of them that are named: at most 20 of a resource, and
	// only what the user may list.
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
	// Deleting means that the deletion of the object has begun. For the object that was asked for, DeletionTimestamp says it.
	Deleting bool `json:"deleting,omitempty"`
	// Finalizers are what the object itself waits for when it is deleted, at most 20.
	Finalizers []Holder `json:"finalizers,omitempty"`
}

// Holder is a finalizer of another object, with who has to remove it; "" if that is not known.
type Holder struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
}
