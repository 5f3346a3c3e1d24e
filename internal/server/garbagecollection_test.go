package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// collectorCluster starts a server with the garbage collector.
func collectorCluster(t *testing.T) *controlled {
	t.Helper()
	return startControlled(t, "garbage-collector-controller")
}

// create creates a ConfigMap, or an object of another kind whose manifest is a format of its metadata, and returns its
// UID.
func (k *controlled) create(path, name, owners string, finalizers ...string) string {
	k.t.Helper()
	text, err := json.Marshal(finalizers)
	if err != nil {
		k.t.Fatal(err)
	}
	head := ""
	if strings.Contains(path, "widgets") {
		head = `"apiVersion":"example.com/v1","kind":"Widget",`
	}
	body := k.send(http.MethodPost, path, fmt.Sprintf(
		`{%s"metadata":{"name":%q,"ownerReferences":[%s],"finalizers":%s}}`, head, name, owners, text))
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		k.t.Fatal(err)
	}
	return string(object.UID)
}

const (
	mapsPath    = "/api/v1/namespaces/default/configmaps"
	secretsPath = "/api/v1/namespaces/default/secrets"
	widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"
)

// ownedBy returns an owner reference.
func ownedBy(apiVersion, kind, name, uid string, blocks bool) string {
	return fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%t}`, apiVersion, kind, name, uid, blocks)
}

// delete deletes an object with a policy.
func (k *controlled) delete(path, policy string) {
	k.t.Helper()
	k.send(http.MethodDelete, path, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":%q}`, policy))
}

// metadata returns the metadata of an object.
func (k *controlled) metadata(path string) metav1.ObjectMeta {
	k.t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(k.send(http.MethodGet, path, "")), &object); err != nil {
		k.t.Fatal(err)
	}
	return object.ObjectMeta
}

// settled waits until the collector has collected everything it should, by having it collect something else.
func (k *controlled) settled() {
	k.t.Helper()
	for range 2 {
		name := fmt.Sprint("probe-", time.Now().UnixNano())
		k.create(mapsPath, name, ownedBy("v1", "ConfigMap", "missing", name, false))
		k.gone(mapsPath + "/" + name)
	}
}

