package dra

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestCosts compares the highest possible costs of selectors with those that kube-apiserver 1.37 estimates, without and with the
// gate DRAListTypeAttributes. 0 is the cost of an expression that it does not compile.
func TestCosts(t *testing.T) {
	for _, c := range []struct {
		source       string
		cost, ofList uint64
	}{
		{`true`, 0, 0},
		{`device.driver.matches("a*")`, 9, 9},
		{`cel.bind(d, device.attributes["a"], d.b && d.c)`, 17, 17},
		{`device.attributes["a"].b.exists(x, x == 1)`, 0, 389},
		{`device.attributes.exists(k, device.attributes[k].exists(l, true))`, 4387, 4387},
		{`device.attributes.all(k, device.attributes.all(l, k == l || device.driver.matches(k)))`, 130243, 130243},
		{`device.attributes.all(k, device.attributes[k].all(i, device.attributes.all(m, device.attributes[m].all(j, i == j))))`, 9705731, 9705731},
		{`device.capacity.all(k, device.capacity[k].all(i, device.capacity[k][i].isGreaterThan(quantity("1"))))`, 11523, 11523},
		{`device.attributes["a"].b.includes("x")`, 0, 68},
		{`device.allowMultipleAllocations`, 2, 2},
		{`device.attributes["a"].b in ["x","y"]`, 16, 16},
		{`device.attributes["a"].b.all(x, x.contains("aaaaaa"))`, 0, 18446744073709551615},
	} {
		for _, lists := range []bool{false, true} {
			e, want := &expressions{sharing: true, lists: lists}, c.cost
			if lists {
				want = c.ofList
			}
			if got, errs := e.validate(c.source, e.selectorType, field.NewPath("expression")); got != want {
				t.Errorf("%s: costs %d, want %d: %v", c.source, got, want, errs)
			}
		}
	}
}
