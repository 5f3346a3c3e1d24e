package rest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/connection"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// someNamespace is where the recorded creates put their objects.
const someNamespace = "here"

// verbsServer starts an HTTP server for the built-in resources, on a store in memory, without authentication and
// admission.
func verbsServer(t *testing.T) (*registry.Registry, *httptest.Server) {
	t.Helper()
	return verbsServerAt(t, nil)
}

// verbsServerAt is verbsServer with a clock that determines the ages in tables.
func verbsServerAt(t *testing.T, now func() time.Time) (*registry.Registry, *httptest.Server) {
	t.Helper()
	_, reg, server := verbsServerOn(t, now)
	return reg, server
}

// verbsServerOn is verbsServerAt with the store of the objects.
func verbsServerOn(t *testing.T, now func() time.Time) (storage.Store, *registry.Registry, *httptest.Server) {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	verbs := directory.New()
	cluster := connection.New(connection.Options{Objects: reg})
	verbs.PutBuiltIn(reg, rest.New(rest.Options{Registry: reg, Now: now, Cluster: cluster}).BuiltIn)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
		ctx = request.WithUser(
			ctx, &request.User{Name: "admin", Groups: []string{request.GroupMasters, request.GroupAuthenticated}},
		)
		verbs.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() {
		server.Close()
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, reg, server
}

// recordedCreate is a recorded request that creates an object: the path of the collection, and the body.
type recordedCreate struct {
	Path string
	Body json.RawMessage
}

// recordedCreates has one create for each resource in each of its versions.
func recordedCreates(t *testing.T) map[string]recordedCreate {
	t.Helper()
	f, err := os.Open("testdata/create.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]recordedCreate{}
	for d := json.NewDecoder(z); ; {
		var c recordedCreate
		if err := d.Decode(&c); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out[c.Path] = c
	}
}

// A caller sends requests to a server under test.
type caller struct {
	t      *testing.T
	server *httptest.Server
}

func (c caller) send(ctx context.Context, method, path, accept string, body []byte) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.server.URL+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.server.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c caller) get(path, accept string) []byte {
	c.t.Helper()
	resp := c.send(c.t.Context(), http.MethodGet, path, accept, nil)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Errorf("GET %s: %d %v %.300q", path, resp.StatusCode, err, data)
	}
	return data
}

// watch reads events until one contains last.
func (c caller) watch(path, accept, last string) {
	c.t.Helper()
	const atMost = 20 * time.Second
	ctx, cancel := context.WithTimeout(c.t.Context(), atMost)
	defer cancel()
	resp := c.send(ctx, http.MethodGet, path, accept, nil)
	defer resp.Body.Close()
	var seen []byte
	for r := bufio.NewReader(resp.Body); !bytes.Contains(seen, []byte(last)); {
		b, err := r.ReadByte()
		if err != nil {
			c.t.Errorf("GET %s ended without %q: %v %.300q", path, last, err, seen)
			return
		}
		seen = append(seen, b)
	}
}

// TestReadsDecodeNothing checks that, once the encodings of an object are cached, GET, LIST and WATCH in
// the stored version copy bytes, whatever the kind.
func TestReadsDecodeNothing(t *testing.T) {
	reg, server := verbsServer(t)
	creates := recordedCreates(t)
	for _, r := range reg.Resources() {
		if r.Virtual() || r.Kind.Version(r.Kind.Storage.Version).Disabled {
			continue // not served, or only in another version
		}
		t.Run(r.Kind.GroupResource().String(), func(t *testing.T) {
			served := 0
			for i := range r.Kind.Versions {
				if v := &r.Kind.Versions[i]; v.FromStorage == nil {
					served++
					readAllWays(t, caller{t, server}, r, v, creates)
				}
			}
			if served == 0 {
				t.Error("the stored version is not served")
			}
		})
	}
}

func collectionPath(k *registry.Kind, v *registry.Version) string {
	group, root, namespace := k.Group, "/apis/", ""
	if v.Group != "" {
		group = v.Group
	}
	if group == "" {
		root = "/api"
	}
	if k.Namespaced {
		namespace = "/namespaces/" + someNamespace
	}
	return root + group + "/" + v.Name + namespace + "/" + k.Resource
}

func readAllWays(t *testing.T, c caller, r *registry.Resource, v *registry.Version, creates map[string]recordedCreate) {
	path := collectionPath(r.Kind, v)
	create, ok := creates[path]
	if !ok {
		t.Fatalf("testdata has no create for %s", path)
	}
	c.get(path, "application/json") // loads the resource: its log begins before the object
	resp := c.send(t.Context(), http.MethodPost, path, "application/json", create.Body)
	var object struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	err := json.NewDecoder(resp.Body).Decode(&object)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %d %v", path, resp.StatusCode, err)
	}
	name := object.Metadata.Name
	var revision int64
	if _, err := fmt.Sscan(object.Metadata.ResourceVersion, &revision); err != nil {
		t.Fatal(err)
	}
	accepts := []string{"application/json", "application/vnd.kubernetes.protobuf"}
	for _, accept := range accepts {
		c.get(path+"/"+name, accept) // caches the encoding
	}
	before := r.Decoder.Decodes()
	check := func(what, accept string) {
		if n := r.Decoder.Decodes(); n != before {
			t.Errorf("%s as %s decoded %d objects", what, accept, n-before)
			before = n
		}
	}
	for _, accept := range accepts {
		c.get(path+"/"+name, accept)
		check("GET", accept)
		for _, query := range []string{"", "?resourceVersion=0", "?limit=1", "?fieldSelector=metadata.name=" + name} {
			if data := c.get(path+query, accept); !bytes.Contains(data, []byte(name)) {
				t.Errorf("GET %s has no %s: %.300q", path+query, name, data)
			}
			check("LIST "+query, accept)
		}
		c.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, revision-1), accept, name)
		check("WATCH from before", accept)
		c.watch(path+"?watch=1&resourceVersion=0", accept, name)
		check("WATCH of what is there", accept)
		c.watch(
			path+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept,
			"k8s.io/initial-events-end",
		)
		check("WATCH with initial events", accept)
	}
	if r.Kind.HasVerb("delete") {
		c.send(t.Context(), http.MethodDelete, path+"/"+name, accepts[0], nil).Body.Close()
	}
}

func TestEveryRecordedCreateIsServed(t *testing.T) {
	reg, _ := verbsServer(t)
	paths := map[string]bool{}
	for _, r := range reg.Resources() {
		for i := range r.Kind.Versions {
			paths[collectionPath(r.Kind, &r.Kind.Versions[i])] = true
		}
	}
	for path := range recordedCreates(t) {
		if !paths[path] {
			t.Errorf("no resource is at %s", strings.TrimSpace(path))
		}
	}
}
