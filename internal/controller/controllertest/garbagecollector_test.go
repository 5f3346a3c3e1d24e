package controllertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// make creates an object that has only metadata, such as a ConfigMap, and returns its UID. path is the path of its
// collection.
func (c *collectorCluster) make(path, name, owners string, finalizers ...string) string {
	c.t.Helper()
	text, err := json.Marshal(finalizers)
	if err != nil {
		c.t.Fatal(err)
	}
	head := ""
	if strings.Contains(path, "widgets") {
		head = `"apiVersion":"example.com/v1","kind":"Widget",`
	}
	body := c.Create(path, fmt.Sprintf(
		`{%s"metadata":{"name":%q,"ownerReferences":[%s],"finalizers":%s}}`, head, name, owners, text))
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		c.t.Fatal(err)
	}
	return string(object.UID)
}

const (
	mapsPath    = "/api/v1/namespaces/default/configmaps"
	secretsPath = "/api/v1/namespaces/default/secrets"
	widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"
)

// collectorCluster is a server with the garbage collector.
type collectorCluster struct {
	*servertest.Server
	t *testing.T
}

func startCollector(t *testing.T) *collectorCluster {
	return &collectorCluster{servertest.Start(t, servertest.Default("garbage-collector-controller")), t}
}

// ownedBy returns an owner reference.
func ownedBy(apiVersion, kind, name, uid string, blocks bool) string {
	return fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%t}`, apiVersion, kind, name, uid, blocks)
}

// delete deletes an object with a policy.
func (c *collectorCluster) delete(path, policy string) {
	c.t.Helper()
	c.Do("DELETE", path, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":%q}`, policy))
}

// settled waits until the collector has collected everything that it should. It creates garbage and waits until
// that is collected too.
func (c *collectorCluster) settled() {
	c.t.Helper()
	for range 2 {
		name := fmt.Sprint("probe-", time.Now().UnixNano())
		c.make(mapsPath, name, ownedBy("v1", "ConfigMap", "missing", name, false))
		c.Gone(mapsPath + "/" + name)
	}
}

