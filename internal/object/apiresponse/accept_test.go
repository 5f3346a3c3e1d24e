package apiresponse

import (
	"reflect"
	"testing"
)

func TestParseAccept(t *testing.T) {
	for header, want := range map[string][]string{
		"":                                  {"*/*"},
		"*":                                 {"*/*"},
		"application/json":                  {"application/json"},
		"text/html, */*;q=0.1, a/b;q=0.5":   {"text/html", "a/b", "*/*"},
		"*/*, application/*, a/b":           {"a/b", "application/*", "*/*"},
		"a/b, a/b;as=Table":                 {"a/b", "a/b"},
		"nonsense,,;q=1, a/b":               {"a/b"},
		"application/json;q=x,text/html":    {"application/json", "text/html"},
		"  application/json ; charset=utf8": {"application/json"},
	} {
		var got []string
		for _, c := range ParseAccept(header) {
			got = append(got, c.Type+"/"+c.Subtype)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	if c := ParseAccept("a/b, a/b;as=Table"); c[1].Params["as"] != "Table" {
		t.Error("parameters changed the order in which ranges were sent")
	}
}

func TestNegotiate(t *testing.T) {
	for header, want := range map[string]string{
		"": JSON, "*/*": JSON, "application/*": JSON, YAML: YAML,
		Protobuf + "," + JSON: Protobuf, "text/html": "", "application/json;as=Table;v=v1;g=meta.k8s.io": "",
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml": YAML,
		"application/json;charset=utf-8":                                 JSON,
	} {
		if got, ok := Negotiate(ParseAccept(header), MediaTypes()); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", header, got, ok, want)
		}
	}
}

func FuzzParseAccept(f *testing.F) {
	f.Add("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*;q=0.1")
	f.Fuzz(func(t *testing.T, header string) {
		clauses := ParseAccept(header)
		for i := range clauses {
			if clauses[i].Type == "" || clauses[i].Subtype == "" {
				t.Errorf("%q: an empty range", header)
			}
			if i > 0 && clauses[i].Q > clauses[i-1].Q {
				t.Errorf("%q: not in order of weight", header)
			}
		}
	})
}
