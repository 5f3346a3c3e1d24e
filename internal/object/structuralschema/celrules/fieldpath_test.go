package celrules

import "testing"

func TestFieldPath(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{
		"a":{"type":"object","properties":{"b":{"type":"string"},"c.d":{"type":"integer"},"e'f":{"type":"boolean"},
			"tab\t":{"type":"string"}}},
		"map":{"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"string"}}}},
		"any":{"type":"object","additionalProperties":true,"x-kubernetes-preserve-unknown-fields":true},
		"list":{"type":"array","items":{"type":"string"}}}}`)
	for _, c := range []struct{ path, want, typ, err string }{
		{path: "", want: "<nil>", typ: "object"},
		{path: ".a", want: "a", typ: "object"},
		{path: ".a.b", want: "a.b", typ: "string"},
		{path: "['a']['b']", want: "a.b", typ: "string"},
		{path: ".a['c.d']", want: "a.c.d", typ: "integer"},
		{path: `.a['e\'f']`, want: "a.e'f", typ: "boolean"},
		{path: `.a['tab\t']`, want: "a.tab\t", typ: "string"},
		{path: ".map.k", want: "map[k]", typ: "object"},
		{path: ".map['k'].x", want: "map[k].x", typ: "string"},
		{path: ".any.k", want: "any[k]"},
		{path: ".any.k.l", err: "does not refer to a valid field"},
		{path: ".none", err: "does not refer to a valid field"},
		{path: ".a.b.c", err: "does not refer to a valid field"},
		{path: ".list[0]", err: "expected single quoted string but got 0"},
		{path: ".list.x", err: "does not refer to a valid field"},
		{path: "a", err: "expected [ or . but got: a"},
		{path: ".", err: "unexpected end of JSON path"},
		{path: "..a", err: "does not refer to a valid field"},
		{path: ".a\n", err: "does not refer to a valid field"},
		{path: ".a[", err: "unexpected end of JSON path"},
		{path: ".a['b'", err: "unexpected end of JSON path"},
		{path: ".a['b'.", err: "expected ] but got ."},
		{path: ".a['b", err: "expected single quoted string but got 'b"},
		{path: ".a[]", err: "expected single quoted string but got ]"},
		{path: `.a['\q']`, err: `invalid string literal: invalid escape char \q`},
	} {
		path, found, err := FieldPath(s, c.path, true)
		switch {
		case err != nil && err.Error() != c.err:
			t.Errorf("%q: %v, want %q", c.path, err, c.err)
		case err == nil && (c.err != "" || path.String() != c.want):
			t.Errorf("%q is %v, want %s%s", c.path, path, c.want, c.err)
		case err == nil && c.typ == "" && found != nil, err == nil && c.typ != "" && (found == nil || found.Type != c.typ):
			t.Errorf("%q leads to %v, want type %q", c.path, found, c.typ)
		}
	}
	if _, _, err := FieldPath(s, ".a['b']", false); err == nil || err.Error() != "array notation is not allowed" {
		t.Errorf("brackets: %v", err)
	}
}
