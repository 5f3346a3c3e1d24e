package convert

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

var (
	v1 = schema.GroupVersion{Group: "example.com", Version: "v1"}
	v2 = schema.GroupVersion{Group: "example.com", Version: "v2"}
)

// widget returns an object of v1.
func widget(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","generation":3,
		"labels":{"a":"b"},"managedFields":[{"manager":"m"}]},"spec":{"size":9007199254740993,"ratio":1.5,"text":"<&>"}}`, name, name)
	if err := scheme.UnmarshalTree([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// question is the ConversionReview that the webhook receives.
type question struct {
	APIVersion, Kind string
	Request          struct {
		UID, DesiredAPIVersion string
		Objects                []map[string]any
	}
}

func (q *question) read(r io.Reader) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	return d.Decode(q)
}

// answer returns a successful ConversionReview with objects.
func (q *question) answer(objects []map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": q.APIVersion, "kind": q.Kind,
		"response": map[string]any{
			"uid": q.Request.UID, "convertedObjects": objects, "result": map[string]any{"status": "Success"},
		},
	}
}

// convertAll converts objects as a webhook should.
func convertAll(q *question) []map[string]any {
	for _, obj := range q.Request.Objects {
		obj["apiVersion"] = q.Request.DesiredAPIVersion
		obj["converted"] = true
	}
	return q.Request.Objects
}

// hook is a webhook for tests.
type hook struct {
	*httptest.Server
	ca    []byte
	mu    sync.Mutex
	calls []question // guarded by mu
}

func serve(t testing.TB, answer func(*question, http.ResponseWriter)) *hook {
	h := &hook{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := q.read(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.calls = append(h.calls, q)
		h.mu.Unlock()
		answer(&q, w)
	}))
	t.Cleanup(h.Close)
	h.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return h
}

func (h *hook) url(timeout time.Duration) string {
	return fmt.Sprintf("%q", h.URL+"/convert?timeout="+timeout.String())
}

func good(q *question, w http.ResponseWriter) {
	if err := json.NewEncoder(w).Encode(q.answer(convertAll(q))); err != nil {
		panic(err)
	}
}

func specOf(h *hook, reviews ...string) *apiextensionsv1.CustomResourceDefinitionSpec {
	spec := &apiextensionsv1.CustomResourceDefinitionSpec{
		Group:    "example.com",
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v2"}},
	}
	if h != nil {
		url := h.URL + "/convert"
		spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: h.ca}, ConversionReviewVersions: reviews,
			},
		}
	}
	return spec
}

func converter(t testing.TB, o Options, spec *apiextensionsv1.CustomResourceDefinitionSpec) Converter {
	t.Helper()
	if o.Webhooks == nil {
		o.Webhooks = webhook.NewPool(webhook.Options{}, 0)
		t.Cleanup(o.Webhooks.Close)
	}
	c, err := New(o, "widgets.example.com", spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNone(t *testing.T) {
	for _, strategy := range []*apiextensionsv1.CustomResourceConversion{nil, {Strategy: apiextensionsv1.NoneConverter}} {
		spec := specOf(nil)
		spec.Conversion = strategy
		c := converter(t, Options{}, spec)
		want := widget(t, "a")
		want.SetAPIVersion("example.com/v2")
		got, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%v %v", got, err)
		}
	}
}

func TestVersionsMustExist(t *testing.T) {
	c := converter(t, Options{}, specOf(nil))
	foreign := widget(t, "b")
	foreign.SetAPIVersion("example.com/v9")
	for _, test := range []struct {
		objs []*unstructured.Unstructured
		to   schema.GroupVersion
		want string
	}{
		{
			nil, schema.GroupVersion{Group: "other.com", Version: "v1"},
			"request to convert CR to an invalid group/version: other.com/v1",
		},
		{[]*unstructured.Unstructured{foreign}, v1, "request to convert CR from an invalid group/version: example.com/v9"},
		{
			[]*unstructured.Unstructured{widget(t, "a"), foreign}, v1,
			"request to convert CR list failed, list index 1 has invalid group/version: example.com/v9",
		},
	} {
		if _, err := c.Convert(t.Context(), test.objs, test.to); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	spec := specOf(nil)
	spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: "Other"}
	if _, err := New(Options{}, "widgets.example.com", spec); err == nil ||
		err.Error() != `unknown conversion strategy "Other" for CRD widgets.example.com` {
		t.Error(err)
	}
	spec.Conversion.Strategy = apiextensionsv1.WebhookConverter
	if _, err := New(Options{}, "widgets.example.com", spec); err == nil {
		t.Error("no error")
	}
}

func TestWebhook(t *testing.T) {
	for _, review := range []string{"v1", "v1beta1"} {
		h := serve(t, good)
		c := converter(t, Options{}, specOf(h, "v3", review, "v1"))
		original := widget(t, "a")
		got, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
		if err != nil {
			t.Fatal(err)
		}
		want := original.DeepCopy()
		want.SetAPIVersion("example.com/v2")
		want.Object["converted"] = true
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("%v\n%v", got[0], want)
		}
		q := h.calls[0]
		if q.APIVersion != "apiextensions.k8s.io/"+review || q.Kind != "ConversionReview" ||
			q.Request.DesiredAPIVersion != "example.com/v2" || q.Request.UID == "" {
			t.Errorf("%+v", q)
		}
		if spec := q.Request.Objects[0]["spec"].(map[string]any); spec["size"] != json.Number("9007199254740993") ||
			spec["text"] != "<&>" {
			t.Errorf("%v", spec)
		}
	}
}

// TestList: objects that already have the wanted version, or have only apiVersion and kind, are not sent. All others are sent
// in one call.
func TestList(t *testing.T) {
	h := serve(t, good)
	c := converter(t, Options{}, specOf(h, "v1"))
	done := widget(t, "b")
	done.SetAPIVersion("example.com/v2")
	bare := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	got, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a"), done, bare, widget(t, "c")}, v2)
	if err != nil || len(h.calls) != 1 || len(h.calls[0].Request.Objects) != 2 {
		t.Fatalf("%v %v", err, h.calls)
	}
	var names []string
	for _, obj := range got {
		names = append(names, fmt.Sprint(obj.GetName(), obj.Object["converted"]))
		if obj.GetAPIVersion() != "example.com/v2" {
			t.Errorf("%s is %s", obj.GetName(), obj.GetAPIVersion())
		}
	}
	if want := []string{"atrue", "b<nil>", "<nil>", "ctrue"}; !reflect.DeepEqual(names, want) {
		t.Error(names)
	}
	if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{done, bare}, v2); err != nil || len(h.calls) != 1 {
		t.Errorf("%v after %d calls", err, len(h.calls))
	}
}

func TestLongListsAreSeveralCalls(t *testing.T) {
	h := serve(t, good)
	c := converter(t, Options{}, specOf(h, "v1"))
	objs := make([]*unstructured.Unstructured, 4*objectsPerCall+1)
	for i := range objs {
		objs[i] = widget(t, fmt.Sprint(i))
	}
	got, err := c.Convert(t.Context(), objs, v2)
	if err != nil || len(h.calls) != 5 {
		t.Fatalf("%v after %d calls", err, len(h.calls))
	}
	for i, obj := range got {
		if obj.GetName() != fmt.Sprint(i) || obj.Object["converted"] != true {
			t.Fatalf("at %d is %v", i, obj)
		}
	}
}

func TestFirstErrorEndsTheOthers(t *testing.T) {
	var calls atomic.Int32
	h := serve(t, func(q *question, w http.ResponseWriter) {
		calls.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	})
	c := converter(t, Options{}, specOf(h, "v1"))
	objs := make([]*unstructured.Unstructured, 12*objectsPerCall)
	for i := range objs {
		objs[i] = widget(t, "a")
	}
	if _, err := c.Convert(t.Context(), objs, v2); err == nil || !strings.Contains(err.Error(), "Kind=Widget failed: no") {
		t.Error(err)
	}
	if calls.Load() > 2*callsAtOnce {
		t.Errorf("%d calls", calls.Load())
	}
}

// TestAnswersOfManyValues: the number of values that are decoded from an answer is limited by the number of values
// in the request, and not only by the bytes of the request.
func TestAnswersOfManyValues(t *testing.T) {
	zeros := func(n int) []any { return slices.Repeat([]any{0}, n) }
	for name, test := range map[string]struct {
		has, added, others int // zeros in the object, zeros that the webhook adds to it, and zeros after it
		want               string
	}{
		"further objects":              {0, 0, valuesMin, "the answer has more than 131072 values"},
		"a small object that grows":    {0, valuesMin, 0, "the answer has more than 131072 values"},
		"an object that is large":      {3 * valuesMin, 0, 0, ""},
		"a large object that is twice": {valuesMin, valuesMin, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(q *question, w http.ResponseWriter) {
				objs := convertAll(q)
				objs[0]["more"] = zeros(test.added)
				a := q.answer(objs)
				a["response"].(map[string]any)["convertedObjects"] = append([]any{objs[0]}, zeros(test.others)...)
				if err := json.NewEncoder(w).Encode(a); err != nil {
					t.Error(err)
				}
			})
			obj := widget(t, "a")
			obj.Object["list"] = slices.Repeat([]any{int64(0)}, test.has)
			_, err := converter(t, Options{}, specOf(h, "v1")).Convert(t.Context(), []*unstructured.Unstructured{obj}, v2)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("%.200v, want %q", err, test.want)
			}
		})
	}
}

// TestBadAnswers tests the errors for wrong responses to a call with one object and with two.
func TestBadAnswers(t *testing.T) {
	set := func(path ...any) func(*question) any { // path in the first object, then the new value
		return func(q *question) any {
			objs := convertAll(q)
			m := objs[0]
			for _, name := range path[:len(path)-2] {
				m = m[name.(string)].(map[string]any)
			}
			if value := path[len(path)-1]; value == nil {
				delete(m, path[len(path)-2].(string))
			} else {
				m[path[len(path)-2].(string)] = value
			}
			return q.answer(objs)
		}
	}
	response := func(change map[string]any) func(*question) any {
		return func(q *question) any {
			a := q.answer(convertAll(q))
			maps.Copy(a["response"].(map[string]any), change)
			return a
		}
	}
	const failed, hook = "conversion webhook for example.com/v1, Kind=Widget failed: ", "conversion webhook for " +
		"example.com/v1, Kind=Widget "
	for name, test := range map[string]struct {
		answer        func(*question) any
		one, two      string
		failure, only string
	}{
		"uid": {response(map[string]any{"uid": "x"}),
			failed + `expected response.uid="<sent>", got "x"`, "", malformedFailure, "v1"},
		"type": {func(q *question) any { return map[string]any{} },
			failed + "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=", "",
			malformedFailure, "v1"},
		"no response": {
			func(q *question) any { return map[string]any{"apiVersion": q.APIVersion, "kind": q.Kind} },
			failed + "no response provided", "", malformedFailure, "",
		},
		"failure": {
			response(map[string]any{"result": map[string]any{"status": "Failure", "message": "I will not"}}),
			failed + "I will not", "", malformedFailure, "",
		},
		"silent": {
			response(map[string]any{"result": map[string]any{"status": "Failure"}}),
			failed + "response.result.status was 'Failure', not 'Success'", "", malformedFailure, "",
		},
		"no result": {
			response(map[string]any{"result": map[string]any{}}), failed + "response.result.status was '', not 'Success'", "",
			malformedFailure, "",
		},
		"none": {
			response(map[string]any{"convertedObjects": nil}), hook + "returned 0 objects, expected 1",
			hook + "returned 0 objects, expected 2", partialFailure, "",
		},
		"status": {func(*question) any {
			return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "oh"}
		}, failed + "oh", "", callFailure, ""},
		"other kind": {func(*question) any { return map[string]any{"kind": "Pod", "apiVersion": "v1"} },
			failed + `no kind "Pod" is registered for version "v1"`, "", callFailure, ""},
		"no json": {func(*question) any { return json.RawMessage(`"x"`) },
			failed + "couldn't get version/kind; json parse error: ", "", callFailure, ""},
		"version": {set("apiVersion", "example.com/v1"),
			hook + "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
			hook + "returned invalid converted object at index 0: invalid groupVersion (expected example.com/v2, " +
				"received example.com/v1)", invalidFailure, ""},
		"kind": {set("kind", "Gadget"), hook + "returned invalid object at index 0: invalid kind (expected Widget," +
			" received Gadget)",
			hook + "returned invalid converted object at index 0: invalid kind (expected Widget, received Gadget)",
			invalidFailure, ""},
		"no kind": {
			set("kind", nil), hook + "returned invalid object at index 0: Object 'Kind' is missing in ",
			hook + "returned invalid converted object at index 0: Object 'Kind' is missing in ", invalidFailure, "",
		},
		"name": {set("metadata", "name", "z"), hook + "returned invalid object: must have the same name: a != z",
			hook + "returned invalid converted object at index 0: must have the same name: a != z", invalidFailure, ""},
		"namespace": {
			set("metadata", "namespace", nil), hook + "returned invalid object: must have the same namespace: ns != ",
			hook + "returned invalid converted object at index 0: must have the same namespace: ns != ", invalidFailure, "",
		},
		"object uid": {
			set("metadata", "uid", "z"), hook + "returned invalid object: must have the same UID: u-a != z",
			hook + "returned invalid converted object at index 0: must have the same UID: u-a != z", invalidFailure, "",
		},
		"metadata": {
			set("metadata", nil), hook + "returned invalid object: must have the same name: a != ",
			hook + "returned invalid converted object at index 0: must have the same name: a != ", invalidFailure, "",
		},
		"labels": {
			set("metadata", "labels", "x"),
			hook + "returned invalid metadata: invalid metadata.labels of type string in converted object",
			hook + "returned invalid metadata in object at index 0: invalid metadata.labels of type string in converted object",
			invalidFailure, "",
		},
		"annotation": {
			set("metadata", "annotations", map[string]any{"a": 1}),
			hook + "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object", "",
			invalidFailure, "",
		},
		"label": {set("metadata", "labels", map[string]any{"a": "%"}),
			hook + `returned invalid metadata: metadata.labels: Invalid value: "%": a valid label must be`, "", invalidFailure, ""},
		"bad key": {set("metadata", "annotations", map[string]any{"a b": ""}),
			hook + `returned invalid metadata: metadata.annotation: Invalid value: "a b": name part must consist of`, "", invalidFailure, ""},
		"no object": {
			response(map[string]any{"convertedObjects": []any{"x"}}),
			hook + "returned invalid object at index 0: json: cannot unmarshal string", hook + "returned 1 objects, expected 2",
			invalidFailure, "",
		},
		"null object": {
			response(map[string]any{"convertedObjects": []any{nil}}),
			hook + "returned invalid object at index 0: Object 'Kind' is missing in 'null'",
			hook + "returned 1 objects, expected 2", invalidFailure, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, review := range []string{"v1", "v1beta1"} {
				h := serve(t, func(q *question, w http.ResponseWriter) {
					if err := json.NewEncoder(w).Encode(test.answer(q)); err != nil {
						panic(err)
					}
				})
				m := NewMetrics()
				c := converter(t, Options{Metrics: m}, specOf(h, review))
				if test.only == "" || test.only == review {
					_, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
					want := strings.Replace(test.one, "<sent>", h.calls[0].Request.UID, 1)
					if err == nil || !strings.HasPrefix(err.Error(), want) {
						t.Errorf("%v\nwant %s", err, want)
					}
					if got := counts(t, m)["apiserver_conversion_webhook_request_total"]; got[test.failure] != 1 {
						t.Errorf("metrics %v, want %s", got, test.failure)
					}
				}
				if test.two != "" {
					_, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a"), widget(t, "b")}, v2)
					if err == nil || !strings.HasPrefix(err.Error(), test.two) {
						t.Errorf("%v\nwant %s", err, test.two)
					}
				}
			}
		})
	}
}

// counts returns the value of each metric by failure_type or crd_name.
func counts(t *testing.T, m *Metrics) map[string]map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = map[string]float64{}
		for _, series := range f.GetMetric() {
			label := ""
			for _, l := range series.GetLabel() {
				if l.GetName() == "failure_type" || l.GetName() == "crd_name" {
					label = l.GetValue()
				}
			}
			if h := series.GetHistogram(); h != nil {
				out[f.GetName()][label] += float64(h.GetSampleCount())
			} else {
				out[f.GetName()][label] += series.GetCounter().GetValue()
			}
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	c := converter(t, Options{Metrics: m}, specOf(serve(t, good), "v1"))
	for range 2 {
		if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]map[string]float64{
		"apiserver_conversion_webhook_request_total":        {"": 2},
		"apiserver_conversion_webhook_duration_seconds":     {"": 2},
		"apiserver_crd_conversion_webhook_duration_seconds": {"widgets.example.com": 2},
	}
	if got := counts(t, m); !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	m.Forget("widgets.example.com")
	if got := counts(t, m); len(got["apiserver_crd_conversion_webhook_duration_seconds"]) != 0 {
		t.Error(got)
	}
}

// TestMetadata: converted objects have the metadata of the original, except labels and annotations.
func TestMetadata(t *testing.T) {
	stored := widget(t, "a")
	stored.Object["metadata"].(map[string]any)["labels"] = map[string]any{"not valid": "as stored"}
	for name, test := range map[string]struct{ answered, labels any }{
		"changed": {
			map[string]any{
				"name": "a", "namespace": "ns", "uid": "u-a", "generation": 9, "finalizers": []any{"x"},
				"labels": map[string]any{"n": "w"},
			},
			map[string]any{"n": "w"},
		},
		"dropped": {map[string]any{"name": "a", "namespace": "ns", "uid": "u-a"}, nil},
		"null":    {map[string]any{"name": "a", "namespace": "ns", "uid": "u-a", "labels": nil}, nil},
		"as stored": {
			map[string]any{"name": "a", "namespace": "ns", "uid": "u-a", "labels": map[string]any{"not valid": "as stored"}},
			map[string]any{"not valid": "as stored"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(q *question, w http.ResponseWriter) {
				objs := convertAll(q)
				objs[0]["metadata"] = test.answered
				json.NewEncoder(w).Encode(q.answer(objs))
			})
			c := converter(t, Options{}, specOf(h, "v1"))
			got, err := c.Convert(t.Context(), []*unstructured.Unstructured{stored.DeepCopy()}, v2)
			if err != nil {
				t.Fatal(err)
			}
			want := stored.DeepCopy().Object["metadata"].(map[string]any)
			delete(want, "labels")
			if test.labels != nil {
				want["labels"] = test.labels
			}
			if !reflect.DeepEqual(got[0].Object["metadata"], want) {
				t.Errorf("%v\n%v", got[0].Object["metadata"], want)
			}
		})
	}
}

func TestConnectionsThatFail(t *testing.T) {
	release := make(chan struct{})
	var elsewhere atomic.Int32
	other := serve(t, func(*question, http.ResponseWriter) { elsewhere.Add(1) })
	const failed = "conversion webhook for example.com/v1, Kind=Widget failed: "
	for name, test := range map[string]struct {
		answer func(*question, http.ResponseWriter)
		want   string
	}{
		"hangs": {func(*question, http.ResponseWriter) { <-release }, "Post URL: context deadline exceeded"},
		"500": {func(_ *question, w http.ResponseWriter) { http.Error(w, "oh", 500) },
			`an error on the server ("oh") has prevented the request from succeeding`},
		"redirects": {
			func(_ *question, w http.ResponseWriter) {
				http.Redirect(w, &http.Request{}, other.URL, http.StatusTemporaryRedirect)
			},
			"the server responded with the status code 307",
		},
		"endless": {func(_ *question, w http.ResponseWriter) {
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, "Post URL: the answer has more than 16777216 bytes"},
		"goes":  {func(*question, http.ResponseWriter) { panic(http.ErrAbortHandler) }, "Post URL: EOF"},
		"empty": {func(*question, http.ResponseWriter) {}, "couldn't get version/kind; json parse error: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, test.answer)
			m := NewMetrics()
			timeout := time.Minute // so that no other error than the wanted one comes first
			if name == "hangs" {
				timeout = 100 * time.Millisecond
				defer close(release)
			}
			c := converter(t, Options{Metrics: m, Timeout: timeout}, specOf(h, "v1"))
			_, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
			want := failed + strings.Replace(test.want, "URL", h.url(timeout), 1)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
			if got := counts(t, m)["apiserver_conversion_webhook_request_total"]; got[callFailure] != 1 {
				t.Errorf("metrics %v", got)
			}
		})
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestCancelled(t *testing.T) {
	arrived := make(chan struct{})
	release := make(chan struct{})
	h := serve(t, func(*question, http.ResponseWriter) { close(arrived); <-release })
	defer close(release)
	c := converter(t, Options{}, specOf(h, "v1"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := c.Convert(ctx, []*unstructured.Unstructured{widget(t, "a")}, v2); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHangingWebhookDelaysNoOtherDefinition checks that a hanging webhook delays only the requests for its own
// definition.
func TestHangingWebhookDelaysNoOtherDefinition(t *testing.T) {
	release := make(chan struct{})
	hung := serve(t, func(*question, http.ResponseWriter) { <-release })
	pool := webhook.NewPool(webhook.Options{}, 0)
	defer pool.Close()
	broken := converter(t, Options{Webhooks: pool}, specOf(hung, "v1"))
	well := converter(t, Options{Webhooks: pool}, specOf(serve(t, good), "v1"))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 2 * webhook.MaxConns {
		waiting.Go(func() { broken.Convert(ctx, []*unstructured.Unstructured{widget(t, "a")}, v2) })
	}
	for range 20 {
		if _, err := well.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2); err != nil {
			t.Error(err)
		}
	}
	cancel()
	waiting.Wait()
	close(release)
}

func TestService(t *testing.T) {
	h := serve(t, good)
	spec := specOf(h, "v1")
	path := "/convert"
	spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{
		CABundle: h.ca, Service: &apiextensionsv1.ServiceReference{Namespace: "ns", Name: "nosuch", Path: &path},
	}
	pool := webhook.NewPool(webhook.Options{Resolve: func(context.Context, string, string, int32) (string, error) {
		return "", errors.New(`service "nosuch" not found`)
	}}, 0)
	c := converter(t, Options{Webhooks: pool}, spec)
	_, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
	if want := `conversion webhook for example.com/v1, Kind=Widget failed: ` +
		`Post "https://nosuch.ns.svc:443/convert?timeout=30s": service "nosuch" not found`; err == nil || err.Error() != want {
		t.Error(err)
	}

	var dialed string
	pool = webhook.NewPool(webhook.Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return (&net.Dialer{}).DialContext(ctx, network, h.Listener.Addr().String())
	}}, 0)
	defer pool.Close()
	port := int32(8443)
	spec.Conversion.Webhook.ClientConfig.Service.Port = &port
	c = converter(t, Options{Webhooks: pool}, spec)
	_, err = c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2)
	if err == nil || !strings.Contains(err.Error(), "not nosuch.ns.svc") || dialed != "nosuch.ns.svc:8443" {
		t.Errorf("%v, dialed %s", err, dialed)
	}
}

// TestMisconfigured: objects that already have the wanted version are served even if the webhook is broken.
func TestMisconfigured(t *testing.T) {
	h := serve(t, good)
	spec := specOf(h, "v7")
	c := converter(t, Options{}, spec)
	if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v1); err != nil {
		t.Error(err)
	}
	if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2); err == nil ||
		err.Error() != "no supported conversion review versions" {
		t.Error(err)
	}
	spec = specOf(h, "v1")
	spec.Conversion.Webhook.ClientConfig.CABundle = []byte("no PEM")
	c = converter(t, Options{}, spec)
	if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v1); err != nil {
		t.Error(err)
	}
	want := `conversion webhook for example.com/v1, Kind=Widget failed: failed calling webhook ` +
		`"conversion_webhook_for_widgets.example.com": unable to load root certificates: unable to parse bytes as PEM block`
	if _, err := c.Convert(t.Context(), []*unstructured.Unstructured{widget(t, "a")}, v2); err == nil ||
		err.Error() != want {
		t.Error(err)
	}
}

// FuzzAnswers checks that no response of a webhook causes a panic or an object other than the one that was sent.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1",` +
			`"response":{"uid":"u","result":{"status":"Success"},` +
			`"convertedObjects":[{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a","namespace":"ns","uid":"u-a","labels":{"a":"b"}}}]}}`,
		`{"response":{"convertedObjects":[null,1,{}]}}`, `{"kind":"Status","apiVersion":"v1"}`, `[]`, ``, `{"kind":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readReview(text)
		if err != nil || r.check("v1", "u") != nil {
			return
		}
		for i, raw := range r.Response.ConvertedObjects {
			original := widget(t, "a")
			obj, err := decodeConverted(original, raw, v2, errorTextsOf(i, 2))
			if err == nil && (obj.GetName() != "a" || obj.GroupVersionKind() != v2.WithKind("Widget") ||
				obj.GetGeneration() != 3) {
				t.Errorf("%s is %v", raw, obj)
			}
		}
	})
}

func BenchmarkWebhook(b *testing.B) {
	h := serve(b, good)
	c := converter(b, Options{}, specOf(h, "v1"))
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				objs := make([]*unstructured.Unstructured, n)
				for i := range objs {
					objs[i] = widget(b, "a")
				}
				h.calls = nil
				b.StartTimer()
				if _, err := c.Convert(context.Background(), objs, v2); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
