package wire_test

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Each target calls its function with the input inside of a larger array and with the input in
// an array of its own (see embedded). A function that reads beyond the input returns different
// results, or panics for the array of its own.

// embedded returns two copies of data. inside is a part of a larger array: other bytes are
// before it, and behind it within its capacity. alone is an array of its own.
func embedded(data []byte) (inside, alone []byte) {
	const around = 32
	big := bytes.Repeat([]byte{0x0a}, around+len(data)+around)
	copy(big[around:], data)
	return big[around : around+len(data)], bytes.Clone(data)[:len(data):len(data)]
}

func protoSeeds(f *testing.F) {
	random := rand.New(rand.NewSource(1))
	for _, empty := range kinds {
		obj := empty()
		fill(random, obj)
		raw, err := obj.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		if len(raw) < 4000 {
			f.Add(raw)
			f.Add(raw[:len(raw)/2])
			f.Add(raw[:len(raw)-1])
		}
	}
	for _, s := range []string{
		"", "\x0a", "\x0a\x00", "\x0a\x02\x32\x00", "\x0a\x05\x32\x00", "\x32\x00\x0a\x00", "\x0b\x0c",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",                  // a length that overflows
		"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",              // a length of 2^63 (similar to CVE-2021-3121)
		"\x0a\x03\x32\x05a", "\x0a\x02\x30\x07", "\x00\x00", "\x0c", // the last ends a group that did not begin
		"\x0a\x08\x5a\x06\x0a\x01k\x12\x01v", "\x0a\x04\x5a\x02\x0a\x05",
	} {
		f.Add([]byte(s))
	}
}

// repeats reports whether a message contains a field more than once. Then the Go types merge
// the values or use the last one, but package wire uses the first one.
func repeats(message []byte, field protowire.Number) bool {
	n := 0
	for len(message) > 0 {
		num, _, size := protowire.ConsumeField(message)
		if size < 0 {
			return true
		}
		if num == field {
			n++
		}
		message = message[size:]
	}
	return n > 1
}

func FuzzStamp(f *testing.F) {
	protoSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		inside, alone := embedded(data)
		got, err := wire.Stamp(alone, 4711)
		same, serr := wire.Stamp(inside, 4711)
		if (err == nil) != (serr == nil) || !bytes.Equal(got, same) {
			t.Fatalf("bytes beyond the message were read: %x (%v), %x (%v)", got, err, same, serr)
		}
		if !bytes.Equal(alone, data) {
			t.Fatal("the message was changed")
		}
		var before metav1.PartialObjectMetadata
		if before.Unmarshal(data) != nil || repeats(data, 1) {
			return
		}
		meta, merr := wire.Metadata(data)
		if merr != nil || repeats(meta, 6) {
			return
		}
		var after metav1.PartialObjectMetadata
		if err != nil || after.Unmarshal(got) != nil {
			t.Fatalf("a message that the types read was not stamped: %v", err)
		}
		before.ResourceVersion = "4711"
		a, _ := before.Marshal()
		b, _ := after.Marshal()
		if !bytes.Equal(a, b) {
			t.Fatalf("stamping changed more:\n%x\nwant\n%x", b, a)
		}
	})
}

func FuzzFind(f *testing.F) {
	protoSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, path := range [][]int32{nil, {1}, {1, 1}, {1, 6}, {1, 11, 2}, {2, 10}, {2, 2, 1}, {3, 1}} {
			inside, alone := embedded(data)
			got, err := wire.Find(alone, path)
			same, serr := wire.Find(inside, path)
			if (err == nil) != (serr == nil) || got.Found != same.Found || got.Number != same.Number ||
				!bytes.Equal(got.Bytes, same.Bytes) {
				t.Fatalf("%v: bytes beyond the message were read", path)
			}
		}
		var pod corev1.Pod
		if pod.Unmarshal(data) != nil || repeats(data, 2) {
			return
		}
		spec, err := wire.Find(data, []int32{2})
		if err != nil || repeats(spec.Bytes, 10) {
			return
		}
		if v, err := wire.Find(data, []int32{2, 10}); err != nil || string(v.Bytes) != pod.Spec.NodeName {
			t.Fatalf("spec.nodeName is %q (%v), want %q", v.Bytes, err, pod.Spec.NodeName)
		}
	})
}

