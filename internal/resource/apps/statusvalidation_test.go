package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

func TestStatusCounts(t *testing.T) {
	count := func(n int32) *int32 { return &n }
	set := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Replicas: -1, ReadyReplicas: 2, AvailableReplicas: 3}}
	old := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{CollisionCount: count(1)}}
	const want = "[status.replicas: Invalid value: -1: must be greater than or equal to 0, " +
		"status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas, " +
		"status.currentReplicas: Invalid value: 0: cannot be greater than status.replicas, " +
		"status.updatedReplicas: Invalid value: 0: cannot be greater than status.replicas, " +
		"status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas, " +
		"status.availableReplicas: Invalid value: 3: cannot be greater than status.readyReplicas, " +
		"status.collisionCount: Invalid value: 0: cannot be decremented]"
	validate := statefulSet(core.PodGates{}, features.Gates{}).Strategy.ValidateStatusUpdate
	if got := validate(t.Context(), set, old).ToAggregate().Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
