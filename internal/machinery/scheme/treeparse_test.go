package scheme

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

var treeDocuments = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":{"b":[1,-2,0,-0,1.5,1e3,-1E-2,9223372036854775807,9223372036854775808,1e400]}}`,
	`{"a":"b","c":"\u00e9\n\"\\","d":"é","\u0065":1}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`,
	`{"a":[],"b":{},"c":null,"d":true,"e":false}`,
	`{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `{"a":1,"\u0061":2}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`,
	`{"a":+1}`, `{"a":1e}`,
	`{"a":tru}`, `{"a":nul}`, `{"a":"b}`, "{\"a\":\"b\nc\"}", `{"a" 1}`, `{"a":1,}`, `{,"a":1}`, `{"a":[1,]}`, `{"a":[,]}`,
	`{"a":1}}`, `{"a":1} x`,
	`[]`, `null`, `1`, ``, ` `, `{`, `{"a"`, `{"a":`, `{"a":[`, `"a"`, `{"a":"\x"}`, `{"a":"\`, `{"a":truefalse}`,
	`{"a":1 2}`, `{1:2}`,
	strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600),
}

// sameTree compares ParseTree with the general decoder.
func sameTree(t *testing.T, doc []byte) {
	t.Helper()
	tree, ok := ParseTree(doc)
	var want map[string]any
	strict, err := kjson.UnmarshalStrict(doc, &want)
	if !ok {
		return
	}
	if err != nil || len(strict) > 0 {
		t.Errorf("%q was taken: %v %v", doc, err, strict)
	} else if !reflect.DeepEqual(tree, want) {
		t.Errorf("%q: %#v, want %#v", doc, tree, want)
	}
}

func TestParseTree(t *testing.T) {
	for _, doc := range treeDocuments {
		sameTree(t, []byte(doc))
	}
	// ParseTree must decode these common documents itself.
	for _, doc := range treeDocuments[:3] {
		if _, ok := ParseTree([]byte(doc)); !ok {
			t.Errorf("%q was not taken", doc)
		}
	}
}

func TestParseTreeNegativeZero(t *testing.T) {
	tree, ok := ParseTree([]byte(`{"a":[-0,-0.0,-0e7]}`))
	if text, err := json.Marshal(tree); !ok || err != nil || string(text) != `{"a":[0,0,0]}` {
		t.Errorf("%s, %v, %v", text, ok, err)
	}
}

func FuzzParseTree(f *testing.F) {
	for _, doc := range treeDocuments {
		f.Add([]byte(doc))
	}
	f.Fuzz(sameTree)
}
