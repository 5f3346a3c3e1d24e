package dra

import (
	"encoding/json"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// This file converts between resource.k8s.io/v1beta1 and v1. They differ in two types: a request of v1beta1 has the
// fields that v1 has in "exactly", and a device has in "basic" what it has itself in v1. Everything else has the same
// protobuf message in both versions.

func v1beta1Class() registry.Version {
	return declare.SameMessage[resourcev1beta1.DeviceClass, resourcev1.DeviceClass]("v1beta1", nil)
}

// v1beta1Claim returns the version v1beta1 of claims. It converts the requests on their own, and everything else
// by its protobuf message. The input is copied first, because conversions must not change it.
func v1beta1Claim() registry.Version {
	v := declare.Version("v1beta1", func(c *resourcev1beta1.ResourceClaim) {
		defaultV1beta1Requests(c.Spec.Devices.Requests)
		if a := c.Status.Allocation; a != nil {
			for i := range a.Devices.Results {
				defaultV1beta1Tolerations(a.Devices.Results[i].Tolerations)
			}
		}
	})
	v.ToStorage = registry.Converter(func(in *resourcev1beta1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
		rest := *in
		rest.Spec.Devices.Requests = nil
		out, err := declare.Recode[resourcev1.ResourceClaim](&rest)
		if err == nil {
			out.Spec.Devices.Requests, err = requestsToV1(in.Spec.Devices.Requests)
		}
		return out, err
	})
	v.FromStorage = registry.Converter(func(in *resourcev1.ResourceClaim) (*resourcev1beta1.ResourceClaim, error) {
		rest := *in
		rest.Spec.Devices.Requests = nil
		out, err := declare.Recode[resourcev1beta1.ResourceClaim](&rest)
		if err == nil {
			out.Spec.Devices.Requests, err = requestsFromV1(in.Spec.Devices.Requests)
		}
		return out, err
	})
	return v
}

// v1beta1Template converts templates as v1beta1Claim converts claims.
func v1beta1Template() registry.Version {
	v := declare.Version("v1beta1", func(t *resourcev1beta1.ResourceClaimTemplate) {
		defaultV1beta1Requests(t.Spec.Spec.Devices.Requests)
	})
	v.ToStorage = registry.Converter(
		func(in *resourcev1beta1.ResourceClaimTemplate) (*resourcev1.ResourceClaimTemplate, error) {
			rest := *in
			rest.Spec.Spec.Devices.Requests = nil
			out, err := declare.Recode[resourcev1.ResourceClaimTemplate](&rest)
			if err == nil {
				out.Spec.Spec.Devices.Requests, err = requestsToV1(in.Spec.Spec.Devices.Requests)
			}
			return out, err
		})
	v.FromStorage = registry.Converter(
		func(in *resourcev1.ResourceClaimTemplate) (*resourcev1beta1.ResourceClaimTemplate, error) {
			rest := *in
			rest.Spec.Spec.Devices.Requests = nil
			out, err := declare.Recode[resourcev1beta1.ResourceClaimTemplate](&rest)
			if err == nil {
				out.Spec.Spec.Devices.Requests, err = requestsFromV1(in.Spec.Spec.Devices.Requests)
			}
			return out, err
		})
	return v
}

func v1beta1Slice() registry.Version {
	v := declare.Version("v1beta1", func(s *resourcev1beta1.ResourceSlice) {
		for i := range s.Spec.Devices {
			if b := s.Spec.Devices[i].Basic; b != nil {
				for k := range b.Taints {
					declare.Pointer(&b.Taints[k].TimeAdded, now())
				}
			}
		}
	})
	v.ToStorage = registry.Converter(func(in *resourcev1beta1.ResourceSlice) (*resourcev1.ResourceSlice, error) {
		rest := *in
		rest.Spec.Devices = nil
		out, err := declare.Recode[resourcev1.ResourceSlice](&rest)
		if err != nil {
			return nil, err
		}
		// v1beta1 does not distinguish empty from missing.
		if in.Spec.NodeName == "" {
			out.Spec.NodeName = nil
		}
		if !in.Spec.AllNodes {
			out.Spec.AllNodes = nil
		}
		out.Spec.Devices, err = each(in.Spec.Devices, deviceToV1)
		return out, err
	})
	v.FromStorage = registry.Converter(func(in *resourcev1.ResourceSlice) (*resourcev1beta1.ResourceSlice, error) {
		rest := *in
		rest.Spec.Devices = nil
		out, err := declare.Recode[resourcev1beta1.ResourceSlice](&rest)
		if err == nil {
			out.Spec.Devices, err = each(in.Spec.Devices, deviceFromV1)
		}
		return out, err
	})
	return v
}

// deviceToV1 sets the name last, because it is not in "basic".
func deviceToV1(in *resourcev1beta1.Device, out *resourcev1.Device) error {
	if in.Basic != nil {
		if err := retype(in.Basic, out); err != nil {
			return err
		}
	}
	out.Name = in.Name
	return nil
}

func deviceFromV1(in *resourcev1.Device, out *resourcev1beta1.Device) error {
	out.Name, out.Basic = in.Name, &resourcev1beta1.BasicDevice{}
	return retype(in, out.Basic)
}

// requestsToV1 puts the fields of a request of v1beta1 into "exactly" if any of them is set.
// A request that has only alternatives (firstAvailable) gets no "exactly".
func requestsToV1(in []resourcev1beta1.DeviceRequest) ([]resourcev1.DeviceRequest, error) {
	return each(in, func(in *resourcev1beta1.DeviceRequest, out *resourcev1.DeviceRequest) (err error) {
		out.Name = in.Name
		if in.DeviceClassName != "" || in.Selectors != nil || in.AllocationMode != "" || in.Count != 0 ||
			in.AdminAccess != nil || in.Tolerations != nil || in.Capacity != nil {
			out.Exactly = &resourcev1.ExactDeviceRequest{}
			exact := *in
			exact.Name, exact.FirstAvailable = "", nil
			if err := retype(&exact, out.Exactly); err != nil {
				return err
			}
		}
		out.FirstAvailable, err = each(in.FirstAvailable,
			func(in *resourcev1beta1.DeviceSubRequest, out *resourcev1.DeviceSubRequest) error {
				return retype(in, out)
			})
		return err
	})
}

// requestsFromV1 takes the fields out of "exactly". A request with an empty "exactly" looks like one without it in
// v1beta1.
func requestsFromV1(in []resourcev1.DeviceRequest) ([]resourcev1beta1.DeviceRequest, error) {
	return each(in, func(in *resourcev1.DeviceRequest, out *resourcev1beta1.DeviceRequest) (err error) {
		if in.Exactly != nil {
			if err := retype(in.Exactly, out); err != nil {
				return err
			}
		}
		out.Name = in.Name
		out.FirstAvailable, err = each(in.FirstAvailable,
			func(in *resourcev1.DeviceSubRequest, out *resourcev1beta1.DeviceSubRequest) error {
				return retype(in, out)
			})
		return err
	})
}

// defaultV1beta1Requests sets the defaults of requests. A request without a class has subrequests instead.
func defaultV1beta1Requests(requests []resourcev1beta1.DeviceRequest) {
	for i := range requests {
		r := &requests[i]
		if r.DeviceClassName != "" {
			defaultV1beta1Count(&r.AllocationMode, &r.Count)
		}
		defaultV1beta1Tolerations(r.Tolerations)
		for k := range r.FirstAvailable {
			sub := &r.FirstAvailable[k]
			defaultV1beta1Count(&sub.AllocationMode, &sub.Count)
			defaultV1beta1Tolerations(sub.Tolerations)
		}
	}
}

func defaultV1beta1Count(mode *resourcev1beta1.DeviceAllocationMode, count *int64) {
	declare.Value(mode, resourcev1beta1.DeviceAllocationModeExactCount)
	if *mode == resourcev1beta1.DeviceAllocationModeExactCount {
		declare.Value(count, 1)
	}
}

func defaultV1beta1Tolerations(tolerations []resourcev1beta1.DeviceToleration) {
	for i := range tolerations {
		declare.Value(&tolerations[i].Operator, resourcev1beta1.DeviceTolerationOpEqual)
	}
}

// each converts the elements of a list. A nil list stays nil.
func each[A, B any](in []A, convert func(*A, *B) error) ([]B, error) {
	if in == nil {
		return nil, nil
	}
	out := make([]B, len(in))
	for i := range in {
		if err := convert(&in[i], &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// retype copies the fields that two types have under the same names in JSON.
// It ignores fields that the other type does not have, such as the name of a device in "basic".
func retype(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
