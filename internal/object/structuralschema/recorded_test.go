package structuralschema

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// recorded are requests to kube-apiserver with its responses.
type recorded struct {
	Name    string
	Schemas []string // JSON, of versions of definitions
	Cases   []struct {
		Do          string
		Schema      int
		Object, Old string // JSON
		Status      bool   // sent to the status subresource
		HasStatus   bool
		Strict      bool
		Warnings    []string
		Code        int
		Message     string
		Causes      []cause
		Result      string // JSON
	}
}

type cause struct{ Reason, Message, Field string }

func readRecorded(t testing.TB) (out []recorded) {
	t.Helper()
	readJSON(t, "testdata/recorded.json.gz", &out)
	return out
}

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func schemaOf(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := New(propsOf(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func propsOf(t testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &props); err != nil {
		t.Fatal(err)
	}
	return &props
}

func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// elsewhere reports whether a cause is found by other checks than this package: those of metadata, of scale, of CEL
// rules, or of the name in the path.
func elsewhere(c cause, s *Schema) bool {
	return strings.HasPrefix(c.Field, "metadata.") && s.Properties["metadata"] == nil ||
		strings.HasPrefix(c.Field, ".") || c.Field == "kind" || c.Field == "apiVersion" ||
		strings.Contains(c.Message, "some validation rules were not checked")
}

func causes(errs field.ErrorList, s *Schema) []string {
	var out []string
	for _, e := range errs {
		c := cause{Reason: string(e.Type), Message: e.ErrorBody(), Field: e.Field}
		if !elsewhere(c, s) {
			out = append(out, fmt.Sprint(c))
		}
	}
	slices.Sort(out)
	return out
}

// validateAll runs all the checks of a custom resource that use its schema.
func validateAll(s *Schema, object, old map[string]any, status bool) field.ErrorList {
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = s.Validate(nil, object)
		errs = append(errs, s.ValidateLists(nil, object)...)
	case status:
		if v, found := object["status"]; found && s.Properties["status"] != nil {
			errs = s.Properties["status"].ValidateUpdate(field.NewPath("status"), v, old["status"])
		}
		errs = append(errs, s.ValidateListsUpdate(nil, object, old)...)
	default:
		errs = s.ValidateUpdate(nil, object, old)
		errs = append(errs, s.ValidateListsUpdate(nil, object, old)...)
	}
	return append(errs, s.ValidateEmbedded(nil, object)...)
}

func TestRecorded(t *testing.T) {
	checked := map[int]int{}
	for _, scenario := range readRecorded(t) {
		for i, c := range scenario.Cases {
			t.Run(fmt.Sprintf("%s/%d", scenario.Name, i), func(t *testing.T) {
				s := schemaOf(t, scenario.Schemas[c.Schema])
				object := tree(t, c.Object)
				var old map[string]any
				if c.Old != "" {
					old = tree(t, c.Old)
				}
				unknown, err := s.Decode(object, DecodeOptions{Report: true})
				if err == nil && c.Strict && len(unknown) > 0 {
					err = strictError(unknown)
				}
				if c.Code == 400 {
					if err == nil {
						t.Skip("refused for another reason:", c.Message)
					}
					checked[c.Code]++
					if !strings.HasSuffix(c.Message, ": "+err.Error()) {
						t.Errorf("got %v\nwant %s", err, c.Message)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range c.Warnings {
					if name, ok := strings.CutPrefix(w, `299 - "unknown field \"`); ok &&
						!slices.Contains(unknown, strings.TrimSuffix(name, `\""`)) {
						t.Errorf("unknown %q, want %s", unknown, w)
					}
				}
				s.SetDefaults(object)
				arrange(object, old, c.Status, c.HasStatus)
				got := causes(validateAll(s, object, old, c.Status), s)
				var want []string
				for _, w := range c.Causes {
					if !elsewhere(w, s) {
						want = append(want, fmt.Sprint(w))
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s\ngot  %s\nwant %s", c.Object, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
				}
				checked[c.Code]++
				if c.Result == "" {
					return
				}
				s.SetDefaults(object) // as it is read
				text, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				object = tree(t, string(text)) // 1.0 is written as 1
				result := tree(t, c.Result)
				for _, o := range []map[string]any{object, result} {
					meta, _ := o["metadata"].(map[string]any)
					o["metadata"] = []any{meta["labels"], meta["annotations"]}
				}
				if !reflect.DeepEqual(object, result) {
					t.Errorf("got %v\nwant %v", object, result)
				}
			})
		}
	}
	if checked[400] < 15 || checked[422] < 100 || checked[200] < 10 || checked[201] < 200 {
		t.Errorf("checked %v", checked)
	}
	t.Logf("checked %v", checked)
}

// arrange changes object as the preparation of a write does: it takes from old either the status or everything
// else.
func arrange(object, old map[string]any, status, hasStatus bool) {
	switch {
	case status:
		for k := range object {
			if k != "status" {
				delete(object, k)
			}
		}
		for k, v := range old {
			if k != "status" {
				object[k] = v
			}
		}
	case hasStatus:
		delete(object, "status")
		if v, found := old["status"]; found {
			object["status"] = v
		}
	}
}

// strictError returns the error of strict decoding for unknown fields.
func strictError(unknown []string) error {
	var all []string
	for _, path := range unknown {
		all = append(all, fmt.Sprintf("unknown field %q", path))
	}
	return errors.New("strict decoding error: " + strings.Join(all, ", "))
}
