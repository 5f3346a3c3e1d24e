package celrules

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// recording is the result of kube-apiserver 1.36 for the schema of a definition, or for an object; testdata has one
// in each line. The causes of an object contain only those of the rules.
type recording struct {
	Name     string                          `json:"name"`
	Schema   apiextensionsv1.JSONSchemaProps `json:"schema"`
	Object   map[string]any                  `json:"object"`
	Old      map[string]any                  `json:"old"`
	Causes   []cause                         `json:"causes"`
	Warnings []string                        `json:"warnings"`
}

type cause struct {
	Field   string `json:"field"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

func recordings(t *testing.T, file string) []recording {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []recording
	for line := range bytes.Lines(content) {
		var r recording
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no recordings", file)
	}
	return out
}

func schemaOf(t testing.TB, props *apiextensionsv1.JSONSchemaProps) *structuralschema.Schema {
	t.Helper()
	s, err := structuralschema.New(props)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDefinitionsAreCheckedAsRecorded(t *testing.T) {
	for _, r := range recordings(t, "testdata/definitions.jsonl") {
		t.Run(r.Name, func(t *testing.T) {
			errs := Check(schemaOf(t, &r.Schema), CheckOptions{
				Path: field.NewPath("spec", "validation", "openAPIV3Schema"),
				Root: true,
			})
			compareCauses(t, errs, r.Causes)
		})
	}
}

func TestObjectsAreValidatedAsRecorded(t *testing.T) {
	for _, r := range recordings(t, "testdata/objects.jsonl") {
		t.Run(r.Name, func(t *testing.T) {
			s := schemaOf(t, &r.Schema)
			s.SetDefaults(r.Object)
			var old any
			if r.Old != nil {
				s.SetDefaults(r.Old)
				old = r.Old
			}
			result := Compile(s, true).Evaluate(context.Background(), nil, r.Object, old, Budget)
			compareCauses(t, result.Errors, r.Causes)
			var warnings []string
			for _, e := range result.Ratcheted {
				warnings = append(warnings, "299 - "+strconv.Quote(e.Error()))
			}
			if !slices.Equal(warnings, r.Warnings) {
				t.Errorf("warned of %q, want %q", warnings, r.Warnings)
			}
		})
	}
}

// compareCauses compares two sets of causes. A recorded cause without a message matches any message: the message
// contained random type names.
func compareCauses(t *testing.T, errs field.ErrorList, want []cause) {
	t.Helper()
	var got []cause
	for _, e := range errs {
		c := cause{e.Field, e.ErrorBody(), string(e.Type)}
		for _, w := range want {
			if w.Message == "" && w.Field == c.Field && w.Reason == c.Reason {
				c.Message = ""
			}
		}
		got = append(got, c)
	}
	compare := func(a, b cause) int {
		return strings.Compare(a.Field+"\n"+a.Message, b.Field+"\n"+b.Message)
	}
	slices.SortFunc(got, compare)
	slices.SortFunc(want, compare)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", list(got), list(want))
	}
}

func list(causes []cause) string {
	var b strings.Builder
	for _, c := range causes {
		b.WriteString("  " + c.Field + ": " + c.Reason + ": " + c.Message + "\n")
	}
	return b.String()
}

// parseSchema returns the structural schema of an openAPIV3Schema in JSON.
func parseSchema(t testing.TB, source string) *structuralschema.Schema {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(source), &props); err != nil {
		t.Fatal(err)
	}
	return schemaOf(t, &props)
}
