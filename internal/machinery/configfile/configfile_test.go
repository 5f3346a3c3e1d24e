package configfile

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecode(t *testing.T) {
	kind := Kind{Group: "g", Name: "K", Versions: []string{"v2", "v1"}}
	for text, want := range map[string]string{
		"apiVersion: g/v1\nkind: K\nsize: 3":          "",
		`{"apiVersion":"g/v2","kind":"K","size":3}`:   "",
		"kind: K\nsize: 3":                            `expected K of g/v2, got apiVersion "", kind "K"`,
		"apiVersion: v1\nkind: K\nsize: 3":            `expected K of g/v2, got apiVersion "v1", kind "K"`,
		"apiVersion: g/v3\nkind: K\nsize: 3\nsise: 3": `expected K of g/v2, got apiVersion "g/v3", kind "K"`,
		"apiVersion: g/v1\nkind: L\nsize: 3":          `expected K of g/v2, got apiVersion "g/v1", kind "L"`,
		"apiVersion: g/v1\nkind: K\nsize: 3\nsise: 3": `strict decoding error: unknown field "sise"`,
		"apiVersion: g/v1\nkind: K\nsize: 3\nsize: 4": `"size" already set`,
		"apiVersion: g/v1\nkind: K\nsize: much":       "cannot unmarshal string",
		"apiVersion: g/v1\nkind: K\nsize: [":          "did not find expected node content",
	} {
		var c struct {
			metav1.TypeMeta `json:",inline"`
			Size            int `json:"size"`
		}
		switch err := kind.Decode([]byte(text), &c, &c.TypeMeta); {
		case want == "" && (err != nil || c.Size != 3):
			t.Errorf("%q: %v, %+v", text, err, c)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
