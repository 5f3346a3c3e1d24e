package apiextensions

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(), kindtest.Options{
		// Who may have the names is decided by a controller.
		SetByOthers: map[string][]string{"customresourcedefinitions": {"status"}},
		Skip: map[string]string{
			"crd-spec/metadata-of-definitions[8]": "the pipeline drops selfLink",
			"crd-spec/metadata-of-definitions[9]": "the pipeline drops the resourceVersion",
		},
	})
}
