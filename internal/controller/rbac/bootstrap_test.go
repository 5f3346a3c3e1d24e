package rbac

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/rbac/policy"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// world is a server's registry and client, without a server.
type world struct {
	*registry.Registry
	client *client.Client
	store  storage.Store
}

func newWorld(tb testing.TB, dir string) *world {
	tb.Helper()
	api := clienttest.New(tb, dir, "kube-apiserver")
	w := &world{api.Registry, api.Client, api.Store}
	for _, name := range []string{"kube-system", "kube-public"} {
		w.create(tb, "namespaces", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

func (w *world) create(tb testing.TB, resource, group string, obj registry.Object) {
	tb.Helper()
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	if _, err := w.client.As("test").Create(tb.Context(), client.CreateRequest{Resource: gvr, Object: obj}); err != nil {
		tb.Fatal(err)
	}
}

func (w *world) bootstrap(tb testing.TB) {
	tb.Helper()
	b := Bootstrap{Registry: w.Registry, Client: w.client, Log: slog.Default()}
	if err := b.Run(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (w *world) clusterRole(tb testing.TB, name string) *rbacv1.ClusterRole {
	tb.Helper()
	obj, err := w.Registry.Get(tb.Context(), rbacv1.Resource("clusterroles"), "", name)
	if err != nil {
		tb.Fatal(err)
	}
	return obj.(*rbacv1.ClusterRole)
}

func (w *world) clusterRoleBinding(tb testing.TB, name string) *rbacv1.ClusterRoleBinding {
	tb.Helper()
	obj, err := w.Registry.Get(tb.Context(), rbacv1.Resource("clusterrolebindings"), "", name)
	if err != nil {
		tb.Fatal(err)
	}
	return obj.(*rbacv1.ClusterRoleBinding)
}

func (w *world) change(tb testing.TB, resource, name string, change func(registry.Object) error) {
	tb.Helper()
	ref := client.Ref{Resource: rbacv1.SchemeGroupVersion.WithResource(resource), Name: name}
	if _, err := w.client.As("test").Update(tb.Context(), client.UpdateRequest{Ref: ref, Change: change}); err != nil {
		tb.Fatal(err)
	}
}

func TestBootstrapMakesEveryObjectOnce(t *testing.T) {
	w := newWorld(t, "")
	w.bootstrap(t)
	wanted, err := policy.Objects(features.Gates{})
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range wanted {
		k := keyOf(obj)
		found, err := w.Registry.Get(t.Context(), rbacv1.Resource(k.resource), k.namespace, k.name)
		if err != nil {
			t.Errorf("%v: %v", k, err)
			continue
		}
		if addMissing(found, obj) || !sameRole(found, obj) {
			t.Errorf("%v lacks something", k)
		}
		if fields := found.GetManagedFields(); len(fields) != 1 || fields[0].Manager != "kube-apiserver" {
			t.Errorf("%v: managedFields %v", k, fields)
		}
	}
	revision := w.revision(t)
	w.bootstrap(t)
	if again := w.revision(t); again != revision {
		t.Errorf("a second start wrote: revision %d after %d", again, revision)
	}
}

func (w *world) revision(tb testing.TB) int64 {
	tb.Helper()
	revision, err := w.store.Revision(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return revision
}

func TestReconcileAddsMissingAndKeepsAdditionalRules(t *testing.T) {
	w := newWorld(t, "")
	w.bootstrap(t)
	extra := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"things"}}
	w.change(t, "clusterroles", "system:kube-scheduler", func(o registry.Object) error {
		r := o.(*rbacv1.ClusterRole)
		r.Rules = []rbacv1.PolicyRule{extra}
		r.Labels = map[string]string{"own": "label"}
		return nil
	})
	w.change(t, "clusterrolebindings", "system:kube-scheduler", func(o registry.Object) error {
		b := o.(*rbacv1.ClusterRoleBinding)
		b.Subjects = []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "me"}}
		return nil
	})
	w.bootstrap(t)
	role := w.clusterRole(t, "system:kube-scheduler")
	if len(role.Rules) < 2 || !slices.Equal(role.Rules[0].Resources, extra.Resources) {
		t.Errorf("rules %v", role.Rules)
	}
	if role.Labels["own"] != "label" || role.Labels[policy.Label] != policy.LabelValue {
		t.Errorf("labels %v", role.Labels)
	}
	if b := w.clusterRoleBinding(t, "system:kube-scheduler"); len(b.Subjects) != 2 || b.Subjects[0].Name != "me" {
		t.Errorf("subjects %v", b.Subjects)
	}
}

func TestProtectedObjectsAreLeftAlone(t *testing.T) {
	w := newWorld(t, "")
	w.bootstrap(t)
	w.change(t, "clusterroles", "system:discovery", func(o registry.Object) error {
		o.SetAnnotations(map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"})
		o.(*rbacv1.ClusterRole).Rules = nil
		return nil
	})
	w.bootstrap(t)
	if r := w.clusterRole(t, "system:discovery"); len(r.Rules) != 0 {
		t.Errorf("rules came back: %v", r.Rules)
	}
}

func TestBindingWithAnotherRoleIsRecreated(t *testing.T) {
	w := newWorld(t, "")
	w.create(t, "clusterrolebindings", rbacv1.GroupName, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}},
	})
	w.bootstrap(t)
	b := w.clusterRoleBinding(t, "cluster-admin")
	if b.RoleRef.Name != "cluster-admin" || len(b.Subjects) != 1 || b.Subjects[0].Name != "system:masters" {
		t.Errorf("%v to %v", b.RoleRef, b.Subjects)
	}
}

func TestExistingClusterKeepsItsChanges(t *testing.T) {
	w := newWorld(t, "")
	own := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"things"}}
	w.create(t, "clusterroles", rbacv1.GroupName,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: []rbacv1.PolicyRule{own}})
	somebody := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}
	w.create(t, "clusterrolebindings", rbacv1.GroupName, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:discovery"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:discovery"},
		Subjects:   []rbacv1.Subject{somebody},
	})
	w.bootstrap(t)
	if r := w.clusterRole(t, "system:aggregate-to-view"); len(r.Rules) == 0 ||
		!slices.Equal(r.Rules[0].Resources, own.Resources) {
		t.Errorf("rules of system:aggregate-to-view: %v", r.Rules)
	}
	if r := w.clusterRole(t, "view"); r.AggregationRule == nil {
		t.Error("view does not aggregate")
	}
	if b := w.clusterRoleBinding(t, "system:public-info-viewer"); !slices.Contains(b.Subjects, somebody) {
		t.Errorf("subjects of system:public-info-viewer: %v", b.Subjects)
	}
}

func BenchmarkBootstrap(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, b.TempDir())
		b.StartTimer()
		w.bootstrap(b)
	}
}

func BenchmarkBootstrapAgain(b *testing.B) {
	w := newWorld(b, b.TempDir())
	w.bootstrap(b)
	for b.Loop() {
		w.bootstrap(b)
	}
}
