package standby

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHeldUntil(t *testing.T) {
	now := time.Unix(1000, 0)
	renewed := metav1.NewMicroTime(time.Unix(1, 0)) // the holder's clock, which does not matter
	for name, test := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want time.Duration
	}{
		"held": {coordinationv1.LeaseSpec{
			HolderIdentity: new("a"), RenewTime: &renewed, LeaseDurationSeconds: new(int32(7)),
		}, 7 * time.Second},
		"no duration":   {coordinationv1.LeaseSpec{HolderIdentity: new("a"), RenewTime: &renewed}, defaultDuration},
		"released":      {coordinationv1.LeaseSpec{HolderIdentity: new(""), RenewTime: &renewed}, 0},
		"no holder":     {coordinationv1.LeaseSpec{RenewTime: &renewed}, 0},
		"never renewed": {coordinationv1.LeaseSpec{HolderIdentity: new("a")}, 0},
	} {
		until, _ := heldUntil(&test.spec, now)
		if got := until.Sub(now); got != test.want && (test.want > 0 || got > 0) {
			t.Errorf("%s: held for %v, want %v", name, got, test.want)
		}
	}
}
