// Package history has the types of history.keelson.dev/v1alpha1, and finds which fields a change has changed. Package rest serves the
// history of an object, package changes the changes of all; docs/history.md describes both for users.
package history

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Group, Version and APIVersion name the API of the types in this package.
const (
	Group      = request.HiddenGroup
	Version    = request.HiddenVersion
	APIVersion = Group + "/" + Version
)

// ObjectHistory is the answer of the subresource history of an object: its changes, the newest first.
type ObjectHistory struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Change `json:"items"`
}

// ChangeType is what a change did to the object.
type ChangeType string

const (
	Created ChangeType = "Created"
	Updated ChangeType = "Updated"
	Deleted ChangeType = "Deleted"
	// Expired means that the time to live of an Event has ended.
	Expired ChangeType = "Expired"
)

// Change is a change of an object. Fields that are not known are empty. A store with history keeps who made a
// change for as long as it keeps the version before the change. Later the time (in seconds) and the field manager
// come from managedFields.
type Change struct {
	Type ChangeType `json:"type,omitempty"`
	// ResourceVersion is the one that the object has after the change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Time is when the change was written, in UTC with milliseconds.
	Time *metav1.MicroTime `json:"time,omitempty"`
	UID  types.UID         `json:"uid,omitempty"`

	User         string `json:"user,omitempty"`
	Impersonator string `json:"impersonator,omitempty"`
	Verb         string `json:"verb,omitempty"`
	Subresource  string `json:"subresource,omitempty"`
	FieldManager string `json:"fieldManager,omitempty"`
	UserAgent    string `json:"userAgent,omitempty"`
	AuditID      string `json:"auditID,omitempty"`
	Reason       string `json:"reason,omitempty"`

	// Changed are the paths of the fields that were added, changed or removed, at most MaxChanged and 16 KiB; MoreChanged is the
	// number of the others. resourceVersion, generation and managedFields are left out.
	Changed     []string `json:"changed,omitempty"`
	MoreChanged int      `json:"moreChanged,omitempty"`
	// Object is the object after the change, if the request asks for objects.
	Object any `json:"object,omitempty"`
	// Unreadable says why the stored value of the object cannot be read.
	Unreadable string `json:"unreadable,omitempty"`
}

// ChangeList is the answer of the resource changes: changes of objects, in the order in which they were made.
type ChangeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ObjectChange `json:"items"`
}

// ObjectChange is a change together with the resource, namespace and name of the changed object.
type ObjectChange struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        ChangeMetadata `json:"metadata"`

	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Change    `json:",inline"`
}

// ChangeMetadata is the metadata of a change, for clients that expect metadata in every object. The name is unique
// in the namespace; CreationTimestamp is Change.Time.
type ChangeMetadata struct {
	Name              string       `json:"name"`
	Namespace         string       `json:"namespace,omitempty"`
	ResourceVersion   string       `json:"resourceVersion"`
	CreationTimestamp *metav1.Time `json:"creationTimestamp,omitempty"`
}

// MaxChanged is the largest number of paths in a Change.
const MaxChanged = 200

// TimeOf returns t as Change.Time has it: in UTC, and nil if t is zero.
func TimeOf(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC()}
}
