package archive

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func document(path string, definitions ...string) Document {
	return Document{path, []byte(`{"openapi":"3.0.0","paths":{"/` + path + `/":{}},"components":{"schemas":{` +
		strings.Join(definitions, ",") + `},"securitySchemes":{}}}`)}
}

func example() (v2 []byte, v3 []Document) {
	return []byte(`{"swagger":"2.0","definitions":{"a":{"type":"object"}}}`), []Document{
		document("b", `"c":{"x":1}`, `"a":{"$ref":"#/components/schemas/c"}`),
		document("a", `"a":{"$ref":"#/components/schemas/b"}`, `"b":{"description":"}\"{"}`),
		document("empty"),
		{"none", []byte(`{"openapi":"3.0.0","paths":{},"components":{"securitySchemes":{}}}`)},
	}
}

func TestRoundTrip(t *testing.T) {
	v2, v3 := example()
	data, err := Encode(v2, v3)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.ReadV2(); err != nil || !bytes.Equal(got, v2) {
		t.Errorf("v2: %v %s", err, got)
	}
	for _, d := range v3 {
		if got, err := a.ReadV3(d.Path); err != nil || !bytes.Equal(got, d.JSON) {
			t.Errorf("%s: %v %s", d.Path, err, got)
		}
	}
	if _, err := a.ReadV3("c"); err == nil {
		t.Error("a document that does not exist was read")
	}
	var paths []string
	for _, d := range a.V3() {
		paths = append(paths, d.Path)
	}
	if want := []string{"a", "b", "empty", "none"}; !reflect.DeepEqual(paths, want) {
		t.Errorf("paths %v", paths)
	}
	if i := a.V3()[1]; i.ETag != fmt.Sprintf("%X", sha512.Sum512(v3[0].JSON)) || i.Size != len(v3[0].JSON) {
		t.Errorf("info %+v", i)
	}

	// Two definitions are called "a"; this is the one of document "a".
	members, err := a.Definitions("a")
	if err != nil || len(members) != 2 || string(members[0].Value) != `{"$ref":"#/components/schemas/b"}` ||
		string(members[1].Key) != "b" {
		t.Errorf("definitions %v %q", err, members)
	}
	if _, err := a.Definitions("z"); err == nil {
		t.Error("a definition that does not exist was found")
	}
}

// TestDamage: reading a damaged archive returns an error or another text, and does not panic.
func TestDamage(t *testing.T) {
	v2, v3 := example()
	data, err := Encode(v2, v3)
	if err != nil {
		t.Fatal(err)
	}
	try := func(data []byte) {
		a, err := Open(data)
		if err != nil {
			return
		}
		a.ReadV2()
		a.Definitions("a")
		for _, d := range v3 {
			a.ReadV3(d.Path)
		}
	}
	for i := range data {
		try(data[:i])
		changed := bytes.Clone(data)
		changed[i] ^= 0x41
		try(changed)
	}
}

func TestBuiltinConcurrently(t *testing.T) {
	data, err := os.ReadFile("../builtin.bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 500<<10 {
		t.Errorf("the archive has %d bytes", len(data))
	}
	a, err := Open(data)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, d := range a.V3()[:12] {
				if text, err := a.ReadV3(d.Path); err != nil || !json.Valid(text) {
					t.Errorf("%s: %v", d.Path, err)
				}
			}
		})
	}
	wg.Wait()
	members, err := a.Definitions("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
	if err != nil || len(members) < 4 {
		t.Errorf("%v %d", err, len(members))
	}
	for _, m := range members {
		if !json.Valid(m.Value) || !strings.HasPrefix(string(m.Raw), `"`+string(m.Key)+`":{`) {
			t.Errorf("%.40s", m.Raw)
		}
	}
}

// FuzzMembers compares with the JSON package.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "a" : [ {"x":"}"} , "\"]" ] , "b":null,"c":-1.5e3 } `,
		`{"a":{"b":{}},"":""}`, `[]`, `{"a"`, `{"a":"`, `{"`, `{"a":}`, "{\"a\":1\n}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		members, err := Members(text)
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			return // an invalid text may give any result, but must not panic
		}
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for _, m := range members {
			var key string
			if err := json.Unmarshal(append(append([]byte(`"`), m.Key...), '"'), &key); err != nil {
				t.Fatal(err)
			}
			got[key] = m.Value
			if !bytes.HasPrefix(m.Raw, []byte(`"`+string(m.Key)+`"`)) || !bytes.HasSuffix(m.Raw, m.Value) {
				t.Fatalf("raw %q of %q: %q", m.Raw, m.Key, m.Value)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for key := range want {
			if !bytes.Equal(got[key], want[key]) {
				t.Fatalf("%q: got %q, want %q", key, got[key], want[key])
			}
		}
	})
}
