package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const (
	flowControlPath = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	fairnessPages   = "/debug/api_priority_and_fairness/"
)

// uidOf returns the UID of the object in a response.
func uidOf(t *testing.T, a apitest.Answer) string {
	t.Helper()
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil || o.Metadata.UID == "" {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	return o.Metadata.UID
}

// oneSeatFor makes a priority level with one seat and a queue of two requests, for all requests of a user, and waits
// until it has an effect.
func oneSeatFor(t *testing.T, s *Server, user string) {
	t.Helper()
	post(t, s, flowControlPath+"prioritylevelconfigurations", `{"metadata":{"name":"narrow"},"spec":{"type":"Limited",
		"limited":{"nominalConcurrencyShares":1,"borrowingLimitPercent":0,"limitResponse":{"type":"Queue",
		"queuing":{"queues":1,"handSize":1,"queueLengthLimit":2}}}}}`, http.StatusCreated)
	post(t, s, flowControlPath+"flowschemas", fmt.Sprintf(`{"metadata":{"name":"narrow"},"spec":{"matchingPrecedence":50,
		"priorityLevelConfiguration":{"name":"narrow"},"rules":[{"subjects":[{"kind":"User","user":{"name":%q}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}],
		"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, user), http.StatusCreated)
	admin := httpClient(t, s, true)
	schema := uidOf(t, apitest.Send(t, admin, "GET", s.URL()+flowControlPath+"flowschemas/narrow", ""))
	level := uidOf(t, apitest.Send(t, admin, "GET", s.URL()+flowControlPath+"prioritylevelconfigurations/narrow", ""))
	wait.Until(t, "requests of "+user+" to be of the new level", func() bool {
		a := apitest.Send(t, httpClient(t, s, false), "GET", s.URL()+"/version", "", "Authorization", "Bearer "+user+"token")
		return a.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == schema &&
			a.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") == level
	})
}

// TestFairnessFollowsTheAPI creates a level with one seat, which a request takes. The next ones wait, are refused when
// the queue is full or when they have waited for long enough, and execute when the seat is free. Other users are not
// affected.
func TestFairnessFollowsTheAPI(t *testing.T) {
	c := slowConfig(t)
	c.Requests.MaxInFlight, c.Requests.MaxMutatingInFlight = 50, 50
	s := start(t, c)
	oneSeatFor(t, s, "dave")
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]}`,
		http.StatusCreated)
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"dave"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dave"}]}`, http.StatusCreated)
	admin(t, s).As("dave").AwaitAccess("list", "configmaps")
	admin, client := httpClient(t, s, true), httpClient(t, s, false)
	as := func(user, path string) apitest.Answer {
		return apitest.Send(t, client, "GET", s.URL()+path, "", "Authorization", "Bearer "+user+"token")
	}
	level := func() string {
		for line := range strings.Lines(apitest.Send(t, admin, "GET", s.URL()+fairnessPages+"dump_priority_levels", "").Body) {
			if strings.HasPrefix(line, "narrow,") {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
	results := make(chan apitest.Answer, 4)
	// takeSeat sends a request that waits, with its seat, for a revision that does not exist.
	takeSeat := func() {
		go func() {
			results <- as("dave", "/api/v1/namespaces/default/configmaps?resourceVersion=1099511627776")
		}()
		wait.Until(t, "the seat to be taken", func() bool { return strings.HasPrefix(level(), "narrow, 1, false, false, 0, 1,") })
	}
	takeSeat()
	for range 2 {
		go func() { results <- as("dave", "/version") }()
	}
	wait.Until(t, "two requests to wait", func() bool { return strings.HasPrefix(level(), "narrow, 1, false, false, 2, 1,") })
	if text := apitest.Send(t, admin, "GET", s.URL()+"/metrics", "").Body; !strings.Contains(text,
		`apiserver_current_inqueue_requests{request_kind="readOnly"} 2`) {
		t.Error("the metrics do not have two requests in queues")
	}
	waiting := apitest.Send(t, admin, "GET", s.URL()+fairnessPages+"dump_requests?includeRequestDetails=1", "").Body
	if strings.Count(waiting, "narrow,") != 4 || !strings.Contains(waiting, "/version,") {
		t.Errorf("%s", waiting)
	}
	if a := as("dave", "/version"); a.Status != http.StatusTooManyRequests {
		t.Errorf("although the queue is full: %d", a.Status)
	}
	if a := as("eve", "/version"); a.Status != http.StatusOK {
		t.Errorf("another user: %d", a.Status)
	}
	served := 0
	for range 3 {
		if a := <-results; a.Status == http.StatusOK {
			served++
		}
	}
	if served != 2 {
		t.Errorf("%d requests that waited were served", served)
	}
	takeSeat()
	if a := as("dave", "/version?timeout=1s"); a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" ||
		a.Body != "Too many requests, please try again later.\n" {
		t.Errorf("after a quarter of its time: %d %v %s", a.Status, a.Header, a.Body)
	}
	<-results
	text := apitest.Send(t, admin, "GET", s.URL()+"/metrics", "").Body
	for _, want := range []string{
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="narrow",priority_level="narrow",reason="queue-full"} 1`,
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="narrow",priority_level="narrow",reason="time-out"} 1`,
		`apiserver_flowcontrol_nominal_limit_seats{priority_level="narrow"} 1`,
		`apiserver_flowcontrol_current_inqueue_requests{flow_schema="narrow",priority_level="narrow"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics have no line %s", want)
		}
	}
}

// TestWatchesNeedNoSeat checks that a watch releases its seat after its initial events.
func TestWatchesNeedNoSeat(t *testing.T) {
	s := start(t, slowConfig(t))
	r, err := http.NewRequest("GET", s.URL()+"/api/v1/namespaces?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer evetoken")
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"eve"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`, http.StatusCreated)
	admin(t, s).As("eve").AwaitAccess("watch", "namespaces")
	w, err := httpClient(t, s, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if _, err := w.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the watch to give its seat back", func() bool {
		text := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
		return strings.Contains(text, `apiserver_flowcontrol_current_executing_seats{flow_schema="global-default",`+
			`priority_level="global-default"} 0`) && strings.Contains(text, `type="watch"`)
	})
}

// TestDanglingFlowSchemas checks that a flow schema without its priority level reports this soon in its status,
// and that it reports the level once that exists. Until then no request is classified by the schema.
func TestDanglingFlowSchemas(t *testing.T) {
	s := start(t, slowConfig(t))
	admin := httpClient(t, s, true)
	oneSeatFor(t, s, "dave")
	dangling := func() string {
		a := apitest.Send(t, admin, "GET", s.URL()+flowControlPath+"flowschemas/narrow", "")
		var o struct {
			Status struct {
				Conditions []struct{ Type, Status, Reason string }
			}
		}
		if err := json.Unmarshal([]byte(a.Body), &o); err != nil || len(o.Status.Conditions) != 1 {
			return a.Body
		}
		return fmt.Sprint(o.Status.Conditions[0])
	}
	wait.Until(t, "the flow schema to have found its level", func() bool { return dangling() == "{Dangling False Found}" })
	level := s.URL() + flowControlPath + "prioritylevelconfigurations/narrow"
	if a := apitest.Send(t, admin, "DELETE", level, ""); a.Status != http.StatusOK {
		t.Fatal(a.Status, a.Body)
	}
	wait.Until(t, "the flow schema to have lost its level", func() bool { return dangling() == "{Dangling True NotFound}" })
	uid := uidOf(t, apitest.Send(t, admin, "GET", s.URL()+flowControlPath+"flowschemas/global-default", ""))
	wait.Until(t, "the requests to be of another schema", func() bool {
		a := apitest.Send(t, httpClient(t, s, false), "GET", s.URL()+"/version", "", "Authorization", "Bearer davetoken")
		return a.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == uid
	})
}

// TestWithoutFairness checks what a server does with --enable-priority-and-fairness=false.
func TestWithoutFairness(t *testing.T) {
	c := slowConfig(t)
	c.Requests.NoPriorityAndFairness = true
	s := start(t, c)
	admin := httpClient(t, s, true)
	if a := apitest.Send(t, admin, "GET", s.URL()+fairnessPages+"dump_priority_levels", ""); a.Status != http.StatusNotFound ||
		a.Header.Get("X-Kubernetes-PF-FlowSchema-UID") != "" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	if text := apitest.Send(t, admin, "GET", s.URL()+"/metrics", "").Body; strings.Contains(text, "apiserver_flowcontrol_") {
		t.Error("there are metrics of priority and fairness")
	}
	c.Requests.NoPriorityAndFairness, c.Requests.MaxInFlight, c.Requests.MaxMutatingInFlight = false, 0, 0
	if err := c.validate(); err == nil || !strings.Contains(config.CommandLine(err), "invalid configuration: MaxRequestsInFlight=0 and "+
		"MaxMutatingRequestsInFlight=0; they must add up to something positive") {
		t.Errorf("without seats: %v", err)
	}
}

// TestFairnessPages compares the table of levels with the one that kube-apiserver 1.36 serves.
func TestFairnessPages(t *testing.T) {
	s := start(t, slowConfig(t))
	a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+fairnessPages+"dump_priority_levels", "")
	for _, want := range []string{
		"PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, " +
			"RejectedRequests, TimedoutRequests, CancelledRequests\n",
		"catch-all,         0,            true,   false,       0,               0,                 0,                  0,     " +
			"           0,                0\n",
		"exempt,            0,            false,  false,       0,               1,                 ",
	} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("%s\nhas no line %s", a.Body, want)
		}
	}
	if a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v", a.Header)
	}
	queues := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+fairnessPages+"dump_queues", "").Body
	if want := "node-high,         0,      0,               0,                 0,          0.00000000ss,  0,               0," +
		"           0.00000000ss\n"; !strings.Contains(queues, want) || strings.Count(queues, "\n") != 1+3*128+2*64+16 {
		t.Errorf("%d lines of queues: %s", strings.Count(queues, "\n"), queues[:min(len(queues), 500)])
	}
}
