package celrules

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

func TestStoredExpressionsAreThoseOfAllNodes(t *testing.T) {
	s := parseSchema(t, `{"type":"object","x-kubernetes-validations":[{"rule":"r0","messageExpression":"m0"}],"properties":{
		"a":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"r1"}]}},
		"b":{"type":"object","additionalProperties":{"type":"string","x-kubernetes-validations":[{"rule":"r2"}]}}}}`)
	got := storedExpressions([]*structuralschema.Schema{s, nil})
	for _, want := range [][2]string{{rulePart, "r0"}, {messagePart, "m0"}, {rulePart, "r1"}, {rulePart, "r2"}} {
		if !got[want] {
			t.Errorf("%q is not there: %v", want, got)
		}
	}
	if got[[2]string{rulePart, "m0"}] {
		t.Error("a messageExpression counts as a rule")
	}
}
