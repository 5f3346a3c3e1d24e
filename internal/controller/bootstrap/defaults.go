package bootstrap

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Defaults are the objects that all new servers with the same configuration have: the system namespaces, the
// default roles and bindings, the objects of flow control, the priority classes and the APIServices of built-in
// groups. Only their UIDs and times differ. A program that starts many servers creates these objects once, through
// all steps of a write, and then copies them. A copy takes a tenth of the time. Defaults do not change, and may be
// used concurrently.
type Defaults struct {
	objects  []defaultObject
	decoding sync.Once // at the first copy: most programs start one server and copy nothing
	failed   error     // the result of decoding
}

// defaultObject is an object in the storage version of its resource.
type defaultObject struct {
	resource schema.GroupResource
	stored   *cache.Object   // nil after decoding
	object   registry.Object // nil before decoding
}

func defaultResources() []schema.GroupResource {
	return []schema.GroupResource{
		corev1.Resource("namespaces"),
		rbacv1.Resource("clusterroles"), rbacv1.Resource("clusterrolebindings"),
		rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"),
		priorityLevels.GroupResource(), flowSchemas.GroupResource(), schedulingv1.Resource("priorityclasses"),
		{Group: apiregistrationv1.GroupName, Resource: "apiservices"},
	}
}

// ReadDefaults returns the Defaults of a server. It must be called after the server has created its first objects
// and before any client writes.
func ReadDefaults(ctx context.Context, reg *registry.Registry) (*Defaults, error) {
	d := &Defaults{}
	for _, gr := range defaultResources() {
		err := reg.Resource(gr).Reader.All(ctx, "", func(o *cache.Object) bool {
			d.objects = append(d.objects, defaultObject{resource: gr, stored: o})
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Create stores copies of the objects in one transaction, with UIDs of their own and as if they were created now. The
// store must be empty.
func (d *Defaults) Create(ctx context.Context, reg *registry.Registry, now time.Time) error {
	d.decoding.Do(func() { d.failed = d.decode(reg) })
	if d.failed != nil {
		return d.failed
	}
	list := make([]registry.Insertion, 0, len(d.objects))
	at := metav1.Time{Time: now}.Rfc3339Copy()
	for _, o := range d.objects {
		obj := o.object.DeepCopyObject().(registry.Object)
		obj.SetUID(uuid.NewUUID())
		setTimes(obj, at)
		list = append(list, registry.Insertion{Resource: reg.Resource(o.resource), Object: obj})
	}
	return registry.InsertTogether(ctx, list)
}

// decode decodes the stored objects.
func (d *Defaults) decode(reg *registry.Registry) (err error) {
	for i := range d.objects {
		o := &d.objects[i]
		if o.object, err = reg.Resource(o.resource).Decoder.DecodeStored(o.stored); err != nil {
			return err
		}
		o.object.SetResourceVersion("")
		o.stored = nil
	}
	return nil
}

// setTimes sets all times in an object of Defaults.
func setTimes(obj registry.Object, at metav1.Time) {
	obj.SetCreationTimestamp(at)
	managers := obj.GetManagedFields()
	for i := range managers {
		managers[i].Time = &at
	}
	switch obj := obj.(type) {
	case *flowcontrolv1.FlowSchema:
		for i := range obj.Status.Conditions {
			obj.Status.Conditions[i].LastTransitionTime = at
		}
	case *apiregistrationv1.APIService:
		for i := range obj.Status.Conditions {
			obj.Status.Conditions[i].LastTransitionTime = at
		}
	}
}
