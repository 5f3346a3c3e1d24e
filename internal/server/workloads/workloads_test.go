package workloads_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/workloads"
)

const (
	kubectl     = "kubectl/v1.37.2 (linux/amd64) kubernetes/abc"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	pods        = "/api/v1/namespaces/default/pods"
	leases      = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
)

func deployment(name string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
		{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}`, name)
}

func pod(name, more string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"containers": [{"name": "c", "image": "nginx"}]%s}}`, name, more)
}

// warnings creates an object with a User-Agent and returns the warnings of the response.
func warnings(t *testing.T, s *servertest.Server, agent, path, body string) string {
	t.Helper()
	a := apitest.Send(t, s.HTTP(), http.MethodPost, s.URL()+path, body, "User-Agent", agent)
	if a.Status != http.StatusCreated {
		t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	return strings.Join(a.Header["Warning"], " ")
}

// events returns the messages of the Events about an object.
func events(t *testing.T, s *servertest.Server, kind, name string) (messages []string) {
	t.Helper()
	var list corev1.EventList
	body := s.Get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=" + kind + ",involvedObject.name=" + name)
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		messages = append(messages, e.Message)
	}
	return messages
}

// TestNotices checks that a user who creates a workload with kubectl gets a warning and an Event about missing
// components.
func TestNotices(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	text := func(kind, missing string) string {
		return "this server only stores the " + kind + ": it has no Lease of " + missing +
			", so no containers start, unless they run with --leader-elect=false; see " + workloads.Page
	}
	check := func(what, got, kind, missing string) {
		t.Helper()
		want := ""
		if missing != "" {
			want = `299 - "` + text(kind, missing) + `"`
		}
		if got != want {
			t.Errorf("%s: the warnings are %q, not %q", what, got, want)
		}
	}
	s.Create("/api/v1/namespaces/default/serviceaccounts", `{"metadata": {"name": "default"}}`)
	const both = "kube-controller-manager and of kube-scheduler"
	check("a dry run", warnings(t, s, kubectl, deployments+"?dryRun=All", deployment("web")), "", "")
	check("a create", warnings(t, s, kubectl, deployments, deployment("web")), "Deployment", both)
	if got := events(t, s, "Deployment", "web"); len(got) != 1 || got[0] != text("Deployment", both) {
		t.Errorf("the Events are %q", got)
	}
	check("a ConfigMap", warnings(t, s, kubectl, "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "a"}}`), "", "")
	s.Create(leases, `{"metadata": {"name": "kube-controller-manager"}}`)
	check("Helm", warnings(t, s, "Helm/4.0.0", deployments, deployment("managed")), "Deployment", "kube-scheduler")
	check("a pod", warnings(t, s, kubectl, pods, pod("plain", "")), "Pod", "kube-scheduler")
	check("a placed pod", warnings(t, s, kubectl, pods, pod("placed", `, "nodeName": "n"`)), "", "")
	check("a pod of another scheduler", warnings(t, s, kubectl, pods, pod("other", `, "schedulerName": "o"`)), "", "")
	s.Create(leases, `{"metadata": {"name": "kube-scheduler"}}`)
	check("nothing is missing", warnings(t, s, kubectl, deployments, deployment("run")), "", "")
}

// TestNoticesWithoutLease checks that a component without a Lease is known once it has created an object.
func TestNoticesWithoutLease(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Create("/api/v1/namespaces/default/serviceaccounts", `{"metadata": {"name": "default"}}`)
	const events = "/api/v1/namespaces/default/events"
	event := func(name string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q}, "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"}, "reason": "Scheduled"}`, name)
	}
	warnings(t, s, "kube-scheduler-like/v1", events, event("a"))
	if got := warnings(t, s, kubectl, pods, pod("before", "")); !strings.Contains(got, "no Lease of kube-scheduler, so") {
		t.Errorf("before kube-scheduler has written: %q", got)
	}
	warnings(t, s, "kube-scheduler/v1.37.2 (linux/amd64) kubernetes/abc", events, event("b"))
	if got := warnings(t, s, kubectl, pods, pod("after", "")); got != "" {
		t.Errorf("after kube-scheduler has written: %q", got)
	}
	if got := warnings(t, s, kubectl, deployments, deployment("web")); !strings.Contains(got, "no Lease of kube-controller-manager, so") {
		t.Errorf("kube-controller-manager has not written: %q", got)
	}
}

// TestNoNotices checks that other programs get no notices, and that there are none if they are switched off.
func TestNoNotices(t *testing.T) {
	off := servertest.Default()
	off.Controllers.NoWorkloadNotices = true
	for agent, c := range map[string]servertest.Config{"manager/v1 (linux/amd64)": servertest.Default(), kubectl: off} {
		s := servertest.Start(t, c)
		got := warnings(t, s, agent, deployments, deployment("web"))
		if found := events(t, s, "Deployment", "web"); got != "" || found != nil {
			t.Errorf("%s: %s %q", agent, got, found)
		}
	}
}

// TestNoticesAreLimited checks that the number of Events in a namespace is limited, because their author needs no
// permission to write Events and no quota counts them. Warnings are not limited, and other namespaces still get
// Events.
func TestNoticesAreLimited(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	count := func(namespace string) int {
		var list corev1.EventList
		if err := json.Unmarshal([]byte(s.Get("/api/v1/namespaces/"+namespace+"/events")), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	create := func(namespace string) {
		path := "/apis/apps/v1/namespaces/" + namespace + "/deployments"
		if warnings(t, s, kubectl, path, deployment("web")) == "" {
			t.Error("there is no warning")
		}
		s.Do(http.MethodDelete, path+"/web?propagationPolicy=Background", "")
	}
	for range 60 {
		create("default")
	}
	if n := count("default"); n < 25 || n > 27 {
		t.Errorf("%d Events about 60 workloads", n)
	}
	s.Create("/api/v1/namespaces", `{"metadata": {"name": "other"}}`)
	if create("other"); count("other") != 1 {
		t.Errorf("%d Events in another namespace", count("other"))
	}
}
