package dra

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type taintRule = resourcev1.DeviceTaintRule

// deviceTaintRule returns the kind of DeviceTaintRules (KEP-5055). An administrator creates one to taint devices
// without a change of the ResourceSlices, which belong to the driver.
func deviceTaintRule() *registry.Kind {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	setTime := func(r *taintRule) { declare.Pointer(&r.Spec.Taint.TimeAdded, now()) }
	v1 := declare.Version("v1", setTime)
	v1.Requests = &registry.Requests{} // those of the kind are those of the versions before v1
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "resource", Resource: "devicetaintrules", Name: "DeviceTaintRule",
		},
		Versions: []registry.Version{
			v1,
			declare.SameMessage[resourcev1beta2.DeviceTaintRule]("v1beta2", setTime),
			declare.SameMessage[resourcev1alpha3.DeviceTaintRule]("v1alpha3", setTime),
		},
		Storage: registry.Storage{
			Version: "v1", GroupVersion: "resource.k8s.io/v1beta2", Path: "devicetaintrules",
		},
		Requests:     registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*taintRule]{
			StatusKeepsMeta: true,
			Generation:      true,
			PrepareUpdate:   renewTaint,
			InContext: registry.InContext[*taintRule]{
				ValidateCreate: validateTaintRule, ValidateUpdate: validateTaintRule,
			},
			ValidateStatusUpdate: func(r, _ *taintRule) field.ErrorList {
				const maxConditions = 8
				path := field.NewPath("status", "conditions")
				errs := metav1validation.ValidateConditions(r.Status.Conditions, path.K8s())
				return append(errs, field.MaxItems(path, len(r.Status.Conditions), maxConditions)...)
			},
		}.Untyped(),
		Table: registry.Table[*taintRule]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Key", "string", doc["key"]),
				table.Column("Value", "string", doc["value"]),
				table.Column("Effect", "string", doc["effect"]),
				table.Column("TimeAdded", "string", doc["timeAdded"]),
				table.Age,
			},
			Cells: func(r *taintRule) []any {
				taint, added := r.Spec.Taint, any("")
				if taint.TimeAdded != nil {
					added = table.AgeOf(*taint.TimeAdded)
				}
				return []any{r.Name, taint.Key, taint.Value, string(taint.Effect), added, table.AgeOf(r.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// renewTaint sets the time of a taint whose effect has changed, unless the client has set it: claims are tolerated from
// that time on.
// A change of the key or of the value alone does not set the time, because it does not start another eviction.
func renewTaint(r, old *taintRule) {
	taint, before := &r.Spec.Taint, &old.Spec.Taint
	if taint.Effect != before.Effect && taint.TimeAdded.Equal(before.TimeAdded) {
		taint.TimeAdded = new(now())
	}
}

// validateTaintRule validates the selector and the taint, and its effect if that is new or has changed. old is nil on create.
func validateTaintRule(ctx context.Context, r, old *taintRule) field.ErrorList {
	var errs field.ErrorList
	spec, d := field.NewPath("spec"), newDeclared(ctx, old != nil)
	// Each field narrows the selection. A selector without fields selects all devices.
	if s := r.Spec.DeviceSelector; s != nil {
		path := spec.Child("deviceSelector")
		errs = append(errs, field.Optional(path.Child("driver"), s.Driver, validateDriver)...)
		errs = append(errs, field.Optional(path.Child("pool"), s.Pool, validatePool)...)
		errs = append(errs, field.Optional(path.Child("device"), s.Device, field.DNSLabel)...)
	}
	taint, path := &r.Spec.Taint, spec.Child("taint")
	errs = append(errs, validateTaint(taint.Key, taint.Value, path)...)
	if old == nil || old.Spec.Taint.Effect != taint.Effect {
		d.effect(resourcev1.DeviceTaintEffect(taint.Effect), path.Child("effect"))
	}
	return d.after(errs)
}