func FuzzEachLabel(f *testing.F) {
	protoSeeds(f)
	meta, _ := wire.Metadata(encode(f, benchPod()))
	f.Add(meta)
	f.Fuzz(func(t *testing.T, data []byte) {
		collect := func(meta []byte) (all []string, err error) {
			err = wire.EachLabel(meta, func(k, v []byte) { all = append(all, string(k), string(v)) })
			return all, err
		}
		inside, alone := embedded(data)
		got, err := collect(alone)
		same, serr := collect(inside)
		if (err == nil) != (serr == nil) || len(got) != len(same) {
			t.Fatal("bytes beyond the message were read")
		}
		for i := range got {
			if got[i] != same[i] {
				t.Fatal("bytes beyond the message were read")
			}
		}
	})
}

func FuzzOpenEnvelope(f *testing.F) {
	raw := encode(f, benchConfigMap())
	value := wire.NewEnvelopeHead("v1", "ConfigMap").Append(nil, raw)
	for _, v := range [][]byte{value, value[:len(value)/2], value[:5], value[:4], value[:3], nil} {
		f.Add(v)
	}
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Add([]byte("k8s\x00\x0a\x04\x0a\x09v1\x12\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		inside, alone := embedded(data)
		got, err := wire.OpenEnvelope(alone)
		same, serr := wire.OpenEnvelope(inside)
		if (err == nil) != (serr == nil) || !bytes.Equal(got.Raw, same.Raw) || got.Kind != same.Kind ||
			got.APIVersion != same.APIVersion {
			t.Fatal("bytes beyond the envelope were read")
		}
		only, rerr := wire.Raw(alone)
		if (rerr == nil) != (err == nil) || err == nil && !bytes.Equal(only, got.Raw) {
			t.Fatalf("Raw and OpenEnvelope differ: %v, %v", rerr, err)
		}
		if len(data) < 4 {
			return
		}
		var unknown runtime.Unknown
		if string(data[:4]) != wire.EnvelopePrefix || unknown.Unmarshal(data[4:]) != nil {
			return
		}
		if repeats(data[4:], 1) {
			return
		}
		if err != nil || !bytes.Equal(got.Raw, unknown.Raw) {
			t.Fatalf("the types read %x, OpenEnvelope %x (%v)", unknown.Raw, got.Raw, err)
		}
	})
}

func jsonSeeds(f *testing.F) {
	f.Add(itemJSON(f, benchPod()))
	f.Add(itemJSON(f, benchConfigMap()))
	for _, s := range []string{
		``, `{`, `}`, `{}`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":"\`, `{"a":"\"`, `{"a":[`, `{"a":{]`,
		`[1]`, `"a"`,
		`{"metadata":{}}`, `{"metadata":{`, `{"metadata":{"resourceVersion":`,
		`{"metadata":{"name":"a","resourceVersion":"1"}}`,
		`{"metadata" : { "name" : "a" , "labels" : { } } , "x" : [ 1 , 2 ] }`, "\t{\r\n}", `{"metadata":{"uid":"\\"}}`,
	} {
		f.Add([]byte(s))
	}
}

func FuzzMember(f *testing.F) {
	jsonSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		inside, alone := embedded(data)
		got, start, end, found, err := wire.Member(alone, "metadata")
		same, _, _, sfound, serr := wire.Member(inside, "metadata")
		if (err == nil) != (serr == nil) || found != sfound || !bytes.Equal(got, same) {
			t.Fatal("bytes beyond the document were read")
		}
		if found && (start < 0 || end > len(data) || start > end || !bytes.Equal(data[start:end], got)) {
			t.Fatalf("the span is %d:%d of %d", start, end, len(data))
		}
		want, ok := plainObject(data)
		if !ok {
			return
		}
		value, has := want["metadata"]
		if err != nil || found != has || !bytes.Equal(got, value) {
			t.Fatalf("%s (%v, %v), want %s (%v)", got, found, err, value, has)
		}
	})
}

