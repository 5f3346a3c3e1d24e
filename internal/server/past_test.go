package server_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// onEachStore runs a test with the data in memory, and with the data in etcd and a local state.
func onEachStore(t *testing.T, test func(t *testing.T, store string)) {
	for _, store := range []string{config.StorageMemory, config.StorageEtcd} {
		t.Run(store, func(t *testing.T) { test(t, store) })
	}
}

// pastServer starts a server that keeps history for a day, and returns it with the clock that it uses.
func pastServer(t *testing.T, store string) (*servertest.Server, *clock.Clock) {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default("namespace-controller")
	if store == config.StorageEtcd {
		c.Storage.Backend, c.Storage.DataDir, c.Storage.Etcd.Servers = store, t.TempDir(), []string{etcdtest.Serve(t)}
		c.Storage.Etcd.CompactionInterval = time.Second
	}
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"24h", "secrets=1h"}
	c.AdjustEngine = func(o *embedded.Options) { o.CompactInterval = 10 * time.Millisecond }
	return servertest.Start(t, c), now
}

// compacted advances the clock until the store has compacted revision. A user who may list, but not read history,
// then gets 410.
func compacted(t *testing.T, s *servertest.Server, now *clock.Clock, revision string) {
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRole","metadata":{"name":"lister"},
		"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":"viewer"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"lister"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"viewer"}]}`)
	wait.Seen(t, "the compaction of revision "+revision, func() (bool, string) {
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

// TestAsOf reads old states of objects by a time, by a duration and by a revision. It does so again after the
// store has compacted those revisions.
func TestAsOf(t *testing.T) { onEachStore(t, testAsOf) }

func testAsOf(t *testing.T, store string) {
	s, now := pastServer(t, store)
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
		{"GET", maps + "/a/history" + at("1h"), "", 400, "not for history"},
		{"GET", maps + "/a/blockers" + at("1h"), "", 400, "not for blockers"},
		{"POST", "/api/v1/namespaces/default/services/x/proxy/query" + at("1h"), "{}", 503, "no endpoints available"},
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

// TestAsOfOfAnotherTenant checks who may read the past. The verb readhistory is needed. For the time before a
// namespace was deleted and created again, the permission for all namespaces is needed.
func TestAsOfOfAnotherTenant(t *testing.T) { onEachStore(t, testAsOfOfAnotherTenant) }

func testAsOfOfAnotherTenant(t *testing.T, store string) {
	s, now := pastServer(t, store)
	const tenant = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"tenant"}}`
	const theirs = "/api/v1/namespaces/tenant/configmaps"
	s.Create("/api/v1/namespaces", tenant)
	s.Create(theirs, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"secret"},"data":{"v":"of the first tenant"}}`)
	revision := s.Metadata(theirs + "/secret").ResourceVersion
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"a"}`))
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
	s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles", `{"metadata":{"name":"changes"},"rules":[
		{"apiGroups":[""],"resources":["configmaps/history"],"verbs":["get"]},
		{"apiGroups":["history.keelson.dev"],"resources":["changes"],"verbs":["list","watch"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/rolebindings", `{"metadata":{"name":"changes"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"changes"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"historian"}]}`)
	s.Create(theirs, `{"metadata":{"name":"own"}}`)
	old := theirs + "/secret?asOf=1h1m30s"
	wait.Seen(t, "the roles are in effect", func() (bool, string) {
		a := s.As("historian").Send("GET", theirs+"?asOf=30s", "")
		return a.Status == http.StatusOK, a.Body
	})
	s.As("historian").Served(theirs + "/own/history")
	compacted(t, s, now, revision)
	old = theirs + "/secret?asOf=" + revision
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
		{"GET", theirs + "?asOf=1s&continue=" + forged, "", 403, `at the cluster scope`},
		{"GET", theirs + "?continue=" + forged, "", 410, ""},
		{"GET", theirs + "?resourceVersionMatch=Exact&resourceVersion=" + revision, "", 403, `at the cluster scope`},
		// A user without the permission does not even learn that there was an object of this name.
		{"GET", theirs + "/secret/history", "", 404, "not found"},
		{"GET", theirs + "/secret/history?continue=9999999", "", 410, "not kept any more"},
		{"GET", theirs + "/never/history?continue=9999999", "", 410, "not kept any more"},
		{"GET", theirs + "/own/history", "", 200, `"type":"Created"`},
	})
	const feed = "/apis/history.keelson.dev/v1alpha1/namespaces/tenant/changes"
	for _, query := range []string{"?since=1", "?continue=1", "?since=2h", "?watch=true&timeoutSeconds=1&resourceVersion=1"} {
		if body := s.As("historian").Get(feed + query); strings.Contains(body, `"secret"`) || !strings.Contains(body, `"name":"own"`) {
			t.Errorf("%s: %s", query, body)
		}
	}
}

