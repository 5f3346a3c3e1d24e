package crd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/crd"
	"github.com/keelson-dev/keelson/internal/api/crd/convert"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// world is a server of custom resources with a store in memory.
type world struct {
	t       testing.TB
	handler http.Handler
	server  *httptest.Server
	store   storage.Store
	custom  *crd.Server
	// resources is the directory of the served resources.
	resources *directory.Directory
	// forgotten has the names that Options.Forget was called with.
	forgotten sync.Map
	// behind is locked by a test that stops the server from processing changes of definitions: Forget, which the
	// server calls for a removed definition, locks it.
	behind sync.Mutex
	// conversions counts the objects that the converter has converted. broken makes the converter fail.
	conversions atomic.Int64
	calls       atomic.Int64 // calls of the converter
	broken      atomic.Bool
	// lossy makes the converter lose spec.color. oneWay makes it fail for v2, after spared calls that still
	// succeed.
	lossy, oneWay atomic.Bool
	spared        atomic.Int64
	ahead         atomic.Int64 // how far the clock of custom resources is ahead, in nanoseconds
	// hanging makes the converter wait until its context ends.
	hanging atomic.Bool
	// hold is the next place at which a request stops; nil stops none.
	hold atomic.Pointer[hold]
}

// A hold stops the first request that reaches a place: the admission of a write, or the conversion to a version.
// The hold closes reached and waits for release.
type hold struct {
	place            string
	reached, release chan struct{}
}

// inAdmission is the place before the object of a write is stored: the write can still be refused after it.
const inAdmission = "admission"

func (w *world) holdAt(place string) *hold {
	h := &hold{place: place, reached: make(chan struct{}), release: make(chan struct{})}
	w.hold.Store(h)
	return h
}

// pass waits if there is a hold at the place.
func (w *world) pass(place string) {
	if h := w.hold.Load(); h != nil && h.place == place && w.hold.CompareAndSwap(h, nil) {
		close(h.reached)
		<-h.release
	}
}

// admit is an admission plug-in that admits everything.
func (w *world) admit(_ context.Context, a *admission.Attributes) error {
	if a.Resource.Resource == "widgets" {
		w.pass(inAdmission)
	}
	return nil
}

// Convert implements convert.Converter. The field spec.size of v1 is spec.length in v2.
func (w *world) Convert(
	ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion,
) ([]*unstructured.Unstructured, error) {
	w.calls.Add(1)
	w.conversions.Add(int64(len(objs)))
	if w.broken.Load() {
		return nil, errors.New("conversion webhook failed")
	}
	if w.hanging.Load() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Second):
			w.t.Error("nothing has ended a conversion")
			return nil, errors.New("conversion webhook hangs")
		}
	}
	w.pass(to.Version)
	if w.oneWay.Load() && to.Version == "v2" && w.spared.Add(-1) < 0 {
		return nil, errors.New("conversion webhook failed for v2")
	}
	for _, obj := range objs {
		if w.lossy.Load() {
			unstructured.RemoveNestedField(obj.Object, "spec", "color")
		}
		from, into := "size", "length"
		if to.Version == "v1" {
			from, into = into, from
		}
		if v, ok, _ := unstructured.NestedInt64(obj.Object, "spec", from); ok {
			unstructured.RemoveNestedField(obj.Object, "spec", from)
			if err := unstructured.SetNestedField(obj.Object, v, "spec", into); err != nil {
				return nil, err
			}
		}
		obj.SetAPIVersion(to.String())
	}
	return objs, nil
}

// newWorld starts a server whose store contains stored.
func newWorld(t testing.TB, stored ...storage.Op) *world {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) > 0 {
		if _, err := store.Commit(t.Context(), storage.Txn{Ops: stored}); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, store: store}
	c := cache.New(cache.Options{Store: store})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	chain := admission.NewChain(nil, admission.Plugin{Name: "Hold", Validate: w.admit})
	writes := write.New(reg, chain, nil, nil)
	verbs := rest.New(rest.Options{Registry: reg, Writes: writes})
	resources := directory.New()
	resources.PutBuiltIn(reg, verbs.BuiltIn)
	w.resources = resources
	w.custom = crd.New(crd.Options{
		Registry: reg, Rest: verbs, Exclusive: true, Client: client.New(resources, writes, "kube-apiserver"), Writes: writes,
		Resources: resources,
		Now:       func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
		Forget: func(name string) {
			w.behind.Lock()
			defer w.behind.Unlock()
			w.forgotten.Store(name, true)
		},
		Converters: func(string, *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error) { return w, nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.custom.Run(ctx) })
	groups := discovery.New(resources, nil, "")
	groups.SetCatchUp(w.custom.CatchUp)
	w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		info := request.ParseInfo(r)
		r = r.WithContext(
			request.WithUser(
				request.WithInfo(r.Context(), info), &request.User{Name: "admin", Groups: []string{request.GroupMasters}},
			),
		)
		switch {
		case !info.IsResource():
			groups.ServeHTTP(rw, r)
		case w.custom.Serves(info):
			w.custom.ServeHTTP(rw, r)
		case resources.HasSource(info.Group, directory.BuiltIn):
			resources.ServeHTTP(rw, r)
		default:
			http.NotFound(rw, r)
		}
	})
	w.server = httptest.NewServer(w.handler)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
		cancel()
		running.Wait()
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.custom.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// answer is the status and the body of a response.
type answer struct {
	code int
	body map[string]any
	text string
}

