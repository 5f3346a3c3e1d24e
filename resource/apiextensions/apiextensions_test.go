package apiextensions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(), kindtest.Options{
		// Who may have the names is decided by a controller.
		NotOurs:      map[string][]string{"customresourcedefinitions": {"status"}},
		DecodeStored: decodeStored,
		Skip: map[string]string{
			"crd-spec/conversion-none[7]":         "an empty webhook does not come back from storage",
			"crd-spec/metadata-of-definitions[8]": "the pipeline drops selfLink",
			"crd-spec/metadata-of-definitions[9]": "the pipeline drops the resourceVersion",
		},
	})
}

// decodeStored converts a stored definition, and checks that it is stored as it
// was.
func decodeStored(value []byte) (registry.Object, error) {
	in := &apiextensionsv1beta1.CustomResourceDefinition{}
	if err := json.Unmarshal(value, in); err != nil {
		return nil, err
	}
	out, err := FromStored(in)
	if err != nil {
		return nil, err
	}
	again, err := ToStored(out)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(again)
	if err != nil {
		return nil, err
	}
	if value = bytes.TrimSpace(value); !bytes.Equal(text, value) {
		return nil, fmt.Errorf("stored as\n%s\nwant\n%s", text, value)
	}
	return out, nil
}
