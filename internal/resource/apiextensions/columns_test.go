package apiextensions

import (
	"slices"
	"testing"
)

// TestUnreadableColumns: who writes a column whose path cannot be parsed is warned, who leaves it is not.
func TestUnreadableColumns(t *testing.T) {
	d := decodeDefinition(t, []byte(`{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[
		{"name":"Good","jsonPath":".spec.size"},{"name":"Bad","jsonPath":".spec["}]}]}}`))
	want := []string{`version v1: the column "Bad" is not shown, because its path ".spec[" cannot be parsed: unterminated array`}
	warn := customResourceDefinition().Strategy.Warn
	if got := warn(d, nil); !slices.Equal(got, want) {
		t.Errorf("a create: %q, want %q", got, want)
	}
	if got := warn(d, d); len(got) > 0 {
		t.Errorf("an update that leaves the column: %q", got)
	}
}
