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

// TestAdmissionNames checks which plug-ins the flags switch on, and which names they refuse.
func TestAdmissionNames(t *testing.T) {
	all := admissionPlugins()
	if len(all) != 39 {
		t.Errorf("there are %d plug-ins; kube-apiserver 1.37 has 39", len(all))
	}
	running := func(c config.Admission) (names []string) {
		for i := range all {
			if enables(&c, &all[i]) {
				names = append(names, all[i].name)
			}
		}
		return names
	}
	if got := len(running(config.Admission{})); got != 25 {
		t.Errorf("%d plug-ins run by default, not 25", got)
	}
	if got := len(running(config.Admission{Disable: []string{"Priority"}})); got != 24 {
		t.Errorf("%d plug-ins run without Priority, not 24", got)
	}
	only := running(config.Admission{Only: []string{"Priority", "NamespaceLifecycle"}})
	if strings.Join(only, " ") != "NamespaceLifecycle Priority" {
		t.Errorf("two plug-ins by --admission-control: %v", only)
	}
	for _, c := range []struct {
		config config.Admission
		want   string
	}{
		{config.Admission{Enable: []string{"Prority"}}, `enable-admission-plugins plugin "Prority" is unknown`},
		{config.Admission{Disable: []string{"Prority"}}, `disable-admission-plugins plugin "Prority" is unknown`},
		{config.Admission{Only: []string{"Prority"}}, `admission-control plugin "Prority" is unknown`},
		{config.Admission{Enable: []string{"Priority"}, Disable: []string{"Priority"}},
			"[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"},
		{config.Admission{Only: []string{}, Disable: []string{"Priority"}}, "mutually exclusive"},
		{config.Admission{Enable: []string{"Priority", "JobValidation"}}, `enable-admission-plugins plugin "JobValidation" is unknown`},
		{config.Admission{Enable: []string{"MutatingAdmissionPolicy"}}, ""},
		{config.Admission{Only: []string{"MutatingAdmissionPolicy"}}, ""},
	} {
		err := validateAdmission(&c.config, all)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.config, err)
		case c.want != "" && (err == nil || !strings.Contains(config.CommandLine(err), c.want)):
			t.Errorf("%+v: %v, not %q", c.config, err, c.want)
		}
	}
}

// TestAdmissionConfigFile reads configurations of plug-ins from a file, and from a file that this one names.
func TestAdmissionConfigFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admission.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	write("limits.yaml", "kind: Configuration\n")
	write("admission.yaml", head+"- {name: EventRateLimit, path: limits.yaml}\n- {name: PodSecurity, configuration: {a: b}}\n")
	configs, err := readAdmissionConfig(file, os.ReadFile, admissionPlugins())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(configs["EventRateLimit"]); got != "kind: Configuration\n" {
		t.Errorf("from a file of its own: %q", got)
	}
	if got := string(configs["PodSecurity"]); got != `{"a":"b"}` {
		t.Errorf("from the file itself: %q", got)
	}
	for text, want := range map[string]string{
		head + "- {name: Unknown}\n":                                         `plug-in "Unknown": it is unknown`,
		head + "- {name: PodSecurity, path: missing.yaml}\n":                 "no such file",
		head + "- {name: PodSecurity, path: a, configuration: {}}\n":         "a configuration and a path",
		"apiVersion: v1\nkind: AdmissionConfiguration\n":                     `of kind "AdmissionConfiguration" of "v1"`,
		head + "- {name: PodSecurity, configuratoin: {}}\n":                  "configuratoin",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EgressSelectorConfig": `of kind "EgressSelectorConfig"`,
	} {
		write("admission.yaml", text)
		if _, err := readAdmissionConfig(file, os.ReadFile, admissionPlugins()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// TestBadAdmissionEndsTheStart: a server with a wrong name, or with a configuration for a plug-in that has none, does not
// start.
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

// TestPluginsThatAreOffByDefault switches the plug-ins on that need parts of the server, and sends a write to each.
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
			// The grant may not be known at once.
			return strings.Contains(a.Body, c.want)
		})
	}
}
