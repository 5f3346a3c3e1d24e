package patch

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// recorded is one PATCH that kube-apiserver answered (testdata/recorded.jsonl.gz).
type recorded struct {
	Name       string
	Kind       string
	Type       string
	Validation Validation
	Live       json.RawMessage
	Body       string
	Expect     json.RawMessage
	Warnings   []string
}

type object interface {
	runtime.Object
	metav1.Object
}

var kinds = map[string]func() object{
	"ConfigMap":      func() object { return &corev1.ConfigMap{} },
	"Pod":            func() object { return &corev1.Pod{} },
	"Service":        func() object { return &corev1.Service{} },
	"Node":           func() object { return &corev1.Node{} },
	"ServiceAccount": func() object { return &corev1.ServiceAccount{} },
	"Deployment":     func() object { return &appsv1.Deployment{} },
}

// apply does what the PATCH verb does up to the changed object.
func (r recorded) apply(live object) (object, []string, error) {
	into := kinds[r.Kind]()
	if r.Type == "strategic-merge-patch+json" {
		warnings, err := Strategic(live, into, []byte(r.Body), r.Validation)
		return into, warnings, err
	}
	doc, err := json.Marshal(live)
	if err != nil {
		return nil, nil, err
	}
	operation := JSON
	if r.Type == "merge-patch+json" {
		operation = Merge
	}
	patched, strict, err := operation(doc, []byte(r.Body), r.Validation)
	if err != nil {
		return nil, nil, err
	}
	found, err := kjson.UnmarshalStrict(patched, into)
	if err == nil && len(found) > 0 && r.Validation != Ignore {
		err = runtime.NewStrictDecodingError(found)
	}
	warnings, err := Decoded(patched, strict, err, r.Validation)
	return into, warnings, err
}

