package structuralschema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	celopenapi "k8s.io/apiserver/pkg/cel/openapi"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/keelson-dev/keelson/internal/object/structuralschema/internal/sample"
)

// These tests compare Validate with the validator of kube-openapi on the same schema in OpenAPI form.

func openAPI(t testing.TB, text string) *spec.Schema {
	t.Helper()
	out := openAPIWritten(t, text)
	prepare(out)
	return out
}

// openAPIWritten is the OpenAPI form of the schema that Written returns.
func openAPIWritten(t testing.TB, text string) *spec.Schema {
	t.Helper()
	var out spec.Schema
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	eachSchema(&out, func(s *spec.Schema) { integers(s.Enum) })
	return &out
}

// prepare sets both types of an int-or-string and removes formats that are not checked.
func prepare(s *spec.Schema) {
	eachSchema(s, func(s *spec.Schema) { prepareOne(s) })
}

func prepareOne(s *spec.Schema) {
	if is, _ := s.Extensions.GetBool("x-kubernetes-int-or-string"); is {
		s.Type = spec.StringOrArray{"integer", "string"}
	}
	typ := ""
	if len(s.Type) == 1 {
		typ = s.Type[0]
	}
	known := false
	switch typ {
	case "", "string":
		known = slices.Contains(stringFormats, strings.ReplaceAll(s.Format, "-", ""))
	case "integer":
		known = s.Format == "int32" || s.Format == "int64"
	case "number":
		known = s.Format == "float" || s.Format == "double"
	}
	if !known {
		s.Format = ""
	}
}

// eachSchema visits a schema and all below.
func eachSchema(s *spec.Schema, visit func(*spec.Schema)) {
	visit(s)
	for name, p := range s.Properties {
		eachSchema(&p, visit)
		s.Properties[name] = p
	}
	for _, list := range [][]spec.Schema{s.AnyOf, s.OneOf, s.AllOf} {
		for i := range list {
			eachSchema(&list[i], visit)
		}
	}
	if s.Not != nil {
		eachSchema(s.Not, visit)
	}
	if s.Items != nil {
		eachSchema(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		eachSchema(s.AdditionalProperties.Schema, visit)
	}
}

// allowProperties removes additionalProperties from the conditions of s.
func allowProperties(s *spec.Schema) {
	drop := func(s *spec.Schema) { s.AdditionalProperties = nil }
	for _, list := range [][]spec.Schema{s.AnyOf, s.OneOf, s.AllOf} {
		for i := range list {
			eachSchema(&list[i], drop)
		}
	}
	if s.Not != nil {
		eachSchema(s.Not, drop)
	}
}

// integers converts whole float64 numbers to int64.
func integers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case map[string]any:
		for name, sub := range v {
			v[name] = integers(sub)
		}
	case []any:
		for i, sub := range v {
			v[i] = integers(sub)
		}
	}
	return v
}

// ratchet is a validator that removes the errors of unchanged values.
type ratchet struct {
	validate.ValueValidator // only its Validate is called
	object                  *common.CorrelatedObject
	schema                  *spec.Schema
	root                    any
	path                    string
}

func (r ratchet) Validate(any) *validate.Result {
	sub := func(child *common.CorrelatedObject, s *spec.Schema, root any, path string) validate.ValueValidator {
		if child == nil {
			return validate.NewSchemaValidator(s, root, path, strfmt.Default)
		}
		return ratchet{object: child, schema: s, root: root, path: path}
	}
	v := validate.NewSchemaValidator(r.schema, r.root, r.path, strfmt.Default, func(o *validate.SchemaValidatorOptions) {
		o.NewValidatorForField = func(
			name string, s *spec.Schema, root any, path string, _ strfmt.Registry, _ ...validate.Option,
		) validate.ValueValidator {
			if r.path == "" && (name == "kind" || name == "apiVersion") {
				return validate.NewSchemaValidator(s, root, path, strfmt.Default)
			}
			return sub(r.object.Key(name), s, root, path)
		}
		o.NewValidatorForIndex = func(
			i int, s *spec.Schema, root any, path string, _ strfmt.Registry, _ ...validate.Option,
		) validate.ValueValidator {
			return sub(r.object.Index(i), s, root, path)
		}
	})
	result := v.Validate(r.object.Value)
	if !result.IsValid() && r.object.CachedDeepEqual() {
		return &validate.Result{}
	}
	return result
}

func twinErrors(s *spec.Schema, value, old any) []string {
	out := errorsOfTwin(s, value, old)
	slices.Sort(out)
	return out
}

// errorsOfTwin returns the errors of kube-openapi's validator in their order.
func errorsOfTwin(s *spec.Schema, value, old any) []string {
	v := ratchet{object: common.NewCorrelatedObject(value, old, &celopenapi.Schema{Schema: s}), schema: s}
	result := &validate.Result{}
	if old == nil {
		result = validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(value)
	} else {
		result = v.Validate(value)
	}
	var out []string
	for _, err := range result.Errors {
		out = append(out, toField(err).Error())
	}
	return out
}

