package policies

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

var errNoConstraints = errors.New("policy contained no match constraints, a required field")

// parameters finds the parameters of the bindings of one policy.
type parameters struct {
	kind   *schema.GroupVersionKind // nil: the policy has no parameters
	served *registry.Served
}

// openParameters returns the parameters of a policy. The caller calls done when it has finished. It fails if there is
// no such kind.
func (p *Plugins) openParameters(ctx context.Context, kind *schema.GroupVersionKind) (*parameters, func(), error) {
	if kind == nil {
		return &parameters{}, func() {}, nil
	}
	served, done, err := p.o.Versions.OpenKind(ctx, *kind)
	if err != nil || served == nil {
		return nil, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", *kind)
	}
	return &parameters{kind, served}, done, nil
}

// of returns the parameters that a binding refers to; the policy is evaluated once with each. A nil entry means
// one evaluation without parameters. namespace is the namespace of the write.
func (p *parameters) of(
	ctx context.Context, ref *admissionregistrationv1.ParamRef, namespace string,
) ([]registry.Object, error) {
	if p.kind == nil || ref == nil {
		return []registry.Object{nil}, nil
	}
	if p.served.Kind.Namespaced {
		if ref.Namespace != "" {
			namespace = ref.Namespace
		} else if namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	} else {
		if ref.Namespace != "" {
			return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
		}
		namespace = ""
	}
	found, err := p.find(ctx, ref, namespace)
	if err != nil {
		return nil, err
	}
	deny := ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction
	if len(found) == 0 && deny {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

func (p *parameters) find(
	ctx context.Context, ref *admissionregistrationv1.ParamRef, namespace string,
) ([]registry.Object, error) {
	view, err := p.view(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.Name != "":
		o, found, err := view.Get(ctx, p.served.Resource.Key(namespace, ref.Name))
		if err != nil || !found || o == nil {
			return nil, err
		}
		obj, err := p.decode(ctx, o)
		return []registry.Object{obj}, err
	case ref.Selector != nil:
		selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
		if err != nil {
			return nil, err
		}
		return p.list(ctx, view, namespace, selector)
	}
	return nil, errors.New("one of name or selector must be provided")
}

// view returns a view that has every parameter that this process has acknowledged. For a custom resource it has
// the current state of the store, because its versions do not know each other's writes.
func (p *parameters) view(ctx context.Context) (*cache.View, error) {
	if p.served.Kind.Unstructured() {
		return p.served.Resource.Reader.Current(ctx)
	}
	return p.served.Resource.Reader.NotOlderThan(ctx, p.served.Resource.Reader.LastWrite())
}

// list returns the objects of a namespace that a selector chooses, by name.
func (p *parameters) list(
	ctx context.Context, view *cache.View, namespace string, selector labels.Selector,
) (out []registry.Object, err error) {
	prefix := ""
	if p.served.Kind.Namespaced {
		prefix = namespace + "/"
	}
	var failed error
	err = view.Ascend(ctx, "", prefix, 0, func(o *cache.Object) bool {
		var obj registry.Object
		if obj, failed = p.decode(ctx, o); failed != nil {
			return false
		}
		if selector.Matches(labels.Set(obj.GetLabels())) {
			out = append(out, obj)
		}
		return true
	})
	return out, errors.Join(err, failed)
}

// decode returns an object in the version of paramKind.
func (p *parameters) decode(ctx context.Context, o *cache.Object) (registry.Object, error) {
	readable, err := p.served.Resource.Reader.Readable(ctx, o)
	if err != nil {
		return nil, err
	}
	return p.served.Resource.Decoder.DecodeAs(ctx, readable, p.served.Version)
}
