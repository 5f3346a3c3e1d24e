package pluginconfig

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDecode(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}
	for text, want := range map[string]string{
		"apiVersion: g/v1\nkind: K\nsize: 3":          "",
		`{"apiVersion":"g/v1","kind":"K","size":3}`:   "",
		"kind: K\nsize: 3":                            `no kind "K" is registered for version ""`,
		"apiVersion: g/v2\nkind: K\nsize: 3":          `no kind "K" is registered for version "g/v2"`,
		"apiVersion: g/v1\nkind: L\nsize: 3":          `no kind "L" is registered for version "g/v1"; expected "K" of "g/v1"`,
		"apiVersion: g/v1\nkind: K\nsize: 3\nsise: 3": `strict decoding error: unknown field "sise"`,
		"apiVersion: g/v1\nkind: K\nsize: 3\nSize: 3": `strict decoding error: unknown field "Size"`,
		"apiVersion: g/v1\nkind: K\nsize: 3\nsize: 4": `"size" already set`,
		"apiVersion: g/v1\nkind: K\nsize: much":       "cannot unmarshal string",
		"apiVersion: g/v1\nkind: K\nsize: [":          "did not find expected node content",
	} {
		var c struct {
			metav1.TypeMeta `json:",inline"`
			Size            int `json:"size"`
		}
		switch err := Decode([]byte(text), kind, &c); {
		case want == "" && (err != nil || c.Size != 3):
			t.Errorf("%q: %v, %+v", text, err, c)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
