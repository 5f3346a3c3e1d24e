package scheme_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// TestQuantitiesOnEveryWay has costly quantities that a check of only the text, or of only the
// decoded result, would not find.
func TestQuantitiesOnEveryWay(t *testing.T) {
	const costly = "1e-999999999"
	escaped := strings.Replace(costly, "9", `\u0039`, 6)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c",` +
		`"resources":{"limits":{%s}}}]%s}}`
	for name, doc := range map[string]string{
		"duplicate member":        fmt.Sprintf(pod, `"cpu":"`+costly+`","cpu":"1"`, ""),
		"a list that is replaced": fmt.Sprintf(pod, `"cpu":"`+costly+`"`, `,"containers":null`),
		"spaces":                  fmt.Sprintf(pod, `"cpu":" `+costly+` "`, ""),
		"an escaped member": fmt.Sprintf(strings.Replace(pod, `"limits"`, `"\u006cimits"`, 1), `"cpu":"`+costly+`"`,
			""),
		"a number": fmt.Sprintf(pod, `"cpu":`+costly, ""),
	} {
		for _, strict := range []bool{false, true} {
			if _, _, err := podDecoder().Decode(scheme.JSON, []byte(doc), strict); !kerrors.IsBadRequest(err) {
				t.Errorf("%s: %.200v", name, err)
			}
		}
		if _, err := podDecoder().DecodePatched([]byte(doc), false); err == nil {
			t.Errorf("%s, patched: accepted", name)
		}
	}
	tree := map[string]any{}
	if err := scheme.UnmarshalTree(fmt.Appendf(nil, pod, `"cpu":"`+escaped+`"`, ""), &tree); err != nil {
		t.Fatal(err)
	}
	if err := scheme.CheckQuantities(&corev1.Pod{}, tree); err == nil {
		t.Error("escaped digits: accepted")
	}
	for text, ok := range map[string]bool{"1": true, "100Mi": true, "1E": true, "1e3": true, "1E-999": true,
		"011E011110011110": false, costly: false, "1e+99999": false} {
		if err := scheme.CheckQuantity(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func decoderOf(gvk schema.GroupVersionKind, make func() kruntime.Object) scheme.Decoder {
	return scheme.Decoder{GVK: gvk, Internal: gvk.Kind, New: make}
}

// nestedMessage puts a message into a field of itself many times. It is made from its end, since each
// level would otherwise copy all below it.
func nestedMessage(number protowire.Number, times int) []byte {
	const longestHead = 8
	b := make([]byte, times*longestHead)
	at := len(b)
	for range times {
		head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(b)-at))
		at -= len(head)
		copy(b[at:], head)
	}
	return b[at:]
}

// TestProtobufIsChecked decodes messages with raw JSON that is not valid, text that is not UTF-8,
// a costly quantity, and messages nested so deeply that decoders would overflow the stack.
func TestProtobufIsChecked(t *testing.T) {
	revision := decoderOf(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		func() kruntime.Object { return &appsv1.ControllerRevision{} })
	class := decoderOf(resourcev1.SchemeGroupVersion.WithKind("DeviceClass"),
		func() kruntime.Object { return &resourcev1.DeviceClass{} })
	definition := decoderOf(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
		func() kruntime.Object { return &apiextensionsv1.CustomResourceDefinition{} })
	config := decoderOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		func() kruntime.Object { return &corev1.ConfigMap{} })
	const not, schemaOfVersion = 28, 4
	for name, c := range map[string]struct {
		decoder scheme.Decoder
		raw     []byte
		want    string
	}{
		"raw JSON that is none":  {revision, protoField(2, protoField(1, []byte("not json"))), "invalid JSON"},
		"raw JSON that is empty": {revision, protoField(2, protoField(1, nil)), "invalid JSON"},
		"raw JSON that is":       {revision, protoField(2, protoField(1, []byte(`{"a":1}`))), ""},
		"raw JSON that is deep": {revision, protoField(2, protoField(1, bytes.Repeat([]byte("["), 5000))),
			"invalid JSON: exceeded max depth"},
		"opaque parameters": {class,
			protoField(2,
				protoField(2,
					protoField(1, protoField(1, append(protoField(1, []byte("d")), protoField(2, protoField(1, []byte("{")))...))))),
			"invalid JSON"},
		"text of a map": {config,
			protoField(2, append(protoField(1, []byte("k")), protoField(2, []byte("\xff"))...)), "invalid UTF-8"},
		"a key of a map": {config,
			protoField(2, append(protoField(1, []byte("\xff")), protoField(2, []byte("v"))...)), "invalid UTF-8"},
		"bytes": {config,
			protoField(3, append(protoField(1, []byte("k")), protoField(2, []byte("\xff"))...)), ""},
		"schemas that are too deep": {definition,
			protoField(2, protoField(7, protoField(schemaOfVersion, protoField(1, nestedMessage(not, 400_000))))),
			"messages deep"},
		"schemas a little too deep": {definition,
			protoField(2, protoField(7, protoField(schemaOfVersion, protoField(1, nestedMessage(not, scheme.MaxDepth))))),
			"messages deep"},
		"schemas that are deep": {definition,
			protoField(2, protoField(7, protoField(schemaOfVersion, protoField(1, nestedMessage(not, 500))))), ""},
	} {
		raw := wire.NewEnvelopeHead(c.decoder.GVK.GroupVersion().String(), c.decoder.GVK.Kind).Append(nil, c.raw)
		_, _, err := c.decoder.Decode(scheme.Protobuf, raw, true)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %.300v", name, err)
		case c.want != "" && (!kerrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// TestDepthOfDocuments checks that JSON and YAML documents that are nested deeper than MaxDepth are refused.
func TestDepthOfDocuments(t *testing.T) {
	tree := scheme.Decoder{GVK: schema.GroupVersionKind{Group: "g", Version: "v", Kind: "K"}, Tree: true,
		New: func() kruntime.Object { return &unstructured.Unstructured{} }}
	for depth, ok := range map[int]bool{scheme.MaxDepth - 1: true, scheme.MaxDepth: false, 9000: false} {
		doc := `{"apiVersion":"g/v","kind":"K","a":` + strings.Repeat("[", depth) + `"[\"["` + strings.Repeat("]", depth) +
			"}"
		for _, m := range []scheme.Media{scheme.JSON, scheme.YAML} {
			_, _, err := tree.Decode(m, []byte(doc), true)
			if (err == nil) != ok {
				t.Errorf("%s of depth %d: %.200v", m, depth, err)
			}
		}
	}
}

// TestYAMLAliases converts documents that are small and stand for large ones. The memory that this
// takes is a small multiple of the document.
func TestYAMLAliases(t *testing.T) {
	long := "a: &a " + strings.Repeat("x", 100<<10) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 20000), ",") +
		"]\n"
	nested := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		nested += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	for name, c := range map[string]struct {
		doc string
		ok  bool
	}{
		"one long anchor":      {long, false},
		"anchors in anchors":   {nested, false},
		"an anchor in itself":  {"a: &a [*a]\n", false},
		"few aliases":          {"a: &a {x: y}\nb: *a\nc: {<<: *a}\n", true},
		"no aliases":           {"a: 'b & *c'\n", true},
		"large without anchor": {"a: '& *'\nb: " + strings.Repeat("x", 2<<20), true},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := scheme.YAMLToJSON([]byte(c.doc))
		runtime.ReadMemStats(&after)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		const most = 128 << 20
		if taken := after.TotalAlloc - before.TotalAlloc; taken > most {
			t.Errorf("%s: took %d MiB", name, taken>>20)
		}
	}
}
