package structuralschema

import (
	"slices"
	"testing"
)

// TestOrderOfErrors compares the order of the errors with the validator of kube-openapi. Its order is random
// between the members of an object, so in each object here at most one member has errors.
func TestOrderOfErrors(t *testing.T) {
	const props = `{"type":"object","required":["must"],"properties":{
		"must":{"type":"string"},"i":{"type":"integer"},"i64":{"type":"integer","format":"int64","maximum":3,"enum":[1]},
		"a":{"type":"array","maxItems":1,"items":{"type":"integer","format":"int32","minimum":4}},
		"any":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},
		"one":{"type":"integer","oneOf":[{"minimum":1},{"maximum":9}],"not":{"enum":[4]},"multipleOf":3},
		"all":{"type":"string","allOf":[{"minLength":9},{"pattern":"^z"}],"enum":["x"],"maxLength":1},
		"o":{"type":"object","maxProperties":1,"required":["x"],"properties":{"n":{"type":"integer","maximum":1}}}}}`
	s, twin := schemaOf(t, props), openAPI(t, props)
	for _, value := range []string{
		`{"i":1e300}`, `{"i":1.5,"must":"x"}`, `{"i64":1e30}`, `{"i64":7}`, `{"a":[3000000000,1,2]}`, `{"a":[1.5]}`, `{"any":1.5}`,
		`{"one":4}`, `{"one":2.5}`, `{"all":"long"}`, `{"o":{"n":2,"m":1}}`, `{"o":{"n":1.5,"m":1}}`, `{"o":7}`,
	} {
		object := tree(t, value)
		got, want := messagesInOrder(s.Validate(nil, object)), errorsOfTwin(twin, object, nil)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", value, got, want)
		}
	}
}
