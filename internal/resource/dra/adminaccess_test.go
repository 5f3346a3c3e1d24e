package dra

import (
	"errors"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestAdminAccess checks that only a namespace with the label allows admin access, and that it is asked only if needed.
func TestAdminAccess(t *testing.T) {
	claim := func(admin bool) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{
			{Name: "a"}, {Name: "b", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: &admin}},
		}
		c.Status.Allocation = &resourcev1.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{AdminAccess: &admin}}
		return c
	}
	without, with := claim(false), claim(true)
	validate := resourceClaim(features.Gates{}).Strategy.ValidateNamespace
	const forbidden = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label " +
		"on the containing namespace"
	template := &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: with.Spec}}
	labeled := map[string]string{"resource.kubernetes.io/admin-access": "true"}
	for name, c := range map[string]struct {
		errs field.ErrorList
		want string
	}{
		"create without":       {validate(without, nil, failing), ""},
		"create":               {validate(with, nil, labels(nil)), "spec.devices.requests[1].adminAccess: " + forbidden},
		"create, with label":   {validate(with, nil, labels(labeled)), ""},
		"allocation":           {validate(with, without, labels(nil)), "status.allocation.devices.results[0].adminAccess: " + forbidden},
		"allocation as before": {validate(with, with, failing), ""},
		"template": {resourceClaimTemplate(features.Gates{}).Strategy.ValidateNamespace(template, nil, labels(nil)),
			"spec.devices.requests[1].adminAccess: " + forbidden},
		"no namespace": {validate(with, nil, failing), "spec.devices.requests[1].adminAccess: Internal error: could not " +
			"retrieve namespace to verify admin access: no namespace"},
	} {
		got := ""
		if len(c.errs) > 0 {
			got = c.errs.ToAggregate().Error()
		}
		if got != c.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, c.want)
		}
	}
}

func labels(m map[string]string) func() (map[string]string, error) {
	return func() (map[string]string, error) { return m, nil }
}

func failing() (map[string]string, error) { return nil, errors.New("no namespace") }
