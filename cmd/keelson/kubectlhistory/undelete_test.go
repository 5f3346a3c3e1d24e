package kubectlhistory_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

func TestUndelete(t *testing.T) {
	p := start(t, "resourcequota-controller")
	for _, name := range []string{"a", "b"} {
		p.Create(maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"app":"shop"}},"data":{"v":"1"}}`)
	}
	p.now.Advance(time.Minute)
	p.Patch(maps+"/a", `{"data":{"v":"2"}}`)
	old := p.Metadata(maps + "/a").UID
	p.now.Advance(time.Minute)
	p.expect("undelete cm a", "configmap/a skipped: an object of this name exists\n"+
		"0 would be created, 1 skipped, 0 refused. Nothing was changed; --yes does it.\n")
	p.Do("DELETE", maps+"/a", "")
	p.Do("DELETE", maps+"/b", "")
	p.now.Advance(time.Hour)

	p.expect("undelete cm a", "configmap/a would be created\n"+
		"1 would be created, 0 skipped, 0 refused. Nothing was changed; --yes does it.\n")
	p.Gone(maps + "/a")
	p.expect("undelete cm/a --yes", "configmap/a created\n1 created, 0 skipped, 0 refused.\n")
	if body := p.Get(maps + "/a"); !strings.Contains(body, `"v":"2"`) {
		t.Error(body)
	}
	m := p.Metadata(maps + "/a")
	if m.UID == old || m.Annotations["history.keelson.dev/undeleted-uid"] != string(old) {
		t.Errorf("%+v", m)
	}
	p.expect("undelete cm -l app=shop --as-of 2026-11-01T12:00:30Z --yes", "configmap/a skipped: an object of this name exists\n"+
		"configmap/b created\n1 created, 1 skipped, 0 refused.\n")

	// In the dry run, admission refuses the object.
	p.Create("/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"1"}}}`)
	wait.Seen(t, "the quota is counted", func() (bool, string) {
		q := p.Get("/api/v1/namespaces/default/resourcequotas/q")
		return strings.Contains(q, `"used":`), q
	})
	p.Do("DELETE", maps+"/b", "")
	p.now.Advance(time.Minute)
	p.contains("undelete cm b", "configmap/b refused: ", "error: 1 refused\n")

	for line, want := range map[string]string{
		"undelete cm":                         "error: name the objects: cm NAME, or choose them with --selector\n",
		"undelete cm -l a=b":                  "error: say as of when with --as-of: a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion\n",
		"undelete cm x -l a=b":                "error: --selector and names cannot be used together\n",
		"undelete cm x":                       "error: configmaps \"x\" not found\n",
		"undelete cm x --as-of 1m":            "error: configmaps \"x\" not found as of 1m\n",
		"undelete cm b --as-of 10s":           "error: configmaps \"b\" not found as of 10s\n", // it has a history
		"undelete cm -l a=b --as-of 1m":       "error: there were no configmaps with these labels as of 1m\n",
		"undelete ns a b":                     "error: name one namespace: it is undeleted with what was in it\n",
		"undelete ns default":                 "error: the namespace default exists; to bring back what is missing in it, say as of when with --as-of\n",
		"undelete cm x -o yaml --kubeconfig=": "error: unknown shorthand flag: 'o' in -o\n",
	} {
		p.expect(line, want)
	}
}

