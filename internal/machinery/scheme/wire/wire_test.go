package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// The tests of this file compare the package with a slow and simple implementation: decode
// with the published types, change the struct, encode again.

// message is what the published types implement.
type message interface {
	scheme.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// kinds make empty objects of different shapes: large and small, with and without
// a namespace, with maps, lists and numbers behind the metadata.
var kinds = []func() message{
	func() message { return &corev1.Pod{} },
	func() message { return &corev1.ConfigMap{} },
	func() message { return &corev1.Secret{} },
	func() message { return &corev1.Node{} },
	func() message { return &corev1.Namespace{} },
	func() message { return &corev1.Event{} },
	func() message { return &appsv1.Deployment{} },
	func() message { return &batchv1.Job{} },
	func() message { return &rbacv1.ClusterRole{} },
}

// revisions are written with one to nineteen digits.
var revisions = []int64{0, 1, 9, 10, 127, 128, 99999, 1 << 32, math.MaxInt64}

// filled calls f with random objects of each kind.
func filled(t *testing.T, perKind int, f func(t *testing.T, random *rand.Rand, obj message)) {
	t.Helper()
	for _, empty := range kinds {
		t.Run(fmt.Sprintf("%T", empty()), func(t *testing.T) {
			for seed := range int64(perKind) {
				random := rand.New(rand.NewSource(seed))
				obj := empty()
				fill(random, obj)
				f(t, random, obj)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// fill gives obj random contents. A third of the objects has next to no metadata.
func fill(random *rand.Rand, obj message) {
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	fuzzer.FuzzerFor(metafuzzer.Funcs, random, codecs).NumElements(0, 4).Fill(obj)
	switch random.Intn(3) {
	case 0:
		obj.SetResourceVersion("")
	case 1:
		meta := reflect.ValueOf(obj).Elem().FieldByName("ObjectMeta")
		meta.Set(reflect.ValueOf(metav1.ObjectMeta{Name: obj.GetName()}))
	}
}

func encode(t testing.TB, obj message) []byte {
	t.Helper()
	b, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stampTwin does the same as Stamp, but sets the field of the struct and encodes it.
func stampTwin(t testing.TB, obj message, revision int64) []byte {
	t.Helper()
	c := obj.DeepCopyObject().(message)
	c.SetResourceVersion(strconv.FormatInt(revision, 10))
	return encode(t, c)
}

func TestStampIsWhatTheTypesEncode(t *testing.T) {
	filled(t, 40, func(t *testing.T, random *rand.Rand, obj message) {
		raw := encode(t, obj)
		before := bytes.Clone(raw)
		for _, revision := range revisions {
			got, err := wire.Stamp(raw, revision)
			if err != nil {
				t.Fatal(err)
			}
			if want := stampTwin(t, obj, revision); !bytes.Equal(got, want) {
				t.Fatalf("revision %d:\n%x\nwant\n%x", revision, got, want)
			}
			// Stamped again it must look as if stamped once.
			other := revisions[random.Intn(len(revisions))]
			again, err := wire.Stamp(got, other)
			if err != nil || !bytes.Equal(again, stampTwin(t, obj, other)) {
				t.Fatalf("%d, then %d: %v", revision, other, err)
			}
			if len(got) != cap(got) {
				t.Errorf("revision %d: %d bytes allocated for %d", revision, cap(got), len(got))
			}
		}
		if !bytes.Equal(raw, before) {
			t.Error("the argument was changed")
		}
	})
}

// dropField returns message without one of its fields.
func dropField(t *testing.T, message []byte, field protowire.Number) []byte {
	t.Helper()
	var out []byte
	for len(message) > 0 {
		num, _, n := protowire.ConsumeField(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		if num != field {
			out = append(out, message[:n]...)
		}
		message = message[n:]
	}
	return out
}

// TestStampOfAMissingField stamps messages without the field resourceVersion, as encoders that
// leave out empty strings store them. Stamp must insert the field at its place.
func TestStampOfAMissingField(t *testing.T) {
	filled(t, 20, func(t *testing.T, _ *rand.Rand, obj message) {
		raw := encode(t, obj)
		meta, err := wire.Metadata(raw)
		if err != nil {
			t.Fatal(err)
		}
		small := dropField(t, meta, 6)
		lacking := protowire.AppendTag(nil, 1, protowire.BytesType)
		lacking = protowire.AppendBytes(lacking, small)
		lacking = append(lacking, dropField(t, raw, 1)...)
		got, err := wire.Stamp(lacking, 4711)
		if err != nil || !bytes.Equal(got, stampTwin(t, obj, 4711)) {
			t.Errorf("%v: %x", err, got)
		}
	})
}

func TestStampOfEmptyMetadata(t *testing.T) {
	got, err := wire.Stamp([]byte{0x0a, 0}, 5)
	var m metav1.PartialObjectMetadata
	if err != nil || m.Unmarshal(got) != nil || m.ResourceVersion != "5" {
		t.Errorf("%x, %v", got, err)
	}
}

func TestMetadataIsTheStruct(t *testing.T) {
	filled(t, 20, func(t *testing.T, _ *rand.Rand, obj message) {
		raw := encode(t, obj)
		want := reflect.ValueOf(obj).Elem().FieldByName("ObjectMeta").Interface().(metav1.ObjectMeta)
		encoded, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		meta, err := wire.Metadata(raw)
		if err != nil || !bytes.Equal(meta, encoded) {
			t.Fatalf("%v\n%x\nwant\n%x", err, meta, encoded)
		}
		// The whole field is the message of a PartialObjectMetadata.
		field, err := wire.MetadataField(raw)
		if err != nil {
			t.Fatal(err)
		}
		partial, err := (&metav1.PartialObjectMetadata{ObjectMeta: want}).Marshal()
		if err != nil || !bytes.Equal(field, partial) {
			t.Fatalf("%v\n%x\nwant\n%x", err, field, partial)
		}
	})
}

func TestEachLabelIsTheMap(t *testing.T) {
	filled(t, 30, func(t *testing.T, _ *rand.Rand, obj message) {
		meta, err := wire.Metadata(encode(t, obj))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		var keys []string
		err = wire.EachLabel(meta, func(k, v []byte) {
			got[string(k)] = string(v)
			keys = append(keys, string(k))
		})
		want := obj.GetLabels()
		if want == nil {
			want = map[string]string{}
		}
		if err != nil || !reflect.DeepEqual(got, want) || len(keys) != len(want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		if !slices.IsSorted(keys) {
			t.Errorf("%q are not sorted as encoded", keys)
		}
	})
}

// TestFind compares the values that Find returns for field paths with the fields of the decoded struct.
func TestFind(t *testing.T) {
	type want struct {
		found  bool
		text   string
		number uint64
	}
	text := func(s string) want { return want{found: true, text: s} }
	number := func(n int64) want { return want{found: true, number: uint64(n)} }
	flag := func(b bool) want {
		if b {
			return number(1)
		}
		return number(0)
	}
	for _, c := range []struct {
		name string
		new  func() message
		path []int32
		want func(message) want
	}{
		{"metadata.name", kinds[0], []int32{1, 1}, func(o message) want { return text(o.GetName()) }},
		{"metadata.resourceVersion", kinds[0], []int32{1, 6}, func(o message) want { return text(o.GetResourceVersion()) }},
		{"metadata.generation", kinds[0], []int32{1, 7}, func(o message) want { return number(o.GetGeneration()) }},
		{"metadata.deletionTimestamp", kinds[0], []int32{1, 9}, func(o message) want {
			if o.GetDeletionTimestamp() == nil {
				return want{}
			}
			b, _ := o.GetDeletionTimestamp().Marshal()
			return text(string(b))
		}},
		{"pod spec.nodeName", kinds[0], []int32{2, 10}, func(o message) want { return text(o.(*corev1.Pod).Spec.NodeName) }},
		{"pod spec.hostNetwork", kinds[0], []int32{2, 11},
			func(o message) want { return flag(o.(*corev1.Pod).Spec.HostNetwork) }},
		{"pod status.phase", kinds[0], []int32{3, 1},
			func(o message) want { return text(string(o.(*corev1.Pod).Status.Phase)) }},
		{"pod first container's name", kinds[0], []int32{2, 2, 1}, func(o message) want {
			c := o.(*corev1.Pod).Spec.Containers
			if len(c) == 0 {
				return want{}
			}
			return text(c[0].Name)
		}},
		{"pod spec.priority", kinds[0], []int32{2, 25}, func(o message) want {
			if p := o.(*corev1.Pod).Spec.Priority; p != nil {
				return number(int64(*p))
			}
			return want{}
		}},
		{"secret type", kinds[2], []int32{3}, func(o message) want { return text(string(o.(*corev1.Secret).Type)) }},
		{"node spec.unschedulable", kinds[3], []int32{2, 4},
			func(o message) want { return flag(o.(*corev1.Node).Spec.Unschedulable) }},
		{"event involvedObject.uid", kinds[5], []int32{2, 4},
			func(o message) want { return text(string(o.(*corev1.Event).InvolvedObject.UID)) }},
		{"deployment spec.replicas", kinds[6], []int32{2, 1}, func(o message) want {
			if p := o.(*appsv1.Deployment).Spec.Replicas; p != nil {
				return number(int64(*p))
			}
			return want{}
		}},
		{"job status.succeeded", kinds[7], []int32{3, 5},
			func(o message) want { return number(int64(o.(*batchv1.Job).Status.Succeeded)) }},
		{"no such field", kinds[0], []int32{2, 4000}, func(message) want { return want{} }},
		{"below a missing one", kinds[0], []int32{4000, 1}, func(message) want { return want{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := 0
			for seed := range int64(40) {
				obj := c.new()
				fill(rand.New(rand.NewSource(seed)), obj)
				v, err := wire.Find(encode(t, obj), c.path)
				if err != nil {
					t.Fatal(err)
				}
				if got := (want{v.Found, string(v.Bytes), v.Number}); got != c.want(obj) {
					t.Fatalf("seed %d: %+v, want %+v", seed, got, c.want(obj))
				}
				if v.Found {
					found++
				}
			}
			if c.want(c.new()).found && found == 0 {
				t.Error("never found")
			}
		})
	}
}

// TestFindTwice checks fields that occur twice: Find returns the last value of a scalar, and
// the first value of a repeated message.
func TestFindTwice(t *testing.T) {
	var b []byte
	for _, n := range []uint64{3, 9} {
		b = protowire.AppendTag(b, 7, protowire.VarintType)
		b = protowire.AppendVarint(b, n)
		b = protowire.AppendTag(b, 8, protowire.BytesType)
		b = protowire.AppendString(b, fmt.Sprint("n", n))
	}
	if v, err := wire.Find(b, []int32{7}); err != nil || v.Number != 9 {
		t.Errorf("number: %+v, %v", v, err)
	}
	if v, err := wire.Find(b, []int32{8}); err != nil || string(v.Bytes) != "n3" {
		t.Errorf("bytes: %+v, %v", v, err)
	}
}

func TestEnvelopeIsRuntimeUnknown(t *testing.T) {
	kinds := []struct{ version, kind string }{{"v1", "Pod"}, {"apps/v1", "Deployment"}, {"", ""},
		{"a.very.long.group.example.com/v1alpha1", "Kind"}}
	for _, k := range kinds {
		head := wire.NewEnvelopeHead(k.version, k.kind)
		for _, size := range []int{0, 1, 127, 128, 16383, 16384, 1 << 21} {
			raw := bytes.Repeat([]byte{0x5a}, size)
			unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: k.version, Kind: k.kind}, Raw: raw}
			b, err := unknown.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			want := append([]byte(wire.EnvelopePrefix), b...)
			got := head.Append(nil, raw)
			if !bytes.Equal(got, want) {
				t.Fatalf("%v, %d bytes: envelopes differ", k, size)
			}
			if head.Size(size) != len(got) {
				t.Errorf("%v, %d bytes: Size is %d, of %d", k, size, head.Size(size), len(got))
			}
			if grown := head.Append([]byte("before"), raw); !bytes.Equal(grown, append([]byte("before"), got...)) {
				t.Errorf("%v, %d bytes: Append does not append", k, size)
			}
			var back runtime.Unknown
			if err := back.Unmarshal(got[len(wire.EnvelopePrefix):]); err != nil || !bytes.Equal(back.Raw, raw) ||
				back.APIVersion != k.version || back.Kind != k.kind {
				t.Errorf("%v, %d bytes: the types read another envelope (%v)", k, size, err)
			}
			for _, value := range [][]byte{got, want} {
				env, err := wire.OpenEnvelope(value)
				if err != nil || env.APIVersion != k.version || env.Kind != k.kind || !bytes.Equal(env.Raw, raw) {
					t.Errorf("%v, %d bytes: opened %q %q (%v)", k, size, env.APIVersion, env.Kind, err)
				}
				if alone, err := wire.Raw(value); err != nil || !bytes.Equal(alone, raw) {
					t.Errorf("%v, %d bytes: Raw: %v", k, size, err)
				}
			}
		}
	}
}

func TestEnvelopeNeedsItsPrefix(t *testing.T) {
	for _, value := range []string{"", "k", "k8s", "k8s\x01", "{}", "K8S\x00"} {
		if _, err := wire.OpenEnvelope([]byte(value)); err == nil {
			t.Errorf("%q was opened", value)
		}
		if _, err := wire.Raw([]byte(value)); err == nil {
			t.Errorf("%q has a message", value)
		}
	}
}

func TestListIsWhatTheTypesEncode(t *testing.T) {
	for seed := range int64(30) {
		random := rand.New(rand.NewSource(seed))
		list := corev1.ConfigMapList{}
		list.ResourceVersion = strconv.Itoa(random.Int())
		if random.Intn(2) == 0 {
			list.Continue = "token"
			remaining := 1 + random.Int63n(1e6)
			list.RemainingItemCount = &remaining
		}
		for range random.Intn(5) {
			var m corev1.ConfigMap
			fill(random, &m)
			list.Items = append(list.Items, m)
		}
		want, err := list.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var remaining int64
		if list.RemainingItemCount != nil {
			remaining = *list.RemainingItemCount
		}
		got := wire.AppendListHead(nil, list.ResourceVersion, list.Continue, remaining)
		for i := range list.Items {
			raw := encode(t, &list.Items[i])
			before := len(got)
			got = wire.AppendItemHead(got, len(raw))
			if len(got)-before != wire.ItemHeadSize(len(raw)) {
				t.Errorf("seed %d: the head of %d bytes takes %d, announced %d", seed, len(raw), len(got)-before,
					wire.ItemHeadSize(len(raw)))
			}
			got = append(got, raw...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("seed %d:\n%x\nwant\n%x", seed, got, want)
		}
	}
}

func TestWatchEventIsWhatTheTypesEncode(t *testing.T) {
	for _, kind := range []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"} {
		for _, size := range []int{1, 120, 127, 128, 16000, 16384, 1 << 21} {
			object := bytes.Repeat([]byte{'x'}, size)
			want, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if got := append(wire.WatchEventHead(kind, size), object...); !bytes.Equal(got, want) {
				t.Errorf("%s of %d bytes: %x...", kind, size, got[:min(len(got), 24)])
			}
		}
	}
}

func TestStampJSONIsWhatTheTypesEncode(t *testing.T) {
	filled(t, 30, func(t *testing.T, random *rand.Rand, obj message) {
		doc := itemJSON(t, obj)
		before := bytes.Clone(doc)
		for _, revision := range revisions {
			twin := obj.DeepCopyObject().(message)
			twin.SetResourceVersion(strconv.FormatInt(revision, 10))
			want := itemJSON(t, twin)
			got, err := wire.StampJSON(doc, revision)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("revision %d (%v):\n%s\nwant\n%s", revision, err, got, want)
			}
			if got, err := wire.StampItem(doc, revision); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("StampItem, revision %d (%v):\n%s\nwant\n%s", revision, err, got, want)
			}
			other := revisions[random.Intn(len(revisions))]
			again, err := wire.StampJSON(got, other)
			twin.SetResourceVersion(strconv.FormatInt(other, 10))
			if err != nil || !bytes.Equal(again, itemJSON(t, twin)) {
				t.Fatalf("%d, then %d (%v):\n%s", revision, other, err, again)
			}
			// Space between the tokens changes nothing but the bytes.
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, doc, " \t", "\r\n "); err != nil {
				t.Fatal(err)
			}
			wide, err := wire.StampJSON(spaced.Bytes(), revision)
			if err != nil {
				t.Fatal(err)
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, wide); err != nil || !bytes.Equal(compact.Bytes(), want) {
				t.Fatalf("indented (%v):\n%s", err, wide)
			}
		}
		if !bytes.Equal(doc, before) {
			t.Error("the argument was changed")
		}
	})
}

func itemJSON(t testing.TB, obj message) []byte {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStampJSON(t *testing.T) {
	for doc, want := range map[string]string{
		`{"metadata":{}}`:                     `{"metadata":{"resourceVersion":"7"}}`,
		`{"metadata":{ }}`:                    `{"metadata":{"resourceVersion":"7" }}`,
		`{"metadata":{"name":"a"}}`:           `{"metadata":{"name":"a","resourceVersion":"7"}}`,
		`{"metadata":{"labels":{"uid":"x"}}}`: `{"metadata":{"resourceVersion":"7","labels":{"uid":"x"}}}`,
		`{"metadata":{"name":"a","uid":"u","generation":2}}`: `{"metadata":{"name":"a","uid":"u",` +
			`"resourceVersion":"7","generation":2}}`,
		`{"metadata":{"resourceVersion":"123"},"spec":1}`: `{"metadata":{"resourceVersion":"7"},"spec":1}`,
		`{"metadata":{"resourceVersion":""}}`:             `{"metadata":{"resourceVersion":"7"}}`,
		// A resourceVersion elsewhere, or inside of a string, is not changed.
		`{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"name":"\"resourceVersion\":\"1\""}}`: `{"spec":` +
			`{"metadata":{"resourceVersion":"1"}},"metadata":{"name":"\"resourceVersion\":\"1\"","resourceVersion":"7"}}`,
		`{"metadata":{"annotations":{"resourceVersion":"1"},"name":"a"}}`: `{"metadata":` +
			`{"annotations":{"resourceVersion":"1"},"name":"a","resourceVersion":"7"}}`,
	} {
		got, err := wire.StampJSON([]byte(doc), 7)
		if err != nil || string(got) != want {
			t.Errorf("%s:\n%s (%v), want\n%s", doc, got, err, want)
		}
	}
	for _, doc := range []string{``, `{}`, `[]`, `null`, `{"metadata":null}`, `{"metadata":"x"}`, `{"metadata":[]}`,
		`{"metadata":{`, `{"metadata":{"name"`, `{"metadata":{"name":"a"`, `{"metadata":{]}`} {
		if got, err := wire.StampJSON([]byte(doc), 7); err == nil {
			t.Errorf("%s was stamped: %s", doc, got)
		}
	}
}

// TestMember reads each member of random documents and compares with
// encoding/json.
func TestMember(t *testing.T) {
	filled(t, 20, func(t *testing.T, _ *rand.Rand, obj message) {
		doc := itemJSON(t, obj)
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, doc, "", "  "); err != nil {
			t.Fatal(err)
		}
		for _, d := range [][]byte{doc, spaced.Bytes()} {
			compareMembers(t, d)
		}
	})
}

func compareMembers(t *testing.T, doc []byte) {
	t.Helper()
	var want map[string]json.RawMessage
	if err := json.Unmarshal(doc, &want); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		got, start, end, found, err := wire.Member(doc, name)
		if err != nil || !found || !bytes.Equal(got, value) {
			t.Fatalf("%s: %s (%v, %v), want %s", name, got, found, err, value)
		}
		if !bytes.Equal(doc[start:end], got) {
			t.Fatalf("%s: the span is %d:%d", name, start, end)
		}
	}
	if _, _, _, found, err := wire.Member(doc, "no such member"); found || err != nil {
		t.Fatalf("a member that is not there: %v, %v", found, err)
	}
}

func TestMemberOfTrickyDocuments(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 200)
	for _, doc := range []string{
		`{}`, ` { } `, `{"a":1}`, "{\n\t\"a\" : [ 1 , {\"b\":\"]}\"} ] , \"c\":null}", `{"a":"\\","b":"\"","c":"\\\"}"}`,
		`{"a":-1.5e+30,"b":true,"c":{},"d":[]}`,
		fmt.Sprintf(`{"a":"%s\"%s\\","b":2}`, long[:62], long[:63]), fmt.Sprintf(`{"%s":{"a":"%s"}}`, long, long),
	} {
		compareMembers(t, []byte(doc))
	}
}

func BenchmarkStamp(b *testing.B) {
	for _, c := range []struct {
		name string
		obj  message
	}{{"ConfigMap", benchConfigMap()}, {"Pod", benchPod()}} {
		raw := encode(b, c.obj)
		b.Run(fmt.Sprintf("%s/%dB", c.name, len(raw)), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := wire.Stamp(raw, 123456); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStampJSON(b *testing.B) {
	doc := itemJSON(b, benchPod())
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := wire.StampJSON(doc, 123456); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStampItem(b *testing.B) {
	doc := itemJSON(b, benchPod())
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := wire.StampItem(doc, 123456); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	raw := encode(b, benchPod())
	b.ReportAllocs()
	for b.Loop() {
		if v, err := wire.Find(raw, []int32{2, 10}); err != nil || !v.Found {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkEachLabel(b *testing.B) {
	meta, err := wire.Metadata(encode(b, benchPod()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := wire.EachLabel(meta, func(k, v []byte) { n += len(k) + len(v) }); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations checks that reading allocates nothing, and that stamping allocates only its result.
func TestAllocations(t *testing.T) {
	raw := encode(t, benchPod())
	doc := itemJSON(t, benchPod())
	meta, _ := wire.Metadata(raw)
	path := []int32{2, 10}
	for name, c := range map[string]struct {
		most float64
		run  func()
	}{
		"Stamp":     {1, func() { _, _ = wire.Stamp(raw, 123456) }},
		"StampJSON": {1, func() { _, _ = wire.StampJSON(doc, 123456) }},
		"Find":      {0, func() { _, _ = wire.Find(raw, path) }},
		"EachLabel": {0, func() { _ = wire.EachLabel(meta, func(k, v []byte) {}) }},
	} {
		if n := testing.AllocsPerRun(100, c.run); n > c.most {
			t.Errorf("%s: %v allocations, at most %v", name, n, c.most)
		}
	}
}

func benchMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web-7d9f8c6b5-x2x4z", Namespace: "default", UID: "4dbb2ac1-6a29-4f47-a0a4-0a3a4ae0ae04",
		Labels:      map[string]string{"app": "web", "pod-template-hash": "7d9f8c6b5", "tier": "front"},
		Annotations: map[string]string{"example.com/note": "as many as there are"},
	}
}

func benchConfigMap() message {
	return &corev1.ConfigMap{ObjectMeta: benchMeta(), Data: map[string]string{"config.yaml": "a: b\n"}}
}

func benchPod() message {
	p := &corev1.Pod{ObjectMeta: benchMeta()}
	p.Spec.NodeName = "node-17"
	for i := range 3 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/team/image:v1.2.3",
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
		})
	}
	return p
}
