package structjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
)

// each calls f with an empty object of every typed version of every built-in kind.
func each(t *testing.T, f func(t *testing.T, v *registry.Version, stored bool)) {
	for _, k := range resource.Kinds(features.All()) {
		for i := range k.Versions {
			v := &k.Versions[i]
			t.Run(fmt.Sprintf("%s.%s.%s", k.Resource, v.Name, k.Group), func(t *testing.T) {
				f(t, v, v.Name == k.Storage.Version && !k.Storage.JSON)
			})
		}
	}
}

// filler fills values at random.
type filler struct {
	*rand.Rand
	// raw are values for fields that hold JSON.
	raw []string
}

func newFiller(seed uint64) *filler {
	return &filler{rand.New(rand.NewPCG(seed, 1)),
		[]string{`{"a":1}`, `{"f:x":{},".":{}}`, `[1, 2]`, `{"b": "<&>"}`, `"text"`}}
}

var texts = []string{"", "a", "name", "<b>&", "q\"\\/", "tab\tnew\n\r\b\f", "\x00\x1f\x7f", "\u2028\u2029", "é世界😀", "1",
	"true"}

// fill sets v to a random value. The deeper v is in the object, the fewer of its parts are set.
func (f *filler) fill(v reflect.Value, depth int) {
	if depth > 6 || f.IntN(4) == 0 {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		p.Time = [...]time.Time{{}, time.Unix(0, 0), time.Unix(1, 5), time.Unix(1_700_000_000, 0),
			time.Unix(-5, 0)}[f.IntN(5)]
		return
	case *metav1.MicroTime:
		p.Time = [...]time.Time{{}, time.Unix(0, 0), time.Unix(0, 999), time.Unix(1_700_000_000, 123_456_789)}[f.IntN(4)]
		return
	case *apiresource.Quantity:
		*p = apiresource.MustParse([...]string{"0", "1", "100m", "2Gi", "1500M", "1e3", "0.5"}[f.IntN(7)])
		return
	case *intstr.IntOrString:
		*p = [...]intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("http"), intstr.FromString(""), {}}[f.IntN(4)]
		return
	case *metav1.FieldsV1:
		p.Raw = []byte(f.raw[f.IntN(len(f.raw))])
		return
	case *runtime.RawExtension:
		p.Raw = []byte(f.raw[f.IntN(len(f.raw))])
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		n := f.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(texts[f.IntN(len(texts))])
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(texts[f.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.IntN(200) - 100))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.IntN(200)))
	case reflect.Float64:
		v.SetFloat(float64(f.IntN(1000)) / 8)
	}
}

const rounds = 60

// alphabet has the bytes with which tests replace a byte of a document.
const alphabet = "{}[]\",:0129-.eEnulltrf\\ a\x00\xff"

// TestAppendIsMarshal checks that Append writes the same bytes as json.Marshal, for every built-in type with
// random values.
func TestAppendIsMarshal(t *testing.T) {
	each(t, func(t *testing.T, v *registry.Version, _ bool) {
		for seed := range uint64(rounds) {
			obj := v.New()
			newFiller(seed).fill(reflect.ValueOf(obj).Elem(), 0)
			want, wantErr := json.Marshal(obj)
			got, err := structjson.Append(nil, obj)
			if (err != nil) != (wantErr != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("seed %d:\n%s %v\nwant\n%s %v", seed, got, err, want, wantErr)
			}
		}
	})
}

// TestAppendStoredIsARoundTrip checks that AppendStored writes the same bytes as json.Marshal for an object that
// was encoded as protobuf and decoded.
func TestAppendStoredIsARoundTrip(t *testing.T) {
	each(t, func(t *testing.T, v *registry.Version, stored bool) {
		if !stored {
			return
		}
		for seed := range uint64(rounds) {
			obj, again := v.New(), v.New()
			newFiller(seed).fill(reflect.ValueOf(obj).Elem(), 0)
			message, err := scheme.EncodeProto(obj)
			if err != nil {
				t.Fatal(err)
			}
			if err := scheme.DecodeProto(message, again); err != nil {
				t.Fatal(err)
			}
			want, wantErr := json.Marshal(again)
			got, err := structjson.AppendStored(nil, obj)
			if (err != nil) != (wantErr != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("seed %d:\n%s %v\nwant\n%s %v", seed, got, err, want, wantErr)
			}
		}
	})
}

