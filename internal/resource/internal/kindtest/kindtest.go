// Package kindtest compares the declarations of kinds with recorded responses and stored
// values of kube-apiserver. The testdata of a group are compressed JSON lines:
// create.jsonl.gz (requests and responses of creates), table.jsonl.gz (objects and their
// table rows), stored.jsonl.gz (values in the store), update.jsonl.gz (updates), and
// invalid.jsonl.gz and invalidupdate.jsonl.gz (refused creates and updates, with their causes).
package kindtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// Options describe intended differences of a group from the recordings.
type Options struct {
	// Skip has the reason why a recording is not used, by its name.
	Skip map[string]string
	// SetByOthers has the dotted paths, by resource, of fields that admission plug-ins and
	// controllers set.
	SetByOthers map[string][]string
	// FieldNames maps a field label to the JSON path of its field, if the two differ.
	FieldNames map[string]string
}

// DirVar names the environment variable of a directory with more recordings
// (GROUP.jsonl.gz and GROUP.stored.gz) to use instead of the ones in testdata.
const DirVar = "KEELSON_KINDTEST_DIR"

// Run runs all tests of a group.
func Run(t *testing.T, kinds []*registry.Kind, o Options) {
	declare.ForRelease(kinds, release.Release{})
	t.Run("create", func(t *testing.T) { creates(t, kinds, o) })
	t.Run("update", func(t *testing.T) { updates(t, kinds, o) })
	t.Run("invalid", func(t *testing.T) { Invalid(t, kinds) })
	t.Run("invalid update", func(t *testing.T) { InvalidUpdates(t, kinds) })
	t.Run("table", func(t *testing.T) { tables(t, kinds, o) })
	t.Run("stored", func(t *testing.T) { stored(t, kinds, o) })
	t.Run("fields", func(t *testing.T) { fields(t, kinds, o) })
	t.Run("declaration", func(t *testing.T) { declarations(t, kinds) })
}

type created struct {
	Name, Group, Version, Resource, As string
	Groups, Ignore, Warnings           []string
	Body                               json.RawMessage
	Expect                             map[string]any
}

// creates sends each recorded create through the steps of the strategy and compares the result with the recorded
// response. Fields that differ from run to run, or that other parts of the server set, are removed from both.
func creates(t *testing.T, kinds []*registry.Kind, o Options) {
	for c := range read[created](t, "create.jsonl.gz", ".jsonl.gz") {
		if o.Skip[c.Name] != "" {
			continue
		}
		kind := find(t, kinds, c.Resource)
		obj, err := create(kind, c)
		if err != nil {
			t.Errorf("%s: %v\n%s", c.Name, err, c.Body)
			continue
		}
		checkIdempotent(t, c.Name, kind, obj)
		if got := warnings(kind, obj); !slices.Equal(got, c.warnings(t)) {
			t.Errorf("%s: warnings %q, want %q", c.Name, got, c.warnings(t))
		}
		shown := show(t, kind, c.Version, obj)
		drop := slices.Concat(c.Ignore, o.SetByOthers[c.Resource],
			[]string{"metadata.managedFields", "metadata.namespace", "metadata.uid", "metadata.creationTimestamp",
				"metadata.name"})
		removeAll(drop, shown, c.Expect)
		if d := diff("", normal(shown), normal(c.Expect)); d != "" {
			t.Errorf("%s: %s\nsent %s", c.Name, d, c.Body)
		}
	}
}

// create does what the generic pipeline does with an object before validation.
// It refuses what the strategy refuses, and returns the object as it is read from the store.
func create(kind *registry.Kind, c created) (registry.Object, error) {
	obj, err := decode(kind, c.Version, c.Body)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		obj.SetName(obj.GetGenerateName() + "xxxxx")
	}
	obj.SetManagedFields(nil)
	user := &request.User{Name: "admin", UID: "admin", Groups: []string{"system:masters", "system:authenticated"}}
	if c.As != "" {
		user = &request.User{Name: c.As, Groups: append(slices.Clone(c.Groups), "system:authenticated")}
	}
	ctx := fill(kind, obj, user)
	if f := kind.Strategy.ValidateCreate; f != nil {
		if errs := f(ctx, obj, nil); len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
	}
	if f := kind.Metadata.ValidateName; f != nil && obj.GetGenerateName() == "" {
		if msgs := f(obj.GetName(), false); len(msgs) > 0 {
			return nil, fmt.Errorf("name: %q", msgs)
		}
	}
	return storeAndRead(kind, obj)
}

const someUID = "11111111-2222-3333-4444-555555555555"

