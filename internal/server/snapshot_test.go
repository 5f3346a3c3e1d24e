package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

func configMap(name, value string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"v":"` + value + `"}}`
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestSnapshotOfARunningServer(t *testing.T) {
	s := start(t, testConfig(t))
	admin := httpClient(t, s, true)
	if a := apitest.Send(t, admin, "POST", s.URL()+configMaps, configMap("kept", "1")); a.Status != http.StatusCreated {
		t.Fatal(a)
	}
	a := apitest.Send(t, admin, "POST", s.URL()+snapshots.Path, "")
	if a.Status != http.StatusOK {
		t.Fatal(a)
	}
	found := false
	summary, err := backup.Verify(strings.NewReader(a.Body), func(e snapshot.Entry) {
		found = found || e.Key == "/registry/configmaps/default/kept" && bytes.HasPrefix(e.Value, []byte("k8s\x00"))
	})
	if err != nil || !found || summary.Revision < 2 || summary.Entries < 5 {
		t.Errorf("%+v, found %v, %v", summary, found, err)
	}

	c := httpClient(t, s, false)
	post := func(token string, headers ...string) int {
		return apitest.Send(t, c, "POST", s.URL()+snapshots.Path, "", append(headers, "Authorization", "Bearer "+token)...).Status
	}
	for _, step := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"POST", snapshots.Path, nil, 403},
		{"POST", snapshots.Path, []string{"Authorization", "Bearer davetoken"}, 403},
		{"POST", snapshots.Path, []string{"Authorization", "Bearer admintoken", "Impersonate-User", "jane"}, 403},
		{"GET", snapshots.Path, []string{"Authorization", "Bearer admintoken"}, 405},
		{"POST", snapshots.Path + "/", []string{"Authorization", "Bearer admintoken"}, 404},
	} {
		if a := apitest.Send(t, c, step.method, s.URL()+step.path, "", step.headers...); a.Status != step.status {
			t.Errorf("%s %s %v: %d %s, want %d", step.method, step.path, step.headers, a.Status, a.Body, step.status)
		}
	}

	// Roles that allow reading everything, or profiling, do not allow snapshots.
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
	grant := func(name, url, verb string) {
		t.Helper()
		for path, body := range map[string]string{
			"s": `{"metadata":{"name":"` + name + `"},"rules":[{"nonResourceURLs":["` + url + `"],"verbs":["` + verb + `"]}]}`,
			"bindings": `{"metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` +
				name + `"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dave"}]}`,
		} {
			if a := apitest.Send(t, admin, "POST", s.URL()+roles+path, body); a.Status != http.StatusCreated {
				t.Fatal(a)
			}
		}
	}
	grant("reader", "*", "get")
	grant("profiler", "/debug/*", "*")
	wait.Until(t, "the roles are in effect", func() bool {
		return apitest.Send(t, c, "GET", s.URL()+"/debug/pprof/", "", "Authorization", "Bearer davetoken").Status == 200 &&
			apitest.Send(t, c, "GET", s.URL()+"/metrics", "", "Authorization", "Bearer davetoken").Status == 200
	})
	if status := post("davetoken"); status != http.StatusForbidden {
		t.Errorf("a user who may get all paths and profile: %d", status)
	}
	grant("backup", snapshots.Path, "post")
	wait.Until(t, "a role allows snapshots", func() bool { return post("davetoken") == http.StatusOK })
}

// TestDefaultRolesAllowNoSnapshots checks that cluster-admin is the only default role that allows snapshots.
func TestDefaultRolesAllowNoSnapshots(t *testing.T) {
	s := start(t, testConfig(t))
	var roles rbacv1.ClusterRoleList
	a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/apis/rbac.authorization.k8s.io/v1/clusterroles", "")
	if err := json.Unmarshal([]byte(a.Body), &roles); err != nil || len(roles.Items) < 50 {
		t.Fatalf("%d roles, %v", len(roles.Items), err)
	}
	var allow []string
	for _, role := range roles.Items {
		if slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "*" || v == "post" }) &&
				slices.ContainsFunc(r.NonResourceURLs, func(u string) bool {
					prefix, wild := strings.CutSuffix(u, "*")
					return u == snapshots.Path || wild && strings.HasPrefix(snapshots.Path, prefix)
				})
		}) {
			allow = append(allow, role.Name)
		}
	}
	if !slices.Equal(allow, []string{"cluster-admin"}) {
		t.Errorf("snapshots are allowed by %v", allow)
	}
}
