package fairness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// waitLimit bounds every wait of these tests.
const waitLimit = 30 * time.Second

// oneSeat returns a controller in which all users but those of system:masters share the one seat of catch-all, and a
// request that finds it taken is refused.
func oneSeat() *flowcontrol.Controller { return flowcontrol.New(flowcontrol.Options{ReadOnly: 1}) }

// do sends a request through the filter.
func do(t *testing.T, h http.Handler, method, path, group string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
	ctx = request.WithUser(ctx, &request.User{Name: "u", Groups: []string{group, request.GroupAuthenticated}})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

func TestRefusedRequests(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	h := New(oneSeat(), waitLimit)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("stay") != "" {
			entered <- true
			<-release
		}
	}))
	done := make(chan bool)
	go func() { do(t, h, "GET", "/api/v1/pods?stay=1", "g"); done <- true }()
	<-entered
	if w := do(t, h, "GET", "/api/v1/pods", "g"); w.Code != http.StatusTooManyRequests ||
		w.Header().Get("Retry-After") != "1" || w.Body.String() != "Too many requests, please try again later.\n" {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
	for what, w := range map[string]*httptest.ResponseRecorder{
		"system:masters": do(t, h, "GET", "/api/v1/pods", request.GroupMasters),
		"log":            do(t, h, "GET", "/api/v1/namespaces/n/pods/p/log", "g"),
		"exec":           do(t, h, "POST", "/api/v1/namespaces/n/pods/p/exec", "g"),
	} {
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", what, w.Code)
		}
	}
	var tracker request.Tracker
	terminated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.InfoFrom(r.Context()).Tracker = &tracker
		h.ServeHTTP(w, r)
	})
	if do(t, terminated, "GET", "/api/v1/pods", "g"); !tracker.Terminated() {
		t.Error("a refused request is not recorded as terminated")
	}
	if w := do(t, h, "GET", "/api/v1/pods?watch=1", "g"); w.Code != http.StatusTooManyRequests {
		t.Errorf("a watch: %d", w.Code)
	}
	release <- true
	<-done
	if w := do(t, h, "POST", "/api/v1/namespaces/n/pods", "g"); w.Code != http.StatusOK {
		t.Errorf("after that: %d", w.Code)
	}
}

// TestWatchesNeedASeatToBegin checks that a watch has a seat until its initial events are sent.
func TestWatchesNeedASeatToBegin(t *testing.T) {
	c := oneSeat()
	seats := func() int { return do(t, New(c, waitLimit)(http.NotFoundHandler()), "GET", "/x", "g").Code }
	h := New(c, waitLimit)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if got := seats(); got != http.StatusTooManyRequests {
			t.Errorf("before its events: %d", got)
		}
		w.(*responserecorder.Recorder).InitialEventsSent()
		if got := seats(); got != http.StatusNotFound {
			t.Errorf("after its events: %d", got)
		}
	}))
	do(t, h, "GET", "/api/v1/pods?watch=1", "g")
	if got := seats(); got != http.StatusNotFound {
		t.Errorf("after the watch: %d", got)
	}
}

// TestWatchesAreCounted checks that a write knows how many watches it notifies.
func TestWatchesAreCounted(t *testing.T) {
	c := flowcontrol.New(flowcontrol.Options{ReadOnly: 600})
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.Collector())
	write := New(c, waitLimit)(http.NotFoundHandler())
	do(t, New(c, waitLimit)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		do(t, write, "PUT", "/api/v1/namespaces/n/pods/p", "g")
	})), "GET", "/api/v1/pods?watch=1", "g")
	do(t, write, "PUT", "/api/v1/namespaces/n/pods/p", "g")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_flowcontrol_watch_count_samples" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleSum() != 1 || h.GetSampleCount() != 2 {
				t.Errorf("%v watches in %d writes", h.GetSampleSum(), h.GetSampleCount())
			}
			return
		}
	}
	t.Error("no metric")
}

// TestMemoryOfResponses checks that the memory of responses which wait for their clients is limited, and that a
// user who has used up this memory cannot write.
func TestMemoryOfResponses(t *testing.T) {
	f := New(flowcontrol.New(flowcontrol.Options{ReadOnly: 600}), waitLimit)
	other := func(method string) int {
		return do(t, f(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), method, "/api/v1/namespaces", "g").Code
	}
	do(t, f(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rw := w.(*responserecorder.Recorder)
		if rw.Hold(inflight.ResponseBudget + 1) {
			t.Error("a response may take more than there is")
		}
		if !rw.Hold(inflight.ResponseBudget * 15 / 16) {
			t.Error("a response may not take seven eighths")
		}
		if got := other("POST"); got != http.StatusTooManyRequests {
			t.Errorf("a write: %d", got)
		}
		if got := other("GET"); got != http.StatusOK {
			t.Errorf("a read: %d", got)
		}
	})), "GET", "/api/v1/pods", "g")
	if got := other("POST"); got != http.StatusOK {
		t.Errorf("a write after that: %d", got)
	}
}

// TestHeaders checks that served and refused responses name the FlowSchema and the priority level.
func TestHeaders(t *testing.T) {
	c := oneSeat()
	c.Configure([]*flowcontrolv1.FlowSchema{{
		ObjectMeta: metav1.ObjectMeta{Name: "catch-all", UID: "schema"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "catch-all"}},
	}}, []*flowcontrolv1.PriorityLevelConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "catch-all", UID: "level"},
		Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{}},
	}})
	var inner *httptest.ResponseRecorder
	refuse := New(c, waitLimit)(http.NotFoundHandler())
	outer := do(t, New(c, waitLimit)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inner = do(t, refuse, "GET", "/x", "g")
	})), "GET", "/x", "g")
	if inner.Code != http.StatusTooManyRequests {
		t.Errorf("%d", inner.Code)
	}
	for _, w := range []*httptest.ResponseRecorder{outer, inner} {
		if w.Header().Get("X-Kubernetes-PF-FlowSchema-UID") != "schema" ||
			w.Header().Get("X-Kubernetes-PF-PriorityLevel-UID") != "level" {
			t.Errorf("%v", w.Header())
		}
	}
}

// TestTimeToWait checks that a request waits for a quarter of its time, and not longer than a quarter of the limit.
func TestTimeToWait(t *testing.T) {
	f := filter{longest: time.Minute / patience}
	if got := f.limit(t.Context()); got != 15*time.Second {
		t.Errorf("%v", got)
	}
	for _, given := range []time.Duration{8 * time.Second, time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), given)
		if got := f.limit(ctx); got > min(given/4, 15*time.Second) || got < min(given/4, 15*time.Second)-time.Second {
			t.Errorf("of %v: %v", given, got)
		}
		cancel()
	}
}

// BenchmarkFilter measures the whole filter, with only the two levels of the default configuration.
func BenchmarkFilter(b *testing.B) {
	h := New(flowcontrol.New(flowcontrol.Options{ReadOnly: 600}), time.Minute)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/api/v1/namespaces/n/pods/p", nil)
	ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
	r = r.WithContext(request.WithUser(ctx, &request.User{Name: "u", Groups: []string{request.GroupAuthenticated}}))
	w := responserecorder.Wrap(httptest.NewRecorder())
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
