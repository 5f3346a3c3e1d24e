package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource"
)

// TestNamesOfAllKinds creates an object of each kind under names that cannot be part of a path. No such object is
// stored, and a request for one is refused.
func TestNamesOfAllKinds(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	creates := recordedCreates(t)
	for _, kind := range resource.Kinds(features.Gates{}) {
		for i := range kind.Versions {
			create, ok := creates[collectionPath(kind, &kind.Versions[i])]
			if !ok || kind.Versions[i].Disabled {
				continue
			}
			for _, name := range []string{"..", ".", "a/b", "a%b", "../../pods/x", "%2e%2e", "a\x00b"} {
				for _, member := range []string{"name", "generateName"} {
					if member == "generateName" && (name == "." || name == "..") {
						continue // a suffix makes it a name
					}
					var obj map[string]any
					if err := json.Unmarshal(create.Body, &obj); err != nil {
						t.Fatal(err)
					}
					metadata := obj["metadata"].(map[string]any)
					delete(metadata, "name")
					metadata[member] = name
					body, _ := json.Marshal(obj)
					resp := c.send(t.Context(), http.MethodPost, create.Path, "application/json", body)
					answer, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode < 400 || resp.StatusCode >= 500 {
						t.Errorf("%s %s %q: %d %.200s", create.Path, member, name, resp.StatusCode, answer)
					}
				}
				if name == "a/b" || name == "../../pods/x" || name == "a\x00b" {
					continue // another path, or a name that no object has
				}
				resp := c.send(t.Context(), http.MethodGet, create.Path+"/"+url.PathEscape(name), "application/json", nil)
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("GET %s/%s: %d", create.Path, name, resp.StatusCode)
				}
			}
		}
	}
}
