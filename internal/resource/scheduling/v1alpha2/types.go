// Package v1alpha2 has the Go types of scheduling.k8s.io/v1alpha2: Workloads and PodGroups, which kube-apiserver 1.36
// serves when it is asked to. They are declared here because k8s.io/api has no such package from 0.37 on, and the
// module is to compile with that. JSON and protobuf are those of k8s.io/api 0.36; a test compares them.
package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the group.
const GroupName = "scheduling.k8s.io"

// SchemeGroupVersion is the group and the version.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha2"}

// WorkloadMaxPodGroupTemplates is how many templates a Workload may have.
const WorkloadMaxPodGroupTemplates = 8

// Workload says how pods that belong together are scheduled.
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Spec WorkloadSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
}

// WorkloadSpec has the groups of pods of a Workload.
type WorkloadSpec struct {
	// ControllerRef names the object that creates the pods, such as a Job. nil is none.
	ControllerRef     *TypedLocalObjectReference `json:"controllerRef,omitempty" protobuf:"bytes,1,opt,name=controllerRef"`
	PodGroupTemplates []PodGroupTemplate         `json:"podGroupTemplates" protobuf:"bytes,2,rep,name=podGroupTemplates"`
}

// TypedLocalObjectReference names an object in the same namespace.
type TypedLocalObjectReference struct {
	// APIGroup is empty for the core group.
	APIGroup string `json:"apiGroup,omitempty" protobuf:"bytes,1,opt,name=apiGroup"`
	Kind     string `json:"kind" protobuf:"bytes,2,opt,name=kind"`
	Name     string `json:"name" protobuf:"bytes,3,opt,name=name"`
}

// PodGroupTemplate is what the PodGroups of a Workload are created from.
type PodGroupTemplate struct {
	Name                  string                         `json:"name" protobuf:"bytes,1,opt,name=name"`
	SchedulingPolicy      PodGroupSchedulingPolicy       `json:"schedulingPolicy" protobuf:"bytes,2,opt,name=schedulingPolicy"`
	SchedulingConstraints *PodGroupSchedulingConstraints `json:"schedulingConstraints" protobuf:"bytes,3,opt,name=schedulingConstraints"`
	ResourceClaims        []PodGroupResourceClaim        `json:"resourceClaims,omitempty" protobuf:"bytes,4,rep,name=resourceClaims"`
	DisruptionMode        *DisruptionMode                `json:"disruptionMode,omitempty" protobuf:"bytes,5,opt,name=disruptionMode"`
	PriorityClassName     string                         `json:"priorityClassName,omitempty" protobuf:"bytes,6,opt,name=priorityClassName"`
	Priority              *int32                         `json:"priority,omitempty" protobuf:"varint,7,opt,name=priority"`
}

// PodGroupSchedulingPolicy has exactly one of its fields.
type PodGroupSchedulingPolicy struct {
	// Basic schedules each pod by itself.
	Basic *BasicSchedulingPolicy `json:"basic,omitempty" protobuf:"bytes,1,opt,name=basic"`
	// Gang schedules the pods together.
	Gang *GangSchedulingPolicy `json:"gang,omitempty" protobuf:"bytes,2,opt,name=gang"`
}

// BasicSchedulingPolicy has no options.
type BasicSchedulingPolicy struct{}

// GangSchedulingPolicy says how many pods have to be schedulable before any is scheduled.
type GangSchedulingPolicy struct {
	MinCount int32 `json:"minCount" protobuf:"varint,1,opt,name=minCount"`
}

// PodGroupSchedulingConstraints limits where the pods of a group may run.
type PodGroupSchedulingConstraints struct {
	Topology []TopologyConstraint `json:"topology,omitempty" protobuf:"bytes,1,rep,name=topology"`
}

// TopologyConstraint requires nodes with the same value of a label.
type TopologyConstraint struct {
	Key string `json:"key" protobuf:"bytes,1,opt,name=key"`
}

// PodGroupResourceClaim is a claim that the pods of a group share. It has exactly one of the two references.
type PodGroupResourceClaim struct {
	Name                      string  `json:"name" protobuf:"bytes,1,opt,name=name"`
	ResourceClaimName         *string `json:"resourceClaimName,omitempty" protobuf:"bytes,2,opt,name=resourceClaimName"`
	ResourceClaimTemplateName *string `json:"resourceClaimTemplateName,omitempty" protobuf:"bytes,3,opt,name=resourceClaimTemplateName"`
}

// DisruptionMode says what is disrupted at a time.
type DisruptionMode string

// What may be disrupted at a time: one pod, or the whole group.
const (
	DisruptionModePod      DisruptionMode = "Pod"
	DisruptionModePodGroup DisruptionMode = "PodGroup"
)

// PodGroup is a group of pods at runtime.
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Spec   PodGroupSpec   `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	Status PodGroupStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// PodGroupSpec is how a group is scheduled.
type PodGroupSpec struct {
	PodGroupTemplateRef   *PodGroupTemplateReference     `json:"podGroupTemplateRef" protobuf:"bytes,1,opt,name=podGroupTemplateRef"`
	SchedulingPolicy      PodGroupSchedulingPolicy       `json:"schedulingPolicy" protobuf:"bytes,2,opt,name=schedulingPolicy"`
	SchedulingConstraints *PodGroupSchedulingConstraints `json:"schedulingConstraints,omitempty" protobuf:"bytes,3,opt,name=schedulingConstraints"`
	ResourceClaims        []PodGroupResourceClaim        `json:"resourceClaims,omitempty" protobuf:"bytes,4,rep,name=resourceClaims"`
	DisruptionMode        *DisruptionMode                `json:"disruptionMode,omitempty" protobuf:"bytes,5,opt,name=disruptionMode"`
	PriorityClassName     string                         `json:"priorityClassName,omitempty" protobuf:"bytes,6,opt,name=priorityClassName"`
	Priority              *int32                         `json:"priority,omitempty" protobuf:"varint,7,opt,name=priority"`
}

// PodGroupTemplateReference says what a group was created from.
type PodGroupTemplateReference struct {
	Workload *WorkloadPodGroupTemplateReference `json:"workload" protobuf:"bytes,1,opt,name=workload"`
}

// WorkloadPodGroupTemplateReference names a template of a Workload.
type WorkloadPodGroupTemplateReference struct {
	WorkloadName         string `json:"workloadName" protobuf:"bytes,1,opt,name=workloadName"`
	PodGroupTemplateName string `json:"podGroupTemplateName" protobuf:"bytes,2,opt,name=podGroupTemplateName"`
}

// PodGroupStatus is what was found out about a group.
type PodGroupStatus struct {
	Conditions            []metav1.Condition            `json:"conditions,omitempty" protobuf:"bytes,1,rep,name=conditions"`
	ResourceClaimStatuses []PodGroupResourceClaimStatus `json:"resourceClaimStatuses,omitempty" protobuf:"bytes,2,rep,name=resourceClaimStatuses"`
}

// Types of conditions of a PodGroup.
const (
	PodGroupScheduled = "PodGroupScheduled"
	DisruptionTarget  = "DisruptionTarget"
)

// PodGroupResourceClaimStatus is the claim that was created from a template.
type PodGroupResourceClaimStatus struct {
	Name              string  `json:"name" protobuf:"bytes,1,name=name"`
	ResourceClaimName *string `json:"resourceClaimName,omitempty" protobuf:"bytes,2,opt,name=resourceClaimName"`
}
