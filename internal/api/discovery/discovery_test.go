package discovery

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
)

const aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// reference returns the recorded responses of kube-apiserver 1.36, by path.
func reference(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	f, err := os.Open("testdata/reference.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]json.RawMessage{}
	if err := json.NewDecoder(z).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// kindsOf declares the kinds that the recorded resource lists show, one for each
// resource and version.
func kindsOf(t *testing.T, documents map[string]json.RawMessage) []*registry.Kind {
	t.Helper()
	var versions []schema.GroupVersion
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for path, raw := range documents {
		var list metav1.APIResourceList
		if strings.Contains(path, " ") || json.Unmarshal(raw, &list) != nil || list.Kind != "APIResourceList" {
			continue
		}
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, gv)
		lists[gv] = &list
	}
	// storage finds the version that a hash stands for.
	storage := func(kind, hash string) schema.GroupVersion {
		for _, gv := range versions {
			if registry.StorageVersionHash(gv.Group, gv.Version, kind) == hash {
				return gv
			}
		}
		for _, v := range []string{"v1beta1", "v1beta2"} {
			for _, gv := range versions {
				if registry.StorageVersionHash(gv.Group, v, kind) == hash {
					return schema.GroupVersion{Group: gv.Group, Version: v}
				}
			}
		}
		t.Errorf("storage version hash %s of %s is of no known version", hash, kind)
		return schema.GroupVersion{}
	}
	var kinds []*registry.Kind
	for gv, list := range lists {
		var last *registry.Kind
		for _, r := range list.APIResources {
			name, sub, isSub := strings.Cut(r.Name, "/")
			if isSub {
				s := registry.Subresource{Name: sub, Verbs: r.Verbs}
				if r.Kind != last.Name || r.Group != "" {
					s.GVK = schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
					if r.Version == "" {
						s.GVK.Group, s.GVK.Version = gv.Group, gv.Version
					}
				}
				last.Subresources = append(last.Subresources, s)
				continue
			}
			k := &registry.Kind{
				Names: registry.Names{
					Group: gv.Group, Resource: name, Singular: r.SingularName, Name: r.Kind,
					Namespaced: r.Namespaced, ShortNames: r.ShortNames, Categories: r.Categories,
				},
				Requests: registry.Requests{Verbs: r.Verbs},
				Versions: []registry.Version{{Name: gv.Version}},
			}
			if r.StorageVersionHash != "" {
				stored := storage(r.Kind, r.StorageVersionHash)
				k.Storage.Path, k.Storage.Version = name, stored.Version
				if stored.Group != gv.Group {
					k.Group, k.Versions[0].Group = stored.Group, gv.Group
				}
			}
			kinds = append(kinds, k)
			last = k
		}
	}
	return kinds
}

// directoryOf returns a directory with all enabled versions of the kinds. It needs no registry.
func directoryOf(kinds []*registry.Kind) *directory.Directory {
	d := directory.New()
	for _, k := range kinds {
		for i := range k.Versions {
			if k.Versions[i].Disabled {
				continue
			}
			gv := k.GroupVersion(&k.Versions[i])
			d.Put(&directory.Resource{
				GVR:      gv.WithResource(k.Resource),
				Describe: func() []metav1.APIResource { return k.APIResources(gv) },
			})
		}
	}
	return d
}

func get(h http.Handler, path, accept string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	h.ServeHTTP(w, r)
	return w
}

func TestDocumentsEqualKubeAPIServers(t *testing.T) {
	documents := reference(t)
	t.Run("declared as recorded", func(t *testing.T) { compareDocuments(t, documents, kindsOf(t, documents)) })
	t.Run("built in", func(t *testing.T) { compareDocuments(t, documents, resource.Kinds(features.Gates{})) })
}

func compareDocuments(t *testing.T, documents map[string]json.RawMessage, kinds []*registry.Kind) {
	h := New(directoryOf(kinds), nil, "127.0.0.1:36443")
	compared := 0
	for path, want := range documents {
		accept := ""
		request := path
		if root, ok := strings.CutSuffix(path, " (aggregated v2)"); ok {
			request, accept = root, aggregatedJSON
		}
		if !strings.HasPrefix(request, "/api") {
			continue
		}
		w := get(h, request, accept)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
			continue
		}
		var got, expected any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := json.Unmarshal(want, &expected); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, expected) {
			a, _ := json.MarshalIndent(got, "", " ")
			b, _ := json.MarshalIndent(expected, "", " ")
			t.Errorf("%s differs\ngot  %s\nwant %s", path, firstDifference(string(a), string(b)),
				firstDifference(string(b), string(a)))
		}
		compared++
	}
	if compared < 40 {
		t.Errorf("only %d documents compared", compared)
	}
}