// TestDependentsGoInTheBackground: a chain of built-in and custom objects goes after its first owner, and nothing else
// does.
func TestDependentsGoInTheBackground(t *testing.T) {
	k := collectorCluster(t)
	k.define()
	a := k.create(mapsPath, "a", "")
	b := k.create(widgetsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	c := k.create(secretsPath, "c", ownedBy("example.com/v1", "Widget", "b", b, false))
	k.create(mapsPath, "d", ownedBy("v1", "Secret", "c", c, false))
	other := k.create(mapsPath, "other", "")
	k.create(mapsPath, "kept",
		ownedBy("v1", "ConfigMap", "a", a, false)+","+ownedBy("v1", "ConfigMap", "other", other, false))
	k.settled()
	k.delete(mapsPath+"/a", "Background")
	for _, path := range []string{widgetsPath + "/b", secretsPath + "/c", mapsPath + "/d"} {
		k.gone(path)
	}
	k.eventually("the reference to a to be removed", func() (bool, string) {
		owners := k.metadata(mapsPath + "/kept").OwnerReferences
		return len(owners) == 1 && string(owners[0].UID) == other, fmt.Sprint(owners)
	})
}

// TestForegroundWaits: an owner that is deleted in the foreground stays until the dependents are gone that block it.
func TestForegroundWaits(t *testing.T) {
	k := collectorCluster(t)
	a := k.create(mapsPath, "a", "")
	k.create(secretsPath, "blocks", ownedBy("v1", "ConfigMap", "a", a, true), "example.com/wait")
	k.create(secretsPath, "goes", ownedBy("v1", "ConfigMap", "a", a, true))
	k.create(secretsPath, "free", ownedBy("v1", "ConfigMap", "a", a, false), "example.com/wait")
	k.delete(mapsPath+"/a", "Foreground")
	k.gone(secretsPath + "/goes")
	k.eventually("the deletion of the others to begin", func() (bool, string) {
		blocks, free := k.metadata(secretsPath+"/blocks"), k.metadata(secretsPath+"/free")
		return blocks.DeletionTimestamp != nil && free.DeletionTimestamp != nil, fmt.Sprint(blocks, free)
	})
	k.settled()
	if m := k.metadata(mapsPath + "/a"); fmt.Sprint(m.Finalizers) != "[foregroundDeletion]" {
		t.Errorf("the owner has the finalizers %v", m.Finalizers)
	}
	k.send(http.MethodPatch, secretsPath+"/blocks", `{"metadata":{"finalizers":null}}`,
		"Content-Type", "application/merge-patch+json")
	k.gone(mapsPath + "/a")
	k.metadata(secretsPath + "/free")
}

// TestOrphansStay: the dependents of an owner that is deleted with the policy Orphan lose their references and stay.
func TestOrphansStay(t *testing.T) {
	k := collectorCluster(t)
	k.define()
	a := k.create(mapsPath, "a", "")
	k.create(secretsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	k.create(widgetsPath, "c", ownedBy("v1", "ConfigMap", "a", a, true))
	k.delete(mapsPath+"/a", "Orphan")
	k.gone(mapsPath + "/a")
	k.settled()
	for _, path := range []string{secretsPath + "/b", widgetsPath + "/c"} {
		if owners := k.metadata(path).OwnerReferences; len(owners) > 0 {
			t.Errorf("%s has the owners %v", path, owners)
		}
	}
}

// TestOwnersThatAreNotThere: objects whose owner does not exist, or has another UID, go; objects whose owner is of an
// unknown kind stay.
func TestOwnersThatAreNotThere(t *testing.T) {
	k := collectorCluster(t)
	a := k.create(mapsPath, "a", "")
	k.create(secretsPath, "unknown", ownedBy("example.org/v1", "Thing", "x", "1", false))
	k.create(secretsPath, "version", ownedBy("v2", "ConfigMap", "a", a, false))
	k.create(secretsPath, "missing", ownedBy("v1", "ConfigMap", "b", "2", false))
	k.create(secretsPath, "uid", ownedBy("v1", "ConfigMap", "a", "3", false))
	k.create(secretsPath, "right", ownedBy("v1", "ConfigMap", "a", a, false))
	k.gone(secretsPath + "/missing")
	k.gone(secretsPath + "/uid")
	k.settled()
	for _, name := range []string{"unknown", "version", "right"} {
		k.metadata(secretsPath + "/" + name)
	}
}

// TestOwnerInAnotherNamespace: an object whose owner is in another namespace goes, and an event says why.
func TestOwnerInAnotherNamespace(t *testing.T) {
	k := collectorCluster(t)
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	a := k.create(mapsPath, "a", "")
	k.create("/api/v1/namespaces/other/configmaps", "b", ownedBy("v1", "ConfigMap", "a", a, false))
	k.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", "c", ownedBy("v1", "ConfigMap", "a", a, false))
	k.gone("/api/v1/namespaces/other/configmaps/b")
	event := func(namespace, owner string) {
		t.Helper()
		k.eventually("the event in "+namespace, func() (bool, string) {
			var list corev1.EventList
			body := k.send(http.MethodGet, "/api/v1/namespaces/"+namespace+"/events", "")
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
	k.metadata("/apis/rbac.authorization.k8s.io/v1/clusterroles/c") // as in kube-controller-manager
}

// TestCircleInTheForeground: two objects that own each other go when one of them is deleted in the foreground.
func TestCircleInTheForeground(t *testing.T) {
	k := collectorCluster(t)
	a := k.create(mapsPath, "a", "")
	b := k.create(mapsPath, "b", ownedBy("v1", "ConfigMap", "a", a, true))
	k.send(http.MethodPatch, mapsPath+"/a", fmt.Sprintf(
		`{"metadata":{"ownerReferences":[%s]}}`, ownedBy("v1", "ConfigMap", "b", b, true)),
		"Content-Type", "application/merge-patch+json")
	k.settled()
	k.delete(mapsPath+"/a", "Foreground")
	k.gone(mapsPath + "/a")
	k.gone(mapsPath + "/b")
}

// TestRolesAreAggregatedByDefault: a server that is its own control plane gives the roles view, edit and admin rules.
func TestRolesAreAggregatedByDefault(t *testing.T) {
	c := testConfig(t)
	c.Controllers.Names = nil
	s := start(t, c)
	admin := httpClient(t, s, true)
	for _, role := range []string{"view", "edit", "admin"} {
		var a answer
		for end := time.Now().Add(20 * time.Second); !strings.Contains(a.body, `"configmaps"`); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the role %s did not get rules within 20 s: %d %s", role, a.status, a.body)
			}
			a = call(t, admin, "GET", s.URL()+"/apis/rbac.authorization.k8s.io/v1/clusterroles/"+role)
		}
	}
}
