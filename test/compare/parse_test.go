package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParseFlags(t *testing.T) {
	got := compact(parseFlags(`Usage:
  x [flags]

Generic flags:

      --a string                a text
                                in two lines (default "x")
  -v, --v Level                 number (default 0)
      --old strings             DEPRECATED: gone. (default [a,b])
      --b                       switch (default true)
      --long-name-without-usage string
                                usage (default 1m0s)

Others:
  --text in a sentence
`))
	want := `{"a":{"default":"x","deprecated":false},"b":{"default":"true","deprecated":false},` +
		`"long-name-without-usage":{"default":"1m0s","deprecated":false},"old":{"default":"[a,b]","deprecated":true},` +
		`"v":{"deprecated":false}}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestParseMetrics(t *testing.T) {
	got := compact(parseMetrics([]byte(`# HELP a_seconds [ALPHA] Time
# TYPE a_seconds histogram
a_seconds_bucket{verb="get",le="1"} 1
a_seconds_bucket{verb="get",le="+Inf"} 1
a_seconds_sum{verb="get"} 0.5
a_seconds_count{verb="get"} 1
# HELP b_count Number
# TYPE b_count counter
b_count{z="a,b=\"c\"",code="200"} 1
# HELP c Never
# TYPE c gauge
`)))
	want := `{"a_seconds":{"buckets":{"+Inf":true,"1":true},"help":"[ALPHA] Time","labels":{"verb":true},"type":"histogram"},` +
		`"b_count":{"buckets":{},"help":"Number","labels":{"code,z":true},"type":"counter"}}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestGateHelp(t *testing.T) {
	help := "Options are:\n     kube:A=true|false (ALPHA - default=false)\n     B=true|false (BETA - default=true)\n"
	var got []string
	for _, m := range gateHelp.FindAllStringSubmatch(help, -1) {
		got = append(got, strings.Join(m[1:], " "))
	}
	if !slices.Equal(got, []string{"A ALPHA false", "B BETA true"}) {
		t.Errorf("%v", got)
	}
}

func TestTypeOf(t *testing.T) {
	// Two messages: Unknown{TypeMeta: {apiVersion: "apps/v1", kind: "Job"}, Raw: "x"}.
	message := "k8s\x00\x0a\x0e\x0a\x07apps/v1\x12\x03Job\x12\x01x"
	for _, c := range []struct{ value, apiVersion, kind string }{
		{message, "apps/v1", "Job"},
		{`{"kind":"A","apiVersion":"v1"}`, "v1", "A"},
		{"7", "", ""},
		{"k8s\x00\x0a\xff", "", ""},
		{"k8s\x00\x08\x01", "", ""},
	} {
		apiVersion, kind, ok := typeOf([]byte(c.value))
		if apiVersion != c.apiVersion || kind != c.kind || ok != (c.kind != "") {
			t.Errorf("%q: %s %s %v", c.value, apiVersion, kind, ok)
		}
	}
}

func TestParsePath(t *testing.T) {
	for _, path := range []string{"spec", "spec.containers[0].image", "a[0][1].b"} {
		if got, ok := parsePath(path); !ok || got.String() != path {
			t.Errorf("%s: %s %v", path, got, ok)
		}
	}
	if got, ok := parsePath("metadata.labels[example.com/x]"); !ok || got[2].name != "example.com/x" {
		t.Errorf("%v %v", got, ok)
	}
	for _, path := range []string{"", "<nil>", "a b"} {
		if got, ok := parsePath(path); ok {
			t.Errorf("%q: %s", path, got)
		}
	}
}

// testGenerator has a schema Top with a list of objects, a map, an enumeration and itself.
func testGenerator(t *testing.T) (*generator, map[string]any) {
	t.Helper()
	var document map[string]any
	if err := decode([]byte(`{"components":{"schemas":{"Top":{"type":"object","required":["list"],"properties":{
		"list":{"type":"array","items":{"allOf":[{"$ref":"#/components/schemas/Item"}]}},
		"map":{"type":"object","additionalProperties":{"type":"string"}},
		"again":{"$ref":"#/components/schemas/Top"}}},
		"Item":{"type":"object","required":["mode"],"properties":{"mode":{"type":"string","enum":["","B"]},"n":{"type":"integer"},
		"at":{"type":"string","format":"date-time"}}}}}}`), &document); err != nil {
		t.Fatal(err)
	}
	g := newGenerator(map[string]map[string]any{"x": document})
	return g, g.schemas["Top"]
}

func TestGeneratedValues(t *testing.T) {
	g, top := testGenerator(t)
	if got := compact(g.value(top)); got != `{"list":[{"mode":"B"}]}` {
		t.Errorf("%s", got)
	}
	var lines []string
	for _, f := range g.fields(map[string]any{"$ref": "#/components/schemas/Top"}, 2) {
		lines = append(lines, f.path.String()+"="+compact(f.value))
	}
	want := `list=[{"mode":"B"}] list[0].at="2030-01-02T03:04:05Z" list[0].mode="B" list[0].n=1 map={"a":"x"}`
	if got := strings.Join(lines, " "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestSet sets values in objects: what is missing above is made.
func TestSet(t *testing.T) {
	g, top := testGenerator(t)
	for _, c := range []struct{ object, path, want string }{
		{`{}`, "list[0].n", `{"list":[{"mode":"B","n":9}]}`},
		{`{"list":[{"mode":"A"}]}`, "list[1].n", `{"list":[{"mode":"A"},{"mode":"B","n":9}]}`},
		{`{"map":{"x":"y"}}`, "map[z]", `{"map":{"x":"y","z":9}}`},
		{`{}`, "unknown.n", ""},
		{`{"list":[]}`, "list[3].n", ""},
		{`{"list":{}}`, "list[0].n", ""},
	} {
		var object any
		path, ok := parsePath(c.path)
		if err := decode([]byte(c.object), &object); err != nil || !ok {
			t.Fatal(err, ok)
		}
		got, ok := g.set(object, top, path, 9)
		if ok != (c.want != "") || ok && compact(got) != c.want {
			t.Errorf("%s %s: %s %v, want %s", c.object, c.path, compact(got), ok, c.want)
		}
	}
}

// TestPrepared checks that the beginnings of objects are JSON.
func TestPrepared(t *testing.T) {
	for name, content := range prepared {
		var v map[string]any
		if err := decode([]byte(content), &v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, content := range usual {
		var v any
		if err := decode([]byte(content), &v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNormalize(t *testing.T) {
	s := newServer(keelson, "https://127.0.0.1:35000/", "")
	var object map[string]any
	if err := decode([]byte(`{"metadata":{"uid":"u","resourceVersion":"1","creationTimestamp":"t","generateName":"a-","name":"a-xyz",
		"annotations":{"at":"2030-01-02T03:04:05.123456Z"}},"spec":{"clusterIP":"10.0.3.4","port":35000,"nodePort":31000,"other":80,
		"text":"https://192.0.2.1:35000 is 0a1b2c3d-0000-4000-8000-0123456789ab"}}`), &object); err != nil {
		t.Fatal(err)
	}
	s.normalize(object)
	want := `{"metadata":{"annotations":{"at":"<time>"},"generateName":"a-","name":"a-<generated>"},"spec":{"clusterIP":"<address>",` +
		`"nodePort":"<nodeport>","other":80,"port":"<port>","text":"https://192.0.2.1:<port> is <uid>"}}`
	if got := compact(object); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
