package main

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/object/mergeschema/binaryformat"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	const definition = `{"type":"object","properties":{"apiVersion":{"type":"string"},"l":{"type":"array",` +
		`"items":{"type":"string"},"x-kubernetes-list-type":"set"}}`
	const v3 = `{"openapi":"3.0.0","paths":{},"components":{"schemas":{"W":` + definition +
		`,"x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"W"}]}}}}`
	write(t, filepath.Join(dir, "v2.json.gz"), `{"swagger":"2.0"}`)
	write(t, filepath.Join(dir, "v3", "apis__g__v1.json.gz"), v3)
	v2, documents, err := readDirectory(dir)
	if err != nil || string(v2) != `{"swagger":"2.0"}` || len(documents) != 1 || documents[0].Path != "apis/g/v1" {
		t.Fatalf("%v %s %v", err, v2, documents)
	}

	fromTypes := filepath.Join(dir, "definitions.json")
	for text, want := range map[string]string{
		`{"W":` + definition + `}}`: "",
		`{"W":{"type":"object"}}`:   "W is not as the types have it",
		`{}`:                        "W is not as the types have it",
	} {
		if err := os.WriteFile(fromTypes, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := compare(fromTypes, documents)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}

	file := filepath.Join(dir, "out")
	if err := writeArchive(file, v2, documents); err != nil {
		t.Fatal(err)
	}
	v2, again, err := readArchive(file)
	if err != nil || string(v2) != `{"swagger":"2.0"}` || len(again) != 1 || again[0].Path != "apis/g/v1" ||
		string(again[0].JSON) != v3 {
		t.Errorf("%v %s %v", err, v2, again)
	}

	if err := writeSchemas(file, documents); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	types, err := binaryformat.Open(string(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := types.Parseable(binaryformat.Kind{Group: "g", Version: "v1", Kind: "W"}); !ok {
		t.Error("the kind has no type")
	}
}
