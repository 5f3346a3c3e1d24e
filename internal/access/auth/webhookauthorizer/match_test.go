package webhookauthorizer

import (
	"runtime"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestResultsOfMatchConditionsAreBounded evaluates conditions that make very large values from a user name of 1
// KB. Each has to fail with an error before it has allocated much more memory than an object may have.
func TestResultsOfMatchConditionsAreBounded(t *testing.T) {
	const limit = 100 << 20 // bytes allocated by one evaluation
	grow := ".replace('a', '" + strings.Repeat("a", 1100) + "')"
	for name, c := range map[string]struct{ expression, want string }{
		"replace":    {"size(request.user" + strings.Repeat(grow, 2) + ") > 0", "larger than"},
		"join":       {"size([request.user" + grow + "].map(x, [x, x, x, x, x, x].join(x)).join('')) > 0", "larger than"},
		"precision":  {"size('%.1000000000f'.format([1.0])) > 0", "larger than"},
		"range":      {"size(lists.range(10000000)) > 0", "larger than"},
		"quantity":   {"quantity(request.uid).isInteger()", "suffix"},
		"isQuantity": {"isQuantity(request.uid)", "suffix"},
	} {
		conditions, errs := Compile([]string{c.expression}, nil)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", name, errs)
		}
		spec := &authorizationv1.SubjectAccessReviewSpec{User: strings.Repeat("a", 1000), UID: "011E011110011110"}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := conditions.Match(t.Context(), spec)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > limit {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.400v", name, err)
		}
	}
}
