package patch_test

import (
	"fmt"
	"net/http"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
)

// TestWholeDocument applies operations to the whole document. Each one is refused, as by
// kube-apiserver, or makes a document; none panics. kube-apiserver panics where the value is missing.
func TestWholeDocument(t *testing.T) {
	document := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	for _, op := range []string{"add", "replace", "test", "remove", "copy", "move", "x", ""} {
		for _, path := range []string{`"path":""`, `"path":"/"`, `"path":null`, `"x":0`} {
			for _, value := range []string{
				"", `,"value":null`, `,"value":"x"`, `,"value":1`, `,"from":""`, `,"from":"/metadata"`, `,"from":null,"value":[]`,
			} {
				for _, v := range []patch.Validation{patch.Ignore, patch.Warn} {
					body := fmt.Sprintf(`[{"op":%q,%s%s}]`, op, path, value)
					_, _, err := patch.JSON(document, []byte(body), v)
					if status, ok := err.(kerrors.APIStatus); err != nil &&
						(!ok || status.Status().Code >= http.StatusInternalServerError) {
						t.Errorf("%s: %v", body, err)
					}
				}
			}
		}
	}
	for _, body := range []string{
		`[{"op":"replace","path":""}]`, `[{"op":"test","path":""}]`,
		`[{"op":"test","path":"","value":{}},{"op":"replace","path":""}]`,
	} {
		if _, _, err := patch.JSON(document, []byte(body), patch.Warn); !kerrors.IsInvalid(err) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if patched, _, err := patch.JSON(
		document, []byte(`[{"op":"replace","path":"","value":{"a":1}}]`), patch.Warn,
	); err != nil || string(patched) != `{"a":1}` {
		t.Errorf("%s %v", patched, err)
	}
}
