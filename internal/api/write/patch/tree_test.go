package patch

import (
	"reflect"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// FuzzMergeTree compares MergeTree with Merge of the documents.
func FuzzMergeTree(f *testing.F) {
	for _, c := range [][2]string{
		{`{}`, `{}`},
		{
			`{"a":{"b":1,"c":[1,{"d":2}]},"e":"x"}`,
			`{"a":{"b":null,"c":[{"d":null},null]},"f":{"g":null,"h":[null,{"i":null}]}}`,
		},
		{`{"a":1}`, `{"a":{"b":null,"c":{"d":null}}}`},
		{`{"a":{"b":1}}`, `{"a":[{"c":null}]}`},
		{`{"a":null}`, `{"a":{"b":null},"c":null}`},
		{`{"a":[{"b":1}]}`, `{"a":{"b":2}}`},
		{`{"a":1.0}`, `{"b":1.0,"c":12345678901234567890,"d":"\u00e9"}`},
	} {
		f.Add([]byte(c[0]), []byte(c[1]))
	}
	f.Fuzz(func(t *testing.T, doc, changes []byte) {
		tree, ok := scheme.ParseTree(doc)
		patch, fine := scheme.ParseTree(changes)
		if !ok || !fine {
			return
		}
		after, _, err := Merge(doc, changes, Ignore)
		if err != nil {
			t.Fatalf("%s + %s: %v", doc, changes, err)
		}
		var want map[string]any
		if err := scheme.UnmarshalTree(after, &want); err != nil {
			t.Fatal(err)
		}
		if MergeTree(tree, patch); !reflect.DeepEqual(tree, want) {
			t.Errorf("%s + %s: %v, want %v", doc, changes, tree, want)
		}
	})
}
