package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

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
			ValidateCreate: func(c *resourcev1.DeviceClass) field.ErrorList {
				return validateClassSpec(&c.Spec, cel.New)
			},
			ValidateUpdate: func(c, old *resourcev1.DeviceClass) field.ErrorList {
				origin := cel.New
				if equality.Semantic.DeepEqual(c.Spec, old.Spec) {
					origin = cel.Stored
				}
				return validateClassSpec(&c.Spec, origin)
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// validateClassSpec validates the spec of a class; origin says where its expressions come from.
func validateClassSpec(s *resourcev1.DeviceClassSpec, origin cel.Origin) field.ErrorList {
	path := field.NewPath("spec")
	errs := (&selectors{origin: origin}).validate(s.Selectors, path.Child("selectors"))
	errs = append(errs, field.MaxItems(path.Child("config"), len(s.Config), resourcev1.DeviceConfigMaxSize)...)
	for i := range s.Config {
		errs = append(errs, validateConfiguration(&s.Config[i].DeviceConfiguration, path.Child("config").Index(i))...)
	}
	if name := s.ExtendedResourceName; name != nil && !core.IsExtendedResource(*name) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}

// validateClassName validates a name by the newer rules of kube-apiserver, which count bytes. They do not concern the
// beginning of a generated name.
func validateClassName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}
