package write

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// access is the registry.Access of a Post. The Post itself was admitted; as in kube-apiserver, its changes of other
// objects are not admitted again.
type access struct{ p *Pipeline }

// Get implements registry.Access.
func (a access) Get(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	return a.p.Registry.Get(ctx, r, namespace, name)
}

// List implements registry.Access.
func (a access) List(ctx context.Context, r schema.GroupResource, namespace string) ([]registry.Object, error) {
	return a.p.Registry.List(ctx, r, namespace)
}

// Update implements registry.Access. After a concurrent change, it calls change again with the newer object.
func (a access) Update(
	ctx context.Context, r schema.GroupResource, namespace, name string, dryRun bool, change func(registry.Object) error,
) (resourceVersion string, err error) {
	t, err := a.target(r)
	if err != nil {
		return "", err
	}
	result, err := a.p.Do(ctx, Request{
		Verb: Amend, Target: t, Namespace: namespace, Name: name, Options: Options{DryRun: dryRun},
		Make: func(ctx context.Context, current *Current) (registry.Object, error) {
			obj := current.Copy()
			return obj, change(obj)
		},
	})
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(result.Object.Revision, 10), nil
}

// Delete implements registry.Access.
func (a access) Delete(
	ctx context.Context, r schema.GroupResource, namespace, name string, o registry.DeleteOptions,
) error {
	t, err := a.target(r)
	if err != nil {
		return err
	}
	request := Deletion(t, namespace, name, o.DeleteOptions())
	request.Admitted = true
	_, err = a.p.Do(ctx, request)
	return err
}

// target returns a resource in the version that is stored. The server itself has no version of a request, so
// nothing is converted.
func (a access) target(r schema.GroupResource) (*registry.Served, error) {
	found := a.p.Registry.Resource(r)
	if found == nil {
		return nil, apierr.PathNotFound()
	}
	return registry.NewServed(found, found.Kind.Version(found.Kind.Storage.Version)), nil
}

// Delete deletes an object. Result.Deleted is false if finalizers or a grace period keep it.
func (p *Pipeline) Delete(
	ctx context.Context, t *registry.Served, namespace, name string, options *metav1.DeleteOptions,
) (Result, error) {
	return p.Do(ctx, Deletion(t, namespace, name, options))
}

// Deletion returns the request that deletes an object.
func Deletion(t *registry.Served, namespace, name string, options *metav1.DeleteOptions) Request {
	return Request{
		Verb: Delete, Target: t, Namespace: namespace, Name: name,
		Options: Options{DryRun: len(options.DryRun) > 0, Delete: options},
	}
}