// TestUndeleteNamespace deletes and undeletes a namespace with objects that a user and controllers have created in
// it.
func TestUndeleteNamespace(t *testing.T) {
	p := start(t, "namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller")
	p.DefineWidgets()
	const namespace = "/api/v1/namespaces/shop"
	p.Create("/api/v1/namespaces", `{"metadata":{"name":"shop","labels":{"team":"a"}}}`)
	p.Served(namespace + "/serviceaccounts/default")
	p.Create(namespace+"/serviceaccounts", `{"metadata":{"name":"builder"}}`)
	p.Create(namespace+"/configmaps", `{"metadata":{"name":"settings","finalizers":["example.com/mine"]},"data":{"v":"1"}}`)
	p.Create(namespace+"/secrets", `{"metadata":{"name":"password"},"stringData":{"p":"x"}}`)
	p.Create(namespace+"/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}],"selector":{"app":"web"}}}`)
	var service struct{ Spec struct{ ClusterIP string } }
	if err := json.Unmarshal([]byte(p.Get(namespace+"/services/web")), &service); err != nil {
		t.Fatal(err)
	}
	const template = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	p.Create("/apis/apps/v1/namespaces/shop/deployments",
		`{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":`+template+`}}`)
	deployment := p.Metadata("/apis/apps/v1/namespaces/shop/deployments/web").UID
	p.Create("/apis/apps/v1/namespaces/shop/replicasets",
		`{"metadata":{"name":"web-1","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"`+string(deployment)+
			`","controller":true}]},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":`+template+`}}`)
	p.Create("/api/v1/namespaces/shop/configmaps",
		`{"metadata":{"name":"of-web","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"`+string(deployment)+
			`"},{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`)
	p.Create("/api/v1/namespaces/shop/pods", `{"metadata":{"name":"alone"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	p.Create("/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{}}`)
	p.Create("/apis/batch/v1/namespaces/shop/jobs", `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never",
		"containers":[{"name":"c","image":"i"}]}}}}`)
	p.now.Advance(time.Minute)
	p.Patch(namespace+"/configmaps/settings", `{"metadata":{"finalizers":null}}`)
	p.Do("DELETE", namespace, "")
	p.Do("DELETE", namespace+"/pods/alone?gracePeriodSeconds=0", "")
	p.Gone(namespace)
	p.now.Advance(time.Minute)
	// Another Service takes the address.
	p.Create("/api/v1/namespaces/default/services", `{"metadata":{"name":"other"},"spec":{"clusterIP":"`+service.Spec.ClusterIP+
		`","ports":[{"port":80}]}}`)

	want := []string{
		"namespace/shop created", "serviceaccount/builder created", "serviceaccount/default skipped: a controller makes it in each namespace",
		"configmap/kube-root-ca.crt skipped: a controller makes it in each namespace",
		"configmap/settings created", "secret/password created", "widget.example.com/w created",
		"service/web created (with another cluster IP)", "deployment.apps/web created",
		"configmap/of-web created (without its owner ConfigMap x, which is gone)",
		"replicaset.apps/web-1 skipped: the Deployment web makes it again", "pod/alone created", "job.batch/j created",
		"leases.coordination.k8s.io skipped: who", "events skipped: Events",
		"10 created, 3 skipped, 0 refused.\n",
	}
	dry := p.run("undelete namespace shop")
	if strings.Contains(dry, "Warning") {
		t.Errorf("it warns of what it only reads:\n%s", dry)
	}
	got := p.run("undelete namespace shop --yes")
	for _, line := range want {
		if !strings.Contains(got, line) {
			t.Errorf("it prints no %q:\n%s", line, got)
		}
	}
	if !strings.Contains(dry, "configmap/settings would be created") || !strings.Contains(dry, "does not exist yet") {
		t.Error(dry)
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(p.Get(namespace+"/configmaps/of-web")), &o); err != nil {
		t.Fatal(err)
	}
	now := p.Metadata("/apis/apps/v1/namespaces/shop/deployments/web").UID
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != now || now == deployment {
		t.Errorf("the owners are %+v", o.OwnerReferences)
	}
	if p.Metadata(namespace).Labels["team"] != "a" {
		t.Error("the namespace has no labels")
	}
	// A second undelete skips all objects that exist.
	p.Do("DELETE", namespace+"/secrets/password", "")
	p.contains("undelete namespace shop --as-of 90s", "namespace/shop skipped: an object of this name exists", "secret/password would be created",
		"configmap/settings skipped: an object of this name exists", "1 would be created")
}

// TestUndeleteOwners undeletes an object whose owner is there, was undeleted, or is gone.
func TestUndeleteOwners(t *testing.T) {
	p := start(t)
	p.Create(maps, `{"metadata":{"name":"owner"}}`)
	uid := string(p.Metadata(maps + "/owner").UID)
	p.Create(maps, `{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+uid+`"}]}}`)
	again := func(want string) (owners []metav1.OwnerReference) {
		t.Helper()
		p.now.Advance(time.Minute)
		p.Do("DELETE", maps+"/owned", "")
		p.expect("undelete cm owned --yes", want+"\n1 created, 0 skipped, 0 refused.\n")
		return p.Metadata(maps + "/owned").OwnerReferences
	}
	if owners := again("configmap/owned created"); len(owners) != 1 || string(owners[0].UID) != uid {
		t.Errorf("the owner is there: %v", owners)
	}
	p.Do("DELETE", maps+"/owner", "")
	p.expect("undelete cm owner --yes", "configmap/owner created\n1 created, 0 skipped, 0 refused.\n")
	const came = "configmap/owned created (with the owner ConfigMap owner of now, which says that it is the one that was there)"
	if owners := again(came); len(owners) != 1 || owners[0].UID != p.Metadata(maps+"/owner").UID {
		t.Errorf("the owner was undeleted: %v", owners)
	}
	p.Do("DELETE", maps+"/owner", "")
	if owners := again("configmap/owned created (without its owner ConfigMap owner, which is gone)"); len(owners) != 0 {
		t.Errorf("the owner is gone: %v", owners)
	}
}

// TestForbidden runs commands as a user who may read the past, but not write, and as one who may do neither.
func TestForbidden(t *testing.T) {
	p := start(t, "namespace-controller")
	p.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"reader"},"rules":[
		{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","readhistory"]}]}`)
	p.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"reader"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"reader"}]}`)
	const namespace = "/api/v1/namespaces/shop"
	p.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	p.Create(namespace+"/configmaps", `{"metadata":{"name":"a"}}`)
	p.now.Advance(time.Minute)
	p.Patch(namespace+"/configmaps/a", `{"data":{"v":"1"}}`)
	as := func(user string) *plugin {
		content, err := os.ReadFile(p.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		other := *p
		other.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
		text := strings.Replace(string(content), "  user:\n    client", "  user:\n    as: "+user+"\n    client", 1)
		if err := os.WriteFile(other.kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return &other
	}
	reader := as("reader")
	wait.Seen(t, "the role is in effect", func() (bool, string) {
		out := reader.run("get cm -n shop --as-of 1m")
		return strings.HasPrefix(out, "NAME"), out
	})
	reader.contains("revert cm a -n shop --as-of 1m", "configmap/a refused: configmaps \"a\" is forbidden", "error: 1 refused\n")
	p.Do("DELETE", namespace+"/configmaps/a", "")
	p.now.Advance(time.Minute)
	reader.contains("undelete namespace shop --as-of 1m30s", "namespace/shop skipped: an object of this name exists",
		"configmap/a refused: configmaps is forbidden", "error: 1 refused\n")
	p.Do("DELETE", namespace, "")
	p.Gone(namespace)
	p.now.Advance(time.Minute)
	reader.contains("undelete namespace shop --as-of 2m30s", "namespace/shop refused: namespaces is forbidden",
		"configmap/a skipped: its owner or namespace shop was refused", "error: 1 refused\n")
	as("nobody").contains("log cm a -n shop", "error: configmaps \"a\" is forbidden")
}
