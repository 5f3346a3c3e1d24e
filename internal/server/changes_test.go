package server_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const changesPath = "/apis/history.keelson.dev/v1alpha1/changes"

// watchChanges opens a watch of changes, and returns a function that reads the next event.
func watchChanges(t *testing.T, s *servertest.Server, path string) (next func() (kind string, c history.ObjectChange)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.HTTP().Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() (string, history.ObjectChange) {
		t.Helper()
		var event struct {
			Type   string
			Object history.ObjectChange
		}
		if !lines.Scan() {
			t.Fatalf("the watch ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		return event.Type, event.Object
	}
}

// TestWatchChanges watches the changes of configmaps, first those since a time and then new ones. It also watches
// the changes of a custom resource that is defined during the watch.
func TestWatchChanges(t *testing.T) { onEachStore(t, testWatchChanges) }

func testWatchChanges(t *testing.T, store string) {
	s, now := pastServer(t, store)
	s.Create(maps, `{"metadata":{"name":"before"}}`)
	now.Advance(2 * time.Hour)
	begin := now.Now()
	s.Create(maps, `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	compacted(t, s, now, s.Metadata(maps+"/a").ResourceVersion)
	next := watchChanges(t, s, changesPath+"?watch=true&fieldSelector=user=kubernetes-admin,resource!=clusterroles,"+
		"resource!=clusterrolebindings,resource!=customresourcedefinitions&since="+begin.Format(time.RFC3339))
	expect := func(want string) history.ObjectChange {
		t.Helper()
		kind, c := next()
		if got := kind + " " + string(c.Type) + " " + c.Resource + "/" + c.Name; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		return c
	}
	c := expect("ADDED Created configmaps/a")
	if c.Kind != "Change" || c.APIVersion != history.APIVersion || c.Metadata.Namespace != "default" || c.User != "kubernetes-admin" ||
		c.Metadata.CreationTimestamp == nil || c.Metadata.ResourceVersion != s.Metadata(maps+"/a").ResourceVersion {
		t.Errorf("%+v", c)
	}
	s.Patch(maps+"/a", `{"data":{"v":"2"}}`)
	if c := expect("ADDED Updated configmaps/a"); !slices.Equal(c.Changed, []string{".data.v"}) {
		t.Errorf("%+v", c)
	}
	s.DefineWidgets()
	s.Create("/apis/example.com/v1/namespaces/default/widgets",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	expect("ADDED Created widgets/w")
	s.Do(http.MethodDelete, maps+"/a", "")
	last := expect("ADDED Deleted configmaps/a")

	// A watch with a resourceVersion sends the changes after that revision.
	s.Create(maps, `{"metadata":{"name":"b"}}`)
	next = watchChanges(t, s, changesPath+"?watch=true&fieldSelector=user=kubernetes-admin&resourceVersion="+last.ResourceVersion)
	expect("ADDED Created configmaps/b")
	// A watch without a resourceVersion sends the changes from now on.
	next = watchChanges(t, s, changesPath+"?watch=true&fieldSelector=name=c")
	s.Create(maps, `{"metadata":{"name":"c"}}`)
	expect("ADDED Created configmaps/c")
	s.Run([]apitest.Step{
		{"GET", changesPath + "?watch=true&timeoutSeconds=x", "", 400, "invalid timeoutSeconds"},
		{"GET", changesPath + "?watch=true&resourceVersion=x", "", 400, "invalid since"},
	})
	if a := s.Send("GET", changesPath+"?watch=true&timeoutSeconds=1&resourceVersion=9223372036854775807", ""); a.Status != 200 || a.Body != "" {
		t.Errorf("a watch that begins at the largest revision: %d %s", a.Status, a.Body)
	}
	if a := s.Send("GET", changesPath+"?watch=true&timeoutSeconds=1&fieldSelector=name=nothing", ""); a.Status != http.StatusOK || a.Body != "" {
		t.Errorf("a watch in which nothing happens: %d %s", a.Status, a.Body)
	}
}

// TestWatchChangesIsBounded checks that the watches of one user cannot take all places: others can still watch.
func TestWatchChangesIsBounded(t *testing.T) { onEachStore(t, testWatchChangesIsBounded) }

func testWatchChangesIsBounded(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"feed"},
		"rules":[{"apiGroups":["history.keelson.dev"],"resources":["changes"],"verbs":["watch"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"feed"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"feed"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"greedy"},
			{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"modest"}]}`)
	wait.Seen(t, "the permission to watch", func() (bool, string) {
		a := s.As("modest").Send("GET", changesPath+"?watch=true&timeoutSeconds=1", "")
		return a.Status == http.StatusOK, a.Body
	})
	for i := 0; ; i++ {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+changesPath+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Impersonate-User", "greedy")
		resp, err := s.HTTP().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if i > 100 {
			t.Fatal("one user may have any number of watches")
		}
	}
	if a := s.As("modest").Send("GET", changesPath+"?watch=true&timeoutSeconds=1", ""); a.Status != http.StatusOK {
		t.Errorf("another user: %d %s", a.Status, a.Body)
	}
}

// TestWatchChangesNeedsNoSeat checks that a watch does not hold its seat while it waits for changes.
func TestWatchChangesNeedsNoSeat(t *testing.T) { onEachStore(t, testWatchChangesNeedsNoSeat) }

func testWatchChangesNeedsNoSeat(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"eve"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
	s.As("eve").AwaitAccess("watch", "changes")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+changesPath+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Impersonate-User", "eve")
	resp, err := s.HTTP().Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	wait.Until(t, "the watch to give its seat back", func() bool {
		text := s.Get("/metrics")
		return strings.Contains(text, `apiserver_flowcontrol_current_executing_seats{flow_schema="global-default",`+
			`priority_level="global-default"} 0`) && strings.Contains(text, `type="watch"`)
	})
}

// TestSelectChanges selects changes by fields, and by labels that the object has before or after the change.
func TestSelectChanges(t *testing.T) { onEachStore(t, testSelectChanges) }

func testSelectChanges(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	s.Create(maps, `{"metadata":{"name":"a","labels":{"app":"web"}}}`)
	s.Create(maps, `{"metadata":{"name":"b","labels":{"app":"db"}}}`)
	s.Patch(maps+"/a", `{"metadata":{"labels":{"app":"db"}}}`)
	s.Patch(maps+"/a", `{"data":{"v":"2"}}`)
	s.Do(http.MethodDelete, maps+"/b", "")
	for _, c := range []struct{ query, want string }{
		{"labelSelector=app%3Dweb", "Created a, Updated a"},
		{"labelSelector=app%3Ddb", "Created b, Updated a, Updated a, Deleted b"},
		{"labelSelector=app%3Dweb&fieldSelector=type=Updated", "Updated a"},
		{"fieldSelector=resource=configmaps,name=b,type!=Created", "Deleted b"},
		{"fieldSelector=resource=pods", ""},
		{"fieldSelector=group=,resource=configmaps,verb=delete", "Deleted b"},
	} {
		var list history.ChangeList
		if err := json.Unmarshal([]byte(s.Get("/apis/history.keelson.dev/v1alpha1/namespaces/default/changes?"+c.query)), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range list.Items {
			got = append(got, string(i.Type)+" "+i.Name)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", c.query, text, c.want)
		}
	}
	for limit := 1; limit <= 5; limit++ { // wherever the parts begin in which the feed reads the store
		var list history.ChangeList
		path := fmt.Sprintf("/apis/history.keelson.dev/v1alpha1/namespaces/default/changes?fieldSelector=resource=configmaps&limit=%d", limit)
		if err := json.Unmarshal([]byte(s.Get(path)), &list); err != nil || len(list.Items) != limit {
			t.Errorf("%d changes for the limit %d, %v", len(list.Items), limit, err)
		}
	}
	s.Run([]apitest.Step{
		{"GET", changesPath + "?labelSelector=%3D", "", 400, "unable to parse labelSelector"},
		{"GET", changesPath + "?fieldSelector=spec.x=1", "", 400, "field label not supported: spec.x"},
		{"GET", changesPath + "?fieldSelector=x", "", 400, "unable to parse fieldSelector"},
		{"GET", changesPath + "?labelSelector=" + strings.Repeat("a,", 20_000) + "b", "", 400, "the selector has 20001 terms, more than 10000"},
		{"GET", changesPath + "?watch=1&fieldSelector=" + strings.Repeat("name!=b,", 40_000), "", 400, "bytes, more than"},
	})
	table := s.Do("GET", changesPath+"?fieldSelector=name=b", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if !strings.Contains(table, `"kind":"Table"`) || !strings.Contains(table, `"Deleted","configmaps","b","kubernetes-admin","delete"`) {
		t.Error(table)
	}
}

// listChanges reads a list of changes in pages of at most limit.
func listChanges(t *testing.T, s *servertest.Server, query string, limit int) (lines, versions []string) {
	t.Helper()
	for next := ""; ; {
		var list history.ChangeList
		text := s.Get(fmt.Sprintf("%s?%s&limit=%d&continue=%s", changesPath, query, limit, next))
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			if c.Resource == "leases" { // the server renews its own at any time; old versions are not kept
				continue
			}
			lines = append(lines, fmt.Sprint(c.ResourceVersion, " ", c.Type, " ", c.Resource, "/", c.Name, " ", c.User, " ", c.Verb, " ", c.FieldManager, " ", c.UID))
		}
		versions = append(versions, list.ResourceVersion)
		if next = list.Continue; next == "" {
			return lines, versions
		}
	}
}

// TestNewestChangesFirst checks that a list with newestFirst has the same changes as one without it, in reverse
// order, for pages of any size. Its resourceVersion is one from which a watch can continue.
func TestNewestChangesFirst(t *testing.T) { onEachStore(t, testNewestChangesFirst) }

func testNewestChangesFirst(t *testing.T, store string) {
	s, now := pastServer(t, store)
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	now.Advance(2 * time.Hour)
	for i := range 7 {
		user := s.As([]string{"jane", "joe"}[i%2], "system:masters")
		user.Create(maps, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
		user.Patch(fmt.Sprintf("%s/c%d", maps, i), `{"data":{"v":"1"}}`)
		now.Advance(time.Minute)
		if i%3 == 0 {
			s.Do(http.MethodDelete, fmt.Sprintf("%s/c%d", maps, i), "")
		}
	}
	for _, query := range []string{
		"since=2", "since=3m", "since=0&fieldSelector=user=jane", "since=0&fieldSelector=type=Deleted", "since=0&fieldSelector=type!=Created",
		"since=0&fieldSelector=verb=patch,user!=joe,resource=configmaps", "since=0&fieldSelector=fieldManager=x", "since=99999",
		"since=0&labelSelector=a",
	} {
		want, _ := listChanges(t, s, query, 1000)
		revision := func(line string) (n int) {
			_, _ = fmt.Sscan(line, &n)
			return n
		}
		// Changes of one transaction keep their order.
		slices.SortStableFunc(want, func(a, b string) int { return revision(b) - revision(a) })
		current := s.Metadata(maps + "/c1").ResourceVersion
		for _, limit := range []int{1, 2, 3, 1000} {
			got, versions := listChanges(t, s, query+"&newestFirst=true", limit)
			if !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %d changes\n%.300q\nwant %d\n%.300q", query, limit, len(got), got, len(want), want)
			}
			if len(slices.Compact(versions)) != 1 || len(versions[0]) < len(current) {
				t.Errorf("%s in pages of %d: the resourceVersions are %q", query, limit, versions)
			}
		}
	}
	all, versions := listChanges(t, s, "since=0&newestFirst=true", 2)
	if len(all) < 17 || !strings.Contains(all[0], "Deleted configmaps/c6") {
		t.Errorf("%d changes, the newest is %s", len(all), all[0])
	}
	next := watchChanges(t, s, changesPath+"?watch=true&fieldSelector=resource=configmaps&resourceVersion="+versions[len(versions)-1])
	s.Create(maps, `{"metadata":{"name":"later"}}`)
	if kind, c := next(); kind != "ADDED" || c.Name != "later" {
		t.Errorf("the watch after the list begins with %s %+v", kind, c)
	}
	s.Run([]apitest.Step{
		{"GET", changesPath + "?newestFirst=x", "", 400, "invalid newestFirst"},
		{"GET", changesPath + "?newestFirst=true&watch=true", "", 400, "a watch has the oldest change first"},
		{"GET", changesPath + "?newestFirst=true&continue=7", "", 400, "invalid continue token"},
		{"GET", changesPath + "?newestFirst=true&continue=7.x.7", "", 400, "invalid continue token"},
		{"GET", changesPath + "?newestFirst=true&continue=0.0.7", "", 400, "invalid continue token"},
		{"GET", changesPath + "?continue=7.0.7", "", 400, "invalid continue token"},
		{"GET", changesPath + "?newestFirst=true&continue=7.9.7", "", 200, `"items":[]`},
		{"GET", changesPath + "?newestFirst=true&since=9223372036854775807", "", 200, `"items":[]`},
	})
}

// TestChangesInDiscovery checks that discovery and OpenAPI have the group if --runtime-config names it. Otherwise
// they have the same groups as kube-apiserver.
func TestChangesInDiscovery(t *testing.T) {
	for _, value := range []string{"", "api/all=true", "history.keelson.dev/v1alpha1=true"} {
		c := servertest.Default()
		if value != "" {
			c.API.RuntimeConfig = []string{value}
		}
		s := servertest.Start(t, c)
		listed := strings.HasPrefix(value, history.Group)
		for path, part := range map[string]string{
			"/apis": `"history.keelson.dev/v1alpha1"`, "/openapi/v3": `"apis/history.keelson.dev/v1alpha1"`,
			"/openapi/v2": `"dev.keelson.history.v1alpha1.ChangeList"`,
		} {
			if got := strings.Contains(s.Get(path), part); got != listed {
				t.Errorf("--runtime-config=%s: %s has %s: %v", value, path, part, got)
			}
		}
		if !listed {
			continue
		}
		s.Get("/apis/history.keelson.dev/v1alpha1")
		if body := s.Get("/openapi/v3/apis/history.keelson.dev/v1alpha1"); !strings.Contains(body, "labelSelector") {
			t.Error(body)
		}
		s.Get(changesPath)
	}
}

// TestChangesCallNoWebhook reads the changes of a custom resource whose stored version is not the preferred one.
// The feed has many objects and readers, so it must not wait for the conversion webhook of one definition.
func TestChangesCallNoWebhook(t *testing.T) { onEachStore(t, testChangesCallNoWebhook) }

func testChangesCallNoWebhook(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	var calls atomic.Int64
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(webhook.Close)
	defineGears(s, webhook)
	const gears = "/apis/example.com/v1/namespaces/default/gears"
	s.Create(gears, `{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"g"},"spec":{"teeth":1}}`)
	s.Patch(gears+"/g", `{"spec":{"teeth":2}}`)
	var list history.ChangeList
	if err := json.Unmarshal([]byte(s.Get(changesPath+"?fieldSelector=resource=gears")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Items[1].Version != "v1" || !slices.Equal(list.Items[1].Changed, []string{".spec.teeth"}) {
		t.Errorf("%+v", list.Items)
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("%d calls of the webhook", n)
	}
}

// converter is a conversion webhook. A call fails if one of its objects has the number of teeth in refused.
type converter struct {
	*httptest.Server
	calls, refused atomic.Int64
}

func newConverter(t *testing.T) *converter {
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.calls.Add(1)
		var review struct {
			Request struct {
				UID               string           `json:"uid"`
				DesiredAPIVersion string           `json:"desiredAPIVersion"`
				Objects           []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		result := map[string]any{"status": "Success"}
		for _, o := range review.Request.Objects {
			if o["apiVersion"] = review.Request.DesiredAPIVersion; o["spec"].(map[string]any)["teeth"] == float64(c.refused.Load()) {
				result = map[string]any{"status": "Failure", "message": "too many teeth"}
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
			"response": map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": result},
		})
	}))
	t.Cleanup(c.Close)
	return c
}

// defineGears creates a definition with the versions v1, which is stored, and v2.
func defineGears(s *servertest.Server, webhook *httptest.Server) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	const version = `{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object",
		"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`
	s.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"metadata":{"name":"gears.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"gears","kind":"Gear"},"versions":[%s,%s],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}}}}`,
		fmt.Sprintf(version, "v1", true), fmt.Sprintf(version, "v2", false), webhook.URL, base64.StdEncoding.EncodeToString(ca)))
	s.Served("/apis/example.com/v1/namespaces/default/gears")
}

// TestHistoryConvertsInBatches reads the history of a custom resource in a version other than the stored one. One
// call of the webhook converts many versions of the object. If it refuses one of them, the others are still shown.
func TestHistoryConvertsInBatches(t *testing.T) { onEachStore(t, testHistoryConvertsInBatches) }

func testHistoryConvertsInBatches(t *testing.T, store string) {
	s, _ := pastServer(t, store)
	webhook := newConverter(t)
	defineGears(s, webhook.Server)
	const gears, versions = "/apis/example.com/v1/namespaces/default/gears", 64
	s.Create(gears, `{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"g"},"spec":{"teeth":1}}`)
	for i := 2; i <= versions; i++ {
		s.Patch(gears+"/g", fmt.Sprintf(`{"spec":{"teeth":%d}}`, i))
	}
	for _, c := range []struct {
		refused, most int64
		unreadable    int
	}{
		{refused: 0, most: 1},
		{refused: 20, most: 16, unreadable: 1},
	} {
		webhook.refused.Store(c.refused)
		webhook.calls.Store(0)
		var list history.ObjectHistory
		text := s.Get("/apis/example.com/v2/namespaces/default/gears/g/history?objects=true&limit=500")
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		unreadable := 0
		for i := range list.Items {
			if list.Items[i].Unreadable != "" {
				unreadable++
			} else if list.Items[i].Object.(map[string]any)["apiVersion"] != "example.com/v2" {
				t.Errorf("%v", list.Items[i].Object)
			}
		}
		if n := webhook.calls.Load(); n > c.most || len(list.Items) != versions || unreadable != c.unreadable {
			t.Errorf("refused %d: %d calls of the webhook, %d changes of which %d cannot be read", c.refused, n, len(list.Items), unreadable)
		}
	}
}
