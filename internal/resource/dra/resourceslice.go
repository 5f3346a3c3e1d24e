package dra

import (
	"context"
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// resourceSlice returns the kind of ResourceSlices. A driver publishes its devices with them. A pool of devices
// may need several slices; spec.pool tells readers whether they have seen all of them.
func resourceSlice(gates features.Gates) *registry.Kind {
	disabled := disabledInSlice(gates)
	validate := func(ctx context.Context, s, old *resourcev1.ResourceSlice) field.ErrorList {
		d := newDeclared(ctx, old != nil)
		before := part(old, func(s *resourcev1.ResourceSlice) *resourcev1.ResourceSliceSpec { return &s.Spec })
		d.slice(&s.Spec, before, gates.Enabled(features.DRAPartitionableDevicesType))
		return d.after(validateSliceSpec(&s.Spec, before, gates))
	}
	spec := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{Group: group, Package: "resource", Resource: "resourceslices", Name: "ResourceSlice"},
		Versions: []registry.Version{
			declare.Version("v1", defaultSlice),
			declare.SameMessage[resourcev1beta2.ResourceSlice]("v1beta2", defaultSlice),
			v1beta1Slice(),
		},
		Storage:  registry.Storage{Version: "v1", Path: "resourceslices"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Selection: registry.Selection{
			// A kubelet selects the slices of its node by this field.
			Fields: []registry.Field{
				{Name: "spec.nodeName", Path: []int32{2, 3}, Index: true},
				{Name: "spec.driver", Path: []int32{2, 1}},
				{Name: "spec.pool.name", Path: []int32{2, 2, 1}},
			},
			FieldError: declare.FieldLabelForGVK(group, "ResourceSlice"),
		},
		Strategy: registry.Strategy[*resourcev1.ResourceSlice]{
			// The generation is set here, because the comparison uses the slice as the client
			// has sent it, before fields of disabled features are removed.
			PrepareCreate: func(s *resourcev1.ResourceSlice) {
				s.Generation = 1
				disabled.DropNew(s)
			},
			PrepareUpdate: func(s, old *resourcev1.ResourceSlice) {
				if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
					s.Generation = old.Generation + 1
				}
				disabled.Drop(s, old)
			},
			Warn: func(s, _ *resourcev1.ResourceSlice) []string {
				if driver := s.Spec.Driver; driver != strings.ToLower(driver) {
					return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", driver)}
				}
				return nil
			},
			InContext: registry.InContext[*resourcev1.ResourceSlice]{ValidateCreate: validate, ValidateUpdate: validate},
		}.Untyped(),
		Table: registry.Table[*resourcev1.ResourceSlice]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Node", "string", spec["nodeName"]),
				table.Column("Driver", "string", spec["driver"]),
				table.Column("Pool", "string", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
				table.Age,
			},
			Cells: func(s *resourcev1.ResourceSlice) []any {
				return []any{s.Name, ptr.Deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name,
					table.AgeOf(s.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// defaultSlice sets when taints were added: the seconds of a toleration count from this time.
func defaultSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		taints := s.Spec.Devices[i].Taints
		for k := range taints {
			declare.Pointer(&taints[k].TimeAdded, now())
		}
	}
}

// now returns the default time of a taint.
// Neither JSON nor protobuf has fractions of a second of a metav1.Time, so the time has none in memory either.
func now() metav1.Time { return metav1.Time{Time: time.Now().Truncate(time.Second)} }