// TestHistory reads the changes of an object and their users, also after it was deleted and created again with the
// same name.
func TestHistory(t *testing.T) { onEachStore(t, testHistory) }

func testHistory(t *testing.T, store string) {
	s, now := pastServer(t, store)
	const secrets = "/api/v1/namespaces/default/secrets"
	s.Create(secrets, `{"metadata":{"name":"a"},"stringData":{"password":"one"}}`)
	first := s.Metadata(secrets + "/a").UID
	now.Advance(time.Minute)
	s.As("jane", "system:masters").Do(http.MethodPatch, secrets+"/a?fieldManager=tool", `{"stringData":{"password":"two","user":"x"}}`,
		"User-Agent", "janes-tool/1.0", "Audit-Id", "6c9f2a50-2f0a-4c7b-8c5b-1d2f6b6f0a11")
	now.Advance(time.Minute)
	s.Do(http.MethodDelete, secrets+"/a", "")
	now.Advance(time.Minute)
	s.Create(secrets, `{"metadata":{"name":"a"}}`)
	second := s.Metadata(secrets + "/a").UID

	read := func(query string) history.ObjectHistory {
		t.Helper()
		body := s.Get(secrets + "/a/history" + query)
		if strings.Contains(body, "dHdv") && !strings.Contains(query, "objects") {
			t.Errorf("it shows the values of a secret: %s", body)
		}
		var h history.ObjectHistory
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	lines := func(h history.ObjectHistory) (out []string) {
		for _, c := range h.Items {
			line := fmt.Sprint(c.Time.Format("15:04"), " ", c.Type, " ", c.User, " ", c.Verb, " ", c.FieldManager, " ", c.Changed)
			out = append(out, line)
		}
		return out
	}
	all := read("")
	want := []string{
		"12:03 Created kubernetes-admin create Go-http-client []",
		"12:02 Deleted kubernetes-admin delete  []",
		"12:01 Updated jane patch tool [.data.password .data.user]",
		"12:00 Created kubernetes-admin create Go-http-client []",
	}
	if got := lines(all); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	jane := all.Items[2]
	if jane.Impersonator != "kubernetes-admin" || jane.UserAgent != "janes-tool/1.0" || jane.AuditID != "6c9f2a50-2f0a-4c7b-8c5b-1d2f6b6f0a11" {
		t.Errorf("%+v", jane)
	}
	if all.Items[0].UID != second || all.Items[1].UID != first {
		t.Errorf("the UIDs are %s and %s", all.Items[0].UID, all.Items[1].UID)
	}
	if got := lines(read("?uid=" + string(first))); !slices.Equal(got, want[1:]) {
		t.Errorf("of the first object: %q", got)
	}
	page := read("?limit=2")
	if got := append(lines(page), lines(read("?limit=2&continue="+page.Continue))...); !slices.Equal(got, want) {
		t.Errorf("in pages: %q", got)
	}
	if objects := s.Get(secrets + "/a/history?objects=true"); !strings.Contains(objects, `"password":"dHdv"`) {
		t.Error(objects)
	}
	s.Run([]apitest.Step{
		{"GET", secrets + "/b/history", "", 404, "not found"},
		{"GET", secrets + "/a/history?limit=0", "", 400, "invalid limit"},
		{"GET", secrets + "/a/history?continue=x", "", 400, "invalid continue token"},
		{"GET", secrets + "/a/history/x", "", 404, ""},
		{"POST", secrets + "/a/history", "{}", 404, ""},
		{"GET", "/api/v1/namespaces/default/history", "", 200, `"type":"Created"`},
		{"GET", "/api/v1/namespaces/none/history", "", 404, "not found"},
		{"GET", "/apis/apps/v1/namespaces/default/history", "", 404, ""},
	})
	if s.As("nobody").Send("GET", secrets+"/a/history", "").Status != http.StatusForbidden {
		t.Error("everybody may read history")
	}
}

// TestHistoryOfCustomResource reads the history of a custom resource, and the deletion by the garbage collector in
// it.
func TestHistoryOfCustomResource(t *testing.T) { onEachStore(t, testHistoryOfCustomResource) }

func testHistoryOfCustomResource(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.DefineWidgets()
	const widgets = "/apis/example.com/v1/namespaces/default/widgets"
	s.Create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"parts":[{"name":"a","size":1}]}}`)
	s.Patch(widgets+"/w", `{"spec":{"parts":[{"name":"a","size":2},{"name":"b"}]}}`)
	body := s.Get(widgets + "/w/history")
	if !strings.Contains(body, `"changed":[".spec.parts[name=a].size",".spec.parts[name=b]"]`) {
		t.Error(body)
	}
}

// TestChanges reads the changes since a time, in one namespace and in all namespaces.
func TestChanges(t *testing.T) { onEachStore(t, testChanges) }

func testChanges(t *testing.T, store string) {
	s, now := pastServer(t, store)
	s.DefineWidgets()
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	now.Advance(2 * time.Hour)
	begin := now.Now()
	s.Create(maps, `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	s.Create("/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"b"}}`)
	now.Advance(time.Minute)
	s.As("jane", "system:masters").Do(http.MethodPatch, maps+"/a", `{"data":{"v":"2"}}`)
	s.Create("/apis/example.com/v1/namespaces/default/widgets",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	s.Do(http.MethodDelete, maps+"/a", "")
	s.Create("/api/v1/nodes", `{"metadata":{"name":"default"}}`)

	read := func(path, query string) (lines []string, next string) {
		t.Helper()
		var list history.ChangeList
		if err := json.Unmarshal([]byte(s.Get("/apis/history.keelson.dev/v1alpha1/"+path+query)), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			if strings.HasPrefix(c.User, "system:") {
				continue
			}
			lines = append(lines, fmt.Sprint(c.Type, " ", c.Namespace, "/", c.Resource, "/", c.Name, " ", c.User, " ", c.Changed))
		}
		return lines, list.Continue
	}
	want := []string{
		"Created default/configmaps/a kubernetes-admin []", "Created other/configmaps/b kubernetes-admin []",
		"Updated default/configmaps/a jane [.data.v]", "Created default/widgets/w kubernetes-admin []",
		"Deleted default/configmaps/a kubernetes-admin []", "Created /nodes/default kubernetes-admin []",
	}
	since := "?since=" + begin.Format(time.RFC3339)
	if got, _ := read("changes", since); !slices.Equal(got, want) {
		t.Errorf("in all namespaces: %q\nwant %q", got, want)
	}
	inDefault := []string{want[0], want[2], want[3], want[4]}
	if got, _ := read("namespaces/default/changes", since); !slices.Equal(got, inDefault) {
		t.Errorf("in a namespace: %q\nwant %q", got, inDefault)
	}
	if got, _ := read("namespaces/default/changes", "?since=30s"); !slices.Equal(got, inDefault[1:]) {
		t.Errorf("in the last half minute: %q", got)
	}
	var pages []string
	for next := ""; ; {
		lines, more := read("changes", since+"&limit=2&continue="+next)
		if pages = append(pages, lines...); more == "" {
			break
		}
		next = more
	}
	if !slices.Equal(pages, want) {
		t.Errorf("in pages: %q", pages)
	}
	s.Run([]apitest.Step{
		{"GET", "/apis/history.keelson.dev/v1alpha1/changes?since=x", "", 400, "invalid since"},
		{"GET", "/apis/history.keelson.dev/v1alpha1/changes?limit=x", "", 400, "invalid limit"},
		{"GET", "/apis/history.keelson.dev/v1alpha1/changes/a", "", 404, ""},
		{"POST", "/apis/history.keelson.dev/v1alpha1/changes", "{}", 405, ""},
		{"GET", "/apis/history.keelson.dev/v1alpha1/others", "", 404, ""},
	})
	if a := s.As("nobody").Send("GET", "/apis/history.keelson.dev/v1alpha1/namespaces/default/changes", ""); a.Status != 403 {
		t.Errorf("everybody may read the changes: %d", a.Status)
	}
}

// TestHistoryShowsNoMoreThanGet checks that the objects in a history are only for users who may get the object.
func TestHistoryShowsNoMoreThanGet(t *testing.T) { onEachStore(t, testHistoryShowsNoMoreThanGet) }

func testHistoryShowsNoMoreThanGet(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.Create("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"},"stringData":{"password":"two"}}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"historian"},"rules":[
		{"apiGroups":["*"],"resources":["*"],"verbs":["readhistory"]},{"apiGroups":["*"],"resources":["*/history"],"verbs":["get"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"historian"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"historian"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"historian"}]}`)
	const path = "/api/v1/namespaces/default/secrets/a/history"
	s.As("historian").Served(path)
	s.As("historian").Run([]apitest.Step{
		{"GET", path + "?objects=true", "", 403, `cannot get resource \"secrets\"`},
		{"GET", "/api/v1/namespaces/default/secrets/a?asOf=0s", "", 403, "cannot get"},
	})
}

