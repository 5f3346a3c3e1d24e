package coordination

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
)

// TestValidateLease has the numbers of a Lease, as an apply wraps those that are out of range: 1e+300
// becomes 0 and 3000000000 becomes -1294967296.
func TestValidateLease(t *testing.T) {
	strategy := lease(features.Gates{}).Strategy
	for _, c := range []struct {
		duration, transitions *int32
		want                  string
	}{
		{nil, nil, "[]"},
		{ptr.To[int32](1), ptr.To[int32](0), "[]"},
		{ptr.To[int32](0), nil, "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0]"},
		{ptr.To[int32](-1294967296), nil, "[spec.leaseDurationSeconds: Invalid value: -1294967296: must be greater than 0]"},
		{nil, ptr.To[int32](-1), "[spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"},
	} {
		l := &coordinationv1.Lease{
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: c.duration, LeaseTransitions: c.transitions}}
		text := "[]"
		if errs := strategy.ValidateCreate(t.Context(), l, nil); len(errs) > 0 {
			text = "[" + errs.ToAggregate().Error() + "]"
		}
		if text != c.want {
			t.Errorf("%s, want %s", text, c.want)
		}
		if got := strategy.ValidateUpdate(t.Context(), l, l); len(got) != len(strategy.ValidateCreate(t.Context(), l, nil)) {
			t.Errorf("update: %v", got)
		}
	}
}
