package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variantsEach is the number of variants of each object that TestRealDefinitionsAsKubeAPIServer sends, unless
// KEELSON_VARIANTS has another number.
const variantsEach = 12

// TestRealDefinitionsAsKubeAPIServer creates the same real definitions in kube-apiserver and in Keelson and compares
// the responses: to the definitions, to the samples of the projects, to objects made from the schemas, and to variants
// of all of them that have an error in one place.
func TestRealDefinitionsAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	reference := kubeAPIServer(t, dir, startEtcd(t, dir))
	keelson := keelsonOn(t, dir)
	variants := variantsEach
	if s := os.Getenv("KEELSON_VARIANTS"); s != "" {
		var err error
		if variants, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*apiServer{reference, keelson} {
		s.namespace(t, samplesNamespace)
	}
	c := &comparison{reference: reference, keelson: keelson}
	written := readObjects(t)
	for _, p := range readProjects(t) {
		t.Run(p.String(), func(t *testing.T) {
			m := p.read(t)
			reference.install(t, m)
			keelson.install(t, m)
			for _, d := range m.definitions {
				if err := c.same(t.Context(), http.MethodGet, definitionsPath+"/"+d.Name, "", nil); err != nil {
					t.Error(err)
				}
			}
			requests := m.dryRuns(written, variants)
			t.Logf("%d requests", len(requests))
			each(t, requests, func(r dryRun) error { return c.same(t.Context(), r.method, r.path, r.contentType, r.body) })
		})
	}
}

// dryRun is a write that changes nothing.
type dryRun struct {
	method, path, contentType string
	body                      []byte
}

// dryRuns returns creations and applications of all objects of a project and of variants of them.
func (m *manifests) dryRuns(written []sample, variants int) []dryRun {
	var out []dryRun
	random := rand.New(rand.NewPCG(1, 2)) // the same variants in each run
	add := func(r realResource, object map[string]any) {
		body := marshal(object)
		name, _ := dig(object, "metadata", "name").(string)
		out = append(out,
			dryRun{http.MethodPost, r.collection() + "?dryRun=All&fieldValidation=Strict&fieldManager=e2e", jsonType, body},
			dryRun{http.MethodPatch, r.collection() + "/" + name + "?dryRun=All&fieldManager=e2e", applyType, body})
	}
	try := func(r realResource, object map[string]any) {
		object = r.at(sample{object: object})
		if name, _ := dig(object, "metadata", "name").(string); name == "" {
			return
		}
		add(r, object)
		for range variants {
			add(r, variant(random, object))
		}
	}
	for _, x := range append(m.samples, written...) {
		if r, ok := m.resourceOf(x); ok {
			try(r, x.object)
		}
	}
	for _, r := range m.resources() {
		try(r, minimalObject(r.raw, r.rawVersion))
		try(r, fullObject(r.raw, r.rawVersion))
	}
	return out
}

// variant returns a copy of an object with another value in one place, not in its apiVersion, kind and metadata.
func variant(random *rand.Rand, object map[string]any) map[string]any {
	out := clone(object).(map[string]any)
	var places []func(any) // each sets one value, or removes it if the argument is absent{}
	collect(out, &places, true)
	if len(places) == 0 {
		return out
	}
	values := []any{
		absent{}, nil, "", "x", int64(0), int64(-1), int64(1) << 40, 1.5, true, []any{}, map[string]any{}, []any{"x", "x"},
		map[string]any{"unknown": "x"}, strings.Repeat("x", 300),
	}
	places[random.IntN(len(places))](values[random.IntN(len(values))])
	return out
}

type absent struct{}

func collect(v any, places *[]func(any), top bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			if top && (name == "apiVersion" || name == "kind" || name == "metadata") {
				continue
			}
			collect(v[name], places, false)
			*places = append(*places, func(value any) {
				if value == (absent{}) {
					delete(v, name)
				} else {
					v[name] = value
				}
			})
		}
	case []any:
		for i := range v {
			collect(v[i], places, false)
			*places = append(*places, func(value any) {
				if value == (absent{}) {
					value = v[0] // one element twice
				}
				v[i] = value
			})
		}
	}
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return v
}

// comparison sends the same requests to two servers.
type comparison struct{ reference, keelson *apiServer }

// patience is how long the test waits until both servers return the same, because their controllers write conditions
// asynchronously.
const patience = 10 * time.Second

func (c *comparison) same(ctx context.Context, method, path, contentType string, body []byte) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		wantStatus, want, err := c.reference.call(ctx, method, path, jsonType, contentType, body)
		if err != nil {
			return err
		}
		status, got, err := c.keelson.call(ctx, method, path, jsonType, contentType, body)
		if err != nil {
			return err
		}
		want, got = normalized(want), normalized(got)
		if status == wantStatus && bytes.Equal(want, got) {
			return nil
		}
		if method == http.MethodGet && time.Now().Before(end) {
			continue
		}
		return fmt.Errorf(
			"%s %s: kube-apiserver %d, Keelson %d, %s\nof %.1500s", method, path, wantStatus, status, firstDifference(want, got),
			body,
		)
	}
}

// normalized removes UIDs, times and versions, which always differ. It sorts conditions, the causes of a Status (and
// its message, which lists them), and merge errors, which have no defined order.
func normalized(answer []byte) []byte {
	var v map[string]any
	if err := json.Unmarshal(answer, &v); err != nil {
		return answer
	}
	if metadata, _ := v["metadata"].(map[string]any); metadata != nil {
		for _, name := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			delete(metadata, name)
		}
		managed, _ := metadata["managedFields"].([]any)
		for _, entry := range managed {
			delete(entry.(map[string]any), "time")
		}
	}
	if conditions, _ := dig(v, "status", "conditions").([]any); v["kind"] == "CustomResourceDefinition" {
		for _, condition := range conditions {
			delete(condition.(map[string]any), "lastTransitionTime")
		}
		sortValues(conditions)
	}
	message, _ := v["message"].(string)
	if causes, _ := dig(v, "details", "causes").([]any); len(causes) > 0 {
		sortValues(causes)
		delete(v, "message")
	} else if strings.Contains(message, "errors:\n") {
		lines := strings.Split(message, "\n")
		slices.Sort(lines)
		v["message"] = strings.Join(lines, "\n")
	}
	return marshal(v)
}

func sortValues(list []any) {
	slices.SortFunc(list, func(a, b any) int { return bytes.Compare(marshal(a), marshal(b)) })
}
