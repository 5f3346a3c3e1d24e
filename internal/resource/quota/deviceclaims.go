package quota

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// deviceClaims measures the devices that ResourceClaims request, by DeviceClass. A class may stand for an extended
// resource. Requests of that resource are then requests of devices: the claim that is made for a pod with such a
// request counts as far as the pod does not.
type deviceClaims struct {
	unscoped
	objects Objects
}

const (
	// devicesSuffix follows the name of a DeviceClass: gpu.deviceclass.resource.k8s.io/devices.
	devicesSuffix = corev1.ResourceClaimsPerClass
	// implicitPrefix begins the name of requests of the extended resource that every DeviceClass is by itself.
	implicitPrefix = corev1.ResourceImplicitExtendedClaimsPerClass
)

func deviceClasses() schema.GroupResource { return resourcev1.Resource("deviceclasses") }

// tracks implements special. An extended resource is tracked only while some class stands for it. The answer
// changes when classes are created and deleted.
func (d deviceClaims) tracks(ctx context.Context, name corev1.ResourceName) (bool, error) {
	if strings.HasSuffix(string(name), devicesSuffix) {
		return true, nil
	}
	if !requestsExtended(name) {
		return false, nil
	}
	if class, ok := strings.CutPrefix(string(name), implicitPrefix); ok {
		found, err := d.objects.Lookup(ctx, deviceClasses(), "", class)
		return found != nil, err
	}
	wanted := strings.TrimPrefix(string(name), requestsPrefix)
	classes, err := d.objects.List(ctx, deviceClasses(), "")
	for _, c := range classes {
		if n := c.(*resourcev1.DeviceClass).Spec.ExtendedResourceName; n != nil && *n == wanted {
			return true, nil
		}
	}
	return false, err
}

// use counts devices by class. With the mode All the number is not known before the allocation, so the most that
// an allocation can have is counted. A mode that is not known counts as 0.
func (d deviceClaims) use(ctx context.Context, obj registry.Object, used corev1.ResourceList) error {
	c := obj.(*resourcev1.ResourceClaim)
	devices := corev1.ResourceList{}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		// One of the alternatives is chosen later, so the largest count for each class is taken.
		most := corev1.ResourceList{}
		alternative := func(class string, mode resourcev1.DeviceAllocationMode, count int64) {
			switch mode {
			case resourcev1.DeviceAllocationModeExactCount:
			case resourcev1.DeviceAllocationModeAll:
				count = resourcev1.AllocationResultsMaxSize
			default:
				count = 0
			}
			raise(most, corev1.ResourceList{corev1.ResourceName(class): quantity(count)})
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			alternative(s.DeviceClassName, s.AllocationMode, s.Count)
		}
		if e := r.Exactly; e != nil && len(r.FirstAvailable) == 0 {
			alternative(e.DeviceClassName, e.AllocationMode, e.Count)
		}
		Add(devices, most)
	}
	pod, err := d.owner(ctx, c)
	if err != nil {
		return err
	}
	requests := corev1.ResourceList{}
	for name, n := range devices {
		class := string(name)
		used[corev1.ResourceName(class+devicesSuffix)] = n
		requests[corev1.ResourceName(implicitPrefix+class)] = n
		found, err := d.objects.Lookup(ctx, deviceClasses(), "", class)
		if err != nil {
			return err
		}
		if found != nil {
			if name := found.(*resourcev1.DeviceClass).Spec.ExtendedResourceName; name != nil && *name != "" {
				requests[corev1.ResourceName(requestsPrefix+*name)] = n
			}
		}
	}
	// The pod is charged for the extended resource already. Without the subtraction, the same device would be
	// counted twice.
	Add(used, Increase(requests, pod))
	return nil
}

// owner returns what the pod uses for whose extended resources the claim was made, nil if it was made for none.
// Only one claim is made for the extended resources of a pod. If there are several, only one may be set off
// against the pod: that of the status or, without it, the oldest.
func (d deviceClaims) owner(ctx context.Context, c *resourcev1.ResourceClaim) (corev1.ResourceList, error) {
	ref := podOwner(c)
	if ref == nil {
		return nil, nil
	}
	obj, err := d.objects.Lookup(ctx, corev1.Resource("pods"), c.Namespace, ref.Name)
	if err != nil || obj == nil || obj.GetUID() != ref.UID {
		return nil, err
	}
	pod := obj.(*corev1.Pod)
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		if s.ResourceClaimName != c.Name {
			return nil, nil
		}
	} else if first, err := d.isFirst(ctx, c, ref); err != nil || !first {
		return nil, err
	}
	used := corev1.ResourceList{}
	err = pods{}.use(ctx, pod, used)
	return used, err
}

// isFirst reports whether no older claim was made for the same pod; of claims of the same age the first by name is the
// oldest.
func (d deviceClaims) isFirst(
	ctx context.Context, c *resourcev1.ResourceClaim, ref *metav1.OwnerReference,
) (bool, error) {
	claims, err := d.objects.List(ctx, resourcev1.Resource("resourceclaims"), c.Namespace)
	for _, obj := range claims {
		other := podOwner(obj.(*resourcev1.ResourceClaim))
		if other == nil || other.UID != ref.UID {
			continue
		}
		age := obj.GetCreationTimestamp().Compare(c.CreationTimestamp.Time)
		if age < 0 || age == 0 && obj.GetName() < c.Name {
			return false, nil
		}
	}
	return true, err
}

// podOwner returns the pod for whose extended resources a claim was made, nil if it was made for none.
func podOwner(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(c)
	if ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" ||
		c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	return ref
}
