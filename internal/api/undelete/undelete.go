// Package undelete finds how deleted objects can be brought back. Its answer is a Plan: which objects to create, in
// which order, and what is left out for which reason. The package only reads, with the permissions of the user.
// Clients create the objects, so every check of a write applies to them. Package rest serves it as the subresources
// undelete and revert; docs/history.md describes it for users.
//
// Files: undelete.go has the types of the answer, planner.go finds the objects (with resources.go and budget.go),
// order.go decides their order and what is left out, clean.go makes the objects that are created, write.go writes the
// answer.
package undelete

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of an answer, of the version history.APIVersion.
const Kind = "UndeletePlan"

// UndeletedUID is the annotation of an object that came back, with the UID that it had before.
const UndeletedUID = "history.keelson.dev/undeleted-uid"

// Exists is the text of Step.Skip if an object of this name exists already.
const Exists = "an object of this name exists"

// Plan is an answer as clients decode it; the server writes it step by step.
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	// Left lists the resources and objects that do not come back, with the reason for each.
	Left []Left `json:"left"`
	// Steps are in the order in which objects are created: an owner is before what it owns.
	Steps []Step `json:"steps"`
}

// Left is a resource, or if it has a name an object, that is left out.
type Left struct {
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Reason    string `json:"reason"`
	// Refused means that only an error or a missing permission keeps it from coming back, such as a failed read.
	Refused bool `json:"refused,omitempty"`
}

// Step is an object that is created, or with revert updated, unless Skip says why not.
type Step struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is the UID that the object had. Owner references and managedFields of later steps have it if the owner is created by this
	// step. The client replaces it by the UID of the created object. If it could not create the object, it drops the reference.
	UID  types.UID `json:"uid,omitempty"`
	Skip string    `json:"skip,omitempty"`
	// Refused means that only an error keeps the object from coming back: Skip says which.
	Refused bool `json:"refused,omitempty"`
	// Object is the object that the client sends.
	Object map[string]any `json:"object,omitempty"`
	// Notes say what is different from the object as it was.
	Notes []string `json:"notes,omitempty"`
	// Alternatives are other objects for the client to send, one after the other, if the server answers that the
	// object is invalid.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// ManagedFields are the entries that a second update writes to the object, in addition to the entries that other managers
	// have then. Nil means that there is no second update.
	ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
	// ContentAsOf is set if more objects come back with this one, but can only be planned when it exists again, such as
	// the objects of a definition. The client then asks again, with this value as asOf.
	ContentAsOf string `json:"contentAsOf,omitempty"`
}

// Alternative is another form in which an object may be created.
type Alternative struct {
	Object map[string]any `json:"object"`
	Note   string         `json:"note"`
}