func (w *world) do(method, path, contentType, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequest(method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Header.Set("Content-Type", contentType)
	response, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{code: response.StatusCode, text: string(text)}
	_ = json.Unmarshal(text, &a.body) // stays nil if the text is not a JSON object
	return a
}

func (w *world) get(path string) answer { w.t.Helper(); return w.do("GET", path, "", "") }

func (w *world) must(want int, method, path, contentType, body string) answer {
	w.t.Helper()
	a := w.do(method, path, contentType, body)
	if a.code != want {
		w.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.code, want, a.text)
	}
	return a
}

// await repeats the request until the response has the status.
func (w *world) await(want int, path string) answer {
	w.t.Helper()
	var a answer
	wait.Seen(w.t, fmt.Sprintf("the status %d of %s", want, path), func() (bool, string) {
		a = w.get(path)
		return a.code == want, fmt.Sprintf("%d %.1000s", a.code, a.text)
	})
	return a
}

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
)

// definition returns the definition of widgets with these versions, each a JSON object.
func definition(group string, versions ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.%s"},
		"spec":{"group":%q,"scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[%s]}}`, group, group, strings.Join(versions, ","))
}

func versionOf(name, storage, field string) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":%s,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{%q:{"type":"integer"},"color":{"type":"string"}}},
		"status":{"type":"object","properties":{"phase":{"type":"string"}}}}}}}`, name, storage, field)
}

func widget(group, version, name, spec string) string {
	return fmt.Sprintf(
		`{"apiVersion":"%s/%s","kind":"Widget","metadata":{"name":%q},"spec":%s}`, group, version, name, spec,
	)
}

func TestStoredVersionNeedsNoConversion(t *testing.T) {
	w := newWorld(t)
	w.must(
		201, "POST", definitions, asJSON,
		definition("a.example.com", versionOf("v1", "true", "size"), versionOf("v2", "false", "length")),
	)
	const v1, v2 = "/apis/a.example.com/v1/namespaces/x/widgets", "/apis/a.example.com/v2/namespaces/x/widgets"
	w.await(200, v1)
	w.broken.Store(true)
	w.must(201, "POST", v1, asJSON, widget("a.example.com", "v1", "a", `{"size":1}`))
	w.must(200, "GET", v1, "", "")
	w.must(200, "GET", v1+"/a", "", "")
	w.must(200, "PATCH", v1+"/a", asMerge, `{"spec":{"size":2}}`)
	w.must(200, "PATCH", v1+"/a/status", asMerge, `{"status":{"phase":"Ready"}}`)
	w.must(200, "DELETE", v1+"/a", "", "")
	if n := w.conversions.Load(); n != 0 {
		t.Errorf("%d objects were converted for the stored version", n)
	}
	// A failing converter affects only requests that need a conversion.
	w.must(201, "POST", v1, asJSON, widget("a.example.com", "v1", "b", `{"size":1}`))
	w.must(500, "GET", v2+"/b", "", "")
	w.must(500, "POST", v2, asJSON, widget("a.example.com", "v2", "c", `{"length":1}`))
	w.must(200, "GET", v1+"/b", "", "")
}

// TestConversionEndsWithItsRequest reads objects through a converter that hangs: the conversion ends when the
// context of the request ends.
func TestConversionEndsWithItsRequest(t *testing.T) {
	w := newWorld(t)
	const group = "j.example.com"
	w.must(
		201, "POST", definitions, asJSON,
		definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length")),
	)
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "a", `{"size":1}`))
	w.hanging.Store(true)
	for _, path := range []string{v2, v2 + "/a"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, "GET", path, nil))
		cancel()
		if answer.Code < 500 {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}

// TestBrokenConversionKeepsNothing deletes objects and reads their metadata in a version that they cannot be
// converted to. The namespace controller and the garbage collector do the same, because they use the preferred
// version.
func TestBrokenConversionKeepsNothing(t *testing.T) {
	w := newWorld(t)
	const group = "i.example.com"
	w.must(
		201, "POST", definitions, asJSON,
		definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length")),
	)
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	for _, name := range []string{"a", "b", "c"} {
		w.must(201, "POST", v1, asJSON, widget(group, "v1", name, `{"size":1}`))
	}
	w.must(200, "PATCH", v1+"/c", asMerge, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.broken.Store(true)
	w.must(500, "GET", v2, "", "")
	r, err := http.NewRequest("GET", w.server.URL+v2, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	response, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var list struct{ Items []any }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != 200 ||
		len(list.Items) != 3 {
		t.Errorf("metadata: %d, %d items, %v", response.StatusCode, len(list.Items), err)
	}
	w.must(200, "DELETE", v2+"/a", "", "")
	w.must(404, "GET", v1+"/a", "", "")
	// The deleted object cannot be shown in this version, but an error would hide that it was deleted.
	if a := w.must(200, "DELETE", v2, "", ""); a.body["kind"] != "Status" || a.body["status"] != "Success" {
		t.Errorf("the answer of a deleted collection that cannot be shown: %s", a.text)
	}
	if a := w.must(200, "DELETE", v2+"/c", "", ""); a.body["kind"] != "Status" || a.body["status"] != "Success" {
		t.Errorf("the answer of a deleted object that cannot be shown: %s", a.text)
	}
	w.must(404, "GET", v1+"/b", "", "")
	held := w.must(200, "GET", v1+"/c", "", "")
	if at, _, _ := unstructured.NestedString(held.body, "metadata", "deletionTimestamp"); at == "" {
		t.Errorf("an object with a finalizer is not on its way out: %s", held.text)
	}
	if n := w.conversions.Load(); n == 0 {
		t.Error("nothing was converted: the test shows nothing")
	}
}

// beginPeriod sets the clock of custom resources to the time at which a period of conversions begins.
func (w *world) beginPeriod() {
	const period = 20 * time.Second
	w.ahead.Store(int64(period) - time.Now().UnixNano()%int64(period))
}

// webhook returns the definition with a conversion webhook.
func webhook(definition string) string {
	return strings.Replace(definition, `"spec":{`, `"spec":{"conversion":{"strategy":"Webhook","webhook":{`+
		`"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/convert"}}},`, 1)
}

// TestAnErrorHidesNoWrite sends writes in a version that their result cannot be converted to. A write that is
// answered with an error must not have changed anything.
func TestAnErrorHidesNoWrite(t *testing.T) {
	w := newWorld(t)
	const group = "l.example.com"
	w.must(201, "POST", definitions, asJSON,
		definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length")))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	w.must(201, "POST", v2, asJSON, widget(group, "v2", "a", `{"length":1}`))
	before := w.must(200, "GET", v1+"/a", "", "").text
	w.oneWay.Store(true)
	w.must(500, "POST", v2, asJSON, widget(group, "v2", "b", `{"length":1}`))
	w.must(404, "GET", v1+"/b", "", "")
	for _, spared := range []int64{0, 1} { // with 1, the current object can be read in v2, and the new one cannot
		w.spared.Store(spared)
		w.must(500, "PATCH", v2+"/a", asMerge, `{"spec":{"length":2}}`)
	}
	if after := w.must(200, "GET", v1+"/a", "", "").text; after != before {
		t.Errorf("a write that was answered 500 has changed %s to %s", before, after)
	}
}

// TestWritesConvertAnew reads objects while the converter loses a field, and writes them after the converter works
// again.
func TestWritesConvertAnew(t *testing.T) {
	w := newWorld(t)
	const group = "m.example.com"
	w.must(201, "POST", definitions, asJSON,
		webhook(definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "a", `{"size":1,"color":"red"}`))
	color := func(a answer) string {
		text, _, _ := unstructured.NestedString(a.body, "spec", "color")
		return text
	}
	w.beginPeriod()
	w.lossy.Store(true)
	w.must(200, "GET", v2, "", "")
	if got := color(w.must(200, "GET", v2+"/a", "", "")); got != "" {
		t.Fatalf("the converter lost nothing: %q", got)
	}
	w.lossy.Store(false)
	w.conversions.Store(0)
	w.must(200, "GET", v2, "", "")
	w.must(200, "GET", v2+"/a", "", "")
	if n := w.conversions.Load(); n != 0 {
		t.Errorf("%d conversions for what the cache has", n)
	}
	w.must(200, "PATCH", v2+"/a", asMerge, `{"metadata":{"labels":{"a":"b"}}}`)
	if got := color(w.must(200, "GET", v1+"/a", "", "")); got != "red" {
		t.Errorf("after a patch of a label through the other version the stored color is %q, want red", got)
	}

	// After a minute reads use the working converter, also if the object does not change.
	w.lossy.Store(true)
	w.must(200, "PATCH", v1+"/a", asMerge, `{"metadata":{"labels":{"a":"c"}}}`)
	w.must(200, "GET", v2, "", "")
	w.lossy.Store(false)
	w.ahead.Add(int64(time.Minute))
	for _, path := range []string{v2 + "/a", v2} {
		if a := w.must(200, "GET", path, "", ""); !strings.Contains(a.text, "red") {
			t.Errorf("%s a minute after the converter was mended: %s", path, a.text)
		}
	}
	// After a change of the webhook's configuration, the old conversions are not used any more.
	w.lossy.Store(true)
	w.must(200, "PATCH", v1+"/a", asMerge, `{"metadata":{"labels":{"a":"d"}}}`)
	w.must(200, "GET", v2, "", "")
	w.lossy.Store(false)
	w.must(200, "PATCH", definitions+"/widgets."+group, asMerge,
		`{"spec":{"conversion":{"webhook":{"clientConfig":{"url":"https://127.0.0.1:2/convert"}}}}}`)
	if a := w.must(200, "GET", v2+"/a", "", ""); !strings.Contains(a.text, "red") {
		t.Errorf("after the configuration of the webhook was changed: %s", a.text)
	}
}

// TestWritesOfDefaultsAndPruning writes unchanged objects after the schema has gained a default or lost a field.
// Afterwards the stored object must be the same as the one that reads return.
func TestWritesOfDefaultsAndPruning(t *testing.T) {
	w := newWorld(t)
	const group = "n.example.com"
	schema := func(properties string) string {
		return `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{` + properties + `}}}}}}`
	}
	const size, color = `"size":{"type":"integer"}`, `"color":{"type":"string"}`
	w.must(201, "POST", definitions, asJSON, definition(group, schema(size+","+color)))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	w.must(201, "POST", path, asJSON, widget(group, "v1", "a", `{"size":1,"color":"red"}`))
	version := func(a answer) string {
		text, _, _ := unstructured.NestedString(a.body, "metadata", "resourceVersion")
		return text
	}
	change := func(properties string) {
		t.Helper()
		w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, `{"spec":{"versions":[`+schema(properties)+`]}}`)
	}
	const withDefault = `"shape":{"type":"string","default":"round"}`
	for _, step := range []string{size, size + "," + withDefault} {
		change(step)
		before := w.must(200, "GET", path+"/a", "", "")
		first := w.must(200, "PATCH", path+"/a", asMerge, `{}`)
		if version(first) == version(before) {
			t.Errorf("with %s nothing was written", step)
		}
		for range 2 {
			if again := w.must(200, "PUT", path+"/a", asJSON, first.text); version(again) != version(first) {
				t.Errorf("with %s an equal object was written again", step)
			}
		}
	}
	change(size + "," + color + `,"shape":{"type":"string"}`)
	if a := w.must(200, "GET", path+"/a", "", ""); strings.Contains(a.text, "red") || !strings.Contains(a.text, "round") {
		t.Errorf("the older schema reads %s, want the default and not the pruned field", a.text)
	}
}

func TestListConvertsOnce(t *testing.T) {
	w := newWorld(t)
	w.must(
		201, "POST", definitions, asJSON,
		definition("b.example.com", versionOf("v1", "true", "size"), versionOf("v2", "false", "length")),
	)
	const v1, v2 = "/apis/b.example.com/v1/namespaces/x/widgets", "/apis/b.example.com/v2/namespaces/x/widgets"
	w.await(200, v1)
	const objects = 20
	for i := range objects {
		w.must(201, "POST", v1, asJSON, widget("b.example.com", "v1", fmt.Sprint("w", i), fmt.Sprintf(`{"size":%d}`, i)))
	}
	for range 3 {
		items := w.must(200, "GET", v2, "", "").body["items"].([]any)
		if len(items) != objects {
			t.Fatalf("%d items, want %d", len(items), objects)
		}
		for _, item := range items {
			if _, ok, _ := unstructured.NestedFloat64(item.(map[string]any), "spec", "length"); !ok ||
				item.(map[string]any)["apiVersion"] != "b.example.com/v2" {
				t.Fatalf("item %v", item)
			}
		}
	}
	if n := w.conversions.Load(); n != objects {
		t.Errorf("%d objects were converted, want %d: each once, and kept", n, objects)
	}
}

// TestOneConversionForAList counts the calls of the converter for lists in a version that is not stored.
func TestOneConversionForAList(t *testing.T) {
	const objects = 20
	for name, list := range map[string]struct {
		method, query, accept string
		items                 int
	}{
		"whole":    {"GET", "", "application/json", objects},
		"by label": {"GET", "?labelSelector=half%3Dfirst", "application/json", objects / 2},
		"by field": {"GET", "?fieldSelector=spec.color%3Dred", "application/json", objects / 2},
		"by label and field": {
			"GET", "?labelSelector=half%3Dfirst&fieldSelector=spec.color%3Dred", "application/json", objects / 4,
		},
		"page by field": {"GET", "?fieldSelector=spec.color%3Dred&limit=3", "application/json", 3},
		"table":         {"GET", "", "application/json;as=Table;g=meta.k8s.io;v=v1", objects},
		"table by field": {"GET", "?fieldSelector=spec.color%3Dred", "application/json;as=Table;g=meta.k8s.io;v=v1",
			objects / 2},
		"YAML": {"GET", "", "application/yaml", -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			const group = "k.example.com"
			selectableFields := `{"selectableFields":[{"jsonPath":".spec.color"}],`
			first := versionOf("v1", "true", "size")
			second := selectableFields + `"additionalPrinterColumns":[{"name":"Color","type":"string",` +
				`"jsonPath":".spec.color"}],` +
				versionOf("v2", "false", "length")[1:]
			w.must(201, "POST", definitions, asJSON, definition(group, first, second))
			const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
			w.await(200, v1)
			for i := range objects {
				color, half := []string{"red", "blue"}[i%2], []string{"first", "second"}[i*2/objects]
				body := widget(group, "v1", fmt.Sprintf("w%02d", i), fmt.Sprintf(`{"size":%d,"color":%q}`, i, color))
				body = strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"labels":{"half":%q},`, half), 1)
				w.must(201, "POST", v1, asJSON, body)
			}
			w.calls.Store(0)
			r, err := http.NewRequest(list.method, w.server.URL+v2+list.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", list.accept)
			response, err := w.server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var body struct{ Items, Rows []any }
			if err := json.NewDecoder(response.Body).Decode(&body); err != nil && list.items >= 0 || response.StatusCode != 200 {
				t.Fatal(response.StatusCode, err)
			}
			if n := len(body.Items) + len(body.Rows); list.items >= 0 && n != list.items {
				t.Errorf("%d items, want %d", n, list.items)
			}
			if n := w.calls.Load(); n != 1 {
				t.Errorf("the converter was called %d times, want once", n)
			}
		})
	}
}