// TestDecodeIsUnmarshal checks that Decode, when it succeeds, has the same result as the strict decoder. It
// decodes documents of all types, and the same documents with a changed byte.
func TestDecodeIsUnmarshal(t *testing.T) {
	accepted, mutants := 0, 0
	each(t, func(t *testing.T, v *registry.Version, _ bool) {
		for seed := range uint64(rounds) {
			f := newFiller(seed)
			obj := v.New()
			f.fill(reflect.ValueOf(obj).Elem(), 0)
			doc, err := json.Marshal(obj)
			if err != nil {
				continue
			}
			if f.IntN(3) == 0 {
				var spaced bytes.Buffer
				if json.Indent(&spaced, doc, "", " \t") == nil {
					doc = spaced.Bytes()
				}
			}
			if check(t, v, doc) {
				accepted++
			}
			for range 20 {
				changed := bytes.Clone(doc)
				at := f.IntN(len(changed))
				switch f.IntN(3) {
				case 0:
					changed[at] = alphabet[f.IntN(len(alphabet))]
				case 1:
					changed = append(changed[:at], changed[at+1:]...)
				default:
					end := at + f.IntN(len(changed)-at)
					changed = append(changed[:end:end], doc[at:]...)
				}
				if check(t, v, changed) {
					mutants++
				}
			}
		}
	})
	if accepted < 1000 || mutants < 1000 {
		t.Errorf("only %d documents and %d changed ones were accepted: the test shows little", accepted, mutants)
	}
}

// check compares Decode with the strict decoder, and reports whether Decode succeeded.
func check(t *testing.T, v *registry.Version, doc []byte) bool {
	t.Helper()
	got, want := v.New(), v.New()
	if !structjson.Decode(doc, got) {
		return false
	}
	strict, err := kjson.UnmarshalStrict(doc, want)
	if err != nil || len(strict) > 0 {
		t.Fatalf("taken though %v %v:\n%s", err, strict, doc)
	}
	if !equality.Semantic.DeepEqual(got, want) || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\nis\n%#v\nwant\n%#v", doc, got, want)
	}
	return true
}

