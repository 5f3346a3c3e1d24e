package registry

import (
	"context"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Subresource declares one subresource of a kind. Exactly one of Status, Scale, Update, Create and Connect must be set.
type Subresource struct {
	Name string
	// GVK is the kind that the subresource takes and returns where that is not
	// the parent's (Scale, Eviction, Binding, TokenRequest); discovery shows it.
	GVK schema.GroupVersionKind
	// Verbs as discovery lists them.
	Verbs []string
	// Also are other kinds that a POST may send, with the same fields.
	Also []schema.GroupVersionKind

	// Resets are the fields that the manager of a write of the subresource does not come to own, as paths with
	// dots, such as "status.conditions". As in kube-apiserver, such a write cannot change some other fields
	// either, but these the manager owns although they did not change.
	Resets []string

	// Status marks the status subresource, which is the field Status of the kind's Go type.
	Status bool
	// Scale maps the scale subresource.
	Scale *Scale
	// Update is a PUT/PATCH of a part of the parent (ephemeralcontainers, resize,
	// finalize, approval); GET returns the parent.
	Update *UpdatePart[Object]
	// Create handles POST (binding, eviction); nil where the server provides it
	// (token).
	Create CreateFunc
	// New makes the empty body of Create, Default sets its defaults.
	New     func() Object
	Default func(Object)
	// Connect forwards requests to a node, pod or service (exec, log, proxy).
	Connect *Connect
}

// Scale maps a kind's fields to autoscaling/v1 Scale.
type Scale struct {
	// Get returns the scale's spec.replicas, status.replicas and
	// status.selector.
	Get func(Object) (spec, status int32, selector string)
	// Set changes the replicas.
	Set func(obj Object, replicas int32) error
	// Path is where the replicas are in the version of the request; nil is spec.replicas.
	Path []string
	// Paths are the paths in the versions of a custom resource, by the version's name. A version
	// without a scale subresource is missing.
	Paths map[string][]string
	// Check returns an error if an object cannot be converted to a Scale; nil: all can.
	Check func(Object) error
	// Has reports whether the replicas are set; nil: they always are.
	Has func(Object) bool
}

// PathIn returns the path of the replicas in a version, nil if the version has no scale subresource.
func (s *Scale) PathIn(version string) fieldpath.Path {
	names := []string{"spec", "replicas"}
	if s.Path != nil {
		names = s.Paths[version]
	}
	var path fieldpath.Path
	for _, name := range names {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

// NewScale makes an empty autoscaling/v1 Scale.
func NewScale() Object { return &autoscalingv1.Scale{} }

// UpdatePart is a subresource that changes a part of its parent. As with Strategy, a declaration uses the Go type
// of the storage version and ends with Untyped().
type UpdatePart[T Object] struct {
	// Prepare brings back everything of old that the subresource must not
	// change.
	Prepare func(obj, old T)
	// Validate checks the result; nil checks metadata alone.
	Validate func(obj, old T) field.ErrorList
	// Unconditional lets the body leave out the resourceVersion.
	Unconditional bool
	// StatusMeta means that metadata is checked as in an update of the status.
	StatusMeta bool
}

// Untyped returns the part for objects of any type. Its functions panic on objects of another type than T.
func (u UpdatePart[T]) Untyped() *UpdatePart[Object] {
	return &UpdatePart[Object]{
		Prepare: changeOfUpdate(u.Prepare), Validate: resultOfUpdate(u.Validate), Unconditional: u.Unconditional,
		StatusMeta: u.StatusMeta,
	}
}

// Admit calls admission for the posted object; an error refuses it. old is nil.
type Admit func(ctx context.Context, obj, old Object) error

// CreateFunc serves POST on a subresource. The body in req has defaults. It returns the response, which is sent with
// 201.
type CreateFunc func(ctx context.Context, a Access, req CreateRequest) (Object, error)

// CreateRequest is a POST on a subresource.
type CreateRequest struct {
	Namespace, Name string
	Body            Object
	DryRun          bool
	FieldManager    string
	// Admit calls admission for the body; nil admits everything.
	Admit Admit
}

// Admitted calls admission for the posted object. A CreateFunc calls it when the body itself is valid, and before it
// does anything.
func (r CreateRequest) Admitted(ctx context.Context) error {
	if r.Admit == nil {
		return nil
	}
	return r.Admit(ctx, r.Body, nil)
}

// Access lets a CreateFunc reach objects through the same pipeline a client uses.
// Errors have the Status for the client.
type Access interface {
	// Get reads the latest object of a resource, decoded, in its storage
	// version; the caller may change it.
	Get(ctx context.Context, r schema.GroupResource, namespace, name string) (Object, error)
	// List reads all objects of a namespace ("" is all).
	List(ctx context.Context, r schema.GroupResource, namespace string) ([]Object, error)
	// Update reads, changes and writes the object, and returns its new resourceVersion; change runs again after a
	// conflict. Only the validation of the kind's Strategy runs.
	Update(
		ctx context.Context, r schema.GroupResource, namespace, name string, dryRun bool, change func(Object) error,
	) (resourceVersion string, err error)
	// Delete removes an object as a DELETE with these preconditions and grace
	// would.
	Delete(ctx context.Context, r schema.GroupResource, namespace, name string, o DeleteOptions) error
}

// DeleteOptions are the options of Access.Delete.
type DeleteOptions struct {
	UID, ResourceVersion *string
	GracePeriodSeconds   *int64
	DryRun               bool
}

// DeleteOptions returns the options in the form of a request.
func (o DeleteOptions) DeleteOptions() *metav1.DeleteOptions {
	options := &metav1.DeleteOptions{GracePeriodSeconds: o.GracePeriodSeconds}
	if o.UID != nil || o.ResourceVersion != nil {
		options.Preconditions = &metav1.Preconditions{ResourceVersion: o.ResourceVersion}
		if o.UID != nil {
			options.Preconditions.UID = (*types.UID)(o.UID)
		}
	}
	if o.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options
}
