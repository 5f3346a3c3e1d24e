package match

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// older says that Deployments exist in apps/v1beta1 too.
type older struct{}

func (older) Equivalents(_ context.Context, gvr schema.GroupVersionResource, _ string) []admission.Names {
	if gvr.Resource != "deployments" {
		return nil
	}
	gv := schema.GroupVersion{Group: "apps", Version: "v1beta1"}
	return []admission.Names{{Kind: gv.WithKind("Deployment"), Resource: gv.WithResource("deployments")}}
}

func rule(operations, group, version, resource, scope string) Rule {
	s := admissionregistrationv1.ScopeType(scope)
	return Rule{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(operations)},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: &s,
		},
	}}
}

func write(gvr schema.GroupVersionResource, subresource string, obj registry.Object) *admission.Attributes {
	return &admission.Attributes{
		Resource: gvr.GroupResource(), Requested: admission.Names{Resource: gvr}, Subresource: subresource,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj,
	}
}

// TestRules compares a create of a Deployment, of its scale and of a Namespace with rules.
func TestRules(t *testing.T) {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = "ns", "d"
	namespace := &corev1.Namespace{}
	namespace.Name = "ns"
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	d := write(deployments, "", deployment)
	scale := write(deployments, "scale", deployment)
	ns := write(corev1.SchemeGroupVersion.WithResource("namespaces"), "", namespace)
	webhooks := write(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), "", namespace)
	m := NewMatcher(admissiontest.Objects{}, older{}, FromWebhooks)
	named := rule("*", "*", "*", "*", "*")
	named.ResourceNames = []string{"d"}
	for _, c := range []struct {
		name       string
		rule       Rule
		equivalent bool
		matches    []*admission.Attributes
		version    string // of the resource by which d matches
	}{
		{"everything", rule("*", "*", "*", "*/*", "*"), true, []*admission.Attributes{d, scale, ns}, "v1"},
		{"no subresources", rule("CREATE", "*", "*", "*", "*"), true, []*admission.Attributes{d, ns}, "v1"},
		{"subresources", rule("CREATE", "*", "*", "*/scale", "*"), true, []*admission.Attributes{scale}, ""},
		{"by name", rule("CREATE", "apps", "v1", "deployments", "*"), true, []*admission.Attributes{d}, "v1"},
		{"other operation", rule("UPDATE", "*", "*", "*/*", "*"), true, nil, ""},
		{"namespaced", rule("*", "*", "*", "*", "Namespaced"), true, []*admission.Attributes{d}, "v1"},
		{"cluster", rule("*", "*", "*", "*", "Cluster"), true, []*admission.Attributes{ns}, ""},
		{"older version", rule("*", "apps", "v1beta1", "deployments", "*"), true, []*admission.Attributes{d}, "v1beta1"},
		{"older version, exactly", rule("*", "apps", "v1beta1", "deployments", "*"), false, nil, ""},
		{"object's name", named, true, []*admission.Attributes{d}, "v1"},
	} {
		for _, a := range []*admission.Attributes{d, scale, ns, webhooks} {
			criteria := &Criteria{Rules: []Rule{c.rule}, Equivalent: c.equivalent}
			names, got, err := m.Match(t.Context(), criteria, a)
			want := false
			for _, w := range c.matches {
				want = want || w == a
			}
			if err != nil || got != want {
				t.Errorf("%s: %s/%s: %v %v, not %v", c.name, a.Resource.Resource, a.Subresource, got, err, want)
			}
			if a == d && got && names.Resource.Version != c.version {
				t.Errorf("%s: it matched by %s", c.name, names.Resource)
			}
			criteria.Exclude = []Rule{rule("*", "*", "*", "*/*", "*")}
			if _, got, _ := m.Match(t.Context(), criteria, a); got {
				t.Errorf("%s: %s/%s: it matches although it is excluded", c.name, a.Resource.Resource, a.Subresource)
			}
		}
	}
}

// TestSelectors compares labels of objects and namespaces.
func TestSelectors(t *testing.T) {
	namespace := &corev1.Namespace{}
	namespace.Name, namespace.Labels = "ns", map[string]string{"team": "a"}
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name, cm.Labels = "ns", "c", map[string]string{"app": "x"}
	unlabelled := cm.DeepCopy()
	unlabelled.Labels = nil
	elsewhere := cm.DeepCopy()
	elsewhere.Namespace = "missing"
	node := &corev1.Node{}
	node.Name = "n"
	m := NewMatcher(admissiontest.Objects{corev1.Resource("namespaces"): {namespace}}, older{}, FromWebhooks)
	v1 := corev1.SchemeGroupVersion
	all := []Rule{rule("*", "*", "*", "*/*", "*")}
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	updated := write(v1.WithResource("configmaps"), "", unlabelled)
	updated.Operation, updated.Old = admission.Update, cm
	deleted := write(v1.WithResource("configmaps"), "", cm)
	deleted.Operation, deleted.Object, deleted.Old = admission.Delete, nil, unlabelled
	for _, c := range []struct {
		name               string
		namespaces, object string
		a                  *admission.Attributes
		want               bool
	}{
		{"namespace", "team=a", "", write(v1.WithResource("configmaps"), "", cm), true},
		{"another namespace", "team=b", "", write(v1.WithResource("configmaps"), "", cm), false},
		{"a node is in no namespace", "team=b", "", write(v1.WithResource("nodes"), "", node), true},
		{"the namespace itself", "team=a", "", write(v1.WithResource("namespaces"), "", namespace), true},
		{"object", "", "app=x", write(v1.WithResource("configmaps"), "", cm), true},
		{"another object", "", "app=y", write(v1.WithResource("configmaps"), "", cm), false},
		{"old object", "", "app=x", updated, true},
		{"deleted object", "", "app=x", deleted, false},
	} {
		criteria := &Criteria{Rules: all, Namespace: selector(c.namespaces), Object: selector(c.object)}
		if _, got, err := m.Match(t.Context(), criteria, c.a); got != c.want || err != nil {
			t.Errorf("%s: %v %v", c.name, got, err)
		}
	}
	criteria := &Criteria{Rules: all, Namespace: selector("team=a")}
	_, _, err := m.Match(t.Context(), criteria, write(v1.WithResource("configmaps"), "", elsewhere))
	if !kerrors.IsNotFound(err) {
		t.Errorf("a namespace that is missing: %v", err)
	}
}
