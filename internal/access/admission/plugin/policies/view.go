package policies

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// view has the values of one write for the policies of one kind.
type view struct {
	*Plugins
	a          *admission.Attributes
	authorizer *celvars.Authorizer
	// writes maps the names by which policies match to the values for their expressions.
	writes map[admission.Names]seenWrite
	// objects counts the mutations of the write, each of which replaces its object.
	objects int
	// namespace is the Namespace of the write, if namespaceLooked is true.
	namespace       *corev1.Namespace
	namespaceLooked bool
}

// seenWrite has the values of the write for expressions. object is the number of the object in it (see view.objects).
type seenWrite struct {
	*celvars.Write
	object int
}

// concerns reports whether a policy applies to a write, without a look at its bindings. It returns the names of
// kind and resource by which the write matches.
func (p *Plugins) concerns(ctx context.Context, one *policy, a *admission.Attributes) (admission.Names, bool, error) {
	if one.err != nil {
		return admission.Names{}, false, one.err
	}
	return p.matcher.Match(ctx, one.criteria, a)
}

// choose finds those bindings of a policy that apply to the write; the policy itself is known to apply. It calls
// use for each of them, one after the other, with the parameters to evaluate the policy with. It calls unusable
// with nil if the policy cannot be used, and with the binding if a binding cannot be used. An error of use ends
// the search.
func (v *view) choose(
	ctx context.Context, one *bound, unusable func(*binding, error), use func(*binding, []registry.Object) error,
) error {
	p := one.policy
	params, done, err := v.openParameters(ctx, p.params)
	if err != nil {
		unusable(nil, err)
		return nil
	}
	defer done()
	for _, b := range one.bindings {
		ok, err := true, b.err
		if err == nil && b.criteria != nil {
			_, ok, err = v.matcher.Match(ctx, b.criteria, v.a)
		}
		if err == nil && !ok {
			continue
		}
		var found []registry.Object
		if err == nil {
			found, err = params.of(ctx, b.params, v.a.NamespaceName())
		}
		if err != nil {
			unusable(b, err)
		} else if err := use(b, found); err != nil {
			return err
		}
	}
	return nil
}

// inputs returns the values for the expressions of a policy in addition to the write.
func (v *view) inputs(p *policy, param registry.Object, namespace *corev1.Namespace) celvars.Inputs {
	in := celvars.Inputs{Params: param, Namespace: namespace, Authorizer: v.authorizer}
	if param != nil {
		in.ParamsKind = *p.params
	}
	return in
}

// seen returns the values of the write for match conditions, and for the other expressions. Match conditions see
// the resource that the request names, the other expressions the one that matched.
func (v *view) seen(ctx context.Context, names admission.Names) (conditions, others *celvars.Write, err error) {
	if v.authorizer == nil {
		v.authorizer = celvars.NewAuthorizer(ctx, v.o.Authorizer, v.a)
		v.writes = map[admission.Names]seenWrite{}
	}
	if others, err = v.write(ctx, names); err != nil {
		return nil, nil, err
	}
	names.Resource = v.a.Requested.Resource
	conditions, err = v.write(ctx, names)
	return conditions, others, err
}

// write returns the values of the write for expressions, in the version of names.
func (v *view) write(ctx context.Context, names admission.Names) (*celvars.Write, error) {
	w := v.writes[names]
	if w.Write != nil && w.object == v.objects {
		return w.Write, nil
	}
	object, err := v.convert(ctx, v.a.Object, names)
	if err != nil {
		return nil, err
	}
	if w.Write != nil {
		w.Write = w.With(object)
	} else {
		old, err := v.convert(ctx, v.a.Old, names)
		if err != nil {
			return nil, err
		}
		w.Write = celvars.NewWrite(v.a, names, object, old)
	}
	w.object = v.objects
	v.writes[names] = w
	return w.Write, nil
}

func (v *view) convert(
	ctx context.Context, obj registry.Object, names admission.Names,
) (registry.Object, error) {
	out, err := v.o.Versions.Convert(ctx, v.a, obj, names)
	if err != nil {
		return nil, fmt.Errorf("failed to convert object version: %w", err)
	}
	return out, nil
}

// namespaceOf returns the Namespace of the write. A Namespace itself has none.
func (v *view) namespaceOf(ctx context.Context) (*corev1.Namespace, error) {
	if v.namespaceLooked || v.a.Namespace == "" || v.a.Requested.Kind == corev1.SchemeGroupVersion.WithKind("Namespace") {
		return v.namespace, nil
	}
	found, err := v.matcher.Namespace(ctx, v.a)
	if err != nil {
		return nil, err
	}
	v.namespace, _ = found.(*corev1.Namespace)
	v.namespaceLooked = true
	return v.namespace, nil
}