// TestUnreadableColumns: a printer column whose path cannot be parsed is not shown, the others are.
func TestUnreadableColumns(t *testing.T) {
	w := newWorld(t)
	const group = "columns.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, `{"additionalPrinterColumns":[
		{"name":"Size","type":"integer","jsonPath":".spec.size"},{"name":"Bad","type":"string","jsonPath":".spec["},
		{"name":"Color","type":"string","jsonPath":".spec.color"}],`+versionOf("v1", "true", "size")[1:]))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	w.must(201, "POST", path, asJSON, widget(group, "v1", "a", `{"size":3,"color":"red"}`))
	table := w.do("GET", path, "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").body
	var names []any
	for _, c := range table["columnDefinitions"].([]any) {
		names = append(names, c.(map[string]any)["name"])
	}
	cells := table["rows"].([]any)[0].(map[string]any)["cells"]
	if fmt.Sprint(names) != "[Name Size Color]" || fmt.Sprint(cells) != "[a 3 red]" {
		t.Errorf("the columns are %v, the cells %v", names, cells)
	}
}

// TestChangeUnderLoad changes a definition while objects are written and read. No request may fail because of it,
// and each response follows one of the schemas.
func TestChangeUnderLoad(t *testing.T) {
	w := newWorld(t)
	const group = "c.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	var writers sync.WaitGroup
	var failed atomic.Pointer[string]
	stop := make(chan struct{})
	for id := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", id, i)
				body := widget(group, "v1", name, `{"size":1,"color":"red","old":true}`)
				for _, a := range []answer{w.do("POST", path, asJSON, body), w.get(path + "/" + name), w.get(path + "?limit=3")} {
					if a.code >= 300 {
						text := fmt.Sprint(a.code, " ", a.text)
						failed.Store(&text)
						return
					}
				}
			}
		})
	}
	for i := range 30 {
		w.must(
			200, "PATCH", definitions+"/widgets."+group, asMerge, fmt.Sprintf(`{"spec":{"names":{"categories":["c%d"]}}}`, i),
		)
	}
	close(stop)
	writers.Wait()
	if text := failed.Load(); text != nil {
		t.Errorf("a request failed when the definition changed: %s", *text)
	}
}

// TestTheNextWriteFollowsTheDefinition checks that an acknowledged change of a definition holds for every later
// request. Otherwise an object could still be stored in a version that was the storage version before, and could not
// be read once that version is removed.
func TestTheNextWriteFollowsTheDefinition(t *testing.T) {
	w := newWorld(t)
	const group = "n.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	for i := range 100 {
		w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, fmt.Sprintf(`{"spec":{"versions":[{
			"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
			"round":{"type":"integer","default":%d}}}}}}}]}}`, i))
		made := w.must(201, "POST", path, asJSON, widget(group, "v1", fmt.Sprint("a", i), `{}`))
		if got := made.body["spec"].(map[string]any)["round"]; got != float64(i) {
			t.Fatalf("an object made after change %d has the default %v", i, got)
		}
	}
}

// TestNoRequestByAnOldDefinition stops the server while it processes the removal of another definition. A request
// after an acknowledged change of its definition must then fail and store nothing, because the server still has
// the old state of the definition.
func TestNoRequestByAnOldDefinition(t *testing.T) {
	w := newWorld(t)
	const group = "o.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	w.must(201, "POST", definitions, asJSON, definition("p.example.com", versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	crd.SetCatchUpTime(w.custom, 10*time.Millisecond)
	w.behind.Lock()
	release := sync.OnceFunc(w.behind.Unlock)
	t.Cleanup(release)
	w.must(200, "DELETE", definitions+"/widgets.p.example.com", "", "")
	w.await(404, definitions+"/widgets.p.example.com")
	w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, `{"spec":{"versions":[{
		"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
		"round":{"type":"integer","default":7}}}}}}}]}}`)
	w.must(500, "POST", path, asJSON, widget(group, "v1", "a", `{}`))
	release()
	crd.SetCatchUpTime(w.custom, time.Minute)
	made := w.must(201, "POST", path, asJSON, widget(group, "v1", "a", `{}`))
	if got := made.body["spec"].(map[string]any)["round"]; got != 7.0 {
		t.Errorf("the default is %v, want 7", got)
	}
}

// TestDiscoveryCatchesUp stops the server while it processes the removal of another definition, so that it does not know a new version
// that a client has read. The document of that version is served as soon as the server goes on.
func TestDiscoveryCatchesUp(t *testing.T) {
	w := newWorld(t)
	const group = "r.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	w.must(201, "POST", definitions, asJSON, definition("s.example.com", versionOf("v1", "true", "size")))
	w.await(200, "/apis/"+group+"/v1/namespaces/x/widgets")
	crd.SetCatchUpTime(w.custom, 10*time.Millisecond)
	w.behind.Lock()
	release := sync.OnceFunc(w.behind.Unlock)
	t.Cleanup(release)
	w.must(200, "DELETE", definitions+"/widgets.s.example.com", "", "")
	w.await(404, definitions+"/widgets.s.example.com")
	w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, `{"spec":{"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	w.must(404, "GET", "/apis/"+group+"/v2", "", "")
	crd.SetCatchUpTime(w.custom, time.Minute)
	time.AfterFunc(100*time.Millisecond, release) // the request comes before
	w.must(200, "GET", "/apis/"+group+"/v2", "", "")
	w.must(404, "GET", "/apis/"+group+"/v3", "", "")
}

func TestReadsFollowTheSchema(t *testing.T) {
	w := newWorld(t)
	const group = "d.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	w.must(201, "POST", path, asJSON, widget(group, "v1", "a", `{"size":1,"color":"red"}`))
	schema := `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"size":{"type":"integer"},"shape":{"type":"string","default":"round"}}}}}}}]}}`
	w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, schema)
	wait.Seen(t, "a spec as the schema is now", func() (bool, string) {
		spec := w.must(200, "GET", path+"/a", "", "").body["spec"].(map[string]any)
		return spec["shape"] == "round" && spec["color"] == nil && spec["size"] == 1.0, fmt.Sprint(spec)
	})
	// Reads do not change what is stored.
	e, _, err := w.store.Get(t.Context(), "/registry/"+group+"/widgets/x/a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(e.Value, []byte(`"color":"red"`)) || bytes.Contains(e.Value, []byte("round")) {
		t.Errorf("stored %s", e.Value)
	}
}

