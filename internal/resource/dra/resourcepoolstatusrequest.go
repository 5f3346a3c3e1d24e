package dra

import (
	"context"
	"fmt"
	"strconv"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type poolRequest = resourcev1alpha3.ResourcePoolStatusRequest

func resourcePoolStatusRequest() *registry.Kind {
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
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*poolRequest]{
			StatusKeepsMeta: true,
			ValidateCreate: func(r *poolRequest) field.ErrorList {
				return validatePoolRequest(&r.Spec, field.NewPath("spec"))
			},
			ValidateUpdate: func(r, old *poolRequest) field.ErrorList {
				return declare.Unchanged(r.Spec, old.Spec, field.NewPath("spec"))
			},
			ValidateStatusUpdate: func(r, old *poolRequest) field.ErrorList {
				path := field.NewPath("status")
				if old.Status != nil { // the request is complete
					return declare.Immutable(r.Status, old.Status, path)
				}
				return validatePoolRequestStatus(r.Status, path)
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

func validatePoolRequest(s *resourcev1alpha3.ResourcePoolStatusRequestSpec, path *field.Path) field.ErrorList {
	ctx, op := context.Background(), operation.Operation{Type: operation.Create}
	at := path.Child("driver")
	errs := firstErrors(validate.RequiredValue(ctx, op, at.K8s(), &s.Driver, nil),
		validate.LongNameCaseless(ctx, op, at.K8s(), &s.Driver, nil))
	if s.PoolName != nil {
		errs = append(errs, validate.ResourcePoolName(ctx, op, path.Child("poolName").K8s(), s.PoolName, nil)...)
	}
	const least, most = 1, resourcev1alpha3.ResourcePoolStatusRequestLimitMax
	errs = append(errs, validate.Maximum(ctx, op, path.Child("limit").K8s(), s.Limit, nil, most)...)
	return append(errs, validate.Minimum(ctx, op, path.Child("limit").K8s(), s.Limit, nil, least)...)
}

// firstErrors returns the first list that has errors: a value that is missing has no other fault.
func firstErrors(missing, wrong field.ErrorList) field.ErrorList {
	if len(missing) > 0 {
		return missing
	}
	return wrong
}

func validatePoolRequestStatus(s *resourcev1alpha3.ResourcePoolStatusRequestStatus, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	const maxPools, maxConditions = 1000, 10
	ctx, op := context.Background(), operation.Operation{Type: operation.Create}
	at := path.Child("conditions")
	errs := metav1validation.ValidateConditions(s.Conditions, at.K8s())
	count := path.Child("poolCount").K8s()
	errs = append(errs, firstErrors(validate.RequiredPointer(ctx, op, count, s.PoolCount, nil),
		validate.Minimum(ctx, op, count, s.PoolCount, nil, 0))...)
	if many := validate.MaxItems(ctx, op, path.Child("pools").K8s(), s.Pools, nil, maxPools); len(many) > 0 {
		errs = append(errs, many...)
	} else {
		for i := range s.Pools {
			errs = append(errs, validatePoolStatus(&s.Pools[i], path.Child("pools").Index(i))...)
		}
	}
	return append(errs, validate.MaxItems(ctx, op, at.K8s(), s.Conditions, nil, maxConditions)...)
}

func validatePoolStatus(p *resourcev1alpha3.PoolStatus, path *field.Path) field.ErrorList {
	ctx, op := context.Background(), operation.Operation{Type: operation.Create}
	at := path.Child("driver").K8s()
	errs := firstErrors(validate.RequiredValue(ctx, op, at, &p.Driver, nil),
		validate.LongNameCaseless(ctx, op, at, &p.Driver, nil))
	at = path.Child("poolName").K8s()
	errs = append(errs, firstErrors(validate.RequiredValue(ctx, op, at, &p.PoolName, nil),
		validate.ResourcePoolName(ctx, op, at, &p.PoolName, nil))...)
	at = path.Child("generation").K8s()
	errs = append(errs, firstErrors(validate.RequiredValue(ctx, op, at, &p.Generation, nil),
		validate.Minimum(ctx, op, at, &p.Generation, nil, 0))...)
	least := func(name string, count *int32, least int32) field.ErrorList {
		return validate.Minimum(ctx, op, path.Child(name).K8s(), count, nil, least)
	}
	errs = field.Join(errs, least("resourceSliceCount", p.ResourceSliceCount, 1), least("totalDevices", p.TotalDevices, 0),
		least("allocatedDevices", p.AllocatedDevices, 0), least("availableDevices", p.AvailableDevices, 0),
		least("unavailableDevices", p.UnavailableDevices, 0))
	if p.NodeName != nil {
		errs = append(errs, validate.LongName(ctx, op, path.Child("nodeName").K8s(), p.NodeName, nil)...)
	}
	const maxError = 256 // bytes
	if p.ValidationError != nil {
		errs = append(errs, validate.MaxBytes(ctx, op, path.Child("validationError").K8s(), p.ValidationError, nil, maxError)...)
	}
	return errs
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
