package rest_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestWatchListsAreCompressed: as in kube-apiserver 1.37, events are compressed if the watch begins with the
// objects that exist and marks their end.
func TestWatchListsAreCompressed(t *testing.T) {
	const path = apitest.ConfigMapsPath + "?watch=1&timeoutSeconds=1&"
	const initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"
	queries := map[string]bool{
		initial + "allowWatchBookmarks=true": true, "allowWatchBookmarks=true": true,
		"allowWatchBookmarks=true&resourceVersion=0": true, initial: false, "": false,
		"allowWatchBookmarks=true&resourceVersion=1": false,
	}
	for _, gate := range []bool{true, false} {
		t.Run(fmt.Sprint(gate), func(t *testing.T) {
			c := servertest.Default()
			if !gate {
				c.API.FeatureGates = append(c.API.FeatureGates, "WatchListCompression=false")
			}
			s := servertest.Start(t, c)
			s.Create(apitest.ConfigMapsPath, apitest.ConfigMap("small"))
			s.Create(apitest.ConfigMapsPath, `{"metadata":{"name":"large"},"data":{"a":"`+strings.Repeat("abc", 100_000)+`"}}`)
			for query, zips := range queries {
				t.Run(query, func(t *testing.T) {
					t.Parallel() // each takes a second
					a := apitest.Send(t, s.HTTP(), "GET", s.Server.URL()+path+query, "", "Accept-Encoding", "br, gzip")
					checkWatch(t, a, gate && zips)
				})
			}
		})
	}
}

// checkWatch checks whether the events of a watch are compressed, and that a compressed stream is complete.
func checkWatch(t *testing.T, a apitest.Answer, zipped bool) {
	if got := a.Header.Get("Content-Encoding") == "gzip"; got != zipped {
		t.Fatalf("compressed %v, want %v", got, zipped)
	}
	if !zipped {
		return
	}
	body, err := gzip.NewReader(strings.NewReader(a.Body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"name":"small"`, `"name":"large"`, `"k8s.io/initial-events-end":"true"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %.300s", want, text)
		}
	}
	if len(a.Body) > 20_000 {
		t.Errorf("%d bytes", len(a.Body))
	}
}
