package changes

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Resource returns the entry of the feed in the directory.
func Resource(h http.Handler) *directory.Resource {
	return &directory.Resource{
		GVR: GVR, Source: directory.BuiltIn, Handler: h,
		Open: func(context.Context) (*registry.Served, func(), error) { return nil, nil, apierr.PathNotFound() }, // it is not stored
		Describe: func() []metav1.APIResource {
			return []metav1.APIResource{{
				Name: GVR.Resource, SingularName: "change", Namespaced: true, Kind: "Change", Verbs: metav1.Verbs{"list", "watch"},
			}}
		},
	}
}

//go:embed openapi.json
var document []byte

// documents is an openapi.Source.
type documents struct{}

// Documents are the OpenAPI documents of the group.
var Documents openapi.Source = documents{}

const documentPath = "apis/" + history.APIVersion

var etag = sync.OnceValue(func() string {
	sum := sha256.Sum256(document)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
})

// Documents implements openapi.Source.
func (documents) Documents() []openapi.Document {
	return []openapi.Document{{Path: documentPath, ETag: etag()}}
}

// V3 implements openapi.Source.
func (documents) V3(_ context.Context, path string) (text []byte, tag string, err error) {
	if path != documentPath {
		return nil, "", openapi.ErrGone
	}
	return document, etag(), nil
}

// V2 implements openapi.Source. In OpenAPI v2, a parameter has its type beside its name, and a response has its
// schema without a media type.
func (documents) V2(_ context.Context, path string) ([]byte, error) {
	if path != documentPath {
		return nil, openapi.ErrGone
	}
	var doc struct {
		Paths      map[string]any
		Components struct{ Schemas map[string]any }
	}
	text := strings.ReplaceAll(string(document), "#/components/schemas/", "#/definitions/")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	flatten(doc.Paths)
	return json.Marshal(map[string]any{"paths": doc.Paths, "definitions": doc.Components.Schemas})
}

// flatten converts the parameters and responses in v from OpenAPI v3 to v2, in place.
func flatten(v any) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			flatten(element)
		}
	case map[string]any:
		if schema, ok := v["schema"].(map[string]any); ok && v["in"] != nil {
			delete(v, "schema")
			for key, value := range schema {
				v[key] = value
			}
		}
		if content, ok := v["content"].(map[string]any); ok {
			delete(v, "content")
			v["schema"] = content["application/json"].(map[string]any)["schema"]
		}
		for _, value := range v {
			flatten(value)
		}
	}
}
