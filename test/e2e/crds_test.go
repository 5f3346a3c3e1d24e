package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	definitionsPath  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	applyType        = "application/apply-patch+yaml"
	tableType        = "application/json;as=Table;v=v1;g=meta.k8s.io"
	samplesNamespace = "samples"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestRealDefinitions installs the definitions of well-known projects, from their Go modules, and carries out all
// operations of clients on objects of every kind and served version. The objects are the projects' own samples, those
// in testdata/crds/objects.yaml, and objects made from the schemas.
func TestRealDefinitions(t *testing.T) {
	s := definitionsServer(t, logDir(t))
	s.namespace(t, samplesNamespace)
	written := readObjects(t)
	for _, p := range readProjects(t) {
		t.Run(p.String(), func(t *testing.T) {
			m := p.read(t)
			s.install(t, m)
			tried := map[string]int{}
			for _, x := range append(m.samples, written...) {
				if r, ok := m.resourceOf(x); ok {
					tried[r.gvk()]++
					r.walk(t, s, x)
				}
			}
			fromSamples := len(tried)
			for _, r := range m.resources() {
				if tried[r.gvk()] == 0 {
					tried[r.gvk()]++
					r.walk(t, s, sample{"made of the schema", minimalObject(r.raw, r.rawVersion)})
				}
			}
			t.Logf("%d definitions, %d kinds in a version, %d of them by samples", len(m.definitions), len(tried), fromSamples)
		})
	}
}

// definitionsServer returns Keelson, or kube-apiserver if KEELSON_TEST_KUBE_APISERVER is set, to check the expectations
// of the test against kube-apiserver.
func definitionsServer(t *testing.T, dir string) *apiServer {
	t.Helper()
	if os.Getenv("KEELSON_TEST_KUBE_APISERVER") != "" {
		return kubeAPIServer(t, dir, startEtcd(t, dir))
	}
	return keelsonOn(t, dir)
}

// readObjects reads the objects for the kinds whose objects cannot be made from the schema.
func readObjects(t *testing.T) []sample {
	t.Helper()
	content, err := os.ReadFile("testdata/crds/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []sample
	for i, doc := range strings.Split(string(content), "\n---\n") {
		var o map[string]any
		if err := sigsyaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("objects.yaml, document %d: %v", i, err)
		}
		if o != nil {
			out = append(out, sample{fmt.Sprintf("objects.yaml#%d", i), o})
		}
	}
	return out
}

func (s *apiServer) namespace(t *testing.T, name string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	if status, answer := s.must(
		t, http.MethodPost, "/api/v1/namespaces", jsonType, jsonType, body,
	); status != http.StatusCreated {
		t.Fatalf("%s: %d %s", s.name, status, answer)
	}
}

// install creates the definitions and waits until all are established.
func (s *apiServer) install(t *testing.T, m *manifests) {
	t.Helper()
	for i, d := range m.definitions {
		status, answer := s.must(t, http.MethodPost, definitionsPath, jsonType, jsonType, marshal(m.raw[i]))
		if status != http.StatusCreated {
			t.Fatalf("%s: creating %s: %d %.2000s", s.name, d.Name, status, answer)
		}
	}
	for _, d := range m.definitions {
		eventually(
			t, time.Minute, d.Name+" is established by "+s.name,
			func(ctx context.Context) error { return s.established(ctx, d.Name) },
		)
	}
}

func (s *apiServer) established(ctx context.Context, name string) error {
	_, answer, err := s.call(ctx, http.MethodGet, definitionsPath+"/"+name, jsonType, "", nil)
	if err != nil {
		return err
	}
	var d apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
		if c.Type == apiextensionsv1.NonStructuralSchema ||
			c.Type == apiextensionsv1.KubernetesAPIApprovalPolicyConformant && c.Status == apiextensionsv1.ConditionFalse {
			return fmt.Errorf("%s: %s", c.Type, c.Message)
		}
	}
	return fmt.Errorf("conditions %v", d.Status.Conditions)
}

// realResource is the kind of a definition in one version.
type realResource struct {
	definition      *apiextensionsv1.CustomResourceDefinition
	version         *apiextensionsv1.CustomResourceDefinitionVersion
	raw, rawVersion map[string]any
}

// resources returns the kinds of a project in all served versions.
func (m *manifests) resources() []realResource {
	var out []realResource
	for i, d := range m.definitions {
		raw := dig(m.raw[i], "spec", "versions").([]any)
		for j := range d.Spec.Versions {
			if d.Spec.Versions[j].Served {
				out = append(out, realResource{d, &d.Spec.Versions[j], m.raw[i], raw[j].(map[string]any)})
			}
		}
	}
	return out
}

func (m *manifests) resourceOf(x sample) (realResource, bool) {
	for _, r := range m.resources() {
		if x.object["apiVersion"] == r.definition.Spec.Group+"/"+r.version.Name &&
			x.object["kind"] == r.definition.Spec.Names.Kind {
			return r, true
		}
	}
	return realResource{}, false
}

