package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkReads answers reads of cached objects, without a connection.
func BenchmarkReads(b *testing.B) {
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
	user := &request.User{Name: "admin"}
	serve := func(w http.ResponseWriter, r *http.Request) {
		verbs.ServeHTTP(w, r.WithContext(request.WithUser(request.WithInfo(r.Context(), request.ParseInfo(r)), user)))
	}
	create := func(namespace, name string, size int) {
		text := strings.Repeat("some words ", size/11)
		r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps",
			strings.NewReader(fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"a":"b"}},"data":{"text":%q}}`, name, text)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if serve(w, r); w.Code != http.StatusCreated {
			b.Fatal(w.Code, w.Body)
		}
	}
	for i := range 500 {
		create("many", fmt.Sprintf("c%d", i), 1000)
	}
	create("large", "large", 300<<10)
	for _, c := range []struct{ name, path, encoding string }{
		{"get", "many/configmaps/c1", ""},
		{"list", "many/configmaps", ""},
		{"list gzip", "many/configmaps", "gzip"},
		{"list selected gzip", "many/configmaps?labelSelector=a%3Db", "gzip"},
		{"get large", "large/configmaps/large", ""},
		{"get large gzip", "large/configmaps/large", "gzip"},
		{"list large", "large/configmaps", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/"+c.path, nil)
			r.Header.Set("Accept-Encoding", c.encoding)
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				if serve(w, r); w.status != http.StatusOK && w.status != 0 {
					b.Fatal(w.status)
				}
			}
		})
	}
}
