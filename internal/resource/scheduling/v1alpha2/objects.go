package v1alpha2

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/protostruct"
)

// The methods of API types, which are generated in k8s.io/api.

// DeepCopyObject implements runtime.Object.
func (w *Workload) DeepCopyObject() runtime.Object { return w.DeepCopy() }

// DeepCopy returns a copy that shares nothing with w; nil of nil.
func (w *Workload) DeepCopy() *Workload {
	if w == nil {
		return nil
	}
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.ControllerRef = pointer(w.Spec.ControllerRef)
	out.Spec.PodGroupTemplates = slice(w.Spec.PodGroupTemplates, func(t *PodGroupTemplate) {
		t.SchedulingPolicy = t.SchedulingPolicy.copied()
		t.SchedulingConstraints = t.SchedulingConstraints.copied()
		t.ResourceClaims = copiedClaims(t.ResourceClaims)
		t.DisruptionMode, t.Priority = pointer(t.DisruptionMode), pointer(t.Priority)
	})
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *PodGroup) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy returns a copy that shares nothing with p; nil of nil.
func (p *PodGroup) DeepCopy() *PodGroup {
	if p == nil {
		return nil
	}
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	s := &out.Spec
	if r := pointer(s.PodGroupTemplateRef); r != nil {
		r.Workload = pointer(r.Workload)
		s.PodGroupTemplateRef = r
	}
	s.SchedulingPolicy, s.SchedulingConstraints = s.SchedulingPolicy.copied(), s.SchedulingConstraints.copied()
	s.ResourceClaims = copiedClaims(s.ResourceClaims)
	s.DisruptionMode, s.Priority = pointer(s.DisruptionMode), pointer(s.Priority)
	out.Status.Conditions = slice(p.Status.Conditions, nil)
	out.Status.ResourceClaimStatuses = slice(p.Status.ResourceClaimStatuses, func(c *PodGroupResourceClaimStatus) {
		c.ResourceClaimName = pointer(c.ResourceClaimName)
	})
	return &out
}

func (p PodGroupSchedulingPolicy) copied() PodGroupSchedulingPolicy {
	return PodGroupSchedulingPolicy{Basic: pointer(p.Basic), Gang: pointer(p.Gang)}
}

func (c *PodGroupSchedulingConstraints) copied() *PodGroupSchedulingConstraints {
	if c == nil {
		return nil
	}
	return &PodGroupSchedulingConstraints{Topology: slice(c.Topology, nil)}
}

func copiedClaims(claims []PodGroupResourceClaim) []PodGroupResourceClaim {
	return slice(claims, func(c *PodGroupResourceClaim) {
		c.ResourceClaimName = pointer(c.ResourceClaimName)
		c.ResourceClaimTemplateName = pointer(c.ResourceClaimTemplateName)
	})
}

// pointer returns a pointer to a copy of a value without pointers; nil of nil.
func pointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// slice returns a copy of a slice, nil of nil. deepen copies what an element points to; nil copies nothing more.
func slice[T any](list []T, deepen func(*T)) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(list))
	copy(out, list)
	for i := range out {
		if deepen != nil {
			deepen(&out[i])
		}
	}
	return out
}

// Marshal returns the protobuf message.
func (w *Workload) Marshal() ([]byte, error) { return protostruct.Append(nil, w) }

// Marshal returns the protobuf message.
func (p *PodGroup) Marshal() ([]byte, error) { return protostruct.Append(nil, p) }

// Unmarshal decodes a protobuf message.
func (w *Workload) Unmarshal(data []byte) error { return protostruct.Unmarshal(data, w) }

// Unmarshal decodes a protobuf message.
func (p *PodGroup) Unmarshal(data []byte) error { return protostruct.Unmarshal(data, p) }

// Size returns the length of the protobuf message.
func (w *Workload) Size() int { return size(w) }

// Size returns the length of the protobuf message.
func (p *PodGroup) Size() int { return size(p) }

// MarshalToSizedBuffer writes the protobuf message to the end of a buffer and returns its length.
func (w *Workload) MarshalToSizedBuffer(data []byte) (int, error) { return marshalToEnd(w, data) }

// MarshalToSizedBuffer writes the protobuf message to the end of a buffer and returns its length.
func (p *PodGroup) MarshalToSizedBuffer(data []byte) (int, error) { return marshalToEnd(p, data) }

// Reset sets all fields to their zero values.
func (w *Workload) Reset() { *w = Workload{} }

// Reset sets all fields to their zero values.
func (p *PodGroup) Reset() { *p = PodGroup{} }

func size(v any) int {
	b, err := protostruct.Append(nil, v)
	if err != nil {
		return 0 // marshalToEnd returns the error
	}
	return len(b)
}

func marshalToEnd(v any, data []byte) (int, error) {
	b, err := protostruct.Append(nil, v)
	if err == nil && len(b) > len(data) {
		err = fmt.Errorf("%T: %d bytes do not fit into %d", v, len(b), len(data))
	}
	if err != nil {
		return 0, err
	}
	return copy(data[len(data)-len(b):], b), nil
}
