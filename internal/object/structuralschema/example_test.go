package structuralschema

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Example is the example of the package comment.
func Example() {
	var props apiextensionsv1.JSONSchemaProps
	err := json.Unmarshal([]byte(`{"type": "object", "properties": {"spec": {"type": "object", "properties": {
		"replicas": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}}}}}`), &props)
	if err != nil {
		panic(err)
	}
	schema, err := New(&props)
	if err != nil {
		panic(err)
	}
	object := map[string]any{"spec": map[string]any{"replicas": int64(0), "colour": "blue"}}
	unknown, err := schema.Decode(object, DecodeOptions{Report: true})
	fmt.Println(object, unknown, err)
	schema.SetDefaults(object)
	fmt.Println(object)
	fmt.Println(schema.Validate(nil, object))
	// Output:
	// map[spec:map[replicas:0]] [spec.colour] <nil>
	// map[spec:map[color:red replicas:0]]
	// [spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1]
}
