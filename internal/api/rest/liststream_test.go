package rest

import (
	"compress/gzip"
	"io"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// podsOfStore returns the resource with a cache that keeps no objects in memory.
func (s *shelf) podsOfStore(t testing.TB) *served {
	t.Helper()
	c := cache.New(cache.Options{
		Store:  s.store,
		Memory: cache.Memory{SmallObjects: -1, UnreadBytes: -1, LoadAfter: math.Inf(1)},
	})
	t.Cleanup(c.Close)
	reg, err := registry.New(resource.Kinds(features.Gates{}), s.store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return (&shelf{s.store, reg}).pods()
}

// TestStreamedLists lists the same pods from memory, and streamed from the store because a page may take few bytes. The
// bodies must be the same bytes.
func TestStreamedLists(t *testing.T) {
	shelf := newShelf(t)
	shelf.put(t, variedPods(rand.New(rand.NewSource(1)), 700))
	streamed := shelf.podsOfStore(t)
	streamed.pageBytes = 2000
	h := New(Options{Registry: shelf.registry, Now: func() time.Time { return time.Unix(1e9, 0) }})
	body := func(s *served, query, accept, encoding string) string {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods"+query, nil)
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", encoding)
		if err := h.list(w, r, &request.Info{}, s); err != nil {
			t.Fatalf("%s as %s: %v", query, accept, err)
		}
		text := io.Reader(w.Body)
		if w.Header().Get("Content-Encoding") == "gzip" {
			plain, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			text = plain
		}
		b, err := io.ReadAll(text)
		if err != nil {
			t.Fatal(err)
		}
		return w.Header().Get("Content-Type") + "\n" + string(b)
	}
	for _, query := range []string{
		"", "?resourceVersion=0", "?limit=300", "?limit=699", "?limit=700", "?labelSelector=!none", "?labelSelector=none",
		"?fieldSelector=spec.nodeName!%3Dnone", "?fieldSelector=metadata.namespace%3Ddefault",
		"?labelSelector=!none&limit=300",
	} {
		for _, accept := range []string{
			"application/json", "application/vnd.kubernetes.protobuf",
			"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			"application/json;as=Table;v=v1;g=meta.k8s.io",
		} {
			for _, encoding := range []string{"", "gzip"} {
				got, want := body(streamed, query, accept, encoding), body(shelf.pods(), query, accept, encoding)
				if got != want {
					t.Errorf("%s as %s, %q: %d bytes streamed, %d from memory", query, accept, encoding, len(got), len(want))
				}
			}
		}
	}
	if streamed.Loaded() {
		t.Error("the lists have loaded the pods")
	}
}