// TestAsOfOfNamespace reads a Namespace. Its key is in no namespace, although the request has one. So a retention
// rule for that namespace keeps no history of the Namespace itself.
func TestAsOfOfNamespace(t *testing.T) {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default()
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"*/team=24h"}
	c.AdjustEngine = func(o *embedded.Options) { o.CompactInterval = 10 * time.Millisecond }
	s := servertest.Start(t, c)
	const team = "/api/v1/namespaces/team"
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"team","labels":{"v":"1"}}}`)
	first := s.Metadata(team).ResourceVersion
	s.Create(team+"/configmaps", `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	then := s.Metadata(team + "/configmaps/a").ResourceVersion
	s.Patch(team, `{"metadata":{"labels":{"v":"2"}}}`)
	s.Patch(team+"/configmaps/a", `{"data":{"v":"2"}}`)
	last := s.Metadata(team + "/configmaps/a").ResourceVersion
	now.Advance(time.Minute)
	s.Create(team+"/configmaps", `{"metadata":{"name":"b"}}`)
	compacted(t, s, now, last)
	s.Run([]apitest.Step{
		{"GET", team + "/configmaps/a?asOf=" + then, "", 200, `"v":"1"`},
		{"GET", team + "?asOf=" + first, "", 410, "the history goes back to"},
		{"GET", team + "/configmaps?asOf=1h&continue=" + base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}`)),
			"", 400, "invalid continue token"},
	})
}

// TestHistoryOfLargeObject pages through versions that together are too large for one response.
func TestHistoryOfLargeObject(t *testing.T) { onEachStore(t, testHistoryOfLargeObject) }

func testHistoryOfLargeObject(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.Create(maps, `{"metadata":{"name":"a"}}`)
	for i := range 12 {
		s.Patch(maps+"/a", fmt.Sprintf(`{"data":{"v":%q,"n":"%d"}}`, strings.Repeat("x", 900<<10), i))
	}
	var versions []string
	pages := 0
	for next := ""; ; pages++ {
		body := s.Get(maps + "/a/history?objects=true&continue=" + next)
		if len(body) > 8<<20 {
			t.Fatalf("a page has %d bytes", len(body))
		}
		var h history.ObjectHistory
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatal(err)
		}
		for _, c := range h.Items {
			versions = append(versions, c.ResourceVersion)
		}
		if next = h.Continue; next == "" {
			break
		}
	}
	newestFirst := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a)) }
	if !slices.IsSortedFunc(versions, newestFirst) || len(versions) != 13 || pages < 2 {
		t.Errorf("%d pages have the versions %q", pages+1, versions)
	}
}
