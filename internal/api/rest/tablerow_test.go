package rest_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// TestCachedRowsEqualNewRows compares the cached rows of every kind with rows that are made from the decoded object at
// each request.
func TestCachedRowsEqualNewRows(t *testing.T) {
	now := time.Now()
	reg, server := verbsServerAt(t, func() time.Time { return now })
	creates := recordedCreates(t)
	c := caller{t, server}
	for _, r := range reg.Resources() {
		version := r.Kind.Version(r.Kind.Storage.Version)
		create, ok := creates[collectionPath(r.Kind, version)]
		if r.Virtual() || !ok || version.Disabled {
			continue
		}
		t.Run(r.Kind.GroupResource().String(), func(t *testing.T) {
			c := caller{t, server}
			resp := c.send(t.Context(), http.MethodPost, create.Path, "application/json", create.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				t.Fatalf("POST %s: %d", create.Path, resp.StatusCode)
			}
			// Read twice at the same time, and then later: ages in seconds, days and years have different forms.
			for _, later := range []time.Duration{0, 0, 90 * time.Second, 49 * time.Hour, 3 * 365 * 24 * time.Hour, -time.Hour} {
				now = now.Add(later)
				got := cellsOf(t, c.get(create.Path, asTable))
				if want := cellsMadeAnew(t, r, now); !reflect.DeepEqual(got, want) {
					t.Fatalf("after %s\n got %v\nwant %v", later, got, want)
				}
			}
		})
	}
	// An object that has changed must not show its cached row.
	const path = "/api/v1/namespaces/" + someNamespace + "/configmaps"
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"changes"},"data":`
	for _, step := range []struct {
		method, path, data string
		count              float64
	}{{http.MethodPost, path, `{"a":"1"}`, 1}, {http.MethodPut, path + "/changes", `{"a":"1","b":"2"}`, 2}} {
		c.send(t.Context(), step.method, step.path, "application/json", []byte(body+step.data+"}")).Body.Close()
		if rows := cellsOf(t, c.get(path+"/changes", asTable)); len(rows) != 1 || rows[0].([]any)[1] != step.count {
			t.Errorf("%s: %v, want %v keys", step.method, rows, step.count)
		}
	}
}

func cellsOf(t *testing.T, table []byte) (cells []any) {
	t.Helper()
	var parsed struct {
		Rows []struct {
			Cells      any
			Conditions any
			Object     struct{ Kind string }
		}
	}
	if err := json.Unmarshal(table, &parsed); err != nil {
		t.Fatalf("%v: %.300s", err, table)
	}
	for _, row := range parsed.Rows {
		if row.Object.Kind != "PartialObjectMetadata" {
			t.Errorf("a row carries %q", row.Object.Kind)
		}
		cells = append(cells, row.Cells)
	}
	return cells
}

func cellsMadeAnew(t *testing.T, r *registry.Resource, now time.Time) (cells []any) {
	t.Helper()
	if err := r.Reader.All(t.Context(), "", func(o *cache.Object) bool {
		obj, err := r.Decoder.Decode(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		values := []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		if r.Kind.Table.Cells != nil {
			values = r.Kind.Table.Cells(obj)
		}
		for i, value := range values {
			if e, ok := value.(registry.Elapsed); ok {
				values[i] = e.Before + registry.ElapsedText(e.Since, now) + e.After
			}
		}
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		var row any
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		cells = append(cells, row)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return cells
}