// toField converts an error of kube-openapi to a field.Error.
func toField(err error) *field.Error {
	e, ok := err.(*openapierrors.Validation)
	if !ok {
		return field.Invalid(nil, "", err.Error())
	}
	var path *field.Path
	if e.Name != "" && e.Name != "." {
		path = path.Child(strings.TrimPrefix(e.Name, "."))
	}
	value := e.Value
	if value == nil {
		value = ""
	}
	switch e.Code() {
	case openapierrors.RequiredFailCode:
		return field.Required(path, "")
	case openapierrors.EnumFailCode:
		return field.NotSupported(path, e.Value, enumTexts(e.Values))
	case openapierrors.TooLongFailCode:
		return field.TooLong(path, "", int(e.Valid.(int64)))
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(path, int(e.Value.(int64)), int(e.Valid.(int64)))
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(path, value, err.Error())
	}
	return field.Invalid(path, value, err.Error())
}

func text(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func messages(errs field.ErrorList) []string {
	out := messagesInOrder(errs)
	slices.Sort(out)
	return out
}

func messagesInOrder(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

func FuzzValidate(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		source := sample.New(seed)
		againstTwin(t, source, source.Schema())
	})
}

func TestAcceptedSchemasAgainstTwin(t *testing.T) {
	var schemas []struct{ Name, Schema string }
	readJSON(t, "testdata/accepted.json.gz", &schemas)
	for i, s := range schemas {
		t.Run(s.Name, func(t *testing.T) {
			var schema map[string]any
			if err := json.Unmarshal([]byte(s.Schema), &schema); err != nil {
				t.Fatal(err)
			}
			againstTwin(t, sample.New(uint64(i)), schema)
		})
	}
}

// againstTwin compares Validate and ValidateUpdate with the validator of kube-openapi.
func againstTwin(t *testing.T, source *sample.Source, schema map[string]any) {
	t.Helper()
	props := text(t, schema)
	s, twin := schemaOf(t, props), openAPI(t, props)
	written, err := Written(propsOf(t, props))
	if err != nil {
		t.Fatal(err)
	}
	writtenTwin := openAPIWritten(t, props)
	eachSchema(writtenTwin, allowProperties)
	check := func(what string, got field.ErrorList, want []string, values ...any) {
		t.Helper()
		if got := messages(got); !slices.Equal(got, want) {
			t.Fatalf(
				"%s: %s\nof %s:\ngot  %s\nwant %s", what, text(t, values), props, strings.Join(got, "\n     "),
				strings.Join(want, "\n     "),
			)
		}
	}
	for range 4 {
		object := tree(t, text(t, source.Object(schema)))
		check("create", s.Validate(nil, object), twinErrors(twin, object, nil), object)
		check("as written", written.Validate(nil, object), twinErrors(writtenTwin, object, nil), object)
		changed, ok := source.Change(object).(map[string]any)
		if !ok {
			continue
		}
		changed = tree(t, text(t, changed))
		check("update", s.ValidateUpdate(nil, changed, object), twinErrors(twin, changed, object), changed, object)
	}
}

// forceFacts sets all facts, so that walks skip no subtree.
func forceFacts(s *Schema, seen map[*Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	s.below = hasDefaults | hasEmbedded | hasUniqueLists
	forceFacts(s.Items, seen)
	forceFacts(s.AdditionalProperties, seen)
	for _, p := range s.Properties {
		forceFacts(p, seen)
	}
}

// FuzzDecode: walks that skip subtrees must give the same result as walks that skip none, and metadata that Decode leaves
// unchanged must equal the decoded form.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		source := sample.New(seed)
		schema := source.Schema()
		props := text(t, schema)
		s, everywhere := schemaOf(t, props), schemaOf(t, props)
		forceFacts(everywhere, map[*Schema]bool{})
		lenient := seed%2 == 0
		input := text(t, source.Object(schema))
		decode := func(s *Schema) string {
			object := tree(t, input)
			unknown, err := s.Decode(object, DecodeOptions{Report: true, Lenient: lenient})
			if err != nil {
				return err.Error()
			}
			s.SetDefaults(object)
			return fmt.Sprint(
				text(t, object), unknown, messages(s.ValidateLists(nil, object)), messages(s.ValidateEmbedded(nil, object)),
			)
		}
		got, want := decode(s), decode(everywhere)
		if got != want {
			t.Fatalf("seed %d: %s\nof %s:\ngot  %s\nwant %s", seed, input, props, got, want)
		}
		object := tree(t, input)
		if _, err := s.Decode(object, DecodeOptions{Lenient: lenient}); err != nil {
			return
		}
		s.SetDefaults(object)
		again := tree(t, text(t, object))
		unknown, err := s.Decode(again, DecodeOptions{Report: true, Lenient: lenient})
		if err != nil || len(unknown) > 0 {
			t.Fatalf("seed %d: again: %v, %v", seed, unknown, err)
		}
		s.SetDefaults(again)
		if strings.Contains(text(t, object), ":null") {
			return // nulls of defaults are dropped when they are read
		}
		if !reflect.DeepEqual(again, tree(t, text(t, object))) {
			t.Fatalf("seed %d: decoded again:\n%s\nwant %s", seed, text(t, again), text(t, object))
		}
	})
}

func FuzzMetadata(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		m, ok := tree(t, text(t, map[string]any{"m": sample.New(seed).Metadata()}))["m"].(map[string]any)
		if !ok || !plainObjectMeta(m) {
			return
		}
		meta, err := (&metadataDecoder{}).decode(m, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := tree(t, text(t, meta)); !reflect.DeepEqual(got, m) {
			t.Fatalf("seed %d: %v was called plain, but becomes %v", seed, m, got)
		}
	})
}