func TestRecorded(t *testing.T) {
	file, err := os.Open("testdata/recorded.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c recorded
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, c.test)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func (r recorded) test(t *testing.T) {
	live := kinds[r.Kind]()
	if err := json.Unmarshal(r.Live, live); err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(live)
	got, warnings, err := r.apply(live)
	if after, _ := json.Marshal(live); string(after) != string(before) {
		t.Errorf("the live object changed: %s", after)
	}
	var status metav1.Status
	if json.Unmarshal(r.Expect, &status) == nil && status.Kind == "Status" {
		r.testError(t, err, status)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	quoted := make([]string, len(warnings))
	for i, w := range warnings {
		quoted[i] = fmt.Sprintf("299 - %q", w)
	}
	slices.Sort(quoted)
	for _, w := range quoted {
		if !slices.Contains(r.Warnings, w) {
			t.Errorf("warning %s, want %s", w, r.Warnings)
		}
	}
	for _, w := range r.Warnings {
		if strings.Contains(w, "field") && !slices.Contains(quoted, w) {
			t.Errorf("no warning %s", w)
		}
	}
	want := kinds[r.Kind]()
	if err := json.Unmarshal(r.Expect, want); err != nil {
		t.Fatal(err)
	}
	if a, b := shown(t, got), shown(t, want); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

// TestStrategicTwin compares Strategic, which converts only the changed parts of an object, with strategicTree,
// which converts all of it.
func TestStrategicTwin(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}, Finalizers: []string{"x/y"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{
					Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`),
				},
			}},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: []corev1.Toleration{{Key: "k"}},
		},
		Status: corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}},
	}
	for _, body := range []string{
		`{}`, `null`, `{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False"},{"type":"X"}]}}`,
		`{"metadata":{"labels":{"a":null,"c":"d"}}}`,
		`{"metadata":null}`, `{"spec":null}`, `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":null}}`,
		`{"metadata":{"$patch":"replace","name":"b"}}`,
		`{"kind":null}`, `{"kind":"X","apiVersion":"y"}`, `{"$patch":"replace","metadata":{"name":"b"}}`,
		`{"$patch":"delete"}`, `{"nope":1,"spec":{"nope":1}}`,
		`{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d"}],"$setElementOrder/containers":[{"name":"d"},` +
			`{"name":"c"}]}}`,
		`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, `{"spec":"x"}`,
		`{"spec":{"containers":[{"image":"j"}]}}`, `{"spec":{"tolerations":[]}}`,
		`{"metadata":{"finalizers":["z"],"$deleteFromPrimitiveList/finalizers":["x/y"]}}`, `{"metadata":{"labels":5}}`,
		`{"metadata":{"finalizers":[[]]}}`,
		`{"metadata":{"creationTimestamp":"x"}}`, `{"status":{"phase":"A","phase":"B"}}`, `{"metadata":[]}`,
	} {
		for _, v := range []Validation{Ignore, Warn, Strict} {
			patch, strict, err := decodeTree([]byte(body), v)
			if err != nil {
				t.Fatal(err)
			}
			want, got, live := &corev1.Pod{}, &corev1.Pod{}, pod.DeepCopy()
			wantWarnings, wantErr := strategicTree(pod, want, patch, strict, v)
			warnings, err := Strategic(live, got, []byte(body), v)
			if !reflect.DeepEqual(pod, live) {
				t.Errorf("%s changed the live object", body)
			}
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || fmt.Sprint(warnings) != fmt.Sprint(wantWarnings) {
				t.Errorf("%s: got %v %v\nwant %v %v", body, warnings, err, wantWarnings, wantErr)
			}
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if err == nil && string(a) != string(b) {
				t.Errorf("%s: got %s\nwant %s", body, a, b)
			}
		}
	}
}

// TestMergePartsTwin applies merge patches with MergeParts and with Document, and compares the results.
func TestMergePartsTwin(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}, Finalizers: []string{"x/y"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`),
			}}},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "a", Value: "b"}}}},
		},
		Status: corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}},
	}
	document, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		body  string
		taken bool
	}{
		{`{}`, true},
		{`{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False"},{"type":"X","status":null}]}}`, true},
		{`{"metadata":{"labels":{"a":null,"c":"d"}}}`, true},
		{`{"metadata":{"finalizers":[]},"spec":{"activeDeadlineSeconds":7,"nodeName":null}}`, true},
		{`{"metadata":{"managedFields":[]}}`, false}, {`{"metadata":null}`, false}, {`{"spec":null,"status":{}}`, true}, {`{"nope":null}`, true},
		{`{"spec":{"securityContext":{"runAsUser":null,"seLinuxOptions":{"level":null}}}}`, true},
		{`{"kind":null}`, false}, {`{"apiVersion":"v1"}`, false}, {`{"nope":1}`, false}, {`{"spec":"x"}`, false},
		{`{"Status":{"phase":"X"}}`, false}, {`{"$patch":"delete"}`, false}, {`null`, false}, {`{"spec":`, false},
		{`{"status":{"phase":"A","phase":"B"}}`, false}, {`{"metadata":{"labels":5}}`, false},
		{`{"spec":{"activeDeadlineSeconds":1.0}}`, false}, {`{"spec":{"priority":12345678901234567890}}`, false},
	} {
		live, got, want := pod.DeepCopy(), &corev1.Pod{}, &corev1.Pod{}
		if taken := MergeParts(live, got, []byte(c.body)); taken != c.taken {
			t.Errorf("%s: taken: %v, want %v", c.body, taken, c.taken)
		}
		if !reflect.DeepEqual(pod, live) {
			t.Errorf("%s changed the live object", c.body)
		}
		if !c.taken {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s was not taken and left %v", c.body, got)
			}
			continue
		}
		d := scheme.Decoder{GVK: pod.GroupVersionKind(), New: func() runtime.Object { return want }}
		warnings, err := Patch{Type: types.MergePatchType, Body: []byte(c.body), Validation: Strict}.Document(document, d, nil)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", c.body, warnings, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", c.body, got, want)
		}
	}
}

