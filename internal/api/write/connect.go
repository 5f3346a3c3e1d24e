package write

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// AdmitConnect calls admission for the options of a connection to an object (exec, proxy), and returns the options,
// possibly changed.
//
// The options are the object of an operation CONNECT, without an old object. They are in an Unstructured, because they
// have no metadata.
func (p *Pipeline) AdmitConnect(
	ctx context.Context, t *registry.Served, sub *registry.Subresource, r registry.ConnectRequest,
) (runtime.Object, error) {
	chain := p.Admission.Current()
	if chain == nil {
		return r.Options, nil
	}
	kind := t.KindOf(sub)
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.Options)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: tree}
	object.SetGroupVersionKind(kind)
	names := admission.Names{Kind: kind, Resource: t.GVR}
	a := &admission.Attributes{
		Operation: admission.Connect, Resource: t.GroupResource(), Subresource: sub.Name,
		Namespace: r.Namespace, Name: r.Name, Object: object, Requested: names, Stored: names,
		User: request.UserFrom(ctx),
	}
	if err := chain.Mutate(ctx, a); err != nil {
		return nil, err
	}
	if err := chain.Validate(ctx, a); err != nil {
		return nil, err
	}
	changed, ok := a.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("admission has replaced the options by a %T", a.Object)
	}
	// The options are decoded from what admission returned, because a mutating webhook may have changed them.
	// r.Options stays as it is.
	options := reflect.New(reflect.TypeOf(r.Options).Elem()).Interface().(runtime.Object)
	return options, runtime.DefaultUnstructuredConverter.FromUnstructured(changed.Object, options)
}