// TestDependentsGoInTheBackground: when an owner is deleted, the chain of built-in and custom objects that it owns
// is deleted after it, and no other object is.
func TestDependentsGoInTheBackground(t *testing.T) {
	k := startCollector(t)
	k.DefineWidgets()
	a := k.make(mapsPath, "a", "")
	b := k.make(widgetsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	c := k.make(secretsPath, "c", ownedBy("example.com/v1", "Widget", "b", b, false))
	k.make(mapsPath, "d", ownedBy("v1", "Secret", "c", c, false))
	other := k.make(mapsPath, "other", "")
	k.make(mapsPath, "kept",
		ownedBy("v1", "ConfigMap", "a", a, false)+","+ownedBy("v1", "ConfigMap", "other", other, false))
	k.settled()
	k.delete(mapsPath+"/a", "Background")
	for _, path := range []string{widgetsPath + "/b", secretsPath + "/c", mapsPath + "/d"} {
		k.Gone(path)
	}
	wait.Seen(t, "the reference to a to be removed", func() (bool, string) {
		owners := k.Metadata(mapsPath + "/kept").OwnerReferences
		return len(owners) == 1 && string(owners[0].UID) == other, fmt.Sprint(owners)
	})
}

// TestForegroundWaits: an owner that is deleted in the foreground stays until the dependents that block its
// deletion are gone.
func TestForegroundWaits(t *testing.T) {
	k := startCollector(t)
	a := k.make(mapsPath, "a", "")
	k.make(secretsPath, "blocks", ownedBy("v1", "ConfigMap", "a", a, true), "example.com/wait")
	k.make(secretsPath, "goes", ownedBy("v1", "ConfigMap", "a", a, true))
	k.make(secretsPath, "free", ownedBy("v1", "ConfigMap", "a", a, false), "example.com/wait")
	k.delete(mapsPath+"/a", "Foreground")
	k.Gone(secretsPath + "/goes")
	wait.Seen(t, "the deletion of the others to begin", func() (bool, string) {
		blocks, free := k.Metadata(secretsPath+"/blocks"), k.Metadata(secretsPath+"/free")
		return blocks.DeletionTimestamp != nil && free.DeletionTimestamp != nil, fmt.Sprint(blocks, free)
	})
	k.settled()
	if m := k.Metadata(mapsPath + "/a"); fmt.Sprint(m.Finalizers) != "[foregroundDeletion]" {
		t.Errorf("the owner has the finalizers %v", m.Finalizers)
	}
	k.Patch(secretsPath+"/blocks", `{"metadata":{"finalizers":null}}`)
	k.Gone(mapsPath + "/a")
	k.Metadata(secretsPath + "/free")
}

// TestOrphansStay: the dependents of an owner that is deleted with the policy Orphan lose their references and stay.
func TestOrphansStay(t *testing.T) {
	k := startCollector(t)
	k.DefineWidgets()
	a := k.make(mapsPath, "a", "")
	k.make(secretsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	k.make(widgetsPath, "c", ownedBy("v1", "ConfigMap", "a", a, true))
	k.delete(mapsPath+"/a", "Orphan")
	k.Gone(mapsPath + "/a")
	k.settled()
	for _, path := range []string{secretsPath + "/b", widgetsPath + "/c"} {
		if owners := k.Metadata(path).OwnerReferences; len(owners) > 0 {
			t.Errorf("%s has the owners %v", path, owners)
		}
	}
}

// TestOwnersThatAreNotThere: objects whose owner does not exist, or has another UID, are deleted. Objects whose
// owner has an unknown kind stay.
func TestOwnersThatAreNotThere(t *testing.T) {
	k := startCollector(t)
	a := k.make(mapsPath, "a", "")
	k.make(secretsPath, "unknown", ownedBy("example.org/v1", "Thing", "x", "1", false))
	k.make(secretsPath, "version", ownedBy("v2", "ConfigMap", "a", a, false))
	k.make(secretsPath, "missing", ownedBy("v1", "ConfigMap", "b", "2", false))
	k.make(secretsPath, "uid", ownedBy("v1", "ConfigMap", "a", "3", false))
	k.make(secretsPath, "right", ownedBy("v1", "ConfigMap", "a", a, false))
	k.Gone(secretsPath + "/missing")
	k.Gone(secretsPath + "/uid")
	k.settled()
	for _, name := range []string{"unknown", "version", "right"} {
		k.Metadata(secretsPath + "/" + name)
	}
}

// TestOwnerInAnotherNamespace: an object whose owner is in another namespace is deleted, and an event has the
// reason.
func TestOwnerInAnotherNamespace(t *testing.T) {
	k := startCollector(t)
	k.Create("/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	a := k.make(mapsPath, "a", "")
	k.make("/api/v1/namespaces/other/configmaps", "b", ownedBy("v1", "ConfigMap", "a", a, false))
	k.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", "c", ownedBy("v1", "ConfigMap", "a", a, false))
	k.Gone("/api/v1/namespaces/other/configmaps/b")
	event := func(namespace, owner string) {
		t.Helper()
		wait.Seen(t, "the event in "+namespace, func() (bool, string) {
			var list corev1.EventList
			body := k.Get("/api/v1/namespaces/" + namespace + "/events")
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 {
				return false, body
			}
			e := &list.Items[0]
			want := fmt.Sprintf("ownerRef [v1/ConfigMap, namespace: %[1]s, name: a, uid: %[2]s] "+
				"does not exist in namespace %[1]q", owner, a)
			return e.Reason == "OwnerRefInvalidNamespace" && e.Type == "Warning" && e.Message == want, body
		})
	}
	event("other", "other")
	event("default", "")
	k.settled()
	k.Metadata("/apis/rbac.authorization.k8s.io/v1/clusterroles/c") // it stays, as in kube-controller-manager
}

// TestCircleInTheForeground: two objects own each other. When one of them is deleted in the foreground, both are
// deleted.
func TestCircleInTheForeground(t *testing.T) {
	k := startCollector(t)
	a := k.make(mapsPath, "a", "")
	b := k.make(mapsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	k.Patch(mapsPath+"/a", fmt.Sprintf(
		`{"metadata":{"ownerReferences":[%s]}}`, ownedBy("v1", "ConfigMap", "b", b, true)))
	k.settled()
	k.delete(mapsPath+"/a", "Foreground")
	k.Gone(mapsPath + "/a")
	k.Gone(mapsPath + "/b")
}
