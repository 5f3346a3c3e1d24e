package dra

import (
	"context"
	"fmt"
	"strconv"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type poolRequest = resourcev1alpha3.ResourcePoolStatusRequest

// resourcePoolStatusRequest returns the kind of ResourcePoolStatusRequests. An object is one question: a user
// creates it, and a controller writes the answer to its status once. The spec can never change, and the status
// cannot change once it is set.
func resourcePoolStatusRequest(gates features.Gates) *registry.Kind {
	disabled, partitionTypes := disabledInPoolRequest(gates), gates.Enabled(features.DRAPartitionableDevicesType)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "resource", Resource: "resourcepoolstatusrequests",
			Name: "ResourcePoolStatusRequest",
		},
		Versions: []registry.Version{declare.Version("v1alpha3", func(r *poolRequest) {
			declare.Pointer(&r.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
		})},
		Storage:      registry.Storage{Version: "v1alpha3", Path: "resourcepoolstatusrequests"},
		Requests:     registry.Requests{ReturnDeleted: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*poolRequest]{
			StatusKeepsMeta: true,
			PrepareCreate:   disabled.DropNew,
			PrepareUpdate:   disabled.Drop,
			InContext: registry.InContext[*poolRequest]{
				ValidateCreate: func(ctx context.Context, r, _ *poolRequest) field.ErrorList {
					d := newDeclared(ctx, false)
					d.poolRequest(r, nil, partitionTypes)
					return d.after(nil)
				},
				ValidateUpdate: func(ctx context.Context, r, old *poolRequest) field.ErrorList {
					d := newDeclared(ctx, true)
					d.poolRequest(r, old, partitionTypes)
					return d.after(nil)
				},
				ValidateStatusUpdate: func(ctx context.Context, r, old *poolRequest) (errs field.ErrorList) {
					path, d := field.NewPath("status"), newDeclared(ctx, true)
					switch {
					case old.Status != nil: // the request is complete
						errs = declare.Immutable(r.Status, old.Status, path)
					case r.Status != nil:
						errs = metav1validation.ValidateConditions(r.Status.Conditions, path.Child("conditions").K8s())
					}
					d.poolRequest(r, old, partitionTypes)
					return d.after(errs)
				},
			},
		}.Untyped(),
		Table: registry.Table[*poolRequest]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Driver", "string", "The driver to query pools for."),
				table.Column("Total", "string", "Total number of devices across all pools."),
				table.Column("Available", "string", "Number of available devices across all pools."),
				table.Column("Allocated", "string", "Number of allocated devices across all pools."),
				table.Column("Unavailable", "string", "Number of unavailable devices across all pools."),
				table.Column("Errors", "string", "Number of pools with validation errors."),
				table.Column("Pools", "integer", "Total number of matching pools."),
				table.Column("Status", "string", "Processing status."),
				table.Column("Completed", "string", "Time since the observation completed."),
			},
			Cells: poolRequestCells,
		}.Untyped(),
	}
}

// poolRequest applies the declared rules of a new request, and of the status if an update changes it.
func (d *declared) poolRequest(r, old *poolRequest, partitionTypes bool) {
	switch path := field.NewPath("spec"); {
	case old == nil:
		d.poolRequestSpec(&r.Spec, partitionTypes, path)
	case !d.kept(r.Spec, old.Spec, true):
		d.errs = append(d.errs, field.Invalid(path, nil, "field is immutable"))
	}
	if r.Status != nil {
		d.poolRequestStatus(r.Status, part(old, func(r *poolRequest) *resourcev1alpha3.ResourcePoolStatusRequestStatus {
			return r.Status
		}), field.NewPath("status"))
	}
}

func (d *declared) poolRequestSpec(
	s *resourcev1alpha3.ResourcePoolStatusRequestSpec, partitionTypes bool, path *field.Path,
) {
	required(d, path.Child("driver"), s.Driver, validate.LongNameCaseless[string])
	optionalPointer(d, path.Child("poolName"), s.PoolName, validate.ResourcePoolName[string])
	requiredPointer(d, path.Child("limit"), s.Limit,
		atMostNumber(resourcev1alpha3.ResourcePoolStatusRequestLimitMax), atLeast[int32](1))
	partitionType(d, s.DefaultPartitionTypeAttribute, partitionTypes, path.Child("defaultPartitionTypeAttribute"))
}

func (d *declared) poolRequestStatus(s, old *resourcev1alpha3.ResourcePoolStatusRequestStatus, path *field.Path) {
	// maxPools is the highest value of spec.limit. If there are more pools, the list has only some of them, and
	// poolCount is the number of all.
	const maxPools, maxConditions = 1000, 10
	before := ptr.Deref(old, resourcev1alpha3.ResourcePoolStatusRequestStatus{})
	if !d.kept(s.PoolCount, before.PoolCount, old != nil) {
		requiredPointer(d, path.Child("poolCount"), s.PoolCount, atLeast[int32](0))
	}
	if at := path.Child("pools"); !d.kept(s.Pools, before.Pools, old != nil) && d.atMost(maxPools, len(s.Pools), at) {
		for i := range s.Pools {
			d.poolStatus(&s.Pools[i], at.Index(i))
		}
	}
	if !d.kept(s.Conditions, before.Conditions, old != nil) {
		d.atMost(maxConditions, len(s.Conditions), path.Child("conditions"))
	}
}

