package rest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
)

// zippedGet asks for gzip and returns the answer's text, and whether it was
// compressed.
func (c caller) zippedGet(path, accept string) (text []byte, compressed bool) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.server.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "gzip") // set here, so that the client does not decompress the answer
	resp, err := c.server.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("GET %s: %d %v %.300q", path, resp.StatusCode, err, body)
	}
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "":
		return body, false
	case "gzip":
	default:
		c.t.Fatalf("GET %s: Content-Encoding %q", path, encoding)
	}
	if resp.Header.Get("Vary") != "Accept-Encoding" {
		c.t.Errorf("GET %s: headers %v", path, resp.Header)
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if text, err = io.ReadAll(z); err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return text, true
}

func (c caller) must(method, path, body string) {
	c.t.Helper()
	resp := c.send(c.t.Context(), method, path, "application/json", []byte(body))
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= http.StatusBadRequest {
		c.t.Fatalf("%s %s: %d %.300s", method, path, resp.StatusCode, text)
	}
}

// listForms are the media types of lists. For each, the compressed and the plain list must be the same text.
var listForms = []string{
	"application/json",
	"application/vnd.kubernetes.protobuf",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	asTable,
	"application/yaml",
}

// TestCompressedListsAreThePlainOnes changes objects at random. It compares the compressed answer with the plain
// one for every kind of list.
func TestCompressedListsAreThePlainOnes(t *testing.T) {
	reg, server := verbsServer(t)
	c := caller{t, server}
	r := rand.New(rand.NewPCG(1, 2))
	path := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/n%d/configmaps", i%3) }
	name := func(i int) string { return fmt.Sprintf("c%04d", i) }
	body := func(i, bytes int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"odd":"%d"},`+
			`"annotations":{"long":%q}},"data":{"a":%q}}`,
			name(i), i%2, strings.Repeat("<annotation>", bytes/12), strings.Repeat("data ", r.IntN(40)))
	}
	const objects = 300
	there := map[int]bool{}
	for i := range objects {
		c.must(http.MethodPost, path(i), body(i, 1500))
		there[i] = true
	}
	queries := []string{
		"", "?resourceVersion=0", "?limit=250", "?labelSelector=odd%3D1", "?fieldSelector=metadata.name!%3Dc0007",
	}
	seen := map[string]bool{}
	for round := range effort.Rounds(12, 4) {
		// Lists at resourceVersion 0 may show a state before the latest; after this one they do not.
		c.get("/api/v1/configmaps", "application/json")
		for _, collection := range []string{"/api/v1/configmaps", path(1)} {
			for _, accept := range listForms {
				query := queries[r.IntN(len(queries))]
				plain := c.get(collection+query, accept)
				text, compressed := c.zippedGet(collection+query, accept)
				if !bytes.Equal(text, plain) && accept != asTable { // ages may move on
					t.Fatalf("round %d, %s%s as %s: %d bytes, plain %d", round, collection, query, accept, len(text), len(plain))
				}
				if want := len(plain) > 128<<10; compressed != want && len(text) == len(plain) {
					t.Errorf("%s%s as %s: %d bytes, compressed is %v", collection, query, accept, len(plain), compressed)
				}
				seen[fmt.Sprint(accept, compressed)] = true
			}
		}
		for range 1 + r.IntN(20) {
			switch i := r.IntN(objects + 20); {
			case !there[i]:
				c.must(http.MethodPost, path(i), body(i, 1500))
				there[i] = true
			case r.IntN(4) == 0:
				c.must(http.MethodDelete, path(i)+"/"+name(i), "")
				delete(there, i)
			default:
				c.must(http.MethodPut, path(i)+"/"+name(i), body(i, r.IntN(3000)))
			}
		}
	}
	for _, accept := range listForms {
		if !seen[fmt.Sprint(accept, true)] {
			t.Errorf("no list as %s was compressed", accept)
		}
	}
	// A list whose objects have not changed since the last list needs no decoding.
	list := reg.Resource(schema.GroupResource{Resource: "configmaps"})
	before := list.Decoder.Decodes()
	c.zippedGet("/api/v1/configmaps", "application/json")
	again := list.Decoder.Decodes()
	c.zippedGet("/api/v1/configmaps", "application/json")
	if n := list.Decoder.Decodes(); n != again {
		t.Errorf("the same list again decoded %d objects (%d before)", n-again, again-before)
	}
}

// TestWhatIsCompressed: only answers above 128 KiB to clients that accept gzip are compressed.
func TestWhatIsCompressed(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	const path = "/api/v1/namespaces/here/configmaps"
	put := func(n int) (list int) {
		c.must(
			http.MethodPut, path+"/only",
			fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"only"},"data":{"a":%q}}`, strings.Repeat("x", n),
			),
		)
		return len(c.get(path, "application/json"))
	}
	c.must(
		http.MethodPost, path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"only"},"data":{"a":"123456789"}}`,
	)
	around := put(1000) - 1000
	for _, over := range []int{-1, 0, 1, 2} {
		length := put(128<<10 - around + over)
		for length != 128<<10+over { // the length of the resourceVersion may change
			around += length - (128<<10 + over)
			length = put(128<<10 - around + over)
		}
		if text, compressed := c.zippedGet(path, "application/json"); compressed != (over > 0) || len(text) != length {
			t.Errorf("a list of %d bytes: compressed is %v", length, compressed)
		}
	}
	for _, accepted := range []struct {
		encoding string
		want     bool
	}{{"gzip", true}, {"gzip;q=0", false}, {"gzip; q=0.000", false}, {"deflate, gzip;q=0.5", true}, {"deflate", false},
		{"", false}, {"identity", false}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", accepted.encoding)
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != accepted.want {
			t.Errorf("Accept-Encoding %q: compressed is %v", accepted.encoding, got)
		}
	}
}
