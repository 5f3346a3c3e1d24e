package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/webhooks"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestEveryWriteIsAdmitted sends each kind of write as an ordinary user. It compares the attributes that the
// mutating and the validating pass of admission received with the expected ones.
func TestEveryWriteIsAdmitted(t *testing.T) {
	c := testConfig(t)
	var mu sync.Mutex
	var told []string
	note := func(half string) func(context.Context, *admission.Attributes) error {
		return func(_ context.Context, a *admission.Attributes) error {
			if a.User == nil || a.User.Name != "ann" {
				return nil
			}
			line := fmt.Sprintf("%s %v %s.%s", half, a.Operation, a.Requested.Kind.Kind, a.Requested.Resource.Resource)
			if a.Subresource != "" {
				line += "/" + a.Subresource
			}
			if a.Object != nil {
				line += fmt.Sprintf(" object=%T", a.Object)
			}
			if a.Old != nil {
				line += " old"
			}
			if o := a.OptionsObject(); o != nil {
				line += fmt.Sprintf(" %T", o)
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, line)
			return nil
		}
	}
	c.testPlugins = []admission.Plugin{{Name: "Note", Mutate: note("mutate"), Validate: note("validate")}}
	s := start(t, c)
	const grants = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	post(
		t, s, grants,
		`{"metadata":{"name":"ann"},"subjects":[{"kind":"User","name":"ann"}],"roleRef":{"kind":"ClusterRole",`+
			`"name":"cluster-admin"}}`,
		http.StatusCreated,
	)
	send := func(method, path, contentType, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer admintoken")
		r.Header.Set("Impersonate-User", "ann")
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		s.http.server.Handler.ServeHTTP(w, r)
		return w
	}
	wait.Until(
		t, "the grant is known", func() bool { return send(http.MethodGet, "/api/v1/nodes", "", "").Code == http.StatusOK },
	)
	const (
		core, apps = "/api/v1/namespaces/default/", "/apis/apps/v1/namespaces/default/"
		object     = "application/json"
		merge      = "application/merge-patch+json"
		apply      = "application/apply-patch+yaml"
		deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},` +
			`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
		role = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	)
	for _, step := range []struct {
		method, path, contentType, body string
		want                            []string
	}{
		{
			"POST", apps + "deployments", object, deployment,
			asked("CREATE Deployment.deployments object=*v1.Deployment *v1.CreateOptions"),
		},
		{
			"PATCH", apps + "deployments/d", merge, `{"metadata":{"labels":{"x":"y"}}}`,
			asked("UPDATE Deployment.deployments object=*v1.Deployment old *v1.UpdateOptions"),
		},
		{
			"PATCH", apps + "deployments/d?fieldManager=m", apply,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","labels":{"z":"y"}}}`,
			asked("UPDATE Deployment.deployments object=*v1.Deployment old *v1.UpdateOptions"),
		},
		{
			"PATCH", apps + "deployments/d/status", merge, `{"status":{"replicas":1}}`,
			asked("UPDATE Deployment.deployments/status object=*v1.Deployment old *v1.UpdateOptions"),
		},
		{
			"PATCH", apps + "deployments/d/scale", merge, `{"spec":{"replicas":3}}`,
			asked("UPDATE Scale.deployments/scale object=*v1.Scale old *v1.UpdateOptions"),
		},
		{
			"PUT", apps + "deployments/d/scale", object, `{"metadata":{"name":"d"},"spec":{"replicas":2}}`,
			asked("UPDATE Scale.deployments/scale object=*v1.Scale old *v1.UpdateOptions"),
		},
		{
			"PATCH", core + "configmaps/new?fieldManager=m", apply,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`,
			asked("CREATE ConfigMap.configmaps object=*v1.ConfigMap *v1.CreateOptions"),
		},
		{"DELETE", apps + "deployments/d", object, "", asked("DELETE Deployment.deployments old *v1.DeleteOptions")},
		{"DELETE", core + "configmaps?labelSelector=none", object, "", nil},
		{
			"DELETE", core + "configmaps?fieldSelector=metadata.name%3Dnew", object, "",
			asked("DELETE ConfigMap.configmaps old *v1.DeleteOptions"),
		},
		{"POST", role, object, `{"metadata":{"name":"r"}}`, asked("CREATE Role.roles object=*v1.Role *v1.CreateOptions")},
		{"DELETE", role + "/r", object, "", asked("DELETE Role.roles old *v1.DeleteOptions")},
		{
			"POST", core + "serviceaccounts/default/token", object, `{"spec":{}}`,
			asked("CREATE TokenRequest.serviceaccounts/token object=*v1.TokenRequest *v1.CreateOptions"),
		},
	} {
		mu.Lock()
		told = nil
		mu.Unlock()
		if w := send(step.method, step.path, step.contentType, step.body); w.Code >= 300 {
			t.Errorf("%s %s: %d %s", step.method, step.path, w.Code, w.Body)
		}
		mu.Lock()
		if !slices.Equal(told, step.want) {
			t.Errorf(
				"%s %s: admission was told\n%s\nand not\n%s", step.method, step.path, strings.Join(told, "\n"),
				strings.Join(step.want, "\n"),
			)
		}
		mu.Unlock()
	}
}

// asked returns the lines that both passes of admission record for one call.
func asked(line string) []string { return []string{"mutate " + line, "validate " + line} }

// TestPluginsIgnoreWritesWithoutAnObject checks that no plug-in fails for a deletion or a connection, which have
// no object.
func TestPluginsIgnoreWritesWithoutAnObject(t *testing.T) {
	s := start(t, testConfig(t))
	conf := config.Default().Admission
	for _, p := range plugin.List() {
		if p.Off && p.Name != "AlwaysDeny" {
			conf.Enable = append(conf.Enable, p.Name)
		}
	}
	conf.ConfigFile = requiredPluginConfigs(t)
	chain, err := plugin.NewChain(&plugin.Options{
		Config: &conf, Registry: s.api.registry, Authorizer: s.authorization, Policies: s.api.policies,
		Webhooks: webhooks.New(webhooks.Options{Registry: s.api.registry}), Last: []admission.Plugin{s.authorization.GuardRoles()},
	})
	if err != nil {
		t.Fatal(err)
	}
	user := &request.User{Name: "ann"}
	ctx := request.WithUser(request.WithInfo(t.Context(), &request.Info{}), user)
	for _, r := range s.api.registry.Resources() {
		for _, operation := range []admission.Operation{admission.Delete, admission.Connect} {
			a := &admission.Attributes{
				Operation: operation, Resource: r.Kind.GroupResource(), Namespace: "default", Name: "x", User: user,
			}
			if operation == admission.Delete {
				a.Old = r.Kind.Version(r.Kind.Storage.Version).New()
			}
			if err := chain.Mutate(ctx, a); err != nil {
				t.Errorf("%v of %s: %v", operation, a.Resource, err)
			}
			if err := chain.Validate(ctx, a); err != nil {
				t.Errorf("%v of %s: %v", operation, a.Resource, err)
			}
		}
	}
}