func TestDeletionWaitsForObjects(t *testing.T) {
	w := newWorld(t)
	const group = "e.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	w.must(201, "POST", path, asJSON, widget(group, "v1", "free", `{}`))
	held := strings.Replace(
		widget(group, "v1", "held", `{}`), `"name":"held"`, `"name":"held","finalizers":["example.com/hold"]`, 1,
	)
	w.must(201, "POST", path, asJSON, held)
	w.must(200, "DELETE", definitions+"/widgets."+group, "", "")
	w.await(404, path+"/free")
	w.must(200, "GET", path+"/held", "", "")
	w.must(200, "GET", definitions+"/widgets."+group, "", "")
	refused := w.must(403, "POST", path, asJSON, widget(group, "v1", "late", `{}`))
	if want := "create not allowed while custom resource definition is terminating"; !strings.Contains(refused.text,
		want) {
		t.Errorf("%s: want %q", refused.text, want)
	}
	w.must(403, "PATCH", path+"/late?fieldManager=m", "application/apply-patch+yaml", widget(group, "v1", "late", `{}`))
	w.must(200, "PATCH", path+"/held", asMerge, `{"metadata":{"finalizers":null}}`)
	w.await(404, definitions+"/widgets."+group)
	w.await(404, path)
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	if items := w.await(200, path).body["items"].([]any); len(items) != 0 {
		t.Errorf("the new definition begins with %v", items)
	}
}