func (r realResource) gvk() string {
	return r.definition.Spec.Group + "/" + r.version.Name + " " + r.definition.Spec.Names.Kind
}

// collection returns the path of the resource's objects in the namespace of the test.
func (r realResource) collection() string {
	path := "/apis/" + r.definition.Spec.Group + "/" + r.version.Name
	if r.definition.Spec.Scope == apiextensionsv1.NamespaceScoped {
		path += "/namespaces/" + samplesNamespace
	}
	return path + "/" + r.definition.Spec.Names.Plural
}

// at returns the object with the namespace of the test.
func (r realResource) at(x sample) map[string]any {
	object := maps.Clone(x.object)
	metadata := maps.Clone(x.metadata())
	if metadata == nil {
		metadata = map[string]any{}
	}
	delete(metadata, "namespace")
	if r.definition.Spec.Scope == apiextensionsv1.NamespaceScoped {
		metadata["namespace"] = samplesNamespace
	}
	object["metadata"] = metadata
	return object
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from YAML
	}
	return b
}

// walker carries out all operations on one object.
type walker struct {
	realResource
	t        *testing.T
	s        *apiServer
	origin   string
	path     string // of the object
	manifest []byte
	events   *events
}

// walk creates, reads, lists, applies, updates and deletes an object, while it watches it.
func (r realResource) walk(t *testing.T, s *apiServer, x sample) {
	t.Helper()
	object := r.at(x)
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	if name == "" {
		return // the object has generateName
	}
	w := &walker{
		realResource: r, t: t, s: s, origin: x.origin, path: r.collection() + "/" + name, manifest: marshal(object),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	list, err := w.list(ctx)
	if err != nil {
		t.Errorf("%s: %v", r.gvk(), err)
		return
	}
	w.events, err = s.watch(ctx, r.collection(), dig(list, "metadata", "resourceVersion").(string), name)
	if err != nil {
		t.Errorf("%s: watching: %v", r.gvk(), err)
		return
	}
	defer w.events.close()
	created := w.do(http.MethodPost, r.collection(), jsonType, w.manifest, http.StatusCreated)
	if created == nil {
		return
	}
	w.reads(created)
	w.writes(created)
	w.do(http.MethodDelete, w.path, jsonType, nil, http.StatusOK)
	w.do(http.MethodGet, w.path, jsonType, nil, http.StatusNotFound)
	w.sees("DELETED")
	w.do(http.MethodPatch, w.path+"?fieldManager=e2e", applyType, w.manifest, http.StatusCreated)
	w.sees("ADDED")
	w.do(http.MethodDelete, w.path, jsonType, nil, http.StatusOK)
	w.sees("DELETED")
}

// list lists the collection as soon as the server can do so: kube-apiserver answers 429 while it prepares the storage
// of a definition.
func (w *walker) list(ctx context.Context) (list map[string]any, err error) {
	for {
		status, answer, err := w.s.call(ctx, http.MethodGet, w.collection(), jsonType, "", nil)
		if err != nil {
			return nil, err
		}
		switch status {
		case http.StatusOK:
			err := json.Unmarshal(answer, &list)
			return list, err
		case http.StatusTooManyRequests:
			time.Sleep(100 * time.Millisecond)
		default:
			return nil, fmt.Errorf("GET %s: %d %s", w.collection(), status, answer)
		}
	}
}

// do sends a request, and returns the response if it has the expected status.
func (w *walker) do(method, path, contentType string, body []byte, want int) map[string]any {
	w.t.Helper()
	status, answer := w.s.must(w.t, method, path, jsonType, contentType, body)
	if status != want {
		w.t.Errorf(
			"%s of %s: %s %s: %d, want %d: %.2000s\n%.3000s", w.gvk(), w.origin, method, path, status, want, answer, body,
		)
		return nil
	}
	var out map[string]any
	if err := json.Unmarshal(answer, &out); err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return nil
	}
	return out
}

// reads compares the ways of reading an object with the response to its creation.
func (w *walker) reads(created map[string]any) {
	w.t.Helper()
	want := string(marshal(created))
	if got := w.do(http.MethodGet, w.path, jsonType, nil, http.StatusOK); string(marshal(got)) != want {
		w.t.Errorf("%s: GET is not what was created:\n%s\n%s", w.path, marshal(got), want)
	}
	if event := w.events.next(); event.Type != "ADDED" || string(marshal(event.Object)) != want {
		w.t.Errorf("%s: watching: %v, %s\n%s", w.path, event.err, marshal(event), want)
	}
	list := w.do(http.MethodGet, w.collection(), jsonType, nil, http.StatusOK)
	items, _ := list["items"].([]any)
	if len(items) != 1 || string(marshal(items[0])) != want {
		w.t.Errorf("%s: the list is %s\n%s", w.path, marshal(list), want)
	}
	_, answer := w.s.must(w.t, http.MethodGet, w.collection(), tableType, "", nil)
	var table struct {
		ColumnDefinitions []any
		Rows              []struct{ Cells []any }
	}
	columns := max(2, 1+len(w.version.AdditionalPrinterColumns)) // without columns there is the age
	if err := json.Unmarshal(answer, &table); err != nil || len(table.Rows) != 1 ||
		len(table.ColumnDefinitions) != columns || len(table.Rows[0].Cells) != columns {
		w.t.Errorf("%s: %v: the table has not one row of %d cells: %s", w.path, err, columns, answer)
	}
	for _, other := range w.definition.Spec.Versions {
		if other.Served && other.Name != w.version.Name {
			path := strings.Replace(w.path, "/"+w.version.Name+"/", "/"+other.Name+"/", 1)
			if o := w.do(http.MethodGet, path, jsonType, nil, http.StatusOK); o != nil &&
				o["apiVersion"] != w.definition.Spec.Group+"/"+other.Name {
				w.t.Errorf("%s: is in version %v", path, o["apiVersion"])
			}
		}
	}
}