// TestMergePartsLeavesJSON checks that MergeParts leaves a type with JSON fields to Document, which keeps the
// order of the members in JSON.
func TestMergePartsLeavesJSON(t *testing.T) {
	if holdsJSON(reflect.TypeFor[corev1.Pod]()) || !holdsJSON(reflect.TypeFor[resourcev1.ResourceClaim]()) {
		t.Error("holdsJSON does not know a Pod from a ResourceClaim")
	}
	revision := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"b":1,"a":2}`)}}
	if MergeParts(revision, &appsv1.ControllerRevision{}, []byte(`{"revision":2}`)) {
		t.Error("the patch of a ControllerRevision was taken")
	}
}

// shown leaves out what later steps of a request set.
func shown(t *testing.T, o object) string {
	o = o.DeepCopyObject().(object)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetNamespace("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetSelfLink("")
	o.SetDeletionTimestamp(nil)
	raw, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (r recorded) testError(t *testing.T, err error, want metav1.Status) {
	var api kerrors.APIStatus
	if !errors.As(err, &api) {
		t.Fatalf("got %v, want %s", err, want.Message)
	}
	got := api.Status()
	if got.Code != want.Code || got.Reason != want.Reason || got.Message != want.Message {
		t.Errorf("got %d %s %q\nwant %d %s %q", got.Code, got.Reason, got.Message, want.Code, want.Reason, want.Message)
	}
	a, _ := json.Marshal(got.Details)
	b, _ := json.Marshal(want.Details)
	if string(a) != string(b) {
		t.Errorf("got details %s\nwant %s", a, b)
	}
}

func TestTooManyOperations(t *testing.T) {
	body := "[" + strings.Repeat(
		`{"op":"test","path":"/a","value":1},`, MaxOperations,
	) + `{"op":"test","path":"/a","value":1}]`
	_, _, err := JSON([]byte(`{"a":1}`), []byte(body), Ignore)
	if !kerrors.IsRequestEntityTooLargeError(err) ||
		err.Error() != "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001" {
		t.Errorf("got %v", err)
	}
}

func TestGrowingCopies(t *testing.T) {
	doc := `{"a":{"k":"` + strings.Repeat("x", 1000) + `"}}`
	var ops []string
	for range 100 {
		ops = append(ops, `{"op":"copy","from":"/a","path":"/a/b"}`)
	}
	_, _, err := JSON([]byte(doc), []byte("["+strings.Join(ops, ",")+"]"), Strict)
	var api kerrors.APIStatus
	if !errors.As(err, &api) || api.Status().Code != 422 {
		t.Errorf("got %v", err)
	}
}

func TestApply(t *testing.T) {
	for _, c := range []struct {
		body, warning, failure string
	}{
		{body: `{"data":{"k":"v"}}`},
		{body: "data: {k: v}\n"},
		{body: `{"data":{"k":"v","k":"w"}}`, warning: `line 1: key "k" already set in map`},
		{body: "data: {k: v}\ndata: {k: w}\n", warning: `line 2: key "data" already set in map`},
		{
			body:    "data: [",
			failure: "error decoding patch: error converting YAML to JSON: yaml: line 1: did not find expected node content",
		},
		{body: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f," +
			"*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n",
			failure: "error decoding patch: error converting YAML to JSON: yaml: document contains excessive aliasing"},
	} {
		got, err := Apply([]byte(c.body), Warn)
		if err != nil || c.failure != "" {
			if err == nil || err.Error() != c.failure {
				t.Errorf("%.40s: got %v, want %s", c.body, err, c.failure)
			}
			continue
		}
		if got.Object["data"] == nil {
			t.Errorf("%.40s: got %v", c.body, got.Object)
		}
		warnings, err := got.Duplicates(Warn)
		if err != nil || strings.Join(warnings, "") != c.warning {
			t.Errorf("%.40s: got %v %v, want %s", c.body, warnings, err, c.warning)
		}
		if _, err := got.Duplicates(Strict); (err != nil) != (c.warning != "") {
			t.Errorf("%.40s: got %v", c.body, err)
		}
	}
}

// FuzzJSON looks for panics.
func FuzzJSON(f *testing.F) {
	f.Add(`{"a":[1,{"b":2}]}`, `[{"op":"add","path":"/a/1/c","value":3},{"op":"move","from":"/a","path":"/d"}]`)
	f.Add(
		`{"a":null}`,
		`[{"op":"copy","from":"/a","path":"/b"},{"op":"test","path":"/a","value":null},{"op":"remove","path":"/a/-"}]`,
	)
	f.Fuzz(func(t *testing.T, doc, body string) {
		if !json.Valid([]byte(doc)) {
			return
		}
		for _, v := range []Validation{Ignore, Strict} {
			_, _, _ = JSON([]byte(doc), []byte(body), v)
			_, _, _ = Merge([]byte(doc), []byte(body), v)
		}
	})
}

func BenchmarkStrategicPodStatus(b *testing.B) {
	pod := &corev1.Pod{}
	for i := range 2 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "img", Args: []string{"a", "b"}}
		for j := range 5 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("e", j), Value: "v"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	pod.Labels = map[string]string{"a": "b", "c": "d"}
	body := []byte(
		`{"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"},` +
			`{"type":"Initialized","status":"True"}]}}`,
	)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Strategic(pod, &corev1.Pod{}, body, Warn); err != nil {
			b.Fatal(err)
		}
	}
}
