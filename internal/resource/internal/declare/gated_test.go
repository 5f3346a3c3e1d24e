package declare

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
)

func TestGated(t *testing.T) {
	part := func(gate string, i int) Gated[[]int] {
		return Part(gate, func(o []int) bool { return o[i] != 0 }, func(o []int) { o[i] = 0 })
	}
	gates, err := features.Parse([]string{"HPAScaleToZero=true"}, release.Release{})
	if err != nil {
		t.Fatal(err)
	}
	d := DisabledOf(gates, part(features.HPAScaleToZero, 0), part(features.ContainerStopSignals, 1),
		part(features.EnvFiles, 2))
	obj := []int{1, 1, 1}
	if d.DropNew(obj); obj[0] != 1 || obj[1] != 0 || obj[2] != 1 {
		t.Errorf("a new object has %v", obj)
	}
	obj = []int{1, 1, 1}
	if d.Drop(obj, []int{0, 1, 0}); obj[1] != 1 {
		t.Errorf("an updated object has %v", obj)
	}
	if d.Drop(obj, []int{1, 0, 1}); obj[0] != 1 || obj[1] != 0 || obj[2] != 1 {
		t.Errorf("an updated object has %v", obj)
	}
}