// TestFreedNames deletes a definition: another one with a name conflict is then accepted with the free name.
func TestFreedNames(t *testing.T) {
	w := newWorld(t)
	const group = "f.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	w.await(200, "/apis/"+group+"/v1/widgets")
	other := strings.NewReplacer(
		"widgets."+group, "gadgets."+group, `"plural":"widgets"`, `"plural":"gadgets","singular":"gadget"`,
	).
		Replace(definition(group, versionOf("v2", "true", "size")))
	w.must(201, "POST", definitions, asJSON, other)
	w.awaitCondition("gadgets."+group, "NamesAccepted", "ListKindConflict")
	w.must(404, "GET", "/apis/"+group+"/v2/gadgets", "", "")
	// Discovery lists the group and version, but no resources yet.
	a := w.must(200, "GET", "/apis/"+group, "", "")
	if v, _, _ := unstructured.NestedString(a.body, "preferredVersion", "version"); v != "v2" {
		t.Errorf("preferred version %q, want v2: %s", v, a.text)
	}
	w.must(404, "GET", "/apis/"+group+"/v2", "", "")
	w.must(200, "DELETE", definitions+"/widgets."+group, "", "")
	w.awaitCondition("gadgets."+group, "NamesAccepted", "NoConflicts")
	w.await(200, "/apis/"+group+"/v2/gadgets")
}

