package scheme_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

var (
	podKind       = corev1.SchemeGroupVersion.WithKind("Pod")
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

func podDecoder() scheme.Decoder {
	return scheme.Decoder{GVK: podKind, Internal: "core.Pod", New: func() kruntime.Object { return &corev1.Pod{} }}
}

func configMapDecoder() scheme.Decoder {
	return scheme.Decoder{GVK: configMapKind, Internal: "core.ConfigMap",
		New: func() kruntime.Object { return &corev1.ConfigMap{} }}
}

// TestDecodeKinds checks which kinds a body may have, in each encoding, and the errors for
// others.
func TestDecodeKinds(t *testing.T) {
	const badVersion = `the API version in the data (apps/v1beta1) does not match the expected API version (v1)`
	for _, c := range []struct{ name, apiVersion, kind, message string }{
		{"its own", "v1", "ConfigMap", ""},
		{"nothing", "", "", ""},
		{"a kind alone", "", "ConfigMap", ""},
		{"a version alone", "v1", "", ""},
		{"another kind", "v1", "Secret",
			`Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): ` +
				`unknown conversion`},
		{"another group's kind", "apps/v1", "Deployment",
			`Deployment in version "v1" cannot be handled as a ConfigMap: converting (v1.Deployment) to ` +
				`(core.ConfigMap): unknown conversion`},
		{"an unknown kind", "v1", "Confmap",
			`Confmap in version "v1" cannot be handled as a ConfigMap: no kind "Confmap" is registered for version ` +
				`"v1" in scheme "pkg/runtime/scheme.go:111"`},
		{"an unknown version", "v2", "ConfigMap",
			`ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for ` +
				`version "v2" in scheme "pkg/runtime/scheme.go:111"`},
		{"another group", "example.com/v1", "ConfigMap",
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for ` +
				`version "example.com/v1" in scheme "pkg/runtime/scheme.go:111"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range []scheme.Media{scheme.JSON, scheme.YAML, scheme.Protobuf, scheme.CBOR} {
				obj, _, err := configMapDecoder().Decode(m, bodyOf(t, m, c.apiVersion, c.kind), true)
				if c.message == "" {
					if err != nil {
						t.Errorf("%s: %v", m, err)
					} else if got := obj.(*corev1.ConfigMap).Data["k"]; got != "v" {
						t.Errorf("%s: data is %q", m, got)
					}
					continue
				}
				if !kerrors.IsBadRequest(err) || err.Error() != c.message {
					t.Errorf("%s: %v\nwant %s", m, err, c.message)
				}
			}
		})
	}
	// The same kind in another version, where both are published.
	d := scheme.Decoder{GVK: appsv1.SchemeGroupVersion.WithKind("Deployment"), Internal: "apps.Deployment",
		New: func() kruntime.Object { return &appsv1.Deployment{} }}
	_, _, err := d.Decode(scheme.JSON, []byte(`{"apiVersion":"apps/v1beta1","kind":"Deployment"}`), false)
	if want := strings.Replace(badVersion, "(v1)", "(apps/v1)", 1); !kerrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("another version: %v\nwant %s", err, want)
	}
}

