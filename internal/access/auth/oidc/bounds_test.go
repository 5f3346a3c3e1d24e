package oidc

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestResultsOfClaimExpressionsAreBounded evaluates expressions that make very large values from a claim of 1 KB.
// Each has to fail with an error before it has allocated much more memory than an object may have.
func TestResultsOfClaimExpressionsAreBounded(t *testing.T) {
	const limit = 100 << 20 // bytes allocated by one evaluation
	grow := ".replace('a', '" + strings.Repeat("a", 1100) + "')"
	for name, c := range map[string]struct{ expression, want string }{
		"replace":    {"claims.sub" + strings.Repeat(grow, 2), "larger than"},
		"join":       {"[claims.sub" + grow + "].map(x, [x, x, x, x, x, x].join(x)).join('')", "larger than"},
		"precision":  {"'%.1000000000f'.format([1.0])", "larger than"},
		"range":      {"string(size(lists.range(10000000)))", "larger than"},
		"quantity":   {"string(quantity(claims.size).isInteger())", "suffix"},
		"isQuantity": {"string(isQuantity(claims.size))", "suffix"},
	} {
		config, err := ParseConfig(
			fmt.Appendf(nil, `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[
			{"issuer":{"url":"https://i","audiences":["a"]},"claimMappings":{"username":{"expression":%q}}}]}`, c.expression))
		if err != nil {
			t.Fatal(err)
		}
		mappings, errs := Validate(config, nil)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", name, errs)
		}
		text, err := json.Marshal(strings.Repeat("a", 1000))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = mappings[0].user(t.Context(), claims{"sub": text, "size": json.RawMessage(`"011E011110011110"`)})
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > limit {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.400v", name, err)
		}
	}
}
