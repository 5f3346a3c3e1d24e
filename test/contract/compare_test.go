package contract

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func mustDecode(t *testing.T, s string) any {
	t.Helper()
	v, err := decodeJSON([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func TestNormalize(t *testing.T) {
	const ns = "ct-12345678-1000001"
	for _, c := range []struct{ in, want string }{
		{`{"uid": "x", "resourceVersion": "12"}`, `{"resourceVersion": "<resourceVersion>", "uid": "<uid>"}`},
		{`{"uid": "", "resourceVersion": 0}`, `{"resourceVersion": 0, "uid": ""}`},
		{`{"resourceVersion": 7}`, `{"resourceVersion": "<resourceVersion>"}`},
		{`{"uid": {"uid": "x"}}`, `{"uid": {"uid": "<uid>"}}`},
		{
			`{"creationTimestamp": "2020-01-01T00:00:00Z", "time": "soon", "deletionTimestamp": null}`,
			`{"creationTimestamp": "<time>", "deletionTimestamp": null, "time": "<time>"}`,
		},
		{`{"renewTime": "2020-01-01T00:00:00.000000Z"}`, `{"renewTime": "<time>"}`},
		{`{"continue": "", "a": {"continue": "abc"}}`, `{"a": {"continue": "<continue>"}, "continue": ""}`},
		{
			`{"nodePort": 31000, "healthCheckNodePort": 0, "port": 31000}`,
			`{"healthCheckNodePort": 0, "nodePort": "<nodeport>", "port": 31000}`,
		},
		{`{"message": "port 31000 and 131000"}`, `{"message": "port <nodeport> and 131000"}`},
		{`{"generateName": "a-", "name": "a-xyz"}`, `{"generateName": "a-", "name": "a-<rand>"}`},
		{`{"generateName": "a-", "name": "b"}`, `{"generateName": "a-", "name": "b"}`},
		{`{"a": "10.0.3.4", "b": "10.1.3.4", "c": "110.0.3.4"}`, `{"a": "<ip>", "b": "10.1.3.4", "c": "110.0.3.4"}`},
		{`{"k-ct-12345678-1000001": "in ct-12345678-1000001/x"}`, `{"k-${ns}": "in ${ns}/x"}`},
		{`"kube-api-access-ab2d9"`, `"kube-api-access-<rand>"`},
		{
			`"{\"resourceVersion\":\"12\"} {\\\"resourceVersion\\\":\\\"3\\\"}"`,
			`"{\"resourceVersion\":\"<resourceVersion>\"} {\\\"resourceVersion\\\":\\\"<resourceVersion>\\\"}"`,
		},
		{`"not decodable revision=1711: x"`, `"not decodable revision=<revision>: x"`},
		{`"0a1b2c3d-0000-4000-8000-0123456789ab gone"`, `"<uid> gone"`},
		{
			`{"cells": ["a", "5d", "3h2m", "<invalid>", "1/1", "2 (3m ago)", 5]}`,
			`{"cells": ["a", "<age>", "<age>", "<age>", "1/1", "2 (<age> ago)", 5]}`,
		},
		{`{"ages": ["5d"]}`, `{"ages": ["5d"]}`},
		{
			`{"kind": "Status", "message": "x", "details": {"causes": [{"field": "b"}, {"field": "a"}]}}`,
			`{"details": {"causes": [{"field": "a"}, {"field": "b"}]}, "kind": "Status", "message": "<2 causes>"}`,
		},
		{
			`{"kind": "Status", "message": "x", "details": {"causes": [{"field": "b"}]}}`,
			`{"details": {"causes": [{"field": "b"}]}, "kind": "Status", "message": "x"}`,
		},
		{
			`{"kind": "Other", "message": "x", "details": {"causes": [2, 1]}}`,
			`{"details": {"causes": [2, 1]}, "kind": "Other", "message": "x"}`,
		},
		{`[true, null, 1.5]`, `[true, null, 1.5]`},
	} {
		if got := text(normalize(mustDecode(t, c.in), ns)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		// The recorded responses are normalized; normalizing them again changes nothing.
		if got := text(normalize(mustDecode(t, c.want), ns)); got != c.want {
			t.Errorf("%s is normalized to %s", c.want, got)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		want, got string
		paths     []string
	}{
		{`{"a": 1, "b": [1, {"c": "x"}]}`, `{"a": 1, "b": [1, {"c": "x"}]}`, nil},
		{`{"a": 1}`, `{"a": 2}`, []string{".a"}},
		{`{"a": 1}`, `{"b": 1}`, []string{".a", ".b"}},
		{`{"a": null}`, `{}`, []string{".a"}},
		{`{"a": {}}`, `{"a": []}`, []string{".a"}},
		{`{"a": null}`, `{"a": {}}`, []string{".a"}},
		{`[1, 2]`, `[1]`, []string{"[]"}},
		{`[1, {"x": [1, 2]}, 3]`, `[0, {"x": [1, 3]}, 3]`, []string{"[0]", "[1].x[1]"}},
		{`1`, `1.0`, []string{""}},
		{`1.50`, `1.5`, nil},
		{`1`, `"1"`, []string{""}},
		{`true`, `1`, []string{""}},
		{`"x"`, `{"x": 1}`, []string{""}},
	} {
		var paths []string
		for _, d := range diff("", mustDecode(t, c.want), mustDecode(t, c.got)) {
			paths = append(paths, d.path)
		}
		if !slices.Equal(paths, c.paths) {
			t.Errorf("%s and %s differ at %q, want %q", c.want, c.got, paths, c.paths)
		}
	}
}

func TestDrop(t *testing.T) {
	v := mustDecode(t, `{"items": [{"status": {"a": 1, "b": 2}}, {"status": {"a": 1}}, 3], "a": 1}`)
	drop(v, strings.Split("items.status.a", "."))
	drop(v, strings.Split("nothing.here", "."))
	if got, want := text(v), `{"a": 1, "items": [{"status": {"b": 2}}, {"status": {}}, 3]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCompare(t *testing.T) {
	answer := Answer{Status: 200, Type: "application/json", Body: map[string]any{"a": "b"}, Warning: []string{"w"}}
	change := func(f func(*Answer)) Answer {
		a := answer
		f(&a)
		return a
	}
	for name, c := range map[string]struct {
		got          Answer
		code         bool
		full, status int
	}{
		"same":        {answer, true, 0, 0},
		"parameters":  {change(func(a *Answer) { a.Type = "application/json;stream=watch" }), true, 0, 0},
		"status":      {change(func(a *Answer) { a.Status = 201; a.Body = nil }), false, 0, 0},
		"body":        {change(func(a *Answer) { a.Body = nil }), true, 1, 0},
		"type":        {change(func(a *Answer) { a.Type = "text/plain" }), true, 1, 0},
		"warning":     {change(func(a *Answer) { a.Warning = nil }), true, 1, 0},
		"retry after": {change(func(a *Answer) { a.RetryAfter = "1" }), true, 1, 0},
	} {
		code, ds := compare(compareFull, answer, c.got)
		if code != c.code || len(ds) != c.full {
			t.Errorf("%s: %v %v", name, code, ds)
		}
		if code, ds := compare(compareStatus, answer, c.got); code != c.code || len(ds) != c.status {
			t.Errorf("%s, status alone: %v %v", name, code, ds)
		}
	}
}

func TestExpand(t *testing.T) {
	env := environment{
		"ns": "n1",
		"a":  mustDecode(t, `{"metadata": {"resourceVersion": "7", "generation": 2}, "items": [{"x": true}]}`),
		"s2": "plain",
	}
	for in, want := range map[string]string{
		`"${ns}"`: `"n1"`,
		`"/${ns}/${a.metadata.resourceVersion}?x=${a.metadata.generation}"`: `"/n1/7?x=2"`,
		`"${a.metadata.generation}"`:                                        `2`,
		`"${a.items.0.x} ${a.items.0.x}"`:                                   `"true true"`,
		`"${a.items.0}"`:                                                    `{"x": true}`,
		`"${a.items.1.x}"`:                                                  `"${a.items.1.x}"`,
		`"-${b.c}-${a}-${s2}"`:                                              `"-${b.c}-${a}-plain"`,
		`{"k-${ns}": ["${ns}", 1]}`:                                         `{"k-n1": ["n1", 1]}`,
	} {
		if got := text(env.expand(mustDecode(t, in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	in := map[string]any{
		"b": []any{}, "a": "\"\\\n\r\t\b\f\x01/é\U0001F600\x7f", "c": map[string]any{}, "d": json.Number("1.50"),
	}
	want := `{"a": "\"\\\n\r\t\b\f\u0001/\u00e9\ud83d\ude00\u007f", "b": [], "c": {}, "d": 1.50}`
	if got := text(in); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"/api/v1/x?labelSelector=a in (b)": "/api/v1/x?labelSelector=a%20in%20(b)",
		"/x?a=%zz&b;c":                     "/x?a=%zz&b%3Bc",
		"/é#":                              "/%C3%A9%23",
	} {
		if got := quote(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		body, contentType string
		watch             bool
		want              string
	}{
		{`{"a": 1}`, "application/json", false, `{"a": 1}`},
		{`{"a": 1} x`, "application/json", false, `"{\"a\": 1} x"`},
		{`{"a": 1}`, "text/plain", false, `"{\"a\": 1}"`},
		{"k8s\x00rest", "application/vnd.kubernetes.protobuf", false, `"<binary 6b387300>"`},
		{"", "application/vnd.kubernetes.protobuf", false, `"<0 bytes>"`},
		{"{\"a\": 1}\n\n{\"b\"\n", "application/json", true, `[{"a": 1}, "{\"b\""]`},
		{"", "application/json", true, `[]`},
	} {
		if got := text(parse([]byte(c.body), c.contentType, c.watch)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.body, got, c.want)
		}
	}
}
