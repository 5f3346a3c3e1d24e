// Package client is the in-process client of the API, for controllers, admission, and the objects that the server
// creates at its start. It finds built-in and custom resources in the directory. Its writes have the same steps as
// those of requests, but there is no HTTP and no authorization.
package client

import (
	"cmp"
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Client reads and writes objects in the version that a call names. The caller owns the returned objects. Errors are
// *errors.StatusError as for a client of the HTTP API. Its methods may be called concurrently.
type Client struct {
	resources *directory.Directory
	writes    *write.Pipeline
	manager   string
	user      *request.User
}

// New returns a client whose field manager has the name manager.
func New(resources *directory.Directory, writes *write.Pipeline, manager string) *Client {
	return &Client{resources: resources, writes: writes, manager: manager}
}

// As returns a client with another field manager.
func (c *Client) As(manager string) *Client {
	as := *c
	as.manager = manager
	return &as
}

// For returns a client whose writes are made by the given user, as admission and the kinds see it. Without For,
// the user is the server itself.
func (c *Client) For(user *request.User) *Client {
	as := *c
	as.user = user
	return &as
}

// Ref names an object.
type Ref struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// open returns a resource, its subresource if one is named, and a context with the client's user. The caller calls
// the returned function when it no longer uses the resource.
func (c *Client) open(ctx context.Context, gvr schema.GroupVersionResource, subresource string) (
	context.Context, *registry.Served, *registry.Subresource, func(), error,
) {
	found := c.resources.FindOwn(gvr)
	if found == nil || found.Open == nil {
		return ctx, nil, nil, nil, apierr.PathNotFound()
	}
	served, done, err := found.Open(ctx)
	if err != nil {
		return ctx, nil, nil, nil, err
	}
	if c.user != nil {
		ctx = request.WithUser(ctx, c.user)
	}
	if subresource == "" {
		return ctx, served, nil, done, nil
	}
	sub := served.Kind.Subresource(subresource)
	if sub == nil {
		done()
		return ctx, nil, nil, nil, apierr.PathNotFound()
	}
	return ctx, served, sub, done, nil
}

// Get returns the latest state of an object; the error is NotFound if there is none.
func (c *Client) Get(ctx context.Context, ref Ref) (registry.Object, error) {
	ctx, served, _, done, err := c.open(ctx, ref.Resource, "")
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := latest(ctx, served, ref)
	if err != nil {
		return nil, err
	}
	return decode(ctx, served, o)
}

// decode returns an object of the cache in the version of a request.
func decode(ctx context.Context, served *registry.Served, o *cache.Object) (registry.Object, error) {
	o, err := served.Resource.Reader.Readable(ctx, o)
	if err != nil {
		return nil, err
	}
	return served.Resource.Decoder.DecodeAs(ctx, o, served.Version)
}

// latest returns the latest state of an object; the error is NotFound if there is none.
func latest(ctx context.Context, served *registry.Served, ref Ref) (*cache.Object, error) {
	o, err := served.Resource.Reader.Latest(ctx, ref.Namespace, ref.Name)
	if err == nil && o == nil {
		err = kerrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return o, err
}

// ListRequest selects the result of List.
type ListRequest struct {
	Resource schema.GroupVersionResource
	// Namespace is the namespace of the objects; "" means all namespaces.
	Namespace string
}

// List calls yield with the objects in the order of their keys, until yield returns false. The objects include
// every write that was acknowledged before the call. List returns the revision of that state; a Watch can start
// from it.
func (c *Client) List(ctx context.Context, r ListRequest, yield func(registry.Object) bool) (int64, error) {
	return c.list(ctx, r, cache.Streaming, func(ctx context.Context, served *registry.Served, o *cache.Object) (bool, error) {
		obj, err := decode(ctx, served, o)
		return err == nil && yield(obj), err
	})
}

// list calls yield with the objects until it returns false. most is as in cache.View.Ascend.
func (c *Client) list(
	ctx context.Context, r ListRequest, most int,
	yield func(context.Context, *registry.Served, *cache.Object) (more bool, err error),
) (int64, error) {
	ctx, served, _, done, err := c.open(ctx, r.Resource, "")
	if err != nil {
		return 0, err
	}
	defer done()
	view, err := served.Resource.Reader.Current(ctx)
	if err != nil {
		return 0, err
	}
	var failed error
	err = view.Ascend(ctx, "", prefixOf(r.Namespace), most, func(o *cache.Object) (more bool) {
		more, failed = yield(ctx, served, o)
		return more
	})
	return view.Revision(), cmp.Or(err, failed)
}

// CreateRequest describes the creation of an object.
type CreateRequest struct {
	Resource schema.GroupVersionResource
	// Object belongs to the Client as soon as Create is called. The caller must not use it afterwards.
	Object registry.Object
}

// Create stores a new object and returns it.
func (c *Client) Create(ctx context.Context, r CreateRequest) (registry.Object, error) {
	ctx, served, _, done, err := c.open(ctx, r.Resource, "")
	if err != nil {
		return nil, err
	}
	defer done()
	return c.do(request.WithVerb(ctx, "create", ""), write.Request{
		Verb: write.Create, Target: served, Namespace: r.Object.GetNamespace(),
		Options: write.Options{FieldManager: c.manager}, Make: write.Object(served, r.Object),
	})
}

// UpdateRequest is a change of an object, or of the part of it that a subresource stands for.
type UpdateRequest struct {
	Ref
	Subresource string
	// Change changes the latest object. If somebody else changes the object meanwhile, Change is called again with
	// the newer one.
	Change func(registry.Object) error
}

// Update changes an object and returns it. The error is NotFound if the object does not exist.
func (c *Client) Update(ctx context.Context, r UpdateRequest) (registry.Object, error) {
	ctx, served, sub, done, err := c.open(ctx, r.Resource, r.Subresource)
	if err != nil {
		return nil, err
	}
	defer done()
	return c.do(request.WithVerb(ctx, "update", r.Subresource), write.Request{
		Verb: write.Update, Target: served, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
		Options: write.Options{FieldManager: c.manager}, Make: existing(served, r.Name, write.Changed(r.Change)),
	})
}

// existing returns a Make that fails with NotFound if there is no object, also for kinds whose updates may create an
// object.
func existing(served *registry.Served, name string, make write.Make) write.Make {
	return func(ctx context.Context, current *write.Current) (registry.Object, error) {
		if !current.Exists() {
			return nil, kerrors.NewNotFound(served.GroupResource(), name)
		}
		return make(ctx, current)
	}
}

// ApplyRequest describes a server-side apply.
type ApplyRequest struct {
	Ref
	Subresource string
	// Configuration is a document in JSON or YAML.
	Configuration []byte
}

// Apply applies a configuration to an object and returns the object. It creates the object if it is missing. Its
// manager becomes the owner of fields that others own (force).
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (registry.Object, error) {
	ctx, served, sub, done, err := c.open(ctx, r.Resource, r.Subresource)
	if err != nil {
		return nil, err
	}
	defer done()
	configuration, err := patch.Apply(r.Configuration, patch.Ignore)
	if err != nil {
		return nil, err
	}
	if err := write.CheckConfiguration(served, configuration); err != nil {
		return nil, kerrors.NewBadRequest(err.Error())
	}
	options := write.Options{FieldManager: c.manager, Force: new(true)}
	return c.do(request.WithVerb(ctx, "patch", r.Subresource), write.Request{
		Verb: write.Apply, Target: served, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
		Options: options, CreateMissing: sub == nil,
		Make: c.writes.Applied(served, sub, configuration, options),
	})
}

// DeleteRequest is the deletion of an object.
type DeleteRequest struct {
	Ref
	// Options may be nil.
	Options *metav1.DeleteOptions
}

// Delete deletes an object. gone is false if finalizers or a grace period keep the object, so that its deletion
// has only begun.
func (c *Client) Delete(ctx context.Context, r DeleteRequest) (gone bool, err error) {
	ctx, served, _, done, err := c.open(ctx, r.Resource, "")
	if err != nil {
		return false, err
	}
	defer done()
	options := r.Options
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	result, err := c.writes.Delete(request.WithVerb(ctx, "delete", ""), served, r.Namespace, r.Name, options)
	return result.Deleted, err
}

// do executes a write and decodes the resulting object.
func (c *Client) do(ctx context.Context, r write.Request) (registry.Object, error) {
	result, err := c.writes.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return r.Target.Resource.Decoder.DecodeAs(ctx, result.Object, r.Target.Version)
}
