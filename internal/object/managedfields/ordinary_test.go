package managedfields

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestOrdinaryAppliesAreIncremental applies what clients ordinarily apply, and demands that the general
// algorithm is not needed for it.
func TestOrdinaryAppliesAreIncremental(t *testing.T) {
	deployment := kindOf[appsv1.Deployment]("apps", "v1", "Deployment")
	deployment.reset = reset("apps/v1", "status")
	container := func(c map[string]any, i int) map[string]any {
		list, _, err := unstructured.NestedSlice(c, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		return list[i].(map[string]any)
	}
	set := func(c map[string]any, value any, path ...string) {
		if err := unstructured.SetNestedField(c, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	changes := map[string]func(c map[string]any){
		"nothing":         func(map[string]any) {},
		"a field":         func(c map[string]any) { set(c, int64(7), "spec", "replicas") },
		"a field removed": func(c map[string]any) { unstructured.RemoveNestedField(c, "spec", "replicas") },
		"a label removed": func(c map[string]any) { unstructured.RemoveNestedField(c, "metadata", "labels", "app") },
		"a container": func(c map[string]any) {
			set(
				c, []any{container(c, 0), map[string]any{"name": "x", "image": "y"}, container(c, 1)}, "spec", "template", "spec",
				"containers",
			)
		},
		"a container removed": func(c map[string]any) {
			set(c, []any{container(c, 0)}, "spec", "template", "spec", "containers")
		},
		"containers in another order": func(c map[string]any) {
			set(c, []any{container(c, 1), container(c, 0)}, "spec", "template", "spec", "containers")
		},
		"a port removed": func(c map[string]any) {
			first := container(c, 0)
			first["ports"] = first["ports"].([]any)[:1]
			set(c, []any{first, container(c, 1)}, "spec", "template", "spec", "containers")
		},
		"a null time": func(c map[string]any) {
			set(c, nil, "metadata", "creationTimestamp")
			set(c, map[string]any{}, "spec", "strategy")
		},
		"the status": func(c map[string]any) { set(c, map[string]any{"replicas": int64(1)}, "status") },
		"a conflict": func(c map[string]any) { set(c, "other", "metadata", "annotations", "note1") },
	}
	for name, k := range map[string]testKind{"Go type": deployment, "tree": asTrees(deployment, false)} {
		m := k.manager(t)
		first := benchDeployment(t)
		for _, managers := range []int{1, 5} {
			live := appliedBy(t, m, first, managers)
			for change, of := range changes {
				next := runtime.DeepCopyJSON(first)
				of(next)
				if _, ok, err := m.incremental.apply(context.Background(), live, next, "manager0", false, testNow); !ok {
					t.Errorf("%s, %d managers: %s is left to the general algorithm", name, managers, change)
				} else if (err != nil) != (change == "a conflict" && managers > 1) {
					t.Errorf("%s, %d managers: %s: %v", name, managers, change, err)
				}
			}
		}
	}
}

// TestStatusOfPodIsIncremental applies the status of a Pod that has one, as a kubelet or a controller of virtual nodes
// does: lists of container statuses are owned as one, and their type has lists with keys, which are empty here.
func TestStatusOfPodIsIncremental(t *testing.T) {
	pod := kindOf[corev1.Pod]("", "v1", "Pod")
	pod.reset = reset("v1", "spec")
	m := pod.manager(t)
	live := benchPod(t)
	live.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	live.Name, live.UID = "p", "u"
	at := metav1.NewTime(testNow)
	live.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}},
	}
	configuration := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "status": map[string]any{
			"conditions":        []any{map[string]any{"type": "Ready", "status": "False"}},
			"containerStatuses": []any{map[string]any{"name": "app", "ready": false, "restartCount": int64(1)}},
		},
	}
	for _, c := range []struct {
		what        string
		change      func(*corev1.ContainerStatus)
		incremental bool
	}{
		{"an ordinary status", func(*corev1.ContainerStatus) {}, true},
		{"allocated resources", func(s *corev1.ContainerStatus) {
			s.AllocatedResources = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}, true},
		{"a list with keys inside the list that is owned as one", func(s *corev1.ContainerStatus) {
			s.VolumeMounts = []corev1.VolumeMountStatus{{Name: "v", MountPath: "/v"}}
		}, false},
	} {
		object := live.DeepCopy()
		c.change(&object.Status.ContainerStatuses[0])
		if ok := appliesLikeGeneral(t, m, object, configuration); ok != c.incremental {
			t.Errorf("%s: incremental %v, want %v", c.what, ok, c.incremental)
		}
	}
}

// TestStatusOfFlowSchemaIsIncremental applies the condition that a server sets on its FlowSchemas when it starts.
func TestStatusOfFlowSchemaIsIncremental(t *testing.T) {
	schema := kindOf[flowcontrolv1.FlowSchema]("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema")
	schema.reset = reset("flowcontrol.apiserver.k8s.io/v1", "spec")
	m := schema.manager(t)
	configuration := map[string]any{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": map[string]any{"name": "f"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Dangling", "status": "False"}}},
	}
	for _, c := range []struct {
		verbs       []string
		incremental bool
	}{{[]string{"get", "list"}, true}, {[]string{"get", "get"}, false}} {
		live := &flowcontrolv1.FlowSchema{
			TypeMeta:   metav1.TypeMeta{APIVersion: "flowcontrol.apiserver.k8s.io/v1", Kind: "FlowSchema"},
			ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "u"},
			Spec: flowcontrolv1.FlowSchemaSpec{Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: c.verbs, Resources: []string{"*"}}},
			}}},
		}
		if ok := appliesLikeGeneral(t, m, live, configuration); ok != c.incremental {
			t.Errorf("verbs %q: incremental %v, want %v", c.verbs, ok, c.incremental)
		}
	}
}

// appliesLikeGeneral reports whether the incremental algorithm applies the configuration, and demands the result of the
// general one.
func appliesLikeGeneral(t *testing.T, m *Manager, live registry.Object, configuration map[string]any) bool {
	t.Helper()
	got, ok, err := m.incremental.apply(context.Background(), live, configuration, "m", true, testNow)
	if !ok {
		return false
	}
	want, wantErr := m.applyGeneral(context.Background(), live, configuration, "m", true, testNow)
	if err != nil || wantErr != nil {
		t.Errorf("errors %v and %v", err, wantErr)
	} else if got, want := asJSON(got), asJSON(want); got != want {
		t.Errorf("%s\ninstead of\n%s", got, want)
	}
	return true
}
