// Openapi makes the data files of the packages internal/api/discovery/openapi and mergeschema from
// the OpenAPI documents of a server:
//
//	go run ./internal/gen/openapi [-documents DIR] -definitions FILE
//
// The directory has the document of /openapi/v2 as v2.json.gz and those of /openapi/v3/<path> as v3/<path>.json.gz, each
// / of the path written as two underscores. Without it, the documents are those of the data file that is there: it has
// them to the byte.
//
// The file is the output of the program in definitions/: the definitions as
// kube-openapi's generator makes them from the types of the API modules. Those of the
// documents must be the same, so that what is served and merged by is what
// the types say. Paths are taken from the documents as they are.
//
// Run it from the root of the repository.
package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
	"github.com/keelson-dev/keelson/internal/object/mergeschema/binaryformat"
)

func main() {
	log.SetFlags(0)
	documents := flag.String("documents", "", "directory of the documents; if empty, those of the archive are used")
	fromTypes := flag.String("definitions", "", "file of the definitions generated from the types; not compared if empty")
	documentsOut := flag.String("archive", "internal/api/discovery/openapi/builtin.bin", "file to write the documents to")
	schemasOut := flag.String("schemas", "internal/object/mergeschema/builtin.bin", "file to write the merge schemas to")
	flag.Parse()
	read := func() ([]byte, []archive.Document, error) { return readArchive(*documentsOut) }
	if *documents != "" {
		read = func() ([]byte, []archive.Document, error) { return readDirectory(*documents) }
	}
	v2, v3, err := read()
	if err != nil {
		log.Fatal(err)
	}
	if *fromTypes != "" {
		if err := compare(*fromTypes, v3); err != nil {
			log.Fatal(err)
		}
	}
	if err := writeArchive(*documentsOut, v2, v3); err != nil {
		log.Fatal(err)
	}
	if err := writeSchemas(*schemasOut, v3); err != nil {
		log.Fatal(err)
	}
}

// readArchive reads the documents from a data file that this program has written.
func readArchive(file string) (v2 []byte, v3 []archive.Document, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(data)
	if err != nil {
		return nil, nil, err
	}
	for _, info := range a.V3() {
		text, err := a.ReadV3(info.Path)
		if err != nil {
			return nil, nil, err
		}
		v3 = append(v3, archive.Document{Path: info.Path, JSON: text})
	}
	v2, err = a.ReadV2()
	return v2, v3, err
}

func readDirectory(dir string) (v2 []byte, v3 []archive.Document, err error) {
	if v2, err = readGzip(filepath.Join(dir, "v2.json.gz")); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "v3"))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json.gz")
		if !ok {
			continue
		}
		data, err := readGzip(filepath.Join(dir, "v3", e.Name()))
		if err != nil {
			return nil, nil, err
		}
		v3 = append(v3, archive.Document{Path: strings.ReplaceAll(name, "__", "/"), JSON: data})
	}
	return v2, v3, nil
}

func readGzip(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return io.ReadAll(z)
}

// compare reports definitions of the documents that are not those of the types.
func compare(file string, v3 []archive.Document) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var want map[string]any
	if err := json.Unmarshal(text, &want); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var differ []error
	compared := map[string]bool{}
	for _, d := range v3 {
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(d.JSON, &document); err != nil {
			return fmt.Errorf("%s: %w", d.Path, err)
		}
		for name, s := range document.Components.Schemas {
			delete(s, groupVersionKind) // not of the type, but of what is registered
			compared[name] = true
			if !reflect.DeepEqual(any(s), want[name]) {
				differ = append(differ, fmt.Errorf("%s: %s is not as the types have it", d.Path, name))
			}
		}
	}
	log.Printf("%d definitions compared", len(compared))
	return errors.Join(differ...)
}

const groupVersionKind = "x-kubernetes-group-version-kind"

func writeArchive(file string, v2 []byte, v3 []archive.Document) error {
	data, err := archive.Encode(v2, v3)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// writeSchemas derives the merge schemas of all definitions.
func writeSchemas(file string, v3 []archive.Document) error {
	models, kinds, err := definitions(v3)
	if err != nil {
		return err
	}
	schema, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		return err
	}
	data, err := binaryformat.Encode(schema, kinds)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// definitions collects the definitions of all documents, and which of them are
// of a kind.
func definitions(v3 []archive.Document) (map[string]*spec.Schema, map[binaryformat.Kind]string, error) {
	models := map[string]*spec.Schema{}
	kinds := map[binaryformat.Kind]string{}
	for _, d := range v3 {
		var document struct {
			Components struct {
				Schemas map[string]*spec.Schema `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(d.JSON, &document); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		for name, s := range document.Components.Schemas {
			models[name] = s
			var of []binaryformat.Kind
			if err := s.Extensions.GetObject(groupVersionKind, &of); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			for _, k := range of {
				kinds[k] = name
			}
		}
	}
	return models, kinds, nil
}