// plainObject decodes a JSON object like those of encoders: no key occurs twice in an object or
// has escapes. It returns false for other documents.
func plainObject(doc []byte) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil || members == nil || !singleKeys(doc) {
		return nil, false
	}
	return members, true
}

// singleKeys reports whether a document is valid, has no escapes, and no object in it has the same key twice.
func singleKeys(doc []byte) bool {
	if bytes.Contains(doc, []byte(`\`)) || !json.Valid(doc) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	return singleKeysOf(d)
}

func singleKeysOf(d *json.Decoder) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	switch token {
	case json.Delim('{'):
		seen := map[any]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil || seen[key] || !singleKeysOf(d) {
				return false
			}
			seen[key] = true
		}
		_, err = d.Token()
	case json.Delim('['):
		for d.More() {
			if !singleKeysOf(d) {
				return false
			}
		}
		_, err = d.Token()
	}
	return err == nil
}

func FuzzStampJSON(f *testing.F) {
	jsonSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		inside, alone := embedded(data)
		got, err := wire.StampJSON(alone, 4711)
		same, serr := wire.StampJSON(inside, 4711)
		if (err == nil) != (serr == nil) || !bytes.Equal(got, same) {
			t.Fatal("bytes beyond the document were read")
		}
		if !bytes.Equal(alone, data) {
			t.Fatal("the document was changed")
		}
		doc, ok := plainObject(data)
		if !ok {
			return
		}
		var meta map[string]json.RawMessage
		if json.Unmarshal(doc["metadata"], &meta) != nil || meta == nil {
			if err == nil {
				t.Fatalf("without metadata: %s", got)
			}
			return
		}
		meta["resourceVersion"] = json.RawMessage(`"4711"`)
		after, ok := plainObject(got)
		if err != nil || !ok || len(after) != len(doc) {
			t.Fatalf("%s (%v)", got, err)
		}
		var stamped map[string]json.RawMessage
		if json.Unmarshal(after["metadata"], &stamped) != nil || !sameMembers(stamped, meta) {
			t.Fatalf("metadata %s, want %v", after["metadata"], meta)
		}
		delete(after, "metadata")
		delete(doc, "metadata")
		if !sameMembers(after, doc) {
			t.Fatalf("%s: more than metadata changed", got)
		}
	})
}

func sameMembers(a, b map[string]json.RawMessage) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || !bytes.Equal(v, w) {
			return false
		}
	}
	return len(a) == len(b)
}

// FuzzStampTree compares StampTree with decoding the tree, setting the resourceVersion and encoding it again.
func FuzzStampTree(f *testing.F) {
	for _, doc := range []string{
		`{"metadata":{}}`, `{"apiVersion":"a/v1","kind":"K","metadata":{"name":"x","uid":"u"},"spec":{}}`,
		`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"annotations":{"a":"b"},"resourceVersion":"7","selfLink":"s"}}`,
		`{"metadata":{"uid":"u"}}`, `{"metadata":{"zebra":1}}`, `{"metadata":{"name":"n","resourceVersions":"x"}}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var tree map[string]any
		if json.Unmarshal(doc, &tree) != nil {
			t.Skip()
		}
		meta, ok := tree["metadata"].(map[string]any)
		if !ok {
			t.Skip()
		}
		sorted, err := json.Marshal(tree)
		if err != nil {
			t.Skip()
		}
		got, err := wire.StampTree(sorted, 4711)
		if err != nil {
			t.Fatalf("%s: %v", sorted, err)
		}
		meta["resourceVersion"] = "4711"
		want, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s\nstamped  %s\nencoded  %s", sorted, got, want)
		}
	})
}