// TestConditionsTakenAway removes conditions as a client: the server does not set them again until the names of the
// definition change.
func TestConditionsTakenAway(t *testing.T) {
	w := newWorld(t)
	const group = "taken.example.com"
	const name = "widgets." + group
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	w.await(200, "/apis/"+group+"/v1/widgets")
	w.must(200, "PATCH", definitions+"/"+name+"/status", asMerge, `{"status":{"conditions":null}}`)
	w.await(404, "/apis/"+group+"/v1/widgets")
	w.must(200, "PATCH", definitions+"/"+name, asMerge, `{"spec":{"names":{"shortNames":["wd"]}}}`)
	w.awaitCondition(name, "NamesAccepted", "NoConflicts")
	w.awaitCondition(name, "Established", "InitialNamesAccepted")
	w.await(200, "/apis/"+group+"/v1/widgets")
}

func (w *world) awaitCondition(name, kind, reason string) {
	w.t.Helper()
	wait.Seen(w.t, fmt.Sprintf("the condition %s of %s with reason %s", kind, name, reason), func() (bool, string) {
		a := w.must(200, "GET", definitions+"/"+name, "", "")
		list, _, _ := unstructured.NestedSlice(a.body, "status", "conditions")
		return slices.ContainsFunc(list, func(c any) bool {
			condition := c.(map[string]any)
			return condition["type"] == kind && condition["reason"] == reason
		}), fmt.Sprint(list)
	})
}

