package server

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestBadAdmissionEndsTheStart checks that a server does not start with the name of an unknown plug-in, or with a
// configuration for a plug-in that accepts none.
func TestBadAdmissionEndsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admission.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n" +
		"plugins: [{name: MutatingAdmissionPolicy, configuration: {}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*config.Admission){
		`enable-admission-plugins plugin "Nothing" is unknown`:      func(c *config.Admission) { c.Enable = []string{"Nothing"} },
		"MutatingAdmissionPolicy: the plug-in has no configuration": func(c *config.Admission) { c.ConfigFile = file },
	} {
		c := testConfig(t)
		change(&c.Admission)
		s, err := Start(context.Background(), c.Config, c.Options)
		if err == nil {
			_ = s.Stop(context.Background()) // the test fails anyway
			t.Fatalf("the server was started; %s", want)
		}
		if !strings.Contains(config.CommandLine(err), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// TestPluginsThatAreOffByDefault enables plug-ins that are off by default and need parts of the server. It sends a
// write to each.
func TestPluginsThatAreOffByDefault(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{
		"NamespaceAutoProvision", "NamespaceExists", "NodeRestriction", "OwnerReferencesPermissionEnforcement",
		"DenyServiceExternalIPs", "AlwaysAdmit",
	}
	s := start(t, c)
	client := admin(t, s)
	const core = "/api/v1/namespaces/"
	post(t, s, core+"made/configmaps?dryRun=All", `{"metadata":{"name":"c"}}`, http.StatusNotFound)
	post(t, s, core+"made/configmaps", `{"metadata":{"name":"c"}}`, http.StatusCreated)
	if got := client.Get(core + "made"); !strings.Contains(got, `"manager":"kube-apiserver"`) {
		t.Errorf("namespace: %s", got)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	post(t, s, rbac+"clusterroles", `{"metadata":{"name":"ann"},"rules":[{"verbs":["create"],"apiGroups":[""],`+
		`"resources":["configmaps"]}]}`, http.StatusCreated)
	post(t, s, rbac+"clusterrolebindings", `{"metadata":{"name":"ann"},"subjects":[{"kind":"User","name":"ann"}],`+
		`"roleRef":{"kind":"ClusterRole","name":"ann"}}`, http.StatusCreated)
	client.As("ann").AwaitAccess("create", "configmaps")
	const service = `{"metadata":{"name":"s"},"spec":{"ports":[{"port":1}],"externalIPs":["1.2.3.4"]}}`
	owned := func(kind string) string {
		return `{"metadata":{"name":"d","ownerReferences":[{"apiVersion":"v1","kind":"` + kind +
			`","name":"x","uid":"u","blockOwnerDeletion":true}]}}`
	}
	for name, c := range map[string]struct {
		user             string
		groups           []string
		path, body, want string
	}{
		"external IPs": {"", nil, core + "made/services", service, "Use of external IPs is denied by admission control"},
		"node": {
			"system:node:a", []string{"system:nodes"}, "/api/v1/nodes", `{"metadata":{"name":"b"}}`,
			`is not allowed to modify node \"b\"`,
		},
		"owner": {"ann", nil, core + "made/configmaps", owned("Node"),
			"refers to a resource you can't set finalizers on: , \\u003cnil\\u003e"},
		"unknown owner": {
			"ann", nil, core + "made/configmaps", owned("Nothing"), `no matches for kind \"Nothing\" in version \"v1\"`,
		},
	} {
		wait.Until(t, name, func() bool {
			as := client
			if c.user != "" {
				as = client.As(c.user, c.groups...)
			}
			a := as.Send(http.MethodPost, c.path, c.body)
			if a.Status != http.StatusForbidden {
				t.Fatalf("%s: %d %s", name, a.Status, a.Body)
			}
			// The server may see the grant a little later.
			return strings.Contains(a.Body, c.want)
		})
	}
}
