package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/gateway/filter/auditid"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestinfo"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/audit/policy"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

type list struct {
	events  []*audit.Event
	refuses bool
}

func (l *list) Write(_ context.Context, events []*audit.Event) bool {
	l.events = append(l.events, events...)
	return !l.refuses
}
func (l *list) Close(context.Context) error { return nil }

// stages are the events in short.
func (l *list) stages() string {
	var out []string
	for _, e := range l.events {
		s := string(e.Stage)
		if e.ResponseStatus != nil {
			s += fmt.Sprintf("=%d", e.ResponseStatus.Code)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// world is the two filters around a handler, with a user in between.
type world struct {
	sink     list
	levels   []audit.Level
	rejected int
	handler  http.Handler
}

func newWorld(t *testing.T, rules string, user *request.User, h http.HandlerFunc) *world {
	t.Helper()
	p, err := policy.Parse([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n"+rules),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	a := &Auditor{
		Policy: p, Sink: &w.sink, Count: func() {}, Rejected: func() { w.rejected++ },
		Observe: func(l audit.Level) { w.levels = append(w.levels, l) },
		NewObject: func(gvk schema.GroupVersionKind) runtime.Object {
			if gvk == corev1.SchemeGroupVersion.WithKind("Namespace") {
				return &corev1.Namespace{}
			}
			return nil
		},
	}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if user == nil {
				apiresponse.Error(rw, r, apierr.New(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
				return
			}
			next.ServeHTTP(rw, r.WithContext(request.WithUser(r.Context(), user)))
		})
	}
	w.handler = auditid.New()(requestinfo.New()(a.Begin(authenticate(a.Filter(h)))))
	return w
}

func (w *world) serve(method, path string) *httptest.ResponseRecorder {
	rw := httptest.NewRecorder()
	w.handler.ServeHTTP(rw, httptest.NewRequest(method, path, strings.NewReader("")))
	return rw
}

var joe = &request.User{Name: "joe", Groups: []string{"dev"}}

func answer(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`

func TestStages(t *testing.T) {
	w := newWorld(t, "- {level: RequestResponse}", joe, answer("application/json", pod+"\n"))
	rw := w.serve("GET", "/api/v1/namespaces/n/pods/p")
	if got := w.sink.stages(); got != "RequestReceived ResponseComplete=200" {
		t.Errorf("%s", got)
	}
	last := w.sink.events[1]
	if string(last.AuditID) != rw.Header().Get("Audit-Id") || last.Level != "RequestResponse" ||
		string(last.ResponseObject.Raw) != pod {
		t.Errorf("%s", audit.AppendEvent(nil, last))
	}
	if first := w.sink.events[0]; first.StageTimestamp != first.RequestReceivedTimestamp || first.ResponseObject != nil {
		t.Errorf("%s", audit.AppendEvent(nil, first))
	}
	if fmt.Sprint(w.levels) != "[RequestResponse]" {
		t.Errorf("%v", w.levels)
	}
}

// TestSecretsStayBelowTheirLevel checks that neither the request nor the response of a Secret is in an event below the
// level that includes it.
func TestSecretsStayBelowTheirLevel(t *testing.T) {
	secret := `{"kind":"Secret","apiVersion":"v1","data":{"k":"U0VDUkVU"}}`
	for level, has := range map[string]bool{"Metadata": false, "Request": false, "RequestResponse": true} {
		w := newWorld(t, "- {level: "+level+"}", joe, answer("application/json", secret))
		w.serve("GET", "/api/v1/namespaces/n/secrets/s")
		for _, e := range w.sink.events {
			if strings.Contains(string(audit.AppendEvent(nil, e)), "U0VDUkVU") != (has && e.Stage == "ResponseComplete") {
				t.Errorf("%s: %s", level, audit.AppendEvent(nil, e))
			}
		}
	}
}

func TestCredentialsAreInNoEvent(t *testing.T) {
	w := newWorld(t, "- {level: RequestResponse}", joe, answer("text/plain", "x"))
	r := httptest.NewRequest("GET", "/healthz", nil)
	r.Header.Set("Authorization", "Bearer CREDENTIAL")
	r.Header.Set("Cookie", "CREDENTIAL")
	w.handler.ServeHTTP(httptest.NewRecorder(), r)
	for _, e := range w.sink.events {
		if strings.Contains(string(audit.AppendEvent(nil, e)), "CREDENTIAL") {
			t.Errorf("%s", audit.AppendEvent(nil, e))
		}
	}
}

func TestNoneCostsNothing(t *testing.T) {
	w := newWorld(t, "- {level: None}", joe, func(rw http.ResponseWriter, r *http.Request) {
		if audit.From(r.Context()).Wants(audit.Metadata) {
			t.Error("wanted")
		}
		apiresponse.Error(rw, r, apierr.PathNotFound())
	})
	w.serve("GET", "/api/v1/pods")
	if len(w.sink.events) != 0 || fmt.Sprint(w.levels) != "[None]" {
		t.Errorf("%s %v", w.sink.stages(), w.levels)
	}
}

func TestUnauthenticatedRequestsAreRecorded(t *testing.T) {
	w := newWorld(t, "- {level: Metadata}", nil, nil)
	w.serve("GET", "/api/v1/pods")
	if got := w.sink.stages(); got != "ResponseStarted=401" {
		t.Fatalf("%s", got)
	}
	if e := w.sink.events[0]; e.ResponseStatus.Message != "Unauthorized" || e.User.Username != "" ||
		e.ObjectRef.Resource != "pods" {
		t.Errorf("%s", audit.AppendEvent(nil, e))
	}
}

func TestLongRunningRequests(t *testing.T) {
	var w *world
	started := ""
	w = newWorld(t, "- {level: RequestResponse}", joe, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusOK)
		started = w.sink.stages()
		_, _ = io.WriteString(rw, `{"type":"ADDED","object":{"kind":"Pod"}}`)
	})
	w.serve("GET", "/api/v1/pods?watch=1")
	if started != "RequestReceived ResponseStarted=200" {
		t.Errorf("when it started: %s", started)
	}
	if got := w.sink.stages(); got != "RequestReceived ResponseStarted=200 ResponseComplete=200" {
		t.Errorf("%s", got)
	}
	if w.sink.events[2].ResponseObject != nil {
		t.Error("a stream was noted")
	}
}

func TestErrorsOfStreams(t *testing.T) {
	w := newWorld(t, "- {level: RequestResponse}", joe, func(rw http.ResponseWriter, r *http.Request) {
		apiresponse.Error(rw, r, apierr.New(http.StatusGone, metav1.StatusReasonExpired, "too old"))
	})
	w.serve("GET", "/api/v1/pods?watch=1")
	last := w.sink.events[2]
	if last.ResponseObject == nil || last.ResponseStatus.Message != "too old" ||
		last.ResponseStatus.Reason != metav1.StatusReasonExpired {
		t.Errorf("%s", audit.AppendEvent(nil, last))
	}
}

func TestPanics(t *testing.T) {
	w := newWorld(t, "- {level: Metadata}", joe, func(http.ResponseWriter, *http.Request) { panic("oh") })
	func() {
		defer func() {
			if recover() != "oh" {
				t.Error("the panic did not go on")
			}
		}()
		w.serve("GET", "/api/v1/pods")
	}()
	if got := w.sink.stages(); got != "RequestReceived Panic=500" ||
		w.sink.events[1].ResponseStatus.Message != "APIServer panic'd: oh" {
		t.Errorf("%s", got)
	}
}

func TestNoAnswer(t *testing.T) {
	w := newWorld(t, "- {level: Metadata}", joe, func(http.ResponseWriter, *http.Request) {})
	w.serve("GET", "/api/v1/pods")
	if got := w.sink.events[1].ResponseStatus; got.Message != "Connection closed early" || got.Code != 200 {
		t.Errorf("%+v", got)
	}
}

// TestStrict checks that a request is refused if its first event cannot be stored.
func TestStrict(t *testing.T) {
	w := newWorld(t, "- {level: Metadata}", joe, func(http.ResponseWriter, *http.Request) { t.Error("served") })
	w.sink.refuses = true
	rw := w.serve("GET", "/api/v1/pods?x=<y>")
	if rw.Code != http.StatusInternalServerError ||
		rw.Body.String() != "Internal Server Error: \"/api/v1/pods?x=&lt;y&gt;\": failed to store audit event\n" {
		t.Errorf("%d %q", rw.Code, rw.Body)
	}
	if w.rejected != 1 {
		t.Errorf("%d rejected", w.rejected)
	}
}

func TestNameFromFieldSelector(t *testing.T) {
	w := newWorld(t, `- {level: Metadata, resources: [{group: "", resources: [secrets], resourceNames: [s]}]}`, joe,
		answer("text/plain", ""))
	w.serve("GET", "/api/v1/secrets?fieldSelector=metadata.name%3Ds")
	if len(w.sink.events) != 2 || w.sink.events[0].ObjectRef.Name != "s" {
		t.Errorf("%s", w.sink.stages())
	}
}

func envelope(t *testing.T, kind string, obj interface{ Marshal() ([]byte, error) }) string {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(wire.NewEnvelopeHead("v1", kind).Append(nil, raw))
}

func TestOtherMediaTypesAreNotedAsJSON(t *testing.T) {
	one := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	many := &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		Items: []corev1.Namespace{*one, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}
	encode := func(kind string, v any) string {
		item, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(scheme.AppendJSONObject(nil, scheme.JSONHead(corev1.SchemeGroupVersion.WithKind(kind)), item))
	}
	for _, test := range []struct{ contentType, body, want string }{
		{"application/vnd.kubernetes.protobuf", envelope(t, "Namespace", one), encode("Namespace", one)},
		{"application/vnd.kubernetes.protobuf", envelope(t, "NamespaceList", many), encode("NamespaceList", many)},
		{"application/vnd.kubernetes.protobuf", envelope(t, "Unknown", one), ""},
		{"application/vnd.kubernetes.protobuf", "broken", ""},
		{"application/yaml", "kind: Pod\napiVersion: v1\n", `{"apiVersion":"v1","kind":"Pod"}`},
		{"application/json", "{\n  \"kind\": \"Pod\"\n}", `{"kind":"Pod"}`},
		{"application/json", `{"major":"1"}`, ""},
		{"text/plain", pod, ""},
	} {
		w := newWorld(t, "- {level: RequestResponse}", joe, answer(test.contentType, test.body))
		w.serve("GET", "/api/v1/namespaces/a")
		got := ""
		if object := w.sink.events[1].ResponseObject; object != nil {
			got = string(object.Raw)
		}
		if got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.contentType, got, test.want)
		}
	}
}

// TestBodyCaptureIsBounded checks that no part of a body above the limit is kept in memory.
func TestBodyCaptureIsBounded(t *testing.T) {
	c := &bodyCapture{limit: 10}
	for range 3 {
		if n, err := c.Write([]byte("12345")); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !c.exceeded || c.body.Cap() != 0 {
		t.Errorf("%v %d", c.exceeded, c.body.Cap())
	}
}
