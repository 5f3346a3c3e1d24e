package dra

import (
	"context"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// deviceClass returns the kind of DeviceClasses. The spec may change, unlike that of a claim: an allocation has a
// copy of the configurations of its classes.
func deviceClass(gates features.Gates) *registry.Kind {
	disabled := disabledInClass(gates)
	return &registry.Kind{
		Names: registry.Names{Group: group, Package: "resource", Resource: "deviceclasses", Name: "DeviceClass"},
		Versions: []registry.Version{
			declare.Version[resourcev1.DeviceClass]("v1", nil),
			declare.SameMessage[resourcev1beta2.DeviceClass, resourcev1.DeviceClass]("v1beta2", nil),
			v1beta1Class(),
		},
		Storage:  registry.Storage{Version: "v1", Path: "deviceclasses"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{ValidateName: validateClassName, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*resourcev1.DeviceClass]{
			Generation:    true,
			PrepareCreate: disabled.DropNew,
			PrepareUpdate: disabled.Drop,
			InContext: registry.InContext[*resourcev1.DeviceClass]{
				ValidateCreate: validateClass(gates), ValidateUpdate: validateClass(gates),
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// validateClass returns the validation of a class; old is nil on create.
func validateClass(gates features.Gates) func(ctx context.Context, c, old *resourcev1.DeviceClass) field.ErrorList {
	return func(ctx context.Context, c, old *resourcev1.DeviceClass) field.ErrorList {
		d := newDeclared(ctx, old != nil)
		before := part(old, func(c *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &c.Spec })
		d.class(&c.Spec, before)
		return d.after(validateClassSpec(&c.Spec, before, newExpressions(gates)))
	}
}

// validateClassSpec validates the spec of a class. Selectors and configurations that an update keeps were valid when they were
// written: later limits do not apply to them.
func validateClassSpec(s, old *resourcev1.DeviceClassSpec, expressions *expressions) field.ErrorList {
	path, most := field.NewPath("spec"), resourcev1.OpaqueParametersMaxLength
	// A nil *expressions accepts all selectors.
	if old != nil && equality.Semantic.DeepEqual(s.Selectors, old.Selectors) {
		expressions = nil
	}
	if old != nil && equality.Semantic.DeepEqual(s.Config, old.Config) {
		most = math.MaxInt
	}
	errs := expressions.validateSelectors(s.Selectors, path.Child("selectors"))
	return append(errs, validateItems(s.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return validateConfiguration(&c.DeviceConfiguration, most, at)
		})...)
}

// validateClassName validates a name by the newer rules of kube-apiserver, which count bytes. They do not concern the
// beginning of a generated name.
func validateClassName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}
