package undelete_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const (
	core  = "/api/v1/namespaces/default"
	plans = "/apis/history.keelson.dev/v1alpha1/namespaces/default/undelete"
)

type testServer struct {
	*servertest.Server
	t   *testing.T
	now *clock.Clock
}

func start(t *testing.T) *testServer {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default()
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"24h"}
	return &testServer{servertest.Start(t, c), t, now}
}

// expect compares a plan: what is left and the steps, each with its reason.
func (s *testServer) expect(c *apitest.Client, path string, want ...string) (plan undelete.Plan) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(c.Get(path)), &plan); err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for _, l := range plan.Left {
		got = append(got, fmt.Sprintf("left %s %s: %s", l.Resource, l.Name, l.Reason))
	}
	for _, st := range plan.Steps {
		line := st.Resource + " " + st.Name
		if st.Skip != "" {
			line += ": " + st.Skip
		}
		if st.Skip == "" && st.Object == nil {
			line += " without an object"
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Errorf("%s:\n%s\nwant\n%s", path, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return plan
}

// TestDeleted plans objects that were deleted since a time, by one user, and objects that existed at a time.
func TestDeleted(t *testing.T) {
	s := start(t)
	for _, name := range []string{"old", "a", "b", "again"} {
		s.Create(core+"/configmaps", `{"metadata":{"name":"`+name+`","labels":{"app":"`+name+`"}}}`)
	}
	s.Create(core+"/secrets", `{"metadata":{"name":"a","labels":{"app":"a"}},"stringData":{"password":"x"}}`)
	uid := string(s.Metadata(core + "/configmaps/a").UID)
	s.Create(core+"/services", `{"metadata":{"name":"p","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"`+uid+`"},
		{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]},"spec":{"ports":[{"port":80}]}}`)
	s.now.Advance(time.Minute)
	revision := s.Metadata(core + "/services/p").ResourceVersion
	s.Do(http.MethodDelete, core+"/configmaps/old", "")
	s.now.Advance(time.Hour)
	jane := s.As("jane", "system:masters")
	for _, path := range []string{"/services/p", "/configmaps/a", "/configmaps/again", "/secrets/a"} {
		jane.Do(http.MethodDelete, core+path, "")
	}
	s.Do(http.MethodDelete, core+"/configmaps/b", "")
	s.Create(core+"/configmaps", `{"metadata":{"name":"again"}}`)

	const exists = "left configmaps again: an object of this name exists"
	plan := s.expect(s.Client, plans+"?since=30m", exists, "configmaps a", "configmaps b", "secrets a", "services p")
	service := plan.Steps[3]
	owners, _ := service.Object["metadata"].(map[string]any)["ownerReferences"].([]any)
	if len(owners) != 1 || owners[0].(map[string]any)["uid"] != uid || string(plan.Steps[0].UID) != uid {
		t.Errorf("the owner that comes back with it: %v", owners)
	}
	if fmt.Sprint(service.Notes) != "[without its owner ConfigMap x, which is gone]" {
		t.Errorf("notes: %q", service.Notes)
	}
	s.expect(s.Client, plans+"?since=30m&fieldSelector=user=jane,resource!=services", exists, "configmaps a", "secrets a")
	s.expect(s.Client, plans+"?since=30m&labelSelector=app=a", "configmaps a", "secrets a")
	s.expect(s.Client, strings.Replace(plans, "/namespaces/default", "", 1)+"?since=90m&fieldSelector=name=old", "configmaps old")
	s.expect(s.Client, plans+"?resources=secrets,configmaps&labelSelector=app+in+(a,again)&asOf="+revision,
		"configmaps a", "configmaps again: an object of this name exists", "secrets a")
	for path, want := range map[string]string{
		plans + "?resources=widgets&asOf=" + revision: "has no resource",
		plans + "?since=tomorrow":                     "invalid since",
		core + "/configmaps/none/undelete":            "not found",
		core + "/configmaps/none/revert?asOf=30m":     "not found",
	} {
		if a := s.Send(http.MethodGet, path, ""); a.Status < 400 || !strings.Contains(a.Message(), want) {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	plan = s.expect(s.Client, core+"/configmaps/again/revert?asOf=30m", "configmaps again")
	if now, _ := plan.Steps[0].Object["metadata"].(map[string]any); now["uid"] != string(s.Metadata(core+"/configmaps/again").UID) ||
		fmt.Sprint(now["labels"]) != "map[app:again]" {
		t.Errorf("the object of now with the labels of then: %v", now)
	}
	version := s.Metadata(core + "/configmaps/again").ResourceVersion
	s.expect(s.Client, core+"/configmaps/again/revert?asOf="+version, "configmaps again: it is as it was")
}

// TestForgedOwners: somebody creates an object with another name than a deleted owner, but with the UID of that
// owner in the annotation UndeletedUID, and refers to it. The dependents of the deleted owner must not get it as
// their owner: the garbage collector would later delete them.
func TestForgedOwners(t *testing.T) {
	s := start(t)
	s.Create(core+"/configmaps", `{"metadata":{"name":"owner"}}`)
	uid := string(s.Metadata(core + "/configmaps/owner").UID)
	reference := func(name, uid string) string {
		return `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"` + name + `","uid":"` + uid + `"}]`
	}
	s.Create(core+"/secrets", `{"metadata":{"name":"victim",`+reference("owner", uid)+`}}`)
	s.Create(core+"/configmaps", `{"metadata":{"name":"evil","annotations":{"history.keelson.dev/undeleted-uid":"`+uid+`"}}}`)
	s.Create(core+"/secrets", `{"metadata":{"name":"aaa",`+reference("evil", uid)+`}}`)
	s.now.Advance(time.Minute)
	s.Do(http.MethodDelete, core+"/secrets/aaa", "")
	s.Do(http.MethodDelete, core+"/configmaps/owner", "")
	s.Gone(core + "/configmaps/owner")
	s.Do(http.MethodDelete, core+"/secrets/victim", "")
	for _, resources := range []string{"secrets,secrets", "configmaps,secrets"} {
		s.expectOwner(plans+"?asOf=30s&resources="+resources, "victim")
	}
}

// expectOwner checks that a plan has one step for a Secret, and that the object evil is not its owner.
func (s *testServer) expectOwner(path, name string) {
	s.t.Helper()
	t := s.t
	var plan undelete.Plan
	if err := json.Unmarshal([]byte(s.Get(path)), &plan); err != nil {
		t.Fatal(err)
	}
	evil := string(s.Metadata(core + "/configmaps/evil").UID)
	victims := 0
	for _, st := range plan.Steps {
		body, err := json.Marshal(st.Object)
		if err != nil {
			t.Fatal(err)
		}
		if st.Name != name {
			continue
		}
		victims++
		if strings.Contains(string(body), evil) {
			t.Errorf("%s belongs to the object of somebody else: %s", st.Name, body)
		}
	}
	if victims != 1 {
		t.Errorf("%d steps for an object whose resource is named twice: %+v", victims, plan)
	}
}

// TestRequestsDoNotComeBack: requests for certificates do not come back, because the server would record the
// administrator as their author.
func TestRequestsDoNotComeBack(t *testing.T) {
	s := start(t)
	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "weak"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	s.Create(requests, `{"metadata":{"name":"r"},"spec":{"signerName":"example.com/x","usages":["client auth"],"request":"`+request+`"}}`)
	s.now.Advance(time.Minute)
	s.Do(http.MethodDelete, requests+"/r", "")
	plan := undelete.Plan{}
	if err := json.Unmarshal([]byte(s.Get(requests+"/r/undelete")), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) != 1 || plan.Steps[0].Object != nil || !strings.Contains(plan.Steps[0].Skip, "somebody") {
		t.Errorf("%+v", plan)
	}
}

// TestRights plans for a user who may read the past of some resources only.
func TestRights(t *testing.T) {
	s := start(t)
	s.Create(core+"/configmaps", `{"metadata":{"name":"a"}}`)
	s.Create(core+"/secrets", `{"metadata":{"name":"a"},"stringData":{"password":"x"}}`)
	s.now.Advance(time.Minute)
	s.Do(http.MethodDelete, core+"/configmaps/a", "")
	s.Do(http.MethodDelete, core+"/secrets/a", "")
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"reader"},"rules":[
		{"apiGroups":["history.keelson.dev"],"resources":["undelete"],"verbs":["list"]},
		{"apiGroups":[""],"resources":["configmaps","configmaps/undelete","secrets/undelete"],"verbs":["get","list","readhistory"]},
		{"apiGroups":[""],"resources":["secrets"],"verbs":["get","list"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"reader"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"joe"}]}`)
	joe := s.As("joe")
	wait.Seen(t, "the role is in effect", func() (bool, string) {
		a := joe.Send(http.MethodGet, core+"/configmaps/a/undelete", "")
		return a.Status == http.StatusOK, a.Body
	})
	for _, path := range []string{core + "/secrets/a/undelete", plans + "?since=1h", plans + "?asOf=30s&resources=secrets"} {
		if a := joe.Send(http.MethodGet, path, ""); a.Status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"changes"},"rules":[
		{"apiGroups":["history.keelson.dev"],"resources":["changes"],"verbs":["list"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"changes"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"changes"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"joe"}]}`)
	wait.Seen(t, "the role is in effect", func() (bool, string) {
		a := joe.Send(http.MethodGet, plans+"?since=1h", "")
		return a.Status == http.StatusOK, a.Body
	})
	body := joe.Get(plans + "?since=1h")
	if !strings.Contains(body, `"reason":"secrets \"a\" is forbidden`) || strings.Contains(body, "eA==") || !strings.Contains(body, `"resource":"configmaps"`) {
		t.Error(body)
	}
}

// TestDefinition plans a definition, and, after the definition was created again, its objects.
func TestDefinition(t *testing.T) {
	s := start(t)
	s.DefineWidgets()
	const widgets = "/apis/example.com/v1/namespaces/default/widgets"
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
	s.Create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{}}`)
	s.now.Advance(time.Minute)
	s.Do(http.MethodDelete, definition, "")
	s.Gone(definition)
	plan := s.expect(s.Client, definition+"/undelete", "customresourcedefinitions widgets.example.com")
	if plan.Steps[0].ContentAsOf == "" {
		t.Fatal("it does not say that objects come back with it")
	}
	body, err := json.Marshal(plan.Steps[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	s.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(body))
	s.expect(s.Client, definition+"/undelete?asOf="+plan.Steps[0].ContentAsOf,
		"customresourcedefinitions widgets.example.com: an object of this name exists", "widgets w")
}
