package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestFurtherVerbsUnderConstrainedImpersonation checks users who may impersonate for some verbs only. They do not
// get the further permissions that such a request may need: to read the past, to create by an update, to grant
// permissions.
func TestFurtherVerbsUnderConstrainedImpersonation(t *testing.T) {
	c := testConfig(t)
	c.Storage.HistoryRetention = []string{"24h"}
	s := start(t, c)
	const group, configMaps = "/apis/rbac.authorization.k8s.io/v1", "/api/v1/namespaces/default/configmaps"
	// grant gives a user a right to resources, of all groups.
	grant := func(name, user, resources, verbs string) {
		t.Helper()
		post(t, s, group+"/clusterroles", `{"metadata":{"name":"`+name+`"},"rules":[{"apiGroups":["*"],"resources":[`+resources+`],"verbs":[`+verbs+
			`]}]}`, http.StatusCreated)
		post(t, s, group+"/clusterrolebindings", `{"metadata":{"name":"`+name+`"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+name+`"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`, http.StatusCreated)
	}
	post(t, s, configMaps, `{"metadata":{"name":"a"},"data":{"v":"before"}}`, http.StatusCreated)
	revision := admin(t, s).Metadata(configMaps + "/a").ResourceVersion
	admin(t, s).Patch(configMaps+"/a", `{"data":{"v":"after"}}`)
	grant("jane", "jane", `"configmaps","configmaps/history","leases","clusterroles"`, `"get","update","create","readhistory","escalate"`)
	grant("dave", "dave", `"users"`, `"impersonate:user-info"`)
	grant("dave-on", "dave", `"configmaps","configmaps/history","leases","clusterroles"`,
		`"impersonate-on:user-info:get","impersonate-on:user-info:update"`)

	dave := httpClient(t, s, false)
	send := func(method, path, body string) apitest.Answer {
		return apitest.Send(t, dave, method, s.URL()+path, body, "Authorization", "Bearer davetoken", "Impersonate-User", "jane")
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	requests := []struct{ verb, method, path, body string }{
		{"readhistory", "GET", configMaps + "/a?asOf=" + revision, ""},
		{"readhistory", "GET", configMaps + "/a/history", ""},
		{"create", "PUT", lease, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","namespace":"default"}}`},
		{"escalate", "PUT", group + "/clusterroles/jane", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"jane"},
			"rules":[{"apiGroups":["*"],"resources":["configmaps","configmaps/history","leases","clusterroles","secrets"],
			"verbs":["get","update","create","readhistory","escalate"]}]}`},
	}
	wait.Until(t, "the permission to get in the name of jane", func() bool { return send("GET", configMaps+"/a", "").Status == http.StatusOK })
	for _, r := range requests {
		if a := send(r.method, r.path, r.body); a.Status != http.StatusForbidden {
			t.Errorf("%s %s without impersonate-on:user-info:%s: %d %s", r.method, r.path, r.verb, a.Status, a.Body)
		}
	}
	grant("dave-more", "dave", `"configmaps","configmaps/history","leases","clusterroles"`,
		`"impersonate-on:user-info:readhistory","impersonate-on:user-info:create","impersonate-on:user-info:escalate"`)
	for _, r := range requests {
		wait.Seen(t, r.method+" "+r.path+" with all permissions", func() (bool, string) {
			a := send(r.method, r.path, r.body)
			return a.Status < 300 && (r.verb != "readhistory" || strings.Contains(a.Body, "before") || strings.Contains(r.path, "/history")), a.Body
		})
	}

	// erin may also impersonate without a constraint, so she needs no permission for the further verbs.
	grant("erin", "erin", `"users"`, `"impersonate:user-info","impersonate"`)
	grant("erin-on", "erin", `"configmaps","configmaps/history"`, `"impersonate-on:user-info:get"`)
	for _, path := range []string{configMaps + "/a?asOf=" + revision, configMaps + "/a/history"} {
		wait.Seen(t, "GET "+path+" by one who may impersonate", func() (bool, string) {
			a := apitest.Send(t, dave, "GET", s.URL()+path, "", "Authorization", "Bearer erintoken", "Impersonate-User", "jane")
			return a.Status == http.StatusOK, a.Body
		})
	}
}
