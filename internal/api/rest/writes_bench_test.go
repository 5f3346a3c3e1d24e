package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// BenchmarkWrites creates, patches and applies a pod template of ordinary size, without a connection.
func BenchmarkWrites(b *testing.B) {
	const collection = "/api/v1/namespaces/here/podtemplates"
	object := func(name, value string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"%s","labels":{"a":"b"}},"template":{"metadata":{"annotations":{"v":"%s"}},
			"spec":{"containers":[{"name":"a","image":"i","resources":{"limits":{"cpu":"100m","memory":"1Gi"}},
				"env":[{"name":"A","value":"b"},{"name":"C","value":"d"}]},
			{"name":"b","image":"j","ports":[{"containerPort":80}]}]}}}`, name, value)
	}
	protobuf := func(name, value string) []byte {
		var template corev1.PodTemplate
		if err := json.Unmarshal(object(name, value), &template); err != nil {
			b.Fatal(err)
		}
		body, err := scheme.EncodeEnvelope(wire.NewEnvelopeHead("v1", "PodTemplate"), &template)
		if err != nil {
			b.Fatal(err)
		}
		return body
	}
	change := func(_, value string) []byte {
		return fmt.Appendf(nil, `{"template":{"metadata":{"annotations":{"v":"%s"}}}}`, value)
	}
	for _, c := range []struct {
		name, method, path, contentType string
		body                            func(name, value string) []byte
	}{
		{"create", http.MethodPost, collection, "application/json", object},
		{"create protobuf", http.MethodPost, collection, scheme.TypeProtobuf, protobuf},
		{"merge patch", http.MethodPatch, collection + "/p", "application/merge-patch+json", change},
		{"strategic merge patch", http.MethodPatch, collection + "/p", "application/strategic-merge-patch+json", change},
		{"apply", http.MethodPatch, collection + "/p?fieldManager=m&force=true", "application/apply-patch+yaml",
			func(_, value string) []byte { return object("p", value) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			store, err := embedded.Open(embedded.Options{InMemory: true})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			kept := cache.New(cache.Options{Store: store})
			defer kept.Close()
			reg, err := registry.New(resource.Kinds(features.Gates{}), store, kept, time.Now)
			if err != nil {
				b.Fatal(err)
			}
			verbs := directory.New()
			verbs.PutBuiltIn(reg, rest.New(rest.Options{Registry: reg}).BuiltIn)
			send := func(method, path, contentType string, body []byte) {
				r := httptest.NewRequest(method, path, bytes.NewReader(body))
				r.Header.Set("Content-Type", contentType)
				ctx := request.WithUser(request.WithInfo(r.Context(), request.ParseInfo(r)), &request.User{Name: "admin"})
				w := httptest.NewRecorder()
				if verbs.ServeHTTP(w, r.WithContext(ctx)); w.Code >= http.StatusBadRequest {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			send(http.MethodPost, collection, "application/json", object("p", ""))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				send(c.method, c.path, c.contentType, c.body(fmt.Sprintf("p%d", i), fmt.Sprint(i)))
			}
		})
	}
}