// bodyOf encodes a ConfigMap whose body has the given apiVersion and kind.
func bodyOf(t *testing.T, m scheme.Media, apiVersion, kind string) []byte {
	t.Helper()
	obj := &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
	obj.Name = "a"
	if m == scheme.Protobuf {
		raw, err := scheme.EncodeProto(obj)
		if err != nil {
			t.Fatal(err)
		}
		return wire.NewEnvelopeHead(apiVersion, kind).Append(nil, raw)
	}
	obj.APIVersion, obj.Kind = apiVersion, kind
	if m == scheme.CBOR {
		body, err := scheme.AppendCBOR(nil, obj)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	body, err := json.Marshal(obj)
	if err == nil && m == scheme.YAML {
		body, err = yaml.JSONToYAML(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestDecodeAlso checks that a body may have a kind of Decoder.Also, in each encoding.
func TestDecodeAlso(t *testing.T) {
	d := scheme.Decoder{
		GVK: policyv1.SchemeGroupVersion.WithKind("Eviction"), Internal: "policy.Eviction",
		New:  func() kruntime.Object { return &policyv1.Eviction{} },
		Also: []schema.GroupVersionKind{{Group: "policy", Version: "v1beta1", Kind: "Eviction"}},
	}
	for _, version := range []string{"policy/v1", "policy/v1beta1"} {
		eviction := &policyv1.Eviction{}
		eviction.Name = "a"
		raw, err := scheme.EncodeProto(eviction)
		if err != nil {
			t.Fatal(err)
		}
		eviction.APIVersion, eviction.Kind = version, "Eviction"
		text, err := json.Marshal(eviction)
		if err != nil {
			t.Fatal(err)
		}
		binary, err := scheme.AppendCBOR(nil, eviction)
		if err != nil {
			t.Fatal(err)
		}
		for m, body := range map[scheme.Media][]byte{
			scheme.JSON: text, scheme.YAML: text, scheme.CBOR: binary,
			scheme.Protobuf: wire.NewEnvelopeHead(version, "Eviction").Append(nil, raw),
		} {
			obj, _, err := d.Decode(m, body, true)
			if err != nil {
				t.Errorf("%s as %s: %v", version, m, err)
			} else if obj.(*policyv1.Eviction).Name != "a" {
				t.Errorf("%s as %s: %+v", version, m, obj)
			}
		}
	}
}

// TestDecodeUnreadable checks that each body is answered with BadRequest and the beginning of
// the body.
func TestDecodeUnreadable(t *testing.T) {
	for _, c := range []struct {
		name    string
		media   scheme.Media
		body    string
		message string // a part of it
	}{
		{"empty", scheme.JSON, ``,
			`the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: ` +
				`unexpected end of JSON input (<empty>)`},
		{"cut off", scheme.JSON, `{"kind":"Pod"`, `json parse error: unexpected end of JSON input ({"kind":"Pod")`},
		{"a long one", scheme.JSON, `{"kind":"Pod","apiVersion":"v1",,`, `({"kind":"Pod","apiVersion":"v1 ...)`},
		{"not an object", scheme.JSON, `[1]`,
			`cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,` +
				`omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b315d)`},
		{"a number for a kind", scheme.JSON, `{"kind":1}`,
			`json parse error: json: cannot unmarshal number into Go struct field`},
		{"two slashes", scheme.JSON, `{"apiVersion":"a/b/c"}`, `unexpected GroupVersion string: a/b/c`},
		{"a list for a map", scheme.JSON, `{"metadata":[]}`,
			`Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal array into Go struct field ` +
				`Pod.metadata of type v1.ObjectMeta`},
		{"a string for a number", scheme.JSON, `{"spec":{"priority":"high"}}`,
			`cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32`},
		{"a number too large", scheme.JSON, `{"spec":{"priority":4294967296}}`,
			`cannot unmarshal number 4294967296 into Go struct field PodSpec.spec.priority of type int32`},
		{"two documents", scheme.JSON, `{"kind":"Pod"}{"kind":"Pod"}`, `invalid character '{' after top-level value`},
		{"YAML: a tab", scheme.YAML, "kind:\tPod\n\t- x", `the object provided is unrecognized (must be of type Pod): `},
		{"YAML: text", scheme.YAML, "hello", `the object provided is unrecognized (must be of type Pod): `},
		{"YAML: an open bracket", scheme.YAML, "a: [", `the object provided is unrecognized (must be of type Pod): `},
		{"protobuf: empty", scheme.Protobuf, "",
			`the object provided is unrecognized (must be of type Pod): empty data (<empty>)`},
		{"protobuf: JSON", scheme.Protobuf, "{}", `expected prefix [107 56 115 0] ({})`},
		{"protobuf: garbage behind the prefix", scheme.Protobuf, "k8s\x00\x0a\xff", `400`},
		{"protobuf: a field cut off", scheme.Protobuf, "k8s\x00\x12\x03\x0a\x05a",
			`Pod in version "v1" cannot be handled as a Pod: unexpected EOF`},
		{"CBOR: empty", scheme.CBOR, "", `the object provided is unrecognized (must be of type Pod)`},
		{"CBOR: a map cut off", scheme.CBOR, "\xd9\xd9\xf7\xa1\x41",
			`the object provided is unrecognized (must be of type Pod)`},
		{"CBOR: a text", scheme.CBOR, "\xd9\xd9\xf7\x41a", `the object provided is unrecognized (must be of type Pod)`},
		{"CBOR: lengths beyond the end", scheme.CBOR, "\xd9\xd9\xf7\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
			`the object provided is unrecognized (must be of type Pod)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				obj, _, err := podDecoder().Decode(c.media, []byte(c.body), strict)
				if !kerrors.IsBadRequest(err) || obj != nil {
					t.Fatalf("strict %v: %v, %v", strict, obj, err)
				}
				if c.message != "400" && !strings.Contains(err.Error(), c.message) {
					t.Errorf("strict %v: %v\nwant %s", strict, err, c.message)
				}
			}
		})
	}
}

// TestDecodeStrict checks that unknown and duplicate fields are reported once each and in
// order, and that the object is decoded nevertheless.
func TestDecodeStrict(t *testing.T) {
	for _, c := range []struct {
		name  string
		media scheme.Media
		body  string
		want  string
	}{
		{"clean", scheme.JSON, `{"metadata":{"name":"a"}}`, ""},
		{"unknown", scheme.JSON, `{"metadata":{"name":"a","color":1},"extra":{}}`,
			`strict decoding error: unknown field "metadata.color", unknown field "extra"`},
		{"in a list", scheme.JSON, `{"metadata":{"name":"a"},"spec":{"containers":[{},{"imagee":"x"}]}}`,
			`strict decoding error: unknown field "spec.containers[1].imagee"`},
		{"of another case", scheme.JSON, `{"metadata":{"name":"a","Name":"b"}}`,
			`strict decoding error: unknown field "metadata.Name"`},
		{"duplicate", scheme.JSON, `{"metadata":{"name":"b","name":"a"}}`,
			`strict decoding error: duplicate field "metadata.name"`},
		{"YAML duplicate", scheme.YAML, "metadata:\n  name: b\n  name: a\n",
			`strict decoding error: yaml: unmarshal errors:` + "\n" + `  line 3: key "name" already set in map`},
		{"YAML unknown", scheme.YAML, "metadata: {name: a}\nfoo: 1\n", `strict decoding error: unknown field "foo"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, strict := range []bool{true, false} {
				obj, found, err := podDecoder().Decode(c.media, []byte(c.body), strict)
				if err != nil {
					t.Fatal(err)
				}
				if name := obj.(*corev1.Pod).Name; name != "a" {
					t.Errorf("strict %v: named %q", strict, name)
				}
				got := ""
				if len(found) > 0 {
					got = scheme.StrictMessage(found)
				}
				if want := c.want; strict && got != want || !strict && got != "" {
					t.Errorf("strict %v: %s\nwant %s", strict, got, want)
				}
			}
		})
	}
	_, found, _ := podDecoder().Decode(scheme.JSON, []byte(`{"foo":1}`), true)
	want := `Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "foo"`
	if err := podDecoder().StrictError(podDecoder().GVK, found); !kerrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestDecodeHostile decodes documents that are made to be expensive. The memory that a decoder
// allocates for one must be a small multiple of its size.
func TestDecodeHostile(t *testing.T) {
	const most = 3 << 20
	nested := func(open, inner, end string) string {
		n := (most - len(inner) - 64) / (len(open) + len(end))
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	for _, c := range []struct {
		name   string
		media  scheme.Media
		body   string
		refuse bool
	}{
		{"row 20: JSON objects", scheme.JSON, nested(`{"a":`, `1`, `}`), true},
		{"row 20: JSON lists in an unknown field", scheme.JSON, `{"a":` + nested(`[`, ``, `]`) + `}`, true},
		{"row 20: JSON lists in a known field", scheme.JSON,
			`{"metadata":{"managedFields":[{"fieldsV1":` + nested(`{"a":`, `1`, `}`) + `}]}}`, true},
		{"row 20: brackets that never close", scheme.JSON, `{"a":` + strings.Repeat(`[`, most-10), true},
		{"row 20: brackets that were never opened", scheme.JSON, strings.Repeat(`}`, most), true},
		{"row 20: YAML lists", scheme.YAML, "a: " + nested(`[`, ``, `]`), true},
		{"row 20: YAML objects", scheme.YAML, nested(`{a: `, `1`, `}`), true},
		{"row 20: YAML brackets that never close", scheme.YAML, "a: " + strings.Repeat(`[`, most-10), true},
		{"row 20: YAML indentation", scheme.YAML, strings.Repeat("- ", most/2), true},
		{"row 20: YAML explicit keys", scheme.YAML, strings.Repeat("? ", most/2), true},
		{"row 21: alias bomb", scheme.YAML, aliasBomb(9, 9), true},
		{"row 21: wide alias bomb", scheme.YAML, aliasBomb(4, 900), true},
		{"row 21: an alias of itself", scheme.YAML, "a: &a [*a]", true},
		{"row 23: protobuf groups", scheme.Protobuf, "k8s\x00\x12\x80\x80\xc0\x01" + strings.Repeat("\x0b", most), true},
		{"row 23: CBOR lists", scheme.CBOR, "\xd9\xd9\xf7\xa1\x41a" + strings.Repeat("\x81", most), true},
		{"row 23: CBOR tags", scheme.CBOR, strings.Repeat("\xd9\xd9\xf7", most/3), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _, err := podDecoder().Decode(c.media, []byte(c.body), strict)
				runtime.ReadMemStats(&after)
				if c.refuse && !kerrors.IsBadRequest(err) {
					t.Errorf("strict %v: %v, want a bad request", strict, err)
				}
				if err != nil && len(err.Error()) > 4096 {
					t.Errorf("strict %v: an answer of %d bytes", strict, len(err.Error()))
				}
				if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
					t.Errorf("strict %v: %d MiB allocated", strict, used)
				} else if testing.Verbose() {
					t.Logf("strict %v: %d MiB allocated, %v", strict, used, err)
				}
			}
		})
	}
}

// aliasBomb returns YAML with levels lists. Each list consists of width aliases of the list before it.
func aliasBomb(levels, width int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol]\n")
	for i := 1; i <= levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), ","))
	}
	return b.String()
}

