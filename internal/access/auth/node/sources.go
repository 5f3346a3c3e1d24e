package node

import (
	"bytes"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// graphSource is a resource whose objects the graph is built from.
type graphSource struct {
	resource schema.GroupResource
	kind     kind
	concerns func(o, prev *cache.Object) bool
	apply    func([]informer.Change)
}

func (a *Authorizer) sources(g *Graph) []graphSource {
	each := func(name string, k kind, set func(registry.Object), remove func(object)) func([]informer.Change) {
		return func(changes []informer.Change) {
			for _, c := range changes {
				start := time.Now()
				if c.Object != nil {
					set(c.Object)
					a.o.Observe("Add"+name, time.Since(start))
				} else {
					remove(object{k, c.Namespace, c.Name})
					a.o.Observe("Delete"+name, time.Since(start))
				}
			}
		}
	}
	return []graphSource{
		{corev1.Resource("pods"), pod, podChangeMatters,
			each("Pod", pod, func(o registry.Object) { g.SetPod(o.(*corev1.Pod)) }, g.Delete)},
		{corev1.Resource("persistentvolumes"), volume, nil,
			each("PV", volume, func(o registry.Object) { g.SetVolume(o.(*corev1.PersistentVolume)) },
				func(o object) { g.DeleteVolume(o.name) })},
		{storagev1.Resource("volumeattachments"), attachment, nil,
			each("VolumeAttachment", attachment, func(o registry.Object) {
				v := o.(*storagev1.VolumeAttachment)
				g.SetNode(object{attachment, "", v.Name}, v.Spec.NodeName)
			}, g.Delete)},
		{resourcev1.Resource("resourceslices"), slice, nil, each("ResourceSlice", slice, func(o registry.Object) {
			s := o.(*resourcev1.ResourceSlice)
			g.SetNode(object{slice, "", s.Name}, ptr.Deref(s.Spec.NodeName, ""))
		}, g.Delete)},
		{podCertificateRequests, certificateRequest, nil,
			each("PodCertificateRequest", certificateRequest, func(o registry.Object) {
				c := o.(*certificatesv1beta1.PodCertificateRequest)
				g.SetNode(object{certificateRequest, c.Namespace, c.Name}, string(c.Spec.NodeName))
			}, g.Delete)},
	}
}

// The paths of field numbers in the protobuf message of a pod.
var (
	podUID           = []int32{1, 5}
	podSpec          = []int32{2}
	podNode          = []int32{2, 10}
	podClaims        = []int32{2, 39}
	podExtendedClaim = []int32{3, 18}
)

// podChangeMatters reports whether a change of a pod can change the graph. Most changes of
// pods are changes of the status, and they are frequent.
func podChangeMatters(o, prev *cache.Object) bool {
	if o.Err() != nil || prev != nil && prev.Err() != nil {
		return true
	}
	if prev == nil {
		return hasField(o, podNode)
	}
	return !sameField(o, prev, podUID) || !sameField(o, prev, podSpec) ||
		hasField(o, podClaims) || hasField(o, podExtendedClaim) || hasField(prev, podExtendedClaim)
}

func hasField(o *cache.Object, path []int32) bool {
	v, err := wire.Find(o.Data, path)
	return err != nil || v.Found
}

func sameField(a, b *cache.Object, path []int32) bool {
	x, errX := wire.Find(a.Data, path)
	y, errY := wire.Find(b.Data, path)
	return errX == nil && errY == nil && x.Found == y.Found && bytes.Equal(x.Bytes, y.Bytes)
}
