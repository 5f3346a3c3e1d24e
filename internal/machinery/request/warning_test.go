package request_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// TestWarnings checks which warnings are sent: those that a header can have, each once, and when they are cut. The figures are those of
// kube-apiserver.
func TestWarnings(t *testing.T) {
	long := strings.Repeat("d", 5000)
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("%02d%s", i, strings.Repeat("w", 191))
	}
	for _, c := range []struct {
		name   string
		texts  []string
		count  int
		longer int // characters of the longest
	}{
		{"one that is not cut", []string{strings.Repeat("a", 300)}, 1, 300},
		{"one that is cut beside others", []string{long, "x", "y"}, 3, 256},
		{"umlauts", []string{strings.Repeat("ü", 5000)}, 1, 256},
		{"more than fit", many, 22, 193},
		{"control characters and no UTF-8", []string{"a\nb", "a\u0085b", "a\tb", "a\xffb", "c"}, 1, 1},
		{"twice", []string{"a", "a", ""}, 1, 1},
	} {
		w := &request.Warnings{}
		ctx := request.WithInfo(t.Context(), &request.Info{Warnings: w})
		for _, text := range c.texts {
			request.Warn(ctx, text)
		}
		h := http.Header{}
		w.WriteHeaders(h)
		longest := 0
		for _, value := range h.Values("Warning") {
			longest = max(longest, len([]rune(value))-len(`299 - ""`))
		}
		if got := len(h.Values("Warning")); got != c.count || longest != c.longer {
			t.Errorf("%s: %d headers, want %d; the longest has %d characters, want %d", c.name, got, c.count, longest, c.longer)
		}
	}
}
