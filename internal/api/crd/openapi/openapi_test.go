package openapi

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util/proto"
	kubespec "k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
)

func readGzip(t testing.TB, file string, into any) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func newSource(t testing.TB) *Source {
	t.Helper()
	builtin, err := openapi.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return New(builtin)
}

// definitionOf returns the Definition with an encoded spec.
func definitionOf(t testing.TB, name string, text json.RawMessage) Definition {
	t.Helper()
	var s struct {
		Group    string
		Versions []struct {
			Name   string
			Served bool
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	d := Definition{Name: name, Group: s.Group, Spec: string(text)}
	for _, v := range s.Versions {
		if v.Served {
			d.Versions = append(d.Versions, v.Name)
		}
	}
	return d
}

func decode(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// differences returns the places at which two JSON values differ.
func differences(at string, got, want any) []string {
	g, gotMap := got.(map[string]any)
	w, wantMap := want.(map[string]any)
	if !gotMap || !wantMap {
		if reflect.DeepEqual(got, want) {
			return nil
		}
		return []string{fmt.Sprintf("%s: got %.300v, want %.300v", at, got, want)}
	}
	var out []string
	for key := range g {
		if _, found := w[key]; !found {
			out = append(out, fmt.Sprintf("%s.%s: not wanted, is %.300v", at, key, g[key]))
		}
	}
	for key := range w {
		if value, found := g[key]; found {
			out = append(out, differences(at+"."+key, value, w[key])...)
		} else {
			out = append(out, fmt.Sprintf("%s.%s: missing, want %.300v", at, key, w[key]))
		}
	}
	return out
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	for _, d := range differences(what, got, want) {
		t.Error(d)
	}
}

// TestRecorded compares the documents with those that kube-apiserver 1.36 returned.
func TestRecorded(t *testing.T) {
	var recorded []struct {
		Name, Path string
		Spec       json.RawMessage
		Document   map[string]any
	}
	readGzip(t, "recorded.json.gz", &recorded)
	if len(recorded) == 0 {
		t.Fatal("nothing recorded")
	}
	for _, r := range recorded {
		s := newSource(t)
		d := definitionOf(t, r.Name, r.Spec)
		if version := r.Path[strings.LastIndex(r.Path, "/")+1:]; !slices.Contains(d.Versions, version) {
			d.Versions = append(d.Versions, version) // it became served later
		}
		s.Set(d)
		text, _, err := s.V3(t.Context(), r.Path)
		if err != nil {
			t.Fatal(err)
		}
		got := decode(t, text)
		if r.Document["paths"] == nil {
			delete(got, "paths") // not recorded
		}
		same(t, r.Path, got, r.Document)
	}
}

// TestReference compares the documents with those that the builder of kube-apiserver 1.36 makes of definitions with
// all features of schemas (testdata/reference.json.gz: from
// k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder). To keep the file small, only the first document
// is complete: in the others built-in definitions are replaced by true, and paths that equal those of another
// version by null.
func TestReference(t *testing.T) {
	var reference []struct {
		Name          string
		Spec          json.RawMessage
		NonStructural bool
		Documents     map[string]struct{ V2, V3 map[string]any }
	}
	readGzip(t, "reference.json.gz", &reference)
	builtin, err := openapi.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	text, err := builtin.ReadV2()
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, text)
	first := reference[0].Documents["v1"].V3["components"].(map[string]any)["schemas"].(map[string]any)
	compared := 0
	for _, r := range reference {
		s := newSource(t)
		d := definitionOf(t, r.Name, r.Spec)
		d.NonStructural = r.NonStructural
		s.Set(d)
		for version, want := range r.Documents {
			compared++
			path := pathOf(schema.GroupVersion{Group: d.Group, Version: version})
			text, _, err := s.V3(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, text)
			if want.V3["paths"] == nil {
				got["paths"] = nil
			}
			schemas := want.V3["components"].(map[string]any)["schemas"].(map[string]any)
			for name, s := range schemas {
				if s == true {
					schemas[name] = first[name]
				}
			}
			same(t, path+" v3", got, want.V3)

			if text, err = s.V2(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			got = decode(t, text)
			if want.V2["paths"] != nil {
				same(t, path+" v2 paths", got["paths"], want.V2["paths"])
			}
			// Other references point to built-in definitions.
			definitions := want.V2["definitions"].(map[string]any)
			for name := range definitions {
				if strings.HasPrefix(name, "io.k8s.") {
					if _, found := all["definitions"].(map[string]any)[name]; !found {
						t.Errorf("%s is not built in", name)
					}
					delete(definitions, name)
				}
			}
			same(t, path+" v2 definitions", got["definitions"], definitions)
			for name, p := range want.V2["parameters"].(map[string]any) {
				same(t, "parameter "+name, all["parameters"].(map[string]any)[name], p)
			}
		}
	}
	if compared < 10 {
		t.Errorf("%d documents compared", compared)
	}
}

const crontab = `{"group":"stable.example.com","names":{"plural":"crontabs","kind":"CronTab"},"scope":"Namespaced","versions":[
	{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"type":"object","description":"A cron tab.","properties":{
		"spec":{"type":"object","description":"What is wanted.","required":["cron"],"properties":{
			"cron":{"type":"string","description":"When."},"port":{"x-kubernetes-int-or-string":true},"free":{"type":"object",
				"x-kubernetes-preserve-unknown-fields":true},
			"maybe":{"type":"array","nullable":true,"items":{"type":"object","properties":{"x":{"type":"integer"}}}},"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}}}}]}`

// TestClients reads the documents through the HTTP handler as kubectl does.
func TestClients(t *testing.T) {
	s := newSource(t)
	s.Set(definitionOf(t, "crontabs.stable.example.com", json.RawMessage(crontab)))
	h, err := openapi.New(openapi.Options{Sources: []openapi.Source{s}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(url string) []byte {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", url, w.Code)
		}
		return w.Body.Bytes()
	}
	const path = "/openapi/v3/apis/stable.example.com/v1"
	if index := string(get("/openapi/v3")); !strings.Contains(index, path+"?hash=") {
		t.Error("not in the index")
	}
	document3, err := openapi_v3.ParseDocument(get(path))
	if err != nil {
		t.Fatal(err)
	}
	models3, err := proto.NewOpenAPIV3Data(document3)
	if err != nil {
		t.Fatal(err)
	}
	document2, err := openapi_v2.ParseDocument(get("/openapi/v2"))
	if err != nil {
		t.Fatal(err)
	}
	models2, err := proto.NewOpenAPIData(document2)
	if err != nil {
		t.Fatal(err)
	}
	for version, models := range map[string]proto.Models{"v2": models2, "v3": models3} {
		kind, ok := models.LookupModel("com.example.stable.v1.CronTab").(*proto.Kind)
		if !ok {
			t.Fatalf("%s: no model", version)
		}
		if kind.GetDescription() != "A cron tab." || kind.Fields["kind"] == nil {
			t.Errorf("%s: %v", version, kind)
		}
		fields := kind.Fields["spec"].(*proto.Kind)
		if fields.Fields["cron"].GetDescription() != "When." || !fields.IsRequired("cron") {
			t.Errorf("%s: %v", version, fields)
		}
		if description := kind.Fields["metadata"].GetDescription(); !strings.HasPrefix(
			description, "Standard object's metadata.",
		) {
			t.Errorf("%s: %s", version, description)
		}
	}
	var typed3 spec3.OpenAPI
	if err := json.Unmarshal(get(path), &typed3); err != nil {
		t.Error(err)
	}
	var typed2 kubespec.Swagger
	if err := json.Unmarshal(get("/openapi/v2"), &typed2); err != nil ||
		typed2.Definitions["com.example.stable.v1.CronTabList"].Type[0] != "object" {
		t.Error(err)
	}
}

func TestDocuments(t *testing.T) {
	s := newSource(t)
	etags := func() map[string]string {
		out := map[string]string{}
		documents := s.Documents()
		if !slices.IsSortedFunc(documents, func(a, b openapi.Document) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("%v", documents)
		}
		for _, d := range documents {
			out[strings.TrimPrefix(d.Path, "apis/")] = d.ETag
		}
		return out
	}
	set := func(name, group, note string, versions ...string) {
		s.Set(
			Definition{
				Name: name + "." + group, Group: group, Versions: versions,
				Spec: fmt.Sprintf(`{"names":{"plural":%q},"note":%q}`, name, note),
			},
		)
	}
	if len(etags()) != 0 {
		t.Error("documents of nothing")
	}
	set("as", "x.io", "", "v1", "v2")
	set("bs", "x.io", "", "v1")
	set("cs", "a.io", "", "v1")
	first := etags()
	if len(first) != 3 || first["x.io/v1"] == first["x.io/v2"] {
		t.Errorf("%v", first)
	}
	before := s.Documents()
	set("bs", "x.io", "", "v1")
	if after := s.Documents(); &before[0] != &after[0] {
		t.Error("nothing changed, but the list did")
	}
	set("bs", "x.io", "changed", "v1")
	second := etags()
	if second["x.io/v1"] == first["x.io/v1"] || second["x.io/v2"] != first["x.io/v2"] ||
		second["a.io/v1"] != first["a.io/v1"] {
		t.Errorf("%v, before %v", second, first)
	}
	set("bs", "x.io", "", "v1")
	if third := etags(); !reflect.DeepEqual(third, first) {
		t.Errorf("%v, at first %v", third, first)
	}
	set("as", "x.io", "", "v1")
	s.Remove("cs.a.io")
	s.Remove("cs.a.io")
	if last := etags(); len(last) != 1 || last["x.io/v1"] == "" {
		t.Errorf("%v", last)
	}
	for _, path := range []string{"apis/x.io/v2", "apis/a.io/v1", "apis/x.io", "api/v1", ""} {
		if _, _, err := s.V3(t.Context(), path); !errors.Is(err, openapi.ErrGone) {
			t.Errorf("%q: %v", path, err)
		}
		if _, err := s.V2(t.Context(), path); !errors.Is(err, openapi.ErrGone) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestUpdatesAreWhole compares the list after random changes with one that is built from scratch.
func TestUpdatesAreWhole(t *testing.T) {
	s := newSource(t)
	now := map[string]Definition{}
	for i := range 500 {
		name := fmt.Sprintf("r%d.g%d.io", i*7%40, i*7%40%11)
		if i%5 == 4 {
			delete(now, name)
			s.Remove(name)
		} else {
			d := Definition{
				Name: name, Group: fmt.Sprintf("g%d.io", i*7%40%11), Versions: []string{"v1", fmt.Sprintf("v%d", 2+i%3)},
				Spec: fmt.Sprint(i),
			}
			now[name] = d
			s.Set(d)
		}
		if i%3 > 0 {
			continue
		}
		other := newSource(t)
		for _, d := range now {
			other.Set(d)
		}
		if got, want := s.Documents(), other.Documents(); !slices.Equal(got, want) {
			t.Fatalf("after %d changes %v, want %v", i, got, want)
		}
	}
}

// TestETags: the list names each document by its ETag.
func TestETags(t *testing.T) {
	s := newSource(t)
	s.Set(definitionOf(t, "crontabs.stable.example.com", json.RawMessage(crontab)))
	_, etag, err := s.V3(t.Context(), "apis/stable.example.com/v1")
	if err != nil || etag == "" || etag != s.Documents()[0].ETag {
		t.Errorf("%q %v", etag, err)
	}
}

func TestBadDefinitions(t *testing.T) {
	for _, text := range []string{
		`{`, `{"versions":[{"name":"v2"}]}`, `{"versions":[{"name":"v1","schema":{"openAPIV3Schema":"x"}}]}`,
	} {
		s := newSource(t)
		s.Set(Definition{Name: "bad.x.io", Group: "x.io", Versions: []string{"v1"}, Spec: text})
		if _, _, err := s.V3(t.Context(), "apis/x.io/v1"); err == nil ||
			!strings.HasPrefix(err.Error(), "definition bad.x.io: ") {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := s.V2(t.Context(), "apis/x.io/v1"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestConcurrency(t *testing.T) {
	s := newSource(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				d := definitionOf(t, fmt.Sprintf("crontabs%d.stable.example.com", i), json.RawMessage(crontab))
				d.Spec += strings.Repeat(" ", j)
				s.Set(d)
				for _, document := range s.Documents() {
					if _, _, err := s.V3(t.Context(), document.Path); err != nil && !errors.Is(err, openapi.ErrGone) {
						t.Error(err)
					}
				}
				s.Remove(d.Name)
			}
		})
	}
	wg.Wait()
}

// FuzzSchemas checks that any schema gives documents that kubectl's parsers accept, or an error.
func FuzzSchemas(f *testing.F) {
	var reference []struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema json.RawMessage }
			}
		}
	}
	readGzip(f, "reference.json.gz", &reference)
	for _, r := range reference {
		for _, v := range r.Spec.Versions {
			f.Add([]byte(v.Schema.OpenAPIV3Schema))
		}
	}
	f.Add(
		[]byte(
			`{"type":"object","properties":{"a":null,"b":[1]},"items":{},"allOf":[null,1],"required":[1],` +
				`"not":{"x-kubernetes-int-or-string":true}}`,
		),
	)
	s := newSource(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s.Set(Definition{Name: "as.x.io", Group: "x.io", Versions: []string{"v1"},
			Spec: `{"names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","schema":{"openAPIV3Schema":` + string(text) +
				`}}]}`})
		for _, read := range []func() ([]byte, error){
			func() ([]byte, error) { text, _, err := s.V3(t.Context(), "apis/x.io/v1"); return text, err },
			func() ([]byte, error) { return s.V2(t.Context(), "apis/x.io/v1") },
		} {
			if document, err := read(); err == nil && !json.Valid(document) {
				t.Errorf("%s", document)
			}
		}
	})
}

// many returns a source with n definitions of about 4 KB.
func many(b *testing.B, n int) *Source {
	s := newSource(b)
	for i := range n {
		s.Set(big(i, ""))
	}
	return s
}

func big(i int, note string) Definition {
	group := fmt.Sprintf("g%d.example.com", i/5)
	var properties strings.Builder
	for p := range 40 {
		fmt.Fprintf(
			&properties,
			`,"field%d":{"type":"string","description":"This is what field %d is about, in some words.","maxLength":%d}`, p, p,
			p+1,
		)
	}
	return Definition{Name: fmt.Sprintf(
		"widgets%d.%s", i, group,
	), Group: group, Versions: []string{"v1"}, Spec: fmt.Sprintf(
		`{"note":%q,"group":%q,"names":{"plural":"widgets%d","kind":"Widget%d"},"scope":"Namespaced",`+
			`"versions":[{"name":"v1","served":true,"subresources":{"status":{}},`+
			`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",`+
			`"properties":{"a":{"type":"string"}%s}}}}}}]}`,
		note, group, i, i, properties.String())}
}

func BenchmarkSet(b *testing.B) {
	s := newSource(b)
	d := big(1, "")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d.NonStructural = i%2 == 0
		s.Set(d)
	}
}

// BenchmarkChange measures one change followed by a read of the list, with 5,000 definitions.
func BenchmarkChange(b *testing.B) {
	s := many(b, 5000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d := big(i%5000, "")
		d.NonStructural = i/5000%2 == 0
		s.Set(d)
		s.Documents()
	}
}

// BenchmarkIndex measures /openapi/v3 of 5,000 definitions in 5,000 groups, each time after a change.
func BenchmarkIndex(b *testing.B) {
	s := newSource(b)
	for i := range 5000 {
		d := big(i*5, "")
		s.Set(d)
	}
	h, err := openapi.New(openapi.Options{Sources: []openapi.Source{s}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Set(big(0, fmt.Sprint(i)))
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/openapi/v3", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

// BenchmarkV3 measures a document of five definitions.
func BenchmarkV3(b *testing.B) {
	s := many(b, 5)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.V3(context.Background(), "apis/g0.example.com/v1"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkV2 measures the version 2 document of 1,000 definitions.
func BenchmarkV2(b *testing.B) {
	s := many(b, 1000)
	h, err := openapi.New(openapi.Options{Sources: []openapi.Source{s}, CacheBytes: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
		if n, err := io.Copy(io.Discard, w.Body); w.Code != http.StatusOK || n < 1<<20 || err != nil {
			b.Fatal(w.Code, n, err)
		}
	}
}
