package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/crd"
	"github.com/keelson-dev/keelson/internal/api/crd/convert"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// writer serves writes from a store in memory, without connections and without admission.
type writer struct {
	b     *testing.B
	serve http.Handler
	body  *httptest.ResponseRecorder
}

func newWriter(b *testing.B) *writer {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	kept := cache.New(cache.Options{Store: store})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, kept, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	writes := write.New(reg, nil, nil, nil)
	resources, verbs := directory.New(), rest.New(rest.Options{Registry: reg, Writes: writes})
	resources.PutBuiltIn(reg, verbs.BuiltIn)
	custom := crd.New(crd.Options{
		Registry: reg, Rest: verbs, Exclusive: true, Client: client.New(resources, writes, "kube-apiserver"),
		Writes: writes, Resources: resources, Forget: func(string) {},
		Converters: func(string, *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error) {
			return nil, nil
		},
	})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { custom.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
		kept.Close()
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := custom.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	return &writer{b: b, serve: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if custom.Serves(request.InfoFrom(r.Context())) {
			custom.ServeHTTP(w, r)
			return
		}
		resources.ServeHTTP(w, r)
	})}
}

// request returns a request as the verbs get it.
func (w *writer) request(method, path, contentType string, body []byte) *http.Request {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r.WithContext(request.WithUser(request.WithInfo(r.Context(), request.ParseInfo(r)), &request.User{Name: "admin"}))
}

// do serves a request.
func (w *writer) do(r *http.Request) {
	w.body = httptest.NewRecorder()
	w.serve.ServeHTTP(w.body, r)
}

// must serves a request that has to succeed.
func (w *writer) must(method, path, contentType string, body []byte) {
	if w.do(w.request(method, path, contentType, body)); w.body.Code >= http.StatusBadRequest {
		w.b.Fatalf("%s %s: %d %s", method, path, w.body.Code, w.body.Body)
	}
}

// revision returns the resourceVersion in the last response.
func (w *writer) revision() string {
	_, rest, _ := strings.Cut(w.body.Body.String(), `"resourceVersion":"`)
	version, _, _ := strings.Cut(rest, `"`)
	return version
}

// define creates a definition and waits until its resource is served at path.
func (w *writer) define(definition []byte, path string) {
	w.must(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON, definition)
	const limit = 20 * time.Second
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if w.do(w.request(http.MethodGet, path, "", nil)); w.body.Code == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			w.b.Fatalf("%s is not served after %v: %s", path, limit, w.body.Body)
		}
	}
}

const (
	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asApply     = "application/apply-patch+yaml"

	core       = "/api/v1/namespaces/here/"
	pods       = core + "pods"
	configMaps = core + "configmaps"
	templates  = core + "podtemplates"
	things     = "/apis/example.com/v1/namespaces/here/things"
)

// BenchmarkWrites serves writes of ordinary size. Those with the name of a kind have the bodies of test/bench.
//
// In paths and bodies, NAME is another name in each write, COUNT another number, and REVISION the resourceVersion in the
// last response.
func BenchmarkWrites(b *testing.B) {
	file := func(name string) string {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			b.Fatal(err)
		}
		return string(content)
	}
	called := func(body, name string) string { return strings.ReplaceAll(body, "NAME", name) }
	revised := func(body string) string {
		return strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"REVISION",`, 1)
	}
	template, pod, status, thing := file("podtemplate.json"), file("pod.json"), file("podstatus.json"), file("thing.json")
	configMap := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"settings":"` +
		strings.Repeat("the quick brown fox ", 10) + `","variant":"COUNT"}}`
	lease := file("lease.json")
	const (
		annotation = `{"template":{"metadata":{"annotations":{"v":"COUNT"}}}}`
		binding    = `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"NAME"},"target":{"kind":"Node","name":"n"}}`
		eviction   = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"}}`

		deployments = "/apis/apps/v1/namespaces/here/deployments"
		leases      = "/apis/coordination.k8s.io/v1/namespaces/here/leases"
		forced      = "?fieldManager=m&force=true"
	)
	for _, c := range []struct {
		name, method, path, contentType, body string
		// before is created in collection at the beginning, each before every write.
		collection, before, each string
	}{
		{"create", "POST", templates, asJSON, template, "", "", ""},
		{"create protobuf", "POST", templates, scheme.TypeProtobuf, template, "", "", ""},
		{"merge patch", "PATCH", templates + "/p", asMerge, annotation, templates, called(template, "p"), ""},
		{"strategic merge patch", "PATCH", templates + "/p", asStrategic, annotation, templates, called(template, "p"), ""},
		{"apply", "PATCH", templates + "/p" + forced, asApply, called(template, "p"), "", "", ""},

		{"Pod create", "POST", pods, asJSON, pod, "", "", ""},
		{"Pod status strategic", "PATCH", pods + "/p/status", asStrategic, status, pods, called(pod, "p"), ""},
		{"Pod status merge", "PATCH", pods + "/p/status", asMerge, status, pods, called(pod, "p"), ""},
		{"Pod binding", "POST", pods + "/NAME/binding", asJSON, binding, pods, "", pod},
		{"Pod eviction", "POST", pods + "/NAME/eviction", asJSON, eviction, pods, "", pod},
		{"ConfigMap create", "POST", configMaps, asJSON, configMap, "", "", ""},
		{"ConfigMap update", "PUT", configMaps + "/p", asJSON, called(configMap, "p"), configMaps, called(configMap, "p"), ""},
		{"ConfigMap apply", "PATCH", configMaps + "/p" + forced, asApply, called(configMap, "p"), "", "", ""},
		{"Deployment apply", "PATCH", deployments + "/p" + forced, asApply, called(file("deployment.json"), "p"), "", "", ""},
		{"Event create", "POST", core + "events", asJSON, file("event.json"), "", "", ""},
		{"Lease update", "PUT", leases + "/p", asJSON, revised(called(lease, "p")), leases, called(lease, "p"), ""},
		{"Thing create", "POST", things, asJSON, thing, "", "", ""},
		{"Thing update", "PUT", things + "/p", asJSON, revised(called(thing, "p")), things, called(thing, "p"), ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWriter(b)
			w.define([]byte(file("definition.json")), things)
			filled := func(text string, i int) string {
				return strings.NewReplacer("NAME", fmt.Sprintf("n%06d", i), "COUNT", fmt.Sprintf("%02d", i%60),
					"REVISION", w.revision()).Replace(text)
			}
			if c.before != "" {
				w.must("POST", c.collection, asJSON, []byte(filled(c.before, 0)))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				if c.each != "" {
					w.must("POST", c.collection, asJSON, []byte(filled(c.each, i)))
				}
				body := []byte(filled(c.body, i))
				if c.contentType == scheme.TypeProtobuf {
					body = asProtobuf(b, body)
				}
				r := w.request(c.method, filled(c.path, i), c.contentType, body)
				b.StartTimer()
				w.do(r)
				if w.body.Code >= http.StatusBadRequest {
					b.Fatalf("%d %s", w.body.Code, w.body.Body)
				}
			}
		})
	}
}

// asProtobuf returns the JSON of a PodTemplate as protobuf.
func asProtobuf(b *testing.B, body []byte) []byte {
	var template corev1.PodTemplate
	if err := json.Unmarshal(body, &template); err != nil {
		b.Fatal(err)
	}
	out, err := scheme.EncodeEnvelope(wire.NewEnvelopeHead("v1", "PodTemplate"), &template)
	if err != nil {
		b.Fatal(err)
	}
	return out
}