// TestWatchEndsWithTheSchema checks that watches end when the definition changes. Otherwise their events would
// still follow the old schema.
func TestWatchEndsWithTheSchema(t *testing.T) {
	w := newWorld(t)
	const group = "g.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/widgets"
	w.await(200, path)
	response, err := w.server.Client().Get(w.server.URL + path + "?watch=1&timeoutSeconds=60")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	w.must(
		200, "PATCH", definitions+"/widgets."+group, asMerge, `{"spec":{"versions":[`+versionOf("v1", "true", "length")+`]}}`,
	)
	done := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(response.Body)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the watch goes on")
	}
}

// TestWatchersSeeTheDeletionOfTheDefinition checks that the watchers of each version and of one namespace get the
// deletion of every object of a deleted definition, also of an object that a finalizer keeps for a while. While a
// finalizer of another controller keeps the definition, watches stay open, and new objects are refused.
func TestWatchersSeeTheDeletionOfTheDefinition(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("definition held %v", held), func(t *testing.T) {
			w := newWorld(t)
			const group = "watched.example.com"
			text := definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))
			if held {
				text = strings.Replace(text, `"metadata":{`, `"metadata":{"finalizers":["q.w/e"],`, 1)
			}
			w.must(201, "POST", definitions, asJSON, text)
			const root = "/apis/" + group + "/v1"
			const path = root + "/namespaces/x/widgets"
			w.await(200, path)
			w.must(201, "POST", path, asJSON, widget(group, "v1", "free", `{"size":1}`))
			w.must(201, "POST", path, asJSON, strings.Replace(widget(group, "v1", "held", `{"size":1}`),
				`"name":"held"`, `"name":"held","finalizers":["example.com/hold"]`, 1))
			watches := map[string]chan string{}
			for _, watched := range []string{
				root + "/widgets", path, "/apis/" + group + "/v2/widgets", "/apis/" + group + "/v2/namespaces/x/widgets",
			} {
				response, err := w.server.Client().Get(w.server.URL + watched + "?watch=1&timeoutSeconds=60")
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				got := make(chan string, 1)
				watches[watched] = got
				events := json.NewDecoder(response.Body)
				for range 2 { // the initial events come after the server opened the cursor
					var e struct{ Type string }
					if err := events.Decode(&e); err != nil || e.Type != "ADDED" {
						t.Fatalf("%s begins with %q, %v", watched, e.Type, err)
					}
				}
				go func() {
					all, _ := io.ReadAll(io.MultiReader(events.Buffered(), response.Body))
					got <- string(all)
				}()
			}
			w.must(200, "DELETE", definitions+"/widgets."+group, "", "")
			w.await(404, path+"/free")
			w.must(200, "PATCH", path+"/held", asMerge, `{"metadata":{"finalizers":null}}`)
			if held {
				w.awaitCondition("widgets."+group, "Terminating", "InstanceDeletionCompleted")
				w.must(403, "POST", path, asJSON, widget(group, "v1", "late", `{}`))
				w.must(403, "PATCH", path+"/late?fieldManager=m", "application/apply-patch+yaml",
					widget(group, "v1", "late", `{}`))
				w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, `{"metadata":{"finalizers":null}}`)
			}
			w.await(404, definitions+"/widgets."+group)
			for watched, got := range watches {
				select {
				case events := <-got:
					if n := strings.Count(events, `"DELETED"`); n != 2 {
						t.Errorf("%s: %d events DELETED, want 2: %.2000s", watched, n, events)
					}
					if !strings.Contains(events, `"MODIFIED"`) {
						t.Errorf("%s: no event MODIFIED for the object with a finalizer", watched)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("%s: the watch did not end in 30 s after the definition was gone", watched)
				}
			}
		})
	}
}