// TestDecodeGivesUp checks that Decode returns false for documents for which the general decoder returns errors.
func TestDecodeGivesUp(t *testing.T) {
	type inner struct {
		N *int32            `json:"n,omitempty"`
		M map[string]string `json:"m,omitempty"`
	}
	type outer struct {
		S string  `json:"s"`
		B bool    `json:"b,omitempty"`
		L []inner `json:"l,omitempty"`
		D []byte  `json:"d,omitempty"`
	}
	for doc, want := range map[string]bool{
		`{}`: true, ` { "s" : "a" , "b" : true } `: true, `{"s":"\u00e9\n"}`: true,
		`{"l":[{"n":1,"m":{"a":"b"}},{}],"d":"YQ=="}`: true, `{"s":null,"l":null}`: true,
		``: false, `null `: true, `[]`: false, `{"s":"a"}x`: false, `{"s":"a",}`: false, `{"s" "a"}`: false, `{"x":1}`: false,
		`{"S":"a"}`:         false,
		`{"s":"a","s":"b"}`: false, `{"l":[{"m":{"a":"b","a":"c"}}]}`: false, `{"l":[{"n":1.0}]}`: false,
		`{"l":[{"n":01}]}`: false, `{"l":[{"n":2147483648}]}`: false,
		`{"l":[1]}`: false, `{"l":[{},]}`: false, `{"s":"` + "\xff" + `"}`: false, `{"s":"` + "\n" + `"}`: false,
		`{"d":"?"}`: false, `{"b":"true"}`: false,
		`{"l":` + strings.Repeat("[", 300) + `}`: false,
	} {
		if got := structjson.Decode([]byte(doc), &outer{}); got != want {
			t.Errorf("%q: %v, want %v", doc, got, want)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	obj := podOf(b)
	b.Run("structjson", func(b *testing.B) {
		var out []byte
		for b.Loop() {
			out, _ = structjson.AppendStored(out[:0], obj)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(obj)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	doc, err := json.Marshal(podOf(b))
	if err != nil {
		b.Fatal(err)
	}
	v := podVersion(b)
	b.Run("structjson", func(b *testing.B) {
		for b.Loop() {
			if !structjson.Decode(doc, v.New()) {
				b.Fatal("not taken")
			}
		}
	})
	b.Run("sigs.k8s.io/json", func(b *testing.B) {
		for b.Loop() {
			_, _ = kjson.UnmarshalStrict(doc, v.New())
		}
	})
}

// TestAllocations counts the allocations for a pod. Decoding allocates pointers, lists and maps, but only one
// text. Encoding allocates only for quantities.
func TestAllocations(t *testing.T) {
	obj := podOf(t)
	doc, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	v := podVersion(t)
	var out []byte
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"Decode", 30, func() { structjson.Decode(doc, v.New()) }},
		{"AppendStored", 2, func() { out, _ = structjson.AppendStored(out[:0], obj) }},
	} {
		if n := testing.AllocsPerRun(100, c.run); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
	}
}

func podVersion(b testing.TB) *registry.Version {
	for _, k := range resource.Kinds(features.All()) {
		if k.Resource == "pods" {
			return &k.Versions[0]
		}
	}
	b.Fatal("no pods")
	return nil
}

// podOf returns a pod as a controller creates it, with defaults.
func podOf(b testing.TB) runtime.Object {
	b.Helper()
	v := podVersion(b)
	obj := v.New()
	const doc = `{"metadata":{"name":"web-1","namespace":"default","labels":{"app":"web","tier":"front"},
		"annotations":{"a":"b"}},"spec":{"containers":[
		{"name":"c","image":"registry.example.com/web:1.2.3","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],
		"ports":[{"containerPort":80,"protocol":"TCP"}],
		"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}},
		"livenessProbe":{"httpGet":{"path":"/","port":80}}},
		{"name":"d","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}],
		"volumes":[{"name":"v","emptyDir":{}}],"nodeSelector":{"x":"y"}}}`
	if err := json.Unmarshal([]byte(doc), obj); err != nil {
		b.Fatal(err)
	}
	v.Default(obj)
	return obj
}

// TestFieldsAreMarshaled checks that fieldsV1 is appended as json.Marshal encodes it, and that appending fails if
// json.Marshal fails. The documents are like those that the server writes, with up to three changed bytes.
func TestFieldsAreMarshaled(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	const changes = "{}[]:,\"\\ nu/<&>\x00\n\x7f\x80é"
	docs := []string{
		`{}`, `{"f:a":{}}`, `{"f:a":{},"f:b":{".":{},"f:c":{}}}`,
		`{"f:l":{"k:{\"name\":\"a\\b\"}":{".":{},"f:n":{}},"v:\"x\"":{}}}`,
		`{"f:a b":{}}`, `{"f:a":1}`, `{"f:a":{}} `, strings.Repeat(`{"a":`, 300) + "{}" + strings.Repeat("}", 300), ``,
	}
	var valid, invalid int
	for _, doc := range docs {
		for range 5000 {
			raw := []byte(doc)
			for range random.IntN(4) {
				if len(raw) > 0 {
					raw[random.IntN(len(raw))] = changes[random.IntN(len(changes))]
				}
			}
			entry := &metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: raw}}
			want, wantErr := json.Marshal(entry)
			got, err := structjson.Append(nil, entry)
			if (err != nil) != (wantErr != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%q: %s %v, want %s %v", raw, got, err, want, wantErr)
			}
			if err == nil {
				valid++
			} else {
				invalid++
			}
		}
	}
	if valid < 1000 || invalid < 1000 {
		t.Errorf("%d documents were valid and %d were not", valid, invalid)
	}
}

// TestTreesAreConverted checks that scheme.ToTree and scheme.FromTree have the same results as apimachinery's
// converter, for every built-in type with random values, and for trees in which a value was replaced or a member
// added.
func TestTreesAreConverted(t *testing.T) {
	converter := runtime.DefaultUnstructuredConverter
	each(t, func(t *testing.T, v *registry.Version, _ bool) {
		for seed := range uint64(rounds) {
			obj := v.New()
			f := newFiller(seed)
			f.fill(reflect.ValueOf(obj).Elem(), 0)
			if seed%7 == 0 {
				obj.(metav1.Object).SetName("\xff") // invalid UTF-8, which JSON cannot contain
			}
			want, wantErr := converter.ToUnstructured(obj)
			got, err := scheme.ToTree(obj)
			if (err != nil) != (wantErr != nil) || err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %v %v, want %v %v", seed, got, err, want, wantErr)
			}
			if err != nil {
				continue
			}
			if seed%2 == 1 {
				f.damage(want)
			}
			for _, strict := range []bool{true, false} {
				back, wantBack := v.New(), v.New()
				wantErr := converter.FromUnstructuredWithValidation(runtime.DeepCopyJSON(want), wantBack, strict)
				err := scheme.FromTree(want, back, strict)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !equality.Semantic.DeepEqual(back, wantBack) {
					t.Fatalf("seed %d: %v\n%+v %v\nwant\n%+v %v", seed, want, back, err, wantBack, wantErr)
				}
			}
		}
	})
}