// writes changes the object in all possible ways. Only a change of the spec increases the generation. If there are
// several versions, fields that one version defaults and another prunes count, too.
func (w *walker) writes(created map[string]any) {
	w.t.Helper()
	generation := dig(created, "metadata", "generation")
	applied := w.do(http.MethodPatch, w.path+"?fieldManager=e2e&force=true", applyType, w.manifest, http.StatusOK)
	if applied == nil {
		return
	}
	w.modified(created, applied)
	several := len(w.definition.Spec.Versions) > 1
	if got := dig(applied, "metadata", "generation"); got != generation && !several {
		w.t.Errorf("%s: applying what is there is generation %v, not %v", w.path, got, generation)
	}
	metadata := applied["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels["e2e"] = "updated"
	metadata["labels"] = labels
	updated := w.do(http.MethodPut, w.path, jsonType, marshal(applied), http.StatusOK)
	if updated == nil {
		return
	}
	w.sees("MODIFIED")
	if dig(updated, "metadata", "labels", "e2e") != "updated" ||
		dig(updated, "metadata", "generation") != generation && !several {
		w.t.Errorf("%s: updated to %s", w.path, marshal(updated["metadata"]))
	}
	w.writesStatus(updated)
	w.readsScale()
}

func (w *walker) writesStatus(object map[string]any) {
	w.t.Helper()
	if w.version.Subresources == nil || w.version.Subresources.Status == nil {
		return
	}
	status := statusOf(w.rawVersion)
	if status == nil {
		return
	}
	object["status"] = status
	updated := w.do(http.MethodPut, w.path+"/status", jsonType, marshal(object), http.StatusOK)
	if updated == nil {
		return
	}
	if m, _ := status.(map[string]any); len(m) > 0 && updated["status"] == nil {
		w.t.Errorf("%s: the status is gone", w.path)
	}
	if dig(updated, "metadata", "generation") != dig(object, "metadata", "generation") {
		w.t.Errorf("%s: a change of the status is a generation", w.path)
	}
	w.modified(object, updated)
}

func (w *walker) readsScale() {
	w.t.Helper()
	if w.version.Subresources == nil || w.version.Subresources.Scale == nil {
		return
	}
	status, answer := w.s.must(w.t, http.MethodGet, w.path+"/scale", jsonType, "", nil)
	// An object without replicas in its spec has no scale.
	if status != http.StatusOK && !strings.Contains(string(answer), "replicas") &&
		!strings.Contains(string(answer), "Replicas") {
		w.t.Errorf("%s/scale: %d %s", w.path, status, answer)
	}
}

// modified waits for the event of a change, if there was a change: applying an object without any field, or the
// current status, changes nothing.
func (w *walker) modified(before, after map[string]any) {
	w.t.Helper()
	if dig(before, "metadata", "resourceVersion") != dig(after, "metadata", "resourceVersion") {
		w.sees("MODIFIED")
	}
}

func (w *walker) sees(want string) {
	w.t.Helper()
	if e := w.events.next(); e.err != nil || e.Type != want {
		w.t.Errorf("%s: watching for %s: %v %s", w.path, want, e.err, marshal(e))
	}
}

// events are the events of one object.
type events struct {
	name string
	body *http.Response
	in   *json.Decoder
}

type event struct {
	Type   string
	Object map[string]any
	err    error
}

// watch watches the objects of a collection that have a name.
func (s *apiServer) watch(ctx context.Context, collection, since, name string) (*events, error) {
	r, err := http.NewRequestWithContext(
		ctx, http.MethodGet, s.url+collection+"?watch=1&resourceVersion="+since+"&fieldSelector=metadata.name%3D"+name, nil,
	)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("watch of %s: %s", collection, resp.Status)
	}
	return &events{name: name, body: resp, in: json.NewDecoder(bufio.NewReader(resp.Body))}, nil
}

func (e *events) next() event {
	var out event
	out.err = e.in.Decode(&out)
	return out
}

func (e *events) close() { _ = e.body.Body.Close() }