func TestDiscoveryFollows(t *testing.T) {
	w := newWorld(t)
	const group = "h.example.com"
	w.must(404, "GET", "/apis/"+group, "", "")
	w.must(
		201, "POST", definitions, asJSON,
		definition(group, versionOf("v1beta1", "true", "size"), versionOf("v1", "false", "length")),
	)
	a := w.await(200, "/apis/"+group)
	if v, _, _ := unstructured.NestedString(a.body, "preferredVersion", "version"); v != "v1" {
		t.Errorf("preferred version %q, want v1: %s", v, a.text)
	}
	w.must(200, "DELETE", definitions+"/widgets."+group, "", "")
	w.await(404, "/apis/"+group)
}

// TestAReplacedDefinitionLeavesNoGoroutine replaces a definition while a request uses the old one. The new kinds
// must notice the end of that request without a goroutine that waits for it.
func TestAReplacedDefinitionLeavesNoGoroutine(t *testing.T) {
	w := newWorld(t)
	const group = "k.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	r := w.resources.Find(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"})
	if r == nil {
		t.Fatal("the directory does not have the resource")
	}
	_, release, err := r.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.must(200, "PATCH", definitions+"/widgets."+group, asMerge,
		`{"spec":{"versions":[`+versionOf("v1", "true", "size")+`,`+versionOf("v2", "false", "size")+`]}}`)
	w.await(200, v2)
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if n := strings.Count(string(stacks), "crd.(*Server).settle"); n != 0 {
		t.Errorf("%d goroutines wait for the end of a use", n)
	}
	release()
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "a", `{"size":1}`))
	w.must(200, "GET", v2+"/a", "", "")
}

// TestDeletedDefinitionIsForgotten checks that Options.Forget is called for a removed definition, so that its
// metrics can be removed.
func TestDeletedDefinitionIsForgotten(t *testing.T) {
	w := newWorld(t)
	const group, name = "l.example.com", "widgets.l.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	w.await(200, "/apis/"+group+"/v1/namespaces/x/widgets")
	if _, ok := w.forgotten.Load(name); ok {
		t.Fatal("a definition is forgotten that is there")
	}
	w.must(200, "DELETE", definitions+"/"+name, "", "")
	wait.Until(t, "a definition that is gone to be forgotten", func() bool {
		_, ok := w.forgotten.Load(name)
		return ok
	})
}

// TestWatchBeforeTheDefinition watches a custom resource from a revision before its definition was created, which
// fails with Expired, and from the revision of the definition.
func TestWatchBeforeTheDefinition(t *testing.T) {
	w := newWorld(t)
	const group = "late.example.com"
	w.must(201, "POST", definitions, asJSON, definition("first.example.com", versionOf("v1", "true", "size")))
	created := w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	w.must(201, "POST", path, asJSON, widget(group, "v1", "a", `{"size":1}`))
	a := w.get(path + "?watch=1&timeoutSeconds=1&resourceVersion=1")
	if !strings.Contains(a.text, "too old resource version: 1 (") || !strings.Contains(a.text, `"code":410`) {
		t.Errorf("a watch from before the definition: %s", a.text)
	}
	revision, _, _ := unstructured.NestedString(created.body, "metadata", "resourceVersion")
	if a = w.get(path + "?watch=1&timeoutSeconds=1&resourceVersion=" + revision); !strings.Contains(a.text, `"ADDED"`) {
		t.Errorf("a watch from the revision of the definition: %s", a.text)
	}
}
