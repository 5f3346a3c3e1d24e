package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// collectOpenAPI returns the documents of OpenAPI v2 and v3. A schema that several documents of v3 have in the same form is
// there once, below v3/schemas; the documents have the names of their schemas.
func collectOpenAPI(ctx context.Context, _ *comparison, s *server) (map[string]any, error) {
	v2, err := s.get(ctx, "/openapi/v2", "")
	if err != nil {
		return nil, err
	}
	documents, err := s.openAPIv3(ctx)
	if err != nil {
		return nil, err
	}
	schemas, paths, rest := map[string]any{}, map[string]any{}, map[string]any{}
	for _, name := range sortedNames(documents) {
		doc := documents[name]
		names := map[string]any{}
		components, _ := doc["components"].(map[string]any)
		own, _ := components["schemas"].(map[string]any)
		for schema, content := range own {
			names[schema] = true
			if old, ok := schemas[schema]; ok && compact(old) != compact(content) {
				schema += " in " + name
			}
			schemas[schema] = content
		}
		of, _ := doc["paths"].(map[string]any)
		for path, content := range of {
			paths[path] = content
		}
		delete(doc, "components")
		delete(doc, "paths")
		delete(components, "schemas")
		doc["components"], doc["names of schemas"] = components, names
		rest[name] = doc
	}
	return map[string]any{"v2": v2, "v3": map[string]any{"schemas": schemas, "paths": paths, "documents": rest}}, nil
}

// openAPIv3 returns all documents of OpenAPI v3 by their paths, as apis/apps/v1.
func (s *server) openAPIv3(ctx context.Context) (map[string]map[string]any, error) {
	index, err := s.get(ctx, "/openapi/v3", "")
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	all, _ := index["paths"].(map[string]any)
	for name := range all {
		if out[name], err = s.get(ctx, "/openapi/v3/"+name, ""); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// saveOpenAPI writes the documents of OpenAPI to a folder as internal/gen/openapi reads them: v2.json.gz, and
// v3/PATH.json.gz with two underscores for each slash.
func (s *server) saveOpenAPI(ctx context.Context, dir string) error {
	index, err := s.get(ctx, "/openapi/v3", "")
	if err != nil {
		return err
	}
	files := map[string]string{"/openapi/v2": filepath.Join(dir, "v2.json.gz")}
	paths, _ := index["paths"].(map[string]any)
	for path := range paths {
		files["/openapi/v3/"+path] = filepath.Join(dir, "v3", strings.ReplaceAll(path, "/", "__")+".json.gz")
	}
	if err := os.MkdirAll(filepath.Join(dir, "v3"), 0o755); err != nil {
		return err
	}
	for path, file := range files {
		r, err := s.do(ctx, request{method: http.MethodGet, path: path})
		if err != nil || r.status != http.StatusOK {
			return fmt.Errorf("GET %s: %d, %w", path, r.status, err)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(r.body); err != nil {
			return err
		}
		if err := errors.Join(z.Close(), os.WriteFile(file, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// schemaName returns the name of the schema that a reference names, or "".
func schemaName(schema map[string]any) string {
	ref := text(schema["$ref"])
	for _, s := range items(schema["allOf"]) {
		if ref == "" {
			ref = text(s["$ref"])
		}
	}
	return ref[strings.LastIndexByte(ref, '/')+1:]
}
