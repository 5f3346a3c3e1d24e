package rest

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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
	if streamed.Resource.Reader.Loaded() {
		t.Error("the lists have loaded the pods")
	}
}

// TestMemoryOfStreamedLists lists 5 MiB of pods that are not in memory. For a list that is sent while it is read,
// only its beginning and the buffers of the stream count as memory. A list that would be read twice, or would lose
// its indentation, is read as a whole.
func TestMemoryOfStreamedLists(t *testing.T) {
	shelf := newShelf(t)
	const size = 5 << 20
	pods := variedPods(rand.New(rand.NewSource(1)), 100)
	for _, p := range pods {
		p.Annotations = map[string]string{"large": strings.Repeat("x", size/len(pods))}
	}
	shelf.put(t, pods)
	s := shelf.podsOfStore(t)
	h := New(Options{Registry: shelf.registry, Now: time.Now})
	for query, streamed := range map[string]bool{
		"": true, "?limit=99": false, "?pretty=1": false, "?labelSelector=!none": true,
	} {
		for accept, once := range map[string]bool{
			"application/json": true, "application/json;as=Table;v=v1;g=meta.k8s.io": true, "application/vnd.kubernetes.protobuf": false,
			"application/yaml": false,
		} {
			held := &waitingWriter{budget: math.MaxInt64}
			r := httptest.NewRequestWithContext(
				request.WithInfo(t.Context(), &request.Info{Response: held}), http.MethodGet, "/api/v1/pods"+query, nil,
			)
			r.Header.Set("Accept", accept)
			if err := h.list(httptest.NewRecorder(), r, &request.Info{}, s); err != nil {
				t.Fatalf("%s as %s: %v", query, accept, err)
			}
			n := math.MaxInt64 - held.budget
			if want := streamed && once; n == 0 || want != (n <= streamedFrom+streamMemory+size/10) {
				t.Errorf("%s as %s: %d bytes are held", query, accept, n)
			}
		}
	}
}

// TestInBatches encodes objects in batches, some of which take long or are large: they are sent in their order. The first error or
// panic of a step is the result.
func TestInBatches(t *testing.T) {
	const objects = 300
	newPage := func() *page {
		p := &page{streamed: func(ctx context.Context, yield func(*cache.Object) error) error {
			for i := objects / 2; i < objects; i++ {
				if err := yield(&cache.Object{Name: strconv.Itoa(i), Data: make([]byte, streamBatch/4*(i%9))}); err != nil {
					return err
				}
			}
			return ctx.Err()
		}}
		for i := range objects / 2 {
			p.objects = append(p.objects, &cache.Object{Name: strconv.Itoa(i), Data: make([]byte, streamBatch/3)})
		}
		return p
	}
	names := func(_ context.Context, b []byte, objects []*cache.Object) ([]byte, error) {
		for _, o := range objects {
			b = append(append(b, o.Name...), ' ')
		}
		time.Sleep(time.Duration(rand.Intn(300)) * time.Microsecond)
		return b, nil
	}
	var all []byte
	err := newPage().inBatches(t.Context(), names, func(b []byte) error { all = append(all, b...); return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range strings.Fields(string(all)) {
		if name != strconv.Itoa(i) {
			t.Fatalf("object %s is sent at %d", name, i)
		}
	}
	if n := len(strings.Fields(string(all))); n != objects {
		t.Errorf("%d of %d objects are sent", n, objects)
	}

	broken := errors.New("broken")
	after := func(n int32, f func() error) func() error {
		return func() error {
			if n--; n < 0 {
				return f()
			}
			return nil
		}
	}
	send := after(3, func() error { return broken })
	if err := newPage().inBatches(t.Context(), names, func([]byte) error { return send() }); err != broken {
		t.Errorf("the error of send: %v", err)
	}
	failing := func(_ context.Context, b []byte, objects []*cache.Object) ([]byte, error) {
		if objects[0].Name != "0" {
			return b, broken
		}
		return b, nil
	}
	if err := newPage().inBatches(t.Context(), failing, func([]byte) error { return nil }); err != broken {
		t.Errorf("the error of encode: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := newPage().inBatches(ended, names, func([]byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that ended: %v", err)
	}
	panics := map[string]func() error{
		"encode": func() error {
			return newPage().inBatches(t.Context(), func(context.Context, []byte, []*cache.Object) ([]byte, error) { panic(broken) },
				func([]byte) error { return nil })
		},
		"read": func() error {
			p := newPage()
			p.streamed = func(context.Context, func(*cache.Object) error) error { panic(broken) }
			return p.inBatches(t.Context(), names, func([]byte) error { return nil })
		},
	}
	for step, run := range panics {
		func() {
			defer func() {
				if p := recover(); p != broken {
					t.Errorf("a panic of %s: %v", step, p)
				}
			}()
			t.Errorf("after a panic of %s: %v", step, run())
		}()
	}
}