func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return a[max(0, i-200):min(len(a), i+200)]
}

func TestNegotiation(t *testing.T) {
	documents := reference(t)
	h := New(directoryOf(kindsOf(t, documents)), nil, "127.0.0.1:36443")
	const fine = "only the following media types are accepted: application/json, application/yaml, " +
		"application/vnd.kubernetes.protobuf"
	const coarse = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, " +
		"application/vnd.kubernetes.protobuf"
	for _, c := range []struct {
		path, accept string
		status       int
		typ, message string
	}{
		{"/api", "*/*", 200, apiresponse.JSON, ""},
		{"/api", "application/yaml", 200, apiresponse.YAML, ""},
		{"/apis", "application/vnd.kubernetes.protobuf", 200, apiresponse.Protobuf, ""},
		{"/apis", aggregatedJSON, 200, aggregatedJSON, ""},
		{"/apis", "application/json," + aggregatedJSON, 200, aggregatedJSON, ""},
		{"/apis", aggregatedJSON + ";q=0.1,application/json", 200, aggregatedJSON, ""},
		{"/apis", aggregatedJSON + ";profile=nopeer", 200, aggregatedJSON, ""},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", 406, apiresponse.JSON, fine},
		{"/apis", "application/json;v=v2;as=APIGroupDiscoveryList", 406, apiresponse.JSON, fine},
		{"/apis/apps", aggregatedJSON, 406, apiresponse.JSON, fine},
		{"/apis/apps/v1", aggregatedJSON, 406, apiresponse.JSON, fine},
		{"/apis/apps", "text/html", 406, apiresponse.JSON, fine},
		{"/apis/apps/v1", "text/html", 406, apiresponse.JSON, coarse},
		{"/api", "text/html", 406, apiresponse.JSON, coarse},
		{"/api/v2", "", 404, apiresponse.JSON, "the server could not find the requested resource"},
		{"/apis/apps/v2", "", 404, apiresponse.JSON, "the server could not find the requested resource"},
		{"/apis//", "", 404, "text/plain; charset=utf-8", ""},
		{"/apis//apps", "", 404, "text/plain; charset=utf-8", ""},
		{"/apis/none", "", 404, "text/plain; charset=utf-8", ""},
		{"/apis/none/v1", "", 404, "text/plain; charset=utf-8", ""},
	} {
		w := get(h, c.path, c.accept)
		if w.Code != c.status || w.Header().Get("Content-Type") != c.typ {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.accept, w.Code, w.Header().Get("Content-Type"), c.status, c.typ)
		}
		if c.message == "" {
			continue
		}
		var s metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Message != c.message {
			t.Errorf("%s %s: message %q, want %q", c.path, c.accept, s.Message, c.message)
		}
	}
}

func TestProtobufIsTheSameObject(t *testing.T) {
	h := New(directoryOf(kindsOf(t, reference(t))), nil, "127.0.0.1:36443")
	w := get(h, "/apis/apps/v1", apiresponse.Protobuf)
	body, ok := strings.CutPrefix(w.Body.String(), "k8s\x00")
	if !ok {
		t.Fatalf("no envelope: %q", w.Body)
	}
	var u runtime.Unknown
	if err := u.Unmarshal([]byte(body)); err != nil {
		t.Fatal(err)
	}
	var got, want metav1.APIResourceList
	if err := got.Unmarshal(u.Raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(get(h, "/apis/apps/v1", "").Body.Bytes(), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.APIResources, want.APIResources) || u.Kind != want.Kind {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestETagSavesTheBody(t *testing.T) {
	d := directoryOf(kindsOf(t, reference(t)))
	h := New(d, nil, "127.0.0.1:36443")
	etag := get(h, "/apis", aggregatedJSON).Header().Get("ETag")
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", aggregatedJSON)
	r.Header.Set("If-None-Match", etag)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if etag == "" || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("etag %q: %d, %d bytes", etag, w.Code, w.Body.Len())
	}
	d.Put(widgets("v1"))
	if after := get(h, "/apis", aggregatedJSON).Header().Get("ETag"); after == etag {
		t.Error("the ETag does not change with the groups")
	}
}

// widgets is a custom resource that is established.
func widgets(version string) *directory.Resource {
	return &directory.Resource{
		GVR:    schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"},
		Source: directory.Custom,
		Describe: func() []metav1.APIResource {
			return []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: registry.AllVerbs}}
		},
	}
}

