package controllertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// quotaClient sends requests in the namespace default.
type quotaClient struct {
	*servertest.Server
	t *testing.T
}

func newQuotaClient(t *testing.T) *quotaClient {
	return &quotaClient{servertest.Start(t, servertest.Default("resourcequota-controller", "serviceaccount-controller")), t}
}

// send sends a request and expects a status code. If part is not "", the answer must contain it.
func (q *quotaClient) send(method, path, body string, status int, part string) {
	q.t.Helper()
	got := q.Send(method, path, body)
	if got.Status != status || !strings.Contains(got.Body, part) {
		q.t.Errorf("%s %s: %d %s, want %d with %q", method, path, got.Status, got.Body, status, part)
	}
}

// used waits until a quota's status.used is as wanted, in JSON.
func (q *quotaClient) used(name, want string) {
	q.t.Helper()
	var wanted map[string]string
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		q.t.Fatal(err)
	}
	wait.Seen(q.t, "quota "+name+" to use "+want, func() (bool, string) {
		var quota struct {
			Status struct{ Used map[string]string }
		}
		if err := json.Unmarshal([]byte(q.Get("/api/v1/namespaces/default/resourcequotas/"+name)), &quota); err != nil {
			q.t.Fatal(err)
		}
		got := fmt.Sprint(quota.Status.Used)
		return got == fmt.Sprint(wanted), "it uses " + got
	})
}

// TestUsageOfQuotasIsCounted checks the controller together with the plug-in: the status of a new quota, charges,
// deletions, changed limits, objects that use less, and custom resources.
func TestUsageOfQuotasIsCounted(t *testing.T) {
	q := newQuotaClient(t)
	const ns = "/api/v1/namespaces/default"
	q.send("POST", ns+"/configmaps", `{"metadata":{"name":"before"}}`, 201, "")
	q.limit(`{"configmaps":"2","services.loadbalancers":"1","count/things.example.com":"1","requests.cpu":"1"}`)
	q.used("q", `{"configmaps":"1","services.loadbalancers":"0","requests.cpu":"0"}`)

	q.send("POST", ns+"/configmaps", `{"metadata":{"name":"a"}}`, 201, "")
	q.send("POST", ns+"/configmaps", `{"metadata":{"name":"b"}}`, 403,
		"exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
	q.send("DELETE", ns+"/configmaps/a", "", 200, "")
	q.used("q", `{"configmaps":"1","services.loadbalancers":"0","requests.cpu":"0"}`)
	q.send("POST", ns+"/configmaps", `{"metadata":{"name":"b"}}`, 201, "")

	const service = `{"metadata":{"name":"s"},"spec":{"type":"%s","ports":[{"port":80}]}}`
	q.send("POST", ns+"/services", fmt.Sprintf(service, "LoadBalancer"), 201, "")
	q.used("q", `{"configmaps":"2","services.loadbalancers":"1","requests.cpu":"0"}`)
	q.send("PATCH", ns+"/services/s", `{"spec":{"type":"ClusterIP"}}`, 200, "")
	q.used("q", `{"configmaps":"2","services.loadbalancers":"0","requests.cpu":"0"}`)

	const pod = `{"metadata":{"name":"p"},"spec":{"automountServiceAccountToken":false,"containers":[` +
		`{"name":"c","image":"i","resources":{"requests":{"cpu":"600m"}}}]}}`
	q.send("POST", ns+"/pods", pod, 201, "")
	q.send("POST", ns+"/pods", strings.Replace(pod, `"p"`, `"p2"`, 1), 403,
		"exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1")
	q.send("PATCH", ns+"/pods/p/status", `{"status":{"phase":"Succeeded"}}`, 200, "")
	q.used("q", `{"configmaps":"2","services.loadbalancers":"0","requests.cpu":"0"}`)

	q.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", thingDefinition, 201, "")
	const thing = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"%s"}}`
	const things = "/apis/example.com/v1/namespaces/default/things"
	q.used("q", `{"configmaps":"2","services.loadbalancers":"0","requests.cpu":"0","count/things.example.com":"0"}`)
	q.send("POST", things, fmt.Sprintf(thing, "a"), 201, "")
	q.send("POST", things, fmt.Sprintf(thing, "b"), 403, "exceeded quota: q, requested: count/things.example.com=1")
	q.send("DELETE", things+"/a", "", 200, "")
	q.used("q", `{"configmaps":"2","services.loadbalancers":"0","requests.cpu":"0","count/things.example.com":"0"}`)

	q.send("PATCH", ns+"/resourcequotas/q", `{"spec":{"hard":{"secrets":"5","configmaps":null}}}`, 200, "")
	q.used("q",
		`{"secrets":"0","services.loadbalancers":"0","requests.cpu":"0","count/things.example.com":"0"}`)
}

const thingDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
	`"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",` +
	`"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,` +
	`"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// limit creates the quota q.
func (q *quotaClient) limit(hard string) {
	q.t.Helper()
	q.send("POST", "/api/v1/namespaces/default/resourcequotas",
		`{"metadata":{"name":"q"},"spec":{"hard":`+hard+`}}`, 201, "")
}

// TestUsageOfQuotasIsLeftToOthers checks the switch: without the controller a quota has no status.
func TestUsageOfQuotasIsLeftToOthers(t *testing.T) {
	c := servertest.Default("resourcequota-controller", "serviceaccount-controller")
	c.Controllers.NoQuotaUsage = true
	s := servertest.Start(t, c)
	q := &quotaClient{s, t}
	q.limit(`{"configmaps":"0"}`)
	s.Idle(t) // with the controller, the usage would have been counted by now
	q.send("GET", "/api/v1/namespaces/default/resourcequotas/q", "", 200, `"status":{}`)
	q.send("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`, 201, "")
}

// TestCountingLosesNoCharge creates and deletes objects while the usage is counted again and again. There are never
// more objects than the quota allows.
func TestCountingLosesNoCharge(t *testing.T) {
	q := newQuotaClient(t)
	const ns, hard, writers, rounds = "/api/v1/namespaces/default", 8, 8, 40
	q.limit(fmt.Sprintf(`{"secrets":"%d"}`, hard))
	q.used("q", `{"secrets":"0"}`)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := range rounds {
				one, two := fmt.Sprintf("s-%d-%d", i, n), fmt.Sprintf("t-%d-%d", i, n)
				for _, name := range []string{one, two} {
					q.Send("POST", ns+"/secrets", `{"metadata":{"name":"`+name+`"}}`)
				}
				var list struct{ Items []any }
				if err := json.Unmarshal([]byte(q.Get(ns+"/secrets")), &list); err != nil {
					t.Error(err)
				}
				if len(list.Items) > hard {
					t.Errorf("%d objects, the quota allows %d", len(list.Items), hard)
				}
				for _, name := range []string{one, two} {
					q.Send("DELETE", ns+"/secrets/"+name, "")
				}
			}
		})
	}
	all.Wait()
	q.used("q", `{"secrets":"0"}`)
}
