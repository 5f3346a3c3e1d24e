package blockers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/blockers"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// find returns the blockers of the namespace shop, which is being deleted and has 30 ConfigMaps, half of them with
// a finalizer, and a Secret.
func find(t *testing.T, f *blockers.Finder) *blockers.ObjectBlockers {
	t.Helper()
	api := clienttest.New(t, "", "test")
	create := func(resource string, obj registry.Object) {
		t.Helper()
		gvr := corev1.SchemeGroupVersion.WithResource(resource)
		if _, err := api.Create(t.Context(), client.CreateRequest{Resource: gvr, Object: obj}); err != nil {
			t.Fatal(err)
		}
	}
	create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for i := range 30 {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("m%02d", i)}
		if i >= 15 {
			meta.Finalizers = []string{"example.com/x"}
		}
		create("configmaps", &corev1.ConfigMap{ObjectMeta: meta})
	}
	create("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}})
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	if _, err := api.Delete(t.Context(), client.DeleteRequest{Ref: client.Ref{Resource: namespaces, Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	f.Client, f.Now = api.Client, time.Now
	f.Resources = func() (list []discovery.Resource, _ []schema.GroupVersion) {
		for _, name := range []string{"secrets", "configmaps"} {
			list = append(list, discovery.Resource{
				GroupVersionResource: corev1.SchemeGroupVersion.WithResource(name), Namespaced: true, Verbs: []string{"delete", "list", "watch"},
			})
		}
		return list, nil
	}
	served, done, err := api.Directory.Find(namespaces).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	stored, err := served.Resource.Reader.Latest(t.Context(), "", "shop")
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Find(t.Context(), &request.Info{Verb: "get", Version: "v1", Resource: "namespaces", Name: "shop"}, served, stored)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNames(t *testing.T) {
	b := find(t, &blockers.Finder{})
	types := []blockers.Type{blockers.NamespaceContent}
	var names []string
	for _, i := range b.Items {
		for _, o := range i.Objects {
			names = append(names, o.Name)
		}
	}
	want := "m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25 m26 m27 m28 m29 m00 m01 m02 m03 m04 s"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("named are %s, want %s", got, want)
	}
	for i := range b.Items {
		b.Items[i].Objects = nil
	}
	expect(t, *b, types, "NamespaceContent | configmaps | 30 | Left: 30 objects of configmaps, 15 of them with finalizers.",
		"NamespaceContent | secrets | 1 | Left: 1 object of secrets, 0 of them with finalizers.")
	if len(b.NotExamined) > 0 {
		t.Error(b.NotExamined)
	}
}

func TestLimits(t *testing.T) {
	for _, f := range []*blockers.Finder{{MaxObjects: 20}, {MaxBytes: 2000}} {
		b := find(t, f)
		text := strings.Join(b.NotExamined, "")
		if !strings.Contains(text, "Not all were examined of: configmaps, secrets.") {
			t.Errorf("%+v: not examined: %q", f, text)
		}
		for _, i := range b.Items {
			if i.Type == blockers.NamespaceContent && (i.Name != "configmaps" || i.Count >= 30 || i.Count == 0) {
				t.Errorf("%+v: %+v", f, i)
			}
		}
	}
}

// counting is an authorizer that denies everything and counts its calls.
type counting struct{ n int }

func (c *counting) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	c.n++
	return authz.NoOpinion, "", nil
}

// TestChecks checks that the authorizer is asked once for each resource and namespace.
func TestChecks(t *testing.T) {
	c := &counting{}
	b := find(t, &blockers.Finder{Authorizer: c})
	for _, i := range b.Items {
		if len(i.Objects) > 0 {
			t.Errorf("objects are named: %+v", i)
		}
	}
	if c.n > 5 {
		t.Errorf("the authorizer was asked %d times", c.n)
	}
}

// TestManyFinalizers asks for the blockers of objects with 20,000 finalizers. The answer names only some of them.
// The test would take minutes if the work grew with the square of their number.
func TestManyFinalizers(t *testing.T) {
	s, _ := start(t, "namespace-controller")
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf(`"example.com/%d"`, i))
	}
	s.Do("POST", shop+"/configmaps?fieldManager=tool", `{"metadata":{"name":"m","finalizers":[`+strings.Join(names, ",")+`]}}`)
	s.Do("DELETE", shop+"/configmaps/m", "")
	body := s.Get(shop + "/configmaps/m/blockers")
	b := parse(t, body)
	if len(b.Items) != 200 || len(body) > 200<<10 {
		t.Errorf("%d items in %d bytes", len(b.Items), len(body))
	}
	if c := b.Items[199].Change; b.Items[199].Owner != "the field manager tool" || c == nil || c.User != "kubernetes-admin" {
		t.Errorf("%+v", b.Items[199])
	}
	if text := strings.Join(b.NotExamined, ""); !strings.Contains(text, "19800 more of the type Finalizer are left out") {
		t.Error(text)
	}
	s.Do("DELETE", shop, "")
	var content *blockers.Blocker
	wait.Seen(t, "the content to be named", func() (bool, string) {
		b, body = read(t, s.Client, shop), ""
		for i := range b.Items {
			if b.Items[i].Name == "configmaps" {
				content = &b.Items[i]
			}
		}
		return content != nil, body
	})
	if n := len(content.Objects[0].Finalizers); n != 20 {
		t.Errorf("of another object %d finalizers are named", n)
	}
}
