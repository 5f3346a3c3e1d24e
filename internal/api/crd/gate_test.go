package crd_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCreateOutlivesItsDefinition stops a create through the other version, once before its object is stored and
// once while it is being stored, and deletes the definition. A new definition of the same name must not have the
// object.
func TestCreateOutlivesItsDefinition(t *testing.T) {
	for _, held := range []struct {
		place string
		want  int
	}{{inAdmission, 403}, {"v1", 201}, {"v2", 201}} {
		t.Run(held.place, func(t *testing.T) {
			w := newWorld(t)
			const group = "o.example.com"
			text := definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))
			w.must(201, "POST", definitions, asJSON, text)
			const name, v1, v2 = definitions + "/widgets." + group,
				"/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
			w.await(200, v1)
			h := w.holdAt(held.place)
			created := make(chan answer, 1)
			go func() { created <- w.do("POST", v2, asJSON, widget(group, "v2", "a", `{"length":1}`)) }()
			<-h.reached
			w.must(200, "DELETE", name, "", "")
			// The deletion waits for a create that has begun to store its object, so the definition stays. No
			// event tells the test that it stays; the loop gives a wrong server the time to remove it.
			for try := 0; try < 100 && w.get(name).code == 200; try++ {
				time.Sleep(time.Millisecond)
			}
			close(h.release)
			if a := <-created; a.code != held.want {
				t.Errorf("the create: %d, want %d: %s", a.code, held.want, a.text)
			}
			w.await(404, name)
			w.must(201, "POST", definitions, asJSON, text)
			if a := w.await(200, v1); len(items(a)) > 0 {
				t.Errorf("objects of the deleted definition: %s", a.text)
			}
		})
	}
}

// TestCreatorsMeetDeletions creates objects all the time while their definition is deleted and made again.
func TestCreatorsMeetDeletions(t *testing.T) {
	const group, creators, lives = "q.example.com", 8, 25
	w := newWorld(t)
	text := definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))
	const name, v1, v2 = definitions + "/widgets." + group,
		"/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.must(201, "POST", definitions, asJSON, text)
	w.await(200, v1)
	ended := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(ended)
	for c := range creators {
		path, version, field := v1, "v1", "size"
		if c%2 == 1 {
			path, version, field = v2, "v2", "length"
		}
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
					w.do("POST", path, asJSON, widget(group, version, fmt.Sprintf("a-%d-%d", c, n), `{"`+field+`":1}`))
				}
			}
		})
	}
	revision := func(object map[string]any) int64 {
		text, _, _ := unstructured.NestedString(object, "metadata", "resourceVersion")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Errorf("%v: %v", object["metadata"], err)
		}
		return n
	}
	for range lives {
		w.must(200, "DELETE", name, "", "")
		w.await(404, name)
		made := revision(w.must(201, "POST", definitions, asJSON, text).body)
		old := 0
		for _, object := range items(w.await(200, v1)) {
			if revision(object) < made {
				old++
			}
		}
		if old > 0 {
			t.Errorf("%d objects are older than their definition", old)
		}
	}
}

// items returns the items of a list.
func items(list answer) (out []map[string]any) {
	members, _, _ := unstructured.NestedSlice(list.body, "items")
	for _, m := range members {
		out = append(out, m.(map[string]any))
	}
	return out
}

// TestDeletionOfAnEarlierDefinition removes the finalizer of a definition while a finalizer keeps its object, and
// creates the definition again. The deletion of the earlier definition still runs. It must not write to the new
// definition, nor hinder its deletion.
func TestDeletionOfAnEarlierDefinition(t *testing.T) {
	w := newWorld(t)
	const group = "again.example.com"
	const name, path = "widgets." + group, "/apis/" + group + "/v1/namespaces/x/widgets"
	text := definition(group, versionOf("v1", "true", "size"))
	w.must(201, "POST", definitions, asJSON, text)
	w.await(200, path)
	w.must(201, "POST", path, asJSON, strings.Replace(
		widget(group, "v1", "held", `{}`), `"name":"held"`, `"name":"held","finalizers":["example.com/hold"]`, 1))
	w.must(200, "DELETE", definitions+"/"+name, "", "")
	w.awaitCondition(name, "Terminating", "InstanceDeletionInProgress")
	w.must(200, "PATCH", definitions+"/"+name, asMerge, `{"metadata":{"finalizers":null}}`)
	w.await(404, definitions+"/"+name)
	w.must(201, "POST", definitions, asJSON, text)
	w.await(200, path)
	// The earlier deletion gives up after 60 tries with pauses, in about two seconds.
	for range 60 {
		if a := w.must(200, "GET", definitions+"/"+name, "", ""); strings.Contains(a.text, `"Terminating"`) {
			t.Fatalf("the deletion of the earlier definition has written to the new one: %s", a.text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.must(201, "POST", path, asJSON, widget(group, "v1", "new", `{}`))
	w.must(200, "PATCH", path+"/held", asMerge, `{"metadata":{"finalizers":null}}`)
	w.must(200, "DELETE", definitions+"/"+name, "", "")
	w.await(404, definitions+"/"+name)
}