// TestDecodeQuantities (row 23) checks that a quantity that would take very long to parse is refused before it is
// parsed, in every encoding and place. The same text is accepted in other fields.
func TestDecodeQuantities(t *testing.T) {
	digits := strings.Repeat("9", 1<<17)
	for _, c := range []struct {
		name, quantity string
		refuse         bool
	}{
		{"the finding", "011E011110011110", true},
		{"a small one of many digits", "1e-999999999999", true},
		{"another", "-1.5E-0099999999", true},
		{"a large one", "99999999999999999999e+2000000000", true},
		{"many digits", digits, true},
		{"many digits of a fraction", "1." + digits, true},
		{"less than the least", "0.0000000000000001e-2000000000", true},
		{"less than the least, of many digits", digits + "e-999", true},
		{"many digits and an exponent", digits + "e-99999", true},
		{"ordinary", "100m", false},
		{"an exponent", "1.5e3", false},
		{"the longest exponent", "123e-999", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			document := fmt.Sprintf(`{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"limits":{"cpu":"%s"}}}]}}`,
				c.quantity)
			// The message of a container's limits is made by hand, because the Go types would parse the quantity.
			raw := protoField(2,
				protoField(2,
					protoField(8,
						protoField(1, append(protoField(1, []byte("cpu")), protoField(2, protoField(1, []byte(c.quantity)))...)))))
			var tree map[string]any
			if err := json.Unmarshal([]byte(document), &tree); err != nil {
				t.Fatal(err)
			}
			inCBOR, err := scheme.AppendCBOR(nil, tree)
			if err != nil {
				t.Fatal(err)
			}
			for m, body := range map[scheme.Media][]byte{
				scheme.JSON: []byte(document), scheme.YAML: []byte(document), scheme.CBOR: inCBOR,
				scheme.Protobuf: wire.NewEnvelopeHead("v1", "Pod").Append(nil, raw),
			} {
				obj, _, err := podDecoder().Decode(m, body, false)
				if refused := kerrors.IsBadRequest(err); refused != c.refuse || !refused && err != nil {
					t.Errorf("%s: %.200v", m, err)
				}
				if err == nil && obj.(*corev1.Pod).Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
					t.Errorf("%s: no limit came through", m)
				}
			}
			if _, err := podDecoder().DecodePatched([]byte(document), true); (err != nil) != c.refuse {
				t.Errorf("patched: %.200v", err)
			}
			var values map[string]any
			if err := scheme.UnmarshalTree([]byte(document), &values); err != nil {
				t.Fatal(err)
			}
			if err := scheme.CheckQuantities(&corev1.Pod{}, values); (err != nil) != c.refuse {
				t.Errorf("values: %.200v", err)
			}
			// The same text in an annotation is accepted, beside a valid quantity.
			innocent := strings.Replace(document, c.quantity, "1", 1)
			innocent = strings.Replace(innocent, `"name":"a"`,
				fmt.Sprintf(`"name":"a","annotations":{"%.100s":"%s"}`, c.quantity, c.quantity), 1)
			obj, _, err := podDecoder().Decode(scheme.JSON, []byte(innocent), true)
			if err != nil {
				t.Fatalf("as text: %.200v", err)
			}
			if got := obj.(*corev1.Pod).Annotations[fmt.Sprintf("%.100s", c.quantity)]; got != c.quantity {
				t.Errorf("as text: read as %.200q", got)
			}
		})
	}
}