// storeAndRead encodes an object for storage and decodes it again: a response shows the stored
// object, without empty lists and with the defaults that are set after decoding.
func storeAndRead(kind *registry.Kind, obj registry.Object) (registry.Object, error) {
	if kind.Storage.JSON {
		return obj, nil
	}
	raw, err := scheme.EncodeProto(obj)
	if err != nil {
		return nil, err
	}
	version := kind.Version(kind.Storage.Version)
	again := version.New()
	if err := scheme.DecodeProto(raw, again); err != nil {
		return nil, err
	}
	if version.Default != nil {
		version.Default(again)
	}
	return again, nil
}

// decode decodes a document of a version to an object of the storage version.
func decode(kind *registry.Kind, version string, body []byte) (registry.Object, error) {
	v := kind.Version(version)
	if v == nil {
		return nil, fmt.Errorf("no version %s", version)
	}
	return decodeIn(v, body)
}

func decodeIn(v *registry.Version, body []byte) (registry.Object, error) {
	obj := v.New()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, obj); err != nil {
		return nil, err
	}
	if v.Default != nil {
		v.Default(obj)
	}
	if v.ToStorage != nil {
		return v.ToStorage(context.Background(), obj)
	}
	return obj, nil
}

// show converts an object of the storage version to another version, as a JSON tree.
func show(t *testing.T, kind *registry.Kind, version string, obj registry.Object) map[string]any {
	v := kind.Version(version)
	if v.FromStorage != nil {
		converted, err := v.FromStorage(context.Background(), obj.DeepCopyObject().(registry.Object))
		if err != nil {
			t.Fatal(err)
		}
		obj = converted
	}
	tree := toTree(t, obj).(map[string]any)
	gvk := kind.GVK(version)
	tree["apiVersion"], tree["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return tree
}

func checkIdempotent(t *testing.T, name string, kind *registry.Kind, obj registry.Object) {
	f := kind.Version(kind.Storage.Version).Default
	if f == nil {
		return
	}
	again := obj.DeepCopyObject().(registry.Object)
	f(again)
	if !equality.Semantic.DeepEqual(again, obj) {
		t.Errorf("%s: defaults are not idempotent", name)
	}
}

func warnings(kind *registry.Kind, obj registry.Object) []string {
	if kind.Strategy.Warn == nil {
		return nil
	}
	out := kind.Strategy.Warn(obj, nil)
	slices.Sort(out)
	return out
}

// warnings returns the recorded warnings that come from the kind's Strategy.
func (c created) warnings(t *testing.T) []string {
	var out []string
	for _, w := range c.Warnings {
		text, err := strconv.Unquote(strings.TrimPrefix(w, "299 - "))
		if err != nil {
			t.Fatal(err)
		}
		generic := strings.HasPrefix(text, "unknown field") || strings.HasPrefix(text, "duplicate field") ||
			strings.HasPrefix(text, "metadata.finalizers") || strings.HasPrefix(text, "would violate PodSecurity")
		if !generic {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

type table struct {
	Name, Version, Resource string
	Columns                 []metav1.TableColumnDefinition
	Rows                    []struct {
		Object json.RawMessage
		Cells  []any
	}
}

// genericColumns are the columns of kinds that declare none.
var genericColumns = []string{"Name", "Created At"}

// tables compares the columns and cells of recorded objects. A kind without columns must be one for which
// kube-apiserver shows only the generic ones.
func tables(t *testing.T, kinds []*registry.Kind, o Options) {
	for c := range read[table](t, "table.jsonl.gz", "") {
		if o.Skip[c.Name] != "" {
			continue
		}
		kind := find(t, kinds, c.Resource)
		if kind.Table.Columns == nil {
			var names []string
			for _, column := range c.Columns {
				names = append(names, column.Name)
			}
			if !slices.Equal(names, genericColumns) {
				t.Errorf("%s: %s declares no columns, want %q", c.Name, kind.Resource, names)
			}
			continue
		}
		if d := diff("", toTree(t, kind.Table.Columns), toTree(t, c.Columns)); d != "" {
			t.Errorf("%s: columns of %s: %s", c.Name, kind.Resource, d)
		}
		for _, row := range c.Rows {
			text := strings.NewReplacer(`"<time>"`, `"2024-01-01T00:00:00Z"`, `<uid>`, someUID, `"<resourceVersion>"`,
				`"1"`).Replace(string(row.Object))
			obj, err := decode(kind, c.Version, []byte(text))
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			cells := kind.Table.Cells(obj)
			if d := diff("", normalCells(toTree(t, cells)), normalCells(row.Cells)); d != "" {
				t.Errorf("%s: cells of %s: %s", c.Name, obj.GetName(), d)
			}
		}
	}
}

var ages = regexp.MustCompile(`^(\d+[smhdy])+$`)

// normalCells replaces ages such as 3d2h, which depend on the time of the recording.
func normalCells(cells any) any {
	list := normal(cells).([]any)
	for i, cell := range list {
		if s, ok := cell.(string); ok && ages.MatchString(s) {
			list[i] = "<age>"
		}
	}
	return list
}

type storedValue struct {
	Key, Path string
	Value     []byte
	Object    map[string]any
}

// stored decodes the recorded values of etcd and compares the objects with the recorded responses to GET. It
// proves that this server can take over the data of a kube-apiserver.
func stored(t *testing.T, kinds []*registry.Kind, o Options) {
	for c := range read[storedValue](t, "stored.jsonl.gz", ".stored.gz") {
		var kind *registry.Kind
		for _, k := range kinds {
			if strings.HasPrefix(c.Key, "/registry/"+k.Storage.Path+"/") {
				kind = k
			}
		}
		if kind == nil {
			t.Errorf("no kind stores %s", c.Key)
			continue
		}
		version := kind.Version(kind.Storage.Version)
		obj := version.New()
		if kind.Storage.JSON {
			decode := func(value []byte) (registry.Object, error) { return obj, json.Unmarshal(value, obj) }
			if kind.Storage.StoredJSON != nil {
				decode = kind.Storage.StoredJSON.Decode
			}
			var err error
			if obj, err = decode(c.Value); err != nil {
				t.Errorf("%s: %v", c.Key, err)
				continue
			}
		} else {
			envelope, err := wire.OpenEnvelope(c.Value)
			if err != nil {
				t.Errorf("%s: %v", c.Key, err)
				continue
			}
			want := kind.StoredVersion()
			if envelope.APIVersion != want || envelope.Kind != kind.Name {
				t.Errorf("%s: stored as %s %s, declared as %s %s", c.Key, envelope.APIVersion, envelope.Kind, want, kind.Name)
			}
			if err := scheme.DecodeProto(envelope.Raw, obj); err != nil {
				t.Errorf("%s: %v", c.Key, err)
				continue
			}
			if kind.Storage.AfterDecode != nil {
				kind.Storage.AfterDecode(obj)
			}
		}
		if f := version.Default; f != nil {
			before := obj.DeepCopyObject()
			f(obj)
			if !equality.Semantic.DeepEqual(before, obj) && kind.Storage.DefaultOnRead == nil {
				t.Errorf("%s: reading it sets defaults", c.Key)
			}
		}
		checkIdempotent(t, c.Key, kind, obj)
		served, _, _ := strings.Cut(strings.TrimPrefix(c.Path, "/apis/"+kind.Group+"/"), "/")
		obj.SetManagedFields(nil)
		shown := show(t, kind, served, obj)
		removeAll([]string{"metadata.resourceVersion", "metadata.managedFields"}, shown, c.Object)
		if d := diff("", shown, c.Object); d != "" {
			t.Errorf("%s: %s", c.Key, d)
		}
	}
}

// fields follows the JSON path of each field label through the Go type, and compares the
// protobuf numbers on the way with the declared path.
func fields(t *testing.T, kinds []*registry.Kind, o Options) {
	for _, kind := range kinds {
		for _, f := range kind.Selection.Fields {
			if f.Get != nil {
				continue
			}
			name := f.Name
			if other := o.FieldNames[name]; other != "" {
				name = other
			}
			at := reflect.TypeOf(kind.Version(kind.Storage.Version).New())
			var numbers []int32
			for _, part := range strings.Split(name, ".") {
				for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice {
					at = at.Elem()
				}
				member, number := protoField(at, part)
				if number == 0 {
					t.Errorf("%s: no field %s of %s", kind.Resource, part, at)
					break
				}
				at, numbers = member, append(numbers, number)
			}
			for at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
			if !slices.Equal(numbers, f.Path) {
				t.Errorf("%s: path of %s is %v, declared %v", kind.Resource, f.Name, numbers, f.Path)
			}
			want := map[reflect.Kind]registry.FieldType{reflect.String: registry.String, reflect.Bool: registry.Bool,
				reflect.Int32: registry.Int, reflect.Int64: registry.Int}
			if want[at.Kind()] != f.Type {
				t.Errorf("%s: %s is a %s", kind.Resource, f.Name, at.Kind())
			}
		}
	}
}

func protoField(in reflect.Type, name string) (reflect.Type, int32) {
	for i := range in.NumField() {
		member := in.Field(i)
		if tag, _, _ := strings.Cut(member.Tag.Get("json"), ","); tag != name {
			continue
		}
		parts := strings.Split(member.Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			return nil, 0
		}
		n, _ := strconv.Atoi(parts[1])
		return member.Type, int32(n)
	}
	return nil, 0
}

// declarations checks the rules that need no recording.
func declarations(t *testing.T, kinds []*registry.Kind) {
	for _, kind := range kinds {
		storage := kind.Version(kind.Storage.Version)
		if storage == nil || storage.ToStorage != nil || storage.FromStorage != nil {
			t.Errorf("%s: storage version %q", kind.Resource, kind.Storage.Version)
		}
		for _, v := range kind.Versions {
			obj := v.New()
			if v.Default != nil {
				v.Default(obj) // must not panic for an empty object
			}
			if (v.Name != kind.Storage.Version) != (v.ToStorage != nil && v.FromStorage != nil) {
				t.Errorf("%s: conversions of %s", kind.Resource, v.Name)
			}
			if want := kind.GVK(v.Name); !scheme.Known(want) {
				t.Errorf("%s is not known", want)
			}
		}
		if (len(kind.Table.Columns) == 0) != (kind.Table.Cells == nil) {
			t.Errorf("%s: columns without cells or cells without columns", kind.Resource)
		}
		if kind.Table.Cells != nil {
			if cells := kind.Table.Cells(storage.New()); len(cells) < len(kind.Table.Columns) {
				t.Errorf("%s: %d cells in %d columns", kind.Resource, len(cells), len(kind.Table.Columns))
			}
		}
		for _, s := range kind.Subresources {
			if s.Status && kind.Strategy.Status == nil {
				t.Errorf("%s: a status subresource of objects without a status", kind.Resource)
			}
		}
	}
}

func find(t *testing.T, kinds []*registry.Kind, resource string) *registry.Kind {
	for _, k := range kinds {
		if k.Resource == resource {
			return k
		}
	}
	t.Fatalf("no resource %s", resource)
	return nil
}

// read returns an iterator over the values in a file. It is empty if there is no such file.
func read[T any](t *testing.T, file, suffix string) func(func(T) bool) {
	path := filepath.Join("testdata", file)
	if dir := os.Getenv(DirVar); dir != "" && suffix != "" {
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, filepath.Base(here)+suffix)
	}
	return func(yield func(T) bool) {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		unzipped, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := io.ReadAll(unzipped)
		if err != nil {
			t.Fatal(err)
		}
		// Recordings have this in place of the name of the namespace, which was another in each run.
		recorded = bytes.ReplaceAll(recorded, []byte("${ns}"), []byte("recorded"))
		lines := json.NewDecoder(bytes.NewReader(recorded))
		for {
			var value T
			switch err := lines.Decode(&value); {
			case err == io.EOF:
				return
			case err != nil:
				t.Fatalf("%s: %v", path, err)
			}
			if !yield(value) {
				return
			}
		}
	}
}

func toTree(t *testing.T, v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// normalized are the values in recordings that differ from run to run.
var normalized = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b`), "<ip>"},
	{regexp.MustCompile(`\b3[012]\d{3}\b`), "<nodeport>"},
}

// normal replaces the parts of texts that differ from run to run, in values and in names of members. The input is
// not changed.
func normal(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			s, isText := member.(string)
			switch {
			case isText && s != "" && name == "uid":
				out[name] = "<uid>"
			case isText && s != "" && name == "resourceVersion":
				out[name] = "<resourceVersion>"
			default:
				out[normal(name).(string)] = normal(member)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, member := range v {
			out[i] = normal(member)
		}
		return out
	case string:
		for _, f := range normalized {
			v = f.pattern.ReplaceAllString(v, f.word)
		}
		return v
	}
	return tree
}

// removeAll removes what is at dotted paths from trees.
func removeAll(paths []string, trees ...map[string]any) {
	for _, path := range paths {
		for _, tree := range trees {
			remove(tree, strings.Split(path, "."))
		}
	}
}

func remove(tree any, path []string) {
	switch v := tree.(type) {
	case []any:
		for _, member := range v {
			remove(member, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
		} else if member, there := v[path[0]]; there {
			remove(member, path[1:])
		}
	}
}

// diff returns the first path where two trees differ, "" if they are equal.
// Only the first difference is reported, in the order of the names, so that the message of a failed test stays
// short.
func diff(path string, got, want any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		names := make([]string, 0, len(w)+len(g))
		for name := range w {
			names = append(names, name)
		}
		for name := range g {
			if _, there := w[name]; !there {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			a, inGot := g[name]
			b, inWant := w[name]
			if inGot != inWant {
				return fmt.Sprintf("%s.%s: got %v, want %v", path, name, describe(a, inGot), describe(b, inWant))
			}
			if d := diff(path+"."+name, a, b); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			if d := diff(fmt.Sprintf("%s[%d]", path, i), g[i], w[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%s: got %s, want %s", path, describe(got, true), describe(want, true))
	}
	return ""
}

func describe(v any, there bool) string {
	if !there {
		return "nothing"
	}
	b, _ := json.Marshal(v)
	return string(b)
}
