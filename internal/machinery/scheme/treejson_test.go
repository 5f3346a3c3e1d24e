package scheme

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FuzzMarshalTree compares the encoding of trees with json.Marshal.
func FuzzMarshalTree(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a":null,"b":[],"c":{},"d":[1,-2.5,1e30,true,false,"x"]}`,
		`{"é":"<&>\"\\\n\u2028\u007f","A":"B","a":{"z":1,"y":[[{}]]}}`,
		`{"q":1,"w":1,"e":1,"r":1,"t":1,"y":1,"u":1,"i":1,"o":1,"p":1,"a":1,"s":1,"d":1,"f":1,"g":1,"h":1,"j":1,` +
			`"k":1}`, `{"\ud800":"\udfff","n":9223372036854775807}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		tree := &unstructured.Unstructured{}
		if UnmarshalTree(doc, &tree.Object) != nil {
			return
		}
		got, err := MarshalTree(tree)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(tree.Object)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s, not %s", got, want)
		}
	})
}

func TestMarshalTreeOfOtherValues(t *testing.T) {
	for _, v := range []any{int32(1), float32(0.5), []string{"b", "a"}, map[string]string{"b": "<", "a": ""},
		map[string]any(nil), []any(nil), json.Number("1.50")} {
		object := map[string]any{"v": v, "list": []any{v}}
		got, err := MarshalTree(&unstructured.Unstructured{Object: object})
		want, wantErr := json.Marshal(object)
		if !bytes.Equal(got, want) || (err != nil) != (wantErr != nil) {
			t.Errorf("%v: %s, %v, not %s, %v", v, got, err, want, wantErr)
		}
	}
	if _, err := MarshalTree(&unstructured.Unstructured{Object: map[string]any{"v": math.NaN()}}); err == nil {
		t.Error("what is no number was encoded")
	}
}