// announced is a custom resource that is not served yet.
func announced(version string) *directory.Resource {
	r := widgets(version)
	r.Describe, r.Announced = nil, true
	return r
}

func TestGroupsComeAndGo(t *testing.T) {
	d := directory.New()
	h := New(d, nil, "127.0.0.1:6443")
	const notFound = "404 page not found\n"
	check := func(step, path string, status int, body string) {
		t.Helper()
		if w := get(h, path, ""); w.Code != status || !strings.Contains(w.Body.String(), body) {
			t.Errorf("%s: %s: %d %s, want %d and %q", step, path, w.Code, w.Body, status, body)
		}
	}
	check("before", "/apis/example.com/v1", 404, notFound)
	d.Put(announced("v1"))
	check("announced", "/apis/example.com", 200, `"groupVersion":"example.com/v1"`)
	check("announced", "/apis/example.com/v1", 404, notFound)
	d.Put(widgets("v1"))
	d.Put(widgets("v1beta1"))
	check("served", "/apis/example.com/v1", 200, `"widgets"`)
	check("served", "/apis/example.com", 200, `"preferredVersion":{"groupVersion":"example.com/v1",`)
	check("served", "/apis/example.com/v2", 404, notFound)
	d.Remove(widgets("v1").GVR, directory.Custom)
	check("one version", "/apis/example.com/v1", 404, notFound)
	check("one version", "/apis/example.com", 200, `"preferredVersion":{"groupVersion":"example.com/v1beta1",`)
	d.Remove(widgets("v1beta1").GVR, directory.Custom)
	check("removed", "/apis/example.com", 404, notFound)
}

// registrations are fixed APIServices.
type registrations []Registration

func (r registrations) Registrations() []Registration { return r }
func (r registrations) Changes() int64                { return 1 }

// TestOrderWhileAPIServicesAreMade checks that versions of custom resources are in their order before all of them have
// an APIService.
func TestOrderWhileAPIServicesAreMade(t *testing.T) {
	d := directory.New()
	first := Registration{GroupPriority: 1000, VersionPriority: 100}
	first.GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1alpha1"}
	h := New(d, registrations{first}, "127.0.0.1:6443")
	d.Put(widgets("v1"))
	d.Put(widgets("v1alpha1"))
	const want = `"preferredVersion":{"groupVersion":"example.com/v1",`
	if w := get(h, "/apis/example.com", ""); !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s, want %s", w.Body, want)
	}
}

// TestOrder checks that custom resources have the order of the names of their definitions: "a-b.example.com" is before
// "a.example.com".
func TestOrder(t *testing.T) {
	d := directory.New()
	for _, name := range []string{"a", "a-b", "ab"} {
		r := widgets("v1")
		r.GVR.Resource = name
		r.Describe = func() []metav1.APIResource { return []metav1.APIResource{{Name: name}} }
		d.Put(r)
	}
	var list metav1.APIResourceList
	w := get(New(d, nil, ""), "/apis/example.com/v1", "")
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	if want := []string{"a-b", "a", "ab"}; !slices.Equal(names, want) {
		t.Errorf("the order is %v, want %v", names, want)
	}
}

// TestBuiltInGroupsShowTheirOwn checks that discovery does not show a custom resource in a built-in group, as in
// kube-apiserver.
func TestBuiltInGroupsShowTheirOwn(t *testing.T) {
	d := directory.New()
	builtIn := widgets("v1")
	builtIn.Source = directory.BuiltIn
	d.Put(builtIn)
	d.Put(widgets("v2"))
	h := New(d, nil, "")
	if w := get(h, "/apis/example.com", ""); w.Code != 200 || strings.Contains(w.Body.String(), "v2") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(h, "/apis/example.com/v2", ""); w.Code != 404 || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
