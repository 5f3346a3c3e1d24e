package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// pastServer starts a server whose clock the test moves, and which keeps history for a day.
func pastServer(t *testing.T) (*servertest.Server, *clock.Clock) {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default("namespace-controller")
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"24h", "secrets=1h"}
	c.AdjustEngine = func(o *embedded.Options) { o.CompactInterval = 10 * time.Millisecond }
	return servertest.Start(t, c), now
}

// compacted waits until the store has compacted a revision: a user who may list, but not read history, is told so.
func compacted(t *testing.T, s *servertest.Server, now *clock.Clock, revision string) {
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRole","metadata":{"name":"lister"},
		"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":"viewer"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"lister"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"viewer"}]}`)
	apitest.Eventually(t, "the compaction of revision "+revision, func() (bool, string) {
		now.Advance(time.Minute)
		a := s.As("viewer").Send("GET", "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion="+revision, "")
		return a.Status == http.StatusGone, a.Body
	})
}

const maps = "/api/v1/namespaces/default/configmaps"

func dataOf(t *testing.T, body string) string {
	t.Helper()
	var o struct {
		Data  map[string]string
		Items []struct {
			Metadata struct{ Name string }
			Data     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	out := o.Data["v"]
	for _, i := range o.Items {
		if i.Metadata.Name != "kube-root-ca.crt" {
			out += fmt.Sprint(i.Metadata.Name, "=", i.Data["v"], " ")
		}
	}
	return strings.TrimSpace(out)
}

// TestAsOf reads objects as they were, by a time, by a duration and by a revision, also after the store has compacted what was
// then.
func TestAsOf(t *testing.T) {
	s, now := pastServer(t)
	configMap := func(name, v string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"v":%q}},"data":{"v":%q}}`, name, v, v)
	}
	s.Create(maps, configMap("a", "1"))
	s.Create(maps, configMap("gone", "1"))
	first := now.Now()
	now.Advance(10 * time.Minute)
	s.Patch(maps+"/a", `{"data":{"v":"2"},"metadata":{"labels":{"v":"2"}}}`)
	s.Do(http.MethodDelete, maps+"/gone", "")
	second := s.Metadata(maps + "/a").ResourceVersion
	between := now.Now().Add(30 * time.Minute)
	now.Advance(time.Hour)
	s.Patch(maps+"/a", `{"data":{"v":"3"}}`)
	last := s.Metadata(maps + "/a").ResourceVersion
	now.Advance(10 * time.Minute)
	s.Create(maps, configMap("b", "1"))
	compacted(t, s, now, last)

	ago := func(at time.Time) string { return now.Now().Sub(at).String() }
	at := func(asOf string) string { return "?asOf=" + strings.ReplaceAll(asOf, "+", "%2B") }
	for _, c := range []struct{ path, want string }{
		{maps + "/a", "3"},
		{maps + "/a" + at(first.Format(time.RFC3339)), "1"},
		{maps + "/a" + at(ago(first)), "1"},
		{maps + "/a" + at(ago(between)), "2"},
		{maps + "/a" + at("0s"), "3"},
		{maps + "/a" + at(second), "2"},
		{maps + "/gone" + at(first.Format(time.RFC3339)), "1"},
		{maps + at(first.Format(time.RFC3339)), "a=1 gone=1"},
		{maps + at(ago(between)) + "&labelSelector=v=2", "a=2"},
		{maps + at(ago(between)) + "&labelSelector=v=1", ""},
		{maps + at(ago(first)) + "&fieldSelector=metadata.name=gone", "gone=1"},
		{maps + "?resourceVersionMatch=Exact&resourceVersion=" + second, "a=2 gone=1"},
	} {
		if got := dataOf(t, s.Get(c.path)); got != c.want {
			t.Errorf("GET %s: %q, want %q", c.path, got, c.want)
		}
	}
	s.Run([]apitest.Step{
		{"GET", maps + "/gone" + at(ago(between)), "", 404, "not found"},
		{"GET", maps + "/b" + at(ago(between)), "", 404, "not found"},
		{"GET", maps + at(ago(between)) + "&resourceVersion=1", "", 400, "cannot be used together"},
		{"GET", maps + at("yesterday"), "", 400, "it has to be a time (RFC 3339)"},
		{"GET", maps + at("-1h"), "", 400, "it has to be a time (RFC 3339)"},
		{"GET", maps + at("99999999"), "", 504, "Too large resource version"},
		{"GET", maps + at(ago(between)) + "&watch=true", "", 400, "a watch cannot begin in the past"},
		{"DELETE", maps + at(ago(between)), "", 400, "only for reads"},
		{"GET", "/api/v1/namespaces/default/secrets" + at(ago(first)), "", 410, "the history goes back to"},
		{"GET", maps + at("72h"), "", 200, `"items":[]`}, // the server was made later
	})
	page := s.Get(maps + at(first.Format(time.RFC3339)) + "&limit=1")
	var list struct{ Metadata struct{ Continue string } }
	if err := json.Unmarshal([]byte(page), &list); err != nil || list.Metadata.Continue == "" {
		t.Fatal(page)
	}
	next := s.Get(maps + at(first.Format(time.RFC3339)) + "&limit=2&continue=" + list.Metadata.Continue)
	if got := dataOf(t, page) + " " + dataOf(t, next); got != "a=1 gone=1" {
		t.Errorf("the pages have %s", got)
	}
	table := s.Do(http.MethodGet, maps+at(ago(between)), "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if !strings.Contains(table, `"cells":["a",1,`) || strings.Contains(table, `"b"`) {
		t.Error(table)
	}
}

// TestAsOfOfAnotherTenant checks who may read the past: the verb readhistory is needed, and what was in a namespace before it was
// made again is for those who may read all namespaces.
func TestAsOfOfAnotherTenant(t *testing.T) {
	s, now := pastServer(t)
	const tenant = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"tenant"}}`
	const theirs = "/api/v1/namespaces/tenant/configmaps"
	s.Create("/api/v1/namespaces", tenant)
	s.Create(theirs, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"secret"},"data":{"v":"of the first tenant"}}`)
	now.Advance(time.Minute)
	s.Do(http.MethodDelete, "/api/v1/namespaces/tenant", "")
	s.Gone("/api/v1/namespaces/tenant")
	now.Advance(time.Hour)
	s.Create("/api/v1/namespaces", tenant)
	now.Advance(time.Minute)
	role := func(name, verbs string) {
		s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles", fmt.Sprintf(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%q},
			"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":[%s]}]}`, name, verbs))
		s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/rolebindings", fmt.Sprintf(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%[1]q},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[1]q}]}`, name))
	}
	role("reader", `"get","list"`)
	role("historian", `"get","list","readhistory"`)
	old := theirs + "/secret?asOf=1h1m30s"
	apitest.Eventually(t, "the roles are in effect", func() (bool, string) {
		a := s.As("historian").Send("GET", theirs+"?asOf=30s", "")
		return a.Status == http.StatusOK, a.Body
	})
	if got := dataOf(t, s.Get(old)); got != "of the first tenant" {
		t.Fatalf("an administrator reads %q", got)
	}
	s.As("reader").Run([]apitest.Step{
		{"GET", theirs, "", 200, ""},
		{"GET", theirs + "?asOf=30s", "", 403, `cannot readhistory resource`},
	})
	s.As("historian").Run([]apitest.Step{
		{"GET", old, "", 403, `at the cluster scope`},
		{"GET", theirs + "?asOf=1h1m30s", "", 403, `at the cluster scope`},
	})
}