// damage replaces a value somewhere in a tree, or adds a member.
func (f *filler) damage(tree map[string]any) {
	values := []any{
		nil, "", "text", "1", "\xff", int64(3), int64(1) << 40, 2.0, 2.5, 1e30, true, []any{}, []any{"a"}, map[string]any{},
	}
	for name, v := range tree { // in any order
		if below, ok := v.(map[string]any); ok && len(below) > 0 && f.IntN(4) > 0 {
			f.damage(below)
			return
		}
		if list, ok := v.([]any); ok && len(list) > 0 && f.IntN(4) > 0 {
			if below, ok := list[0].(map[string]any); ok {
				f.damage(below)
				return
			}
		}
		if f.IntN(2) == 0 {
			tree[name] = values[f.IntN(len(values))]
			return
		}
	}
	tree["unknown"] = values[f.IntN(len(values))]
}

// TestOnlyCheapQuantities checks that quantities that are expensive to parse are left to the general decoder, which refuses
// them, and that other texts that look like them are not.
func TestOnlyCheapQuantities(t *testing.T) {
	type limits struct {
		Memory apiresource.Quantity `json:"memory"`
		Text   string               `json:"text"`
	}
	for doc, want := range map[string]bool{
		`{"memory":"1e3"}`: true,
		`{"memory":"12345678Ki","text":"value-e-12345"}`: true,
		`{"memory":"1E"}`:                              true,
		`{"memory":1e99,"text":"1e-2000000000"}`:       true,
		`{"memory":1e9999}`:                            false,
		`{"memory":"1e9999"}`:                          false,
		`{"memory":"1e-2000000000"}`:                   false,
		`{"memory":"1\u00659999"}`:                     false,
		`{"memory":"` + strings.Repeat("1", 70) + `"}`: false,
	} {
		if got := structjson.Decode([]byte(doc), &limits{}); got != want {
			t.Errorf("%s: %t, want %t", doc, got, want)
		}
	}
}