func (d *declared) poolStatus(p *resourcev1alpha3.PoolStatus, path *field.Path) {
	const maxError, maxSummary = 256, 32 // bytes; entries
	required(d, path.Child("driver"), p.Driver, validate.LongNameCaseless[string])
	required(d, path.Child("poolName"), p.PoolName, validate.ResourcePoolName[string])
	// The generation 0 is refused as missing, although it is allowed in a ResourceSlice.
	required(d, path.Child("generation"), p.Generation, atLeast[int64](0))
	optionalPointer(d, path.Child("resourceSliceCount"), p.ResourceSliceCount, atLeast[int32](1))
	optionalPointer(d, path.Child("totalDevices"), p.TotalDevices, atLeast[int32](0))
	optionalPointer(d, path.Child("allocatedDevices"), p.AllocatedDevices, atLeast[int32](0))
	optionalPointer(d, path.Child("availableDevices"), p.AvailableDevices, atLeast[int32](0))
	optionalPointer(d, path.Child("unavailableDevices"), p.UnavailableDevices, atLeast[int32](0))
	optionalPointer(d, path.Child("nodeName"), p.NodeName, validate.LongName[string])
	optionalPointer(d, path.Child("validationError"), p.ValidationError, maxBytes[string](maxError))
	if at := path.Child("partitionSummary"); d.atMost(maxSummary, len(p.PartitionSummary), at) {
		unique(d, at, p.PartitionSummary, func(a, b *resourcev1alpha3.PartitionTypeStatus) bool {
			return a.Attribute == b.Attribute && a.Type == b.Type
		}, whole)
		for i := range p.PartitionSummary {
			s, at := &p.PartitionSummary[i], at.Index(i)
			required(d, at.Child("attribute"), s.Attribute)
			required(d, at.Child("type"), s.Type)
			requiredPointer(d, at.Child("total"), s.Total, atLeast[int32](0))
			requiredPointer(d, at.Child("allocatable"), s.Allocatable, atLeast[int32](0))
		}
	}
	if s := p.ShareableSummary; s != nil {
		d.shareableSummary(s, path.Child("shareableSummary"))
	}
}

func (d *declared) shareableSummary(s *resourcev1alpha3.ShareableSummaryStatus, path *field.Path) {
	const maxCapacities = 32
	requiredPointer(d, path.Child("fullyAvailableDevices"), s.FullyAvailableDevices, atLeast[int32](0))
	requiredPointer(d, path.Child("partiallyAvailableDevices"), s.PartiallyAvailableDevices, atLeast[int32](0))
	if at := path.Child("capacity"); d.atMost(maxCapacities, len(s.Capacity), at) {
		for i := range s.Capacity {
			c, at := &s.Capacity[i], at.Index(i)
			required(d, at.Child("name"), c.Name)
			requiredPointer(d, at.Child("total"), c.Total)
			requiredPointer(d, at.Child("consumed"), c.Consumed)
			requiredPointer(d, at.Child("available"), c.Available)
		}
	}
}

// poolRequestCells shows sums over the pools, unless the request has failed or is not processed yet.
func poolRequestCells(r *poolRequest) []any {
	status, pools, completed := "Pending", int32(0), any(table.None)
	sums := []any{"-", "-", "-", "-", "-"}
	if s := r.Status; s != nil {
		pools = ptr.Deref(s.PoolCount, 0)
		var since metav1.Time
		status, since = poolRequestState(s, pools)
		if !since.IsZero() {
			completed = table.AgeOf(since)
		}
		if status != resourcev1alpha3.ResourcePoolStatusRequestConditionFailed {
			sums = poolSums(s.Pools)
		}
	}
	cells := append([]any{r.Name, r.Spec.Driver}, sums...)
	return append(cells, int64(pools), status, completed)
}

// poolRequestState returns how far a request is processed, and since when it is complete.
func poolRequestState(s *resourcev1alpha3.ResourcePoolStatusRequestStatus, pools int32) (string, metav1.Time) {
	const complete, failed = resourcev1alpha3.ResourcePoolStatusRequestConditionComplete,
		resourcev1alpha3.ResourcePoolStatusRequestConditionFailed
	for i := range s.Conditions {
		c := &s.Conditions[i]
		switch {
		case c.Status != metav1.ConditionTrue:
		case c.Type == failed:
			return failed, metav1.Time{}
		case c.Type == complete && int(pools) > len(s.Pools):
			return fmt.Sprintf("Complete (%d/%d pools)", len(s.Pools), pools), c.LastTransitionTime
		case c.Type == complete:
			return complete, c.LastTransitionTime
		}
	}
	return "Pending", metav1.Time{}
}

// poolSums returns the devices of all pools: in total, available, allocated and unavailable ones, and the number of
// pools with errors.
func poolSums(pools []resourcev1alpha3.PoolStatus) []any {
	var total, available, allocated, unavailable, failed int
	for i := range pools {
		p := &pools[i]
		total += int(ptr.Deref(p.TotalDevices, 0))
		available += int(ptr.Deref(p.AvailableDevices, 0))
		allocated += int(ptr.Deref(p.AllocatedDevices, 0))
		unavailable += int(ptr.Deref(p.UnavailableDevices, 0))
		if p.ValidationError != nil {
			failed++
		}
	}
	return []any{
		strconv.Itoa(total), strconv.Itoa(available), strconv.Itoa(allocated), strconv.Itoa(unavailable),
		strconv.Itoa(failed),
	}
}
