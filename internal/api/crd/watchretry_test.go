package crd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// watchNames opens a watch and returns a channel. For each event, the channel gets the type and the name of the
// object, or the code of an error. It is closed when the watch has ended.
func (w *world) watchNames(path string) <-chan string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", w.server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			var e struct {
				Type   string
				Object map[string]any
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				events <- err.Error()
				return
			}
			name, _, _ := unstructured.NestedString(e.Object, "metadata", "name")
			if e.Type == "ERROR" {
				name = fmt.Sprint(e.Object["code"])
			}
			events <- e.Type + " " + name
		}
	}()
	return events
}

// next returns the next events of a watch.
func next(t *testing.T, events <-chan string, n int) (out []string) {
	t.Helper()
	for len(out) < n {
		e := wait.Receive(t, fmt.Sprintf("event %d of %d after %v", len(out)+1, n, out), events)
		if e == "" { // the channel is closed
			return append(out, "the end")
		}
		out = append(out, e)
	}
	return out
}

// TestWatchesAwaitTheWebhook changes objects while the converter fails. A watch of the other version that was open stays
// open, and gets each event once when the converter works again.
func TestWatchesAwaitTheWebhook(t *testing.T) {
	w := newWorld(t)
	const group = "r.example.com"
	w.must(201, "POST", definitions, asJSON,
		webhook(definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	for _, name := range []string{"a", "b"} {
		w.must(201, "POST", v1, asJSON, widget(group, "v1", name, `{"size":1}`))
	}
	list := w.must(200, "GET", v2, "", "")
	revision, _, _ := unstructured.NestedString(list.body, "metadata", "resourceVersion")
	from := v2 + "?watch=1&timeoutSeconds=60&resourceVersion=" + revision
	open := w.watchNames(from)

	w.broken.Store(true)
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "c", `{"size":1}`))
	w.must(200, "PATCH", v1+"/a", asMerge, `{"spec":{"size":2}}`)
	w.must(200, "DELETE", v1+"/b", "", "")
	late := w.watchNames(from)
	// A watch does not wait for the conversion of its initial events.
	begun := w.watchNames(v2 + "?watch=1&timeoutSeconds=60&resourceVersion=0")
	if got, want := next(t, begun, 2), []string{"ERROR 429", "the end"}; !slices.Equal(got, want) {
		t.Errorf("a watch with initial events: %v, want %v", got, want)
	}
	tried := w.calls.Load()
	wait.Until(t, "the watches to try again", func() bool { return w.calls.Load() >= tried+4 })
	w.broken.Store(false)
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "d", `{"size":1}`))
	want := []string{"ADDED c", "MODIFIED a", "DELETED b", "ADDED d"}
	for name, events := range map[string]<-chan string{"open": open, "late": late} {
		if got := next(t, events, len(want)); !slices.Equal(got, want) {
			t.Errorf("the %s watch: %v, want %v", name, got, want)
		}
	}
}

// TestWatchesShareAConversion lets 20 watches of a version wait for the conversion of one object, and checks that
// the converter is called once.
func TestWatchesShareAConversion(t *testing.T) {
	w := newWorld(t)
	const group = "q.example.com"
	w.must(201, "POST", definitions, asJSON,
		webhook(definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	list := w.must(200, "GET", v2, "", "")
	revision, _, _ := unstructured.NestedString(list.body, "metadata", "resourceVersion")
	watches := make([]<-chan string, 20)
	for i := range watches {
		watches[i] = w.watchNames(v2 + "?watch=1&timeoutSeconds=60&resourceVersion=" + revision)
	}
	before, slow := w.calls.Load(), w.holdAt("v2")
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "a", `{"size":1}`))
	<-slow.reached
	close(slow.release)
	for _, events := range watches {
		if got, want := next(t, events, 1), []string{"ADDED a"}; !slices.Equal(got, want) {
			t.Errorf("a watch got %v, want %v", got, want)
		}
	}
	if n := w.calls.Load() - before; n != 1 {
		t.Errorf("%d conversions of one object, want 1", n)
	}
}

// TestListsWithoutTheWebhook lists objects that were converted a moment ago while the converter fails.
func TestListsWithoutTheWebhook(t *testing.T) {
	w := newWorld(t)
	const group = "s.example.com"
	w.must(201, "POST", definitions, asJSON,
		webhook(definition(group, versionOf("v1", "true", "size"), versionOf("v2", "false", "length"))))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	w.must(201, "POST", v1, asJSON, widget(group, "v1", "a", `{"size":1}`))
	w.beginPeriod()
	w.must(200, "GET", v2, "", "")
	w.broken.Store(true)
	for _, at := range []struct {
		later time.Duration
		want  int
	}{{20 * time.Second, 200}, {40 * time.Second, 500}} {
		w.ahead.Add(int64(at.later))
		w.must(at.want, "GET", v2, "", "")
		w.must(at.want, "GET", v2+"/a", "", "")
	}
}
