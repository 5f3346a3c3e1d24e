package hostile

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// largeListAttacks are attacks on the memory of watches and lists by the size of the objects that they return.
func largeListAttacks() []row {
	return []row{
		{
			// Each of the watches may hold a buffer and a position, but no copy of an object: 100 KiB with its stream.
			name: "watches of large objects that read nothing", row: "7",
			fresh:  true,
			rights: []right{{resources: "configmaps", verbs: "list,watch"}},
			setup:  func(a *attack) { a.createLarge(20, 300<<10) },
			run:    stalledLargeWatches,
			limits: limits{cpu: 20 * time.Second, peak: 160 << 20, kept: 64 << 20, goroutines: 60},
		},
		{
			name: "lists of more than fits in memory", slow: true, row: "38",
			fresh:  true,
			rights: []right{{resources: "configmaps", verbs: "list,watch"}},
			setup:  func(a *attack) { a.createLarge(160, 900<<10) },
			run:    largeLists,
			// The objects may stay in memory, because they take less than cache.Memory.LoadedBytes, and so may encodings.
			limits: limits{cpu: 15 * time.Second, peak: 500 << 20, kept: 240 << 20, goroutines: 60},
		},
	}
}

// createLarge creates n ConfigMaps of size bytes.
func (a *attack) createLarge(n, size int) {
	for i := range n {
		a.create(a.path("configmaps"), configMap(fmt.Sprintf("large-%03d", i), size))
	}
}

// stalledLargeWatches opens watches whose client has a window of 4 KB and reads nothing, and changes the objects then.
func stalledLargeWatches(a *attack) {
	const streams = 80 // on a connection
	for range size(640, 1200) / streams {
		a.stalledStreams(streams, a.path("configmaps?watch=1&resourceVersion=0"))
	}
	for i := range 20 {
		body := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		a.admin.send(http.MethodPatch, a.path("configmaps/large-"+fmt.Sprintf("%03d", i)), mergeType, body).
			want(a, http.StatusOK)
	}
}

// stalledStreams sends requests on a connection whose streams have a window of 4 KB, and reads nothing.
func (a *attack) stalledStreams(n int, path string, pairs ...string) {
	a.Helper()
	c := a.dialHTTP2(false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4 << 10})
	pairs = append([]string{"authorization", "Bearer " + a.user.token}, pairs...)
	for i := range n {
		if err := c.headers(uint32(2*i+1), true, http.MethodGet, path, pairs...); err != nil {
			a.Fatalf("request %d: %v", i, err)
		}
	}
}

// largeLists lists 140 MB in every encoding, beside readers that stall. These are fewer lists than would load the
// objects, because they are read often.
func largeLists(a *attack) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	const all, size = 160, 900 << 10
	a.stalledStreams(5, a.path("configmaps"))
	a.stalledStreams(2, a.path("configmaps"), "accept", protoType)
	var list listMeta
	if err := json.Unmarshal(a.user.get(a.path("configmaps?limit=1")).want(a, http.StatusOK).body, &list); err != nil {
		a.Fatal(err)
	}
	for _, read := range []struct {
		query, accept, encoding string
		least                   int64
	}{
		{"", jsonType, "identity", all * size},
		{"", jsonType, "gzip", all * size},
		{"", protoType, "gzip", all * size},
		{"", yamlType, "identity", all * size},
		{"", table, "gzip", all * 100},
		{"?resourceVersion=0", jsonType, "gzip", all * size},
		{"?resourceVersionMatch=Exact&resourceVersion=" + list.Metadata.ResourceVersion, jsonType, "gzip", all * size},
		{
			"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
			jsonType, "identity", all * size,
		},
	} {
		if n := a.readAll(a.path("configmaps"+read.query), read.accept, read.encoding); n < read.least {
			a.Errorf("%s as %s, %s: %d bytes, want %d or more", read.query, read.accept, read.encoding, n, read.least)
		}
	}
}

// readAll reads a response to its end and returns its length, uncompressed.
func (a *attack) readAll(path, accept, encoding string) int64 {
	a.Helper()
	resp, err := a.admin.open(
		context.Background(), http.MethodGet, path, "", nil, "accept", accept, "accept-encoding", encoding,
	)
	if err != nil {
		a.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			a.Fatalf("%s: %v", path, err)
		}
	}
	n, err := io.Copy(io.Discard, body)
	if err != nil || resp.StatusCode != http.StatusOK {
		a.Errorf("%s as %s, %s: %d after %d bytes: %v", path, accept, encoding, resp.StatusCode, n, err)
	}
	return n
}