func protoField(number byte, value []byte) []byte {
	return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value))), value...)
}

func TestDecodePatched(t *testing.T) {
	for _, c := range []struct{ doc, strict, err string }{
		{`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}`, "", ""},
		{`{"data":{"a":"b"},"extra":1}`, `unknown field "extra"`, ""},
		{`{"apiVersion":"v1","kind":"Secret"}`, "", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"},
		{`{"apiVersion":"v1","kind":"Nothing"}`, "",
			`no kind "Nothing" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`},
		{`{"data":1}`, "", "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string"},
		{`{`, "", "couldn't get version/kind; json parse error: unexpected end of JSON input"},
	} {
		obj := &corev1.ConfigMap{}
		d := configMapDecoder()
		d.New = func() kruntime.Object { return obj }
		found, err := d.DecodePatched([]byte(c.doc), true)
		if message(err) != c.err {
			t.Errorf("%s: %v, want %s", c.doc, err, c.err)
		}
		var strict []string
		for _, e := range found {
			strict = append(strict, e.Error())
		}
		if got := strings.Join(strict, ", "); got != c.strict {
			t.Errorf("%s: strict errors %q, want %q", c.doc, got, c.strict)
		}
		if c.err == "" && obj.Data["a"] != "b" {
			t.Errorf("%s: %v", c.doc, obj.Data)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// kinds of different shapes for round trips.
var kinds = map[schema.GroupVersionKind]func() scheme.Object{
	podKind:       func() scheme.Object { return &corev1.Pod{} },
	configMapKind: func() scheme.Object { return &corev1.ConfigMap{} },
	corev1.SchemeGroupVersion.WithKind("Secret"):     func() scheme.Object { return &corev1.Secret{} },
	appsv1.SchemeGroupVersion.WithKind("Deployment"): func() scheme.Object { return &appsv1.Deployment{} },
}

// TestRoundTrips checks that every encoding of a random object has the same bytes as that of
// the published serializers, and is decoded to an equal object.
func TestRoundTrips(t *testing.T) {
	codecs := serializer.NewCodecFactory(kruntime.NewScheme())
	types := kruntime.NewScheme()
	for gvk, empty := range kinds {
		types.AddKnownTypeWithName(gvk, empty())
	}
	published := protobuf.NewSerializer(types, types)
	for gvk, empty := range kinds {
		t.Run(gvk.Kind, func(t *testing.T) {
			d := scheme.Decoder{GVK: gvk, Internal: "core." + gvk.Kind, New: func() kruntime.Object { return empty() }}
			for seed := range int64(25) {
				obj := empty()
				fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), codecs).NumElements(0, 3).Fill(obj)
				named := obj.DeepCopyObject().(scheme.Object)
				named.GetObjectKind().SetGroupVersionKind(gvk)

				item, err := scheme.EncodeItem(named.DeepCopyObject())
				if err != nil {
					t.Fatal(err)
				}
				if want, _ := json.Marshal(obj); !bytes.Equal(item, want) {
					t.Fatalf("seed %d: item\n%s\nwant\n%s", seed, item, want)
				}
				document := scheme.JSONObject(scheme.JSONHead(gvk), item)
				if want, _ := json.Marshal(named); !bytes.Equal(document, append(want, '\n')) {
					t.Fatalf("seed %d: document\n%s\nwant\n%s", seed, document, want)
				}
				head := wire.NewEnvelopeHead(gvk.GroupVersion().String(), gvk.Kind)
				value, err := scheme.EncodeEnvelope(head, obj)
				if err != nil {
					t.Fatal(err)
				}
				var want bytes.Buffer
				if err := published.Encode(named, &want); err != nil || !bytes.Equal(value, want.Bytes()) {
					t.Fatalf("seed %d: envelope %x (%v)\nwant %x", seed, value, err, want.Bytes())
				}
				if len(value) != cap(value) {
					t.Errorf("seed %d: %d bytes allocated for %d", seed, cap(value), len(value))
				}
				raw, err := scheme.EncodeProto(obj)
				if err != nil {
					t.Fatal(err)
				}
				if bare, err := wire.Raw(value); err != nil || !bytes.Equal(raw, bare) {
					t.Fatalf("seed %d: the bare message is another (%v)", seed, err)
				}
				asYAML, err := yaml.JSONToYAML(document)
				if err != nil {
					t.Fatal(err)
				}
				asCBOR, err := scheme.AppendCBOR(nil, named)
				if err != nil {
					t.Fatal(err)
				}
				for m, body := range map[scheme.Media][]byte{scheme.JSON: document, scheme.YAML: asYAML, scheme.Protobuf: value,
					scheme.CBOR: asCBOR} {
					back, strict, err := d.Decode(m, body, true)
					if err != nil || len(strict) > 0 {
						t.Fatalf("seed %d, %s: %v, %v", seed, m, strict, err)
					}
					back.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
					if !equality.Semantic.DeepEqual(back, obj) {
						t.Fatalf("seed %d, %s: another object came back:\n%+v\nwant\n%+v", seed, m, back, obj)
					}
				}
			}
		})
	}
}

func TestAppendJSONObject(t *testing.T) {
	head := scheme.JSONHead(podKind)
	for item, want := range map[string]string{
		`{}`:                      `{"kind":"Pod","apiVersion":"v1"}`,
		`{"metadata":{}}`:         `{"kind":"Pod","apiVersion":"v1","metadata":{}}`,
		`{"a":"{}","b":{"c":[]}}`: `{"kind":"Pod","apiVersion":"v1","a":"{}","b":{"c":[]}}`,
	} {
		got := scheme.AppendJSONObject([]byte("before"), head, []byte(item))
		if string(got) != "before"+want {
			t.Errorf("%s: %s, want %s", item, got, want)
		}
	}
	// Names that JSON would escape.
	strange := schema.GroupVersionKind{Group: `a"b`, Version: "v1", Kind: `<K>`}
	doc := scheme.JSONObject(scheme.JSONHead(strange), []byte(`{}`))
	var back metav1.TypeMeta
	if err := json.Unmarshal(doc, &back); err != nil || back.GroupVersionKind() != strange {
		t.Errorf("%s: %v, %v", doc, back, err)
	}
}

// noProto has no protobuf encoding.
type noProto struct{ meta metav1.TypeMeta }

func (n *noProto) GetObjectKind() schema.ObjectKind { return &n.meta }

func (n *noProto) DeepCopyObject() kruntime.Object { c := *n; return &c }

func TestNoProtobuf(t *testing.T) {
	if _, err := scheme.EncodeProto(&noProto{}); err == nil {
		t.Error("EncodeProto")
	}
	if _, err := scheme.EncodeEnvelope(nil, &noProto{}); err == nil {
		t.Error("EncodeEnvelope")
	}
	if err := scheme.DecodeProto(nil, &noProto{}); err == nil {
		t.Error("DecodeProto")
	}
}

// TestKnown checks that the list has all published types. If a later version of the modules
// adds a kind, add it to the list (go generate ./internal/machinery/scheme).
func TestKnown(t *testing.T) {
	published := clientscheme.Scheme.AllKnownTypes()
	for gvk := range published {
		if gvk.Version != kruntime.APIVersionInternal && !scheme.Known(gvk) {
			t.Errorf("%v is not known", gvk)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{
		{}, {Version: "v1"}, {Kind: "Pod"}, {Version: "v2", Kind: "Pod"}, {Group: "core", Version: "v1", Kind: "Pod"},
		{Version: kruntime.APIVersionInternal, Kind: "Pod"}, {Version: "v1", Kind: "pod"},
		{Group: "example.com", Version: "v1", Kind: "Pod"},
	} {
		if scheme.Known(gvk) {
			t.Errorf("%v is known", gvk)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	} {
		if !scheme.Known(gvk) {
			t.Errorf("%v is not known", gvk)
		}
	}
}

func TestMediaNames(t *testing.T) {
	for m, want := range map[scheme.Media]string{
		scheme.JSON: "application/json", scheme.YAML: "application/yaml",
		scheme.Protobuf: "application/vnd.kubernetes.protobuf", scheme.CBOR: "application/cbor",
	} {
		if m.String() != want {
			t.Errorf("%d: %s, want %s", m, m, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	pod := &corev1.Pod{}
	pod.Name = "a"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	value, err := scheme.EncodeEnvelope(wire.NewEnvelopeHead("v1", "Pod"), pod)
	if err != nil {
		f.Fatal(err)
	}
	pod.SetGroupVersionKind(podKind)
	document, _ := json.Marshal(pod)
	binary, err := scheme.AppendCBOR(nil, pod)
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range [][]byte{
		value, value[:len(value)-3], document, document[:len(document)/2], binary, binary[:len(binary)/2], nil,
		[]byte("k8s\x00"), []byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), []byte("a: &a [*a]"), []byte("{{{{"),
		[]byte("\xd9\xd9\xf7\xa0"),
		[]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"011E011110011110"}}}]}}`), []byte("? ? ?"),
		[]byte("- - - :"),
		[]byte(`{"apiVersion":"v1","kind":"Secret"}`), []byte(`{"metadata":{"creationTimestamp":"x"}}`),
		[]byte("\xd9\xd9\xf7\xa1\x44kind\x01"),
	} {
		for m := range 4 {
			f.Add(m, body, m%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, m int, body []byte, strict bool) {
		before := bytes.Clone(body)
		obj, found, err := podDecoder().Decode(scheme.Media(uint(m)%4), body, strict)
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
		switch {
		case err != nil && !kerrors.IsBadRequest(err):
			t.Fatalf("not a bad request: %v", err)
		case err != nil:
			return
		case obj == nil || reflect.ValueOf(obj).IsNil():
			t.Fatal("neither an object nor an error")
		case !strict && len(found) > 0:
			t.Fatalf("strict errors that nobody asked for: %v", found)
		}
		if _, err := scheme.EncodeProto(obj); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
