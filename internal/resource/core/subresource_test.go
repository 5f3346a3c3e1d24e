package core

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// cluster is an Access to pods and budgets in one namespace.
type cluster struct {
	pods    map[string]*corev1.Pod
	budgets map[string]*policyv1.PodDisruptionBudget
	deleted []registry.DeleteOptions
}

func (c *cluster) Get(_ context.Context, r schema.GroupResource, _, name string) (registry.Object, error) {
	if p := c.pods[name]; r.Resource == "pods" && p != nil {
		return p.DeepCopy(), nil
	}
	if b := c.budgets[name]; r == budgets && b != nil {
		return b.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(r, name)
}

func (c *cluster) List(_ context.Context, _ schema.GroupResource, _ string) ([]registry.Object, error) {
	var out []registry.Object
	for _, b := range c.budgets {
		out = append(out, b.DeepCopy())
	}
	return out, nil
}

func (c *cluster) Update(
	ctx context.Context, r schema.GroupResource, ns, name string, dryRun bool, change func(registry.Object) error,
) (string, error) {
	obj, err := c.Get(ctx, r, ns, name)
	if err != nil {
		return "", err
	}
	if err := change(obj); err != nil {
		return "", err
	}
	if dryRun {
		return obj.GetResourceVersion(), nil
	}
	obj.SetResourceVersion(obj.GetResourceVersion() + "1")
	switch o := obj.(type) {
	case *corev1.Pod:
		c.pods[name] = o
	case *policyv1.PodDisruptionBudget:
		c.budgets[name] = o
	}
	return obj.GetResourceVersion(), nil
}

func (c *cluster) Delete(_ context.Context, _ schema.GroupResource, _, name string, o registry.DeleteOptions) error {
	if p := c.pods[name]; o.ResourceVersion != nil && *o.ResourceVersion != p.ResourceVersion {
		return errors.New("resourceVersion precondition")
	}
	c.deleted = append(c.deleted, o)
	return nil
}

func runningPod(ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "u", ResourceVersion: "5",
			Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func budget(name string, status policyv1.PodDisruptionBudgetStatus) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
		Status: status,
	}
}

func TestEvict(t *testing.T) {
	always := budget("b", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 4})
	always.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	pending := runningPod("")
	pending.Status.Phase = corev1.PodPending
	blocked := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	free := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DisruptionsAllowed: 1}
	tests := []struct {
		name    string
		pod     *corev1.Pod
		budgets []*policyv1.PodDisruptionBudget
		dryRun  bool
		code    int32
		cause   string
		taken   bool
	}{
		{name: "no budget", pod: runningPod("True")},
		{name: "not processed", pod: runningPod("True"),
			budgets: []*policyv1.PodDisruptionBudget{budget("b", policyv1.PodDisruptionBudgetStatus{})},
			code:    429, cause: "The disruption budget b is still being processed by the server."},
		{name: "blocked", pod: runningPod("True"), budgets: []*policyv1.PodDisruptionBudget{budget("b", blocked)},
			code: 429, cause: "The disruption budget b needs 1 healthy pods and has 1 currently"},
		{name: "blocked dry run", pod: runningPod("True"), dryRun: true,
			budgets: []*policyv1.PodDisruptionBudget{budget("b", blocked)},
			code:    429, cause: "The disruption budget b needs 1 healthy pods and has 1 currently"},
		{name: "free", pod: runningPod("True"), budgets: []*policyv1.PodDisruptionBudget{budget("b", free)}, taken: true},
		{name: "free dry run", pod: runningPod("True"), dryRun: true,
			budgets: []*policyv1.PodDisruptionBudget{budget("b", free)}},
		{name: "two", pod: runningPod("True"), budgets: []*policyv1.PodDisruptionBudget{budget("b", free), budget("c", free)},
			code: 500},
		{name: "pending", pod: pending, budgets: []*policyv1.PodDisruptionBudget{budget("b", blocked)}},
		{name: "unready, always", pod: runningPod("False"), budgets: []*policyv1.PodDisruptionBudget{always}},
		{name: "unready, budget healthy", pod: runningPod("False"),
			budgets: []*policyv1.PodDisruptionBudget{budget("b", blocked)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &cluster{pods: map[string]*corev1.Pod{"a": test.pod}, budgets: map[string]*policyv1.PodDisruptionBudget{}}
			for _, b := range test.budgets {
				c.budgets[b.Name] = b
			}
			_, err := evict(t.Context(), c, registry.CreateRequest{
				Namespace: "n", Name: "a", DryRun: test.dryRun, Body: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			})
			if test.code != 0 {
				var status *apierrors.StatusError
				if !errors.As(err, &status) || status.ErrStatus.Code != test.code {
					t.Fatalf("got %v", err)
				}
				if test.cause != "" &&
					(status.ErrStatus.Message != evictionRefused || status.ErrStatus.Details.Causes[0].Message != test.cause) {
					t.Errorf("got %+v", status.ErrStatus)
				}
				if len(c.deleted) > 0 {
					t.Error("deleted nevertheless")
				}
				return
			}
			if err != nil || len(c.deleted) != 1 || c.deleted[0].DryRun != test.dryRun {
				t.Fatalf("got %v, deleted %v", err, c.deleted)
			}
			if marked := podCondition(c.pods["a"], corev1.DisruptionTarget); marked == test.dryRun {
				t.Errorf("marked as disrupted: %v", marked)
			}
			if b := c.budgets["b"]; b != nil && (len(b.Status.DisruptedPods) == 1) != test.taken {
				t.Errorf("budget %+v", b.Status)
			}
		})
	}
}

func TestBind(t *testing.T) {
	bindTo := func(c *cluster, b *corev1.Binding, name string) error {
		_, err := defaultGates.bind(t.Context(), c, registry.CreateRequest{Namespace: "n", Name: name, Body: b})
		return err
	}
	binding := func(name, node string) *corev1.Binding {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"k": "v"}},
			Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "u"}}
	c := &cluster{pods: map[string]*corev1.Pod{"a": pod}}
	service := binding("a", "n1")
	service.Target.Kind = "Service"
	other := binding("a", "n1")
	other.UID = "w"
	for _, test := range []struct {
		b       *corev1.Binding
		name    string
		code    int32
		message string
	}{
		{service, "a", 500, `target.kind: Unsupported value: "Service": supported values: "Node", "<empty>"`},
		{binding("a", ""), "a", 500, "target.name: Required value"},
		{binding("b", "n1"), "a", 400, "name in URL does not match name in Binding object"},
		{binding("", "n1"), "", 400, "Name parameter required."},
		{binding("z", "n1"), "", 404, `pods "z" not found`},
		{other, "a", 409, `Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, Key: ` +
			`/registry/pods/n/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: w,` +
			` UID in object meta: u`},
		{binding("a", "n1"), "a", 0, ""},
		{binding("a", "n2"), "", 409,
			`Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"`},
	} {
		err := bindTo(c, test.b, test.name)
		if test.code == 0 {
			if err != nil {
				t.Errorf("%v", err)
			}
			continue
		}
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Code != test.code || status.ErrStatus.Message != test.message {
			t.Errorf("want %d %s, got %v", test.code, test.message, err)
		}
	}
	if p := c.pods["a"]; p.Spec.NodeName != "n1" || p.Annotations["k"] != "v" || !podCondition(p, corev1.PodScheduled) {
		t.Errorf("got %+v", p)
	}
}

func TestGrace(t *testing.T) {
	scheduled := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To[int64](20)}}
		change(p)
		return p
	}
	for _, test := range []struct {
		pod  *corev1.Pod
		ask  *int64
		want int64
	}{
		{scheduled(func(*corev1.Pod) {}), nil, 20},
		{scheduled(func(*corev1.Pod) {}), ptr.To[int64](7), 7},
		{scheduled(func(*corev1.Pod) {}), ptr.To[int64](0), 0},
		{scheduled(func(*corev1.Pod) {}), ptr.To[int64](-7), 1},
		{scheduled(func(p *corev1.Pod) { p.Spec.NodeName = "" }), ptr.To[int64](100), 0},
		{scheduled(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), nil, 0},
	} {
		if got, graceful := podGrace(test.pod, &metav1.DeleteOptions{GracePeriodSeconds: test.ask}); got != test.want ||
			!graceful {
			t.Errorf("%+v: got %d", test.pod.Spec, got)
		}
	}
}

func TestPodUpdates(t *testing.T) {
	old := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{}}},
	}}
	defaultPod(old, &defaultGates)
	old.Status.QOSClass = qosClass(&old.Spec)
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{"image", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "y" }, ""},
		{"deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }, ""},
		{"toleration", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}} }, ""},
		{"env", func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} },
			"spec: Forbidden: " + podUpdateForbidden},
		{"node", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, "spec: Forbidden: " + podUpdateForbidden},
		{"container", func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, validContainer("d")) },
			"spec.containers: Forbidden: " + noAddRemove},
		{"gate", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "c"}} },
			"spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"},
	} {
		p := old.DeepCopy()
		test.change(p)
		got := ""
		if errs := validatePodUpdate(p, old, podRules{}); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		got, _, _ = strings.Cut(got, "\n@@ ") // how the two differ follows
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestResizeChangesResourcesAlone(t *testing.T) {
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{
			Requests: resources("cpu", "100m"), Limits: resources("cpu", "200m"),
		}}},
	}}
	defaultPod(old, &defaultGates)
	old.Status.QOSClass = qosClass(&old.Spec)
	p := old.DeepCopy()
	p.ResourceVersion, p.Labels = "2", map[string]string{"a": "b"}
	p.Spec.Containers[0].Image = "other"
	p.Spec.Containers[0].Resources.Requests = resources("cpu", "150m")
	defaultGates.prepareResize(p, old)
	want := old.DeepCopy()
	want.ResourceVersion = "2"
	want.Generation = 1 // it counts what changes the spec
	want.Spec.Containers[0].Resources.Requests = resources("cpu", "150m")
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v", p)
	}
	if errs := defaultGates.validateResize(p, old); len(errs) > 0 {
		t.Error(errs)
	}
	p.Spec.Containers[0].Resources.Limits = resources("cpu", "200m", "ephemeral-storage", "1Gi")
	if errs := defaultGates.validateResize(p, old); len(errs) != 1 ||
		!strings.Contains(errs[0].Detail, "only cpu and memory") {
		t.Error(errs)
	}
}

func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestPullPolicy(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]corev1.PullPolicy{
		"x": "Always", "x:latest": "Always", "x:1": "IfNotPresent", "x" + digest: "IfNotPresent",
		"x:latest" + digest: "Always",
		"host:5000/x":       "Always", "host:5000/x:1": "IfNotPresent", "Bad_Value!": "IfNotPresent", "": "IfNotPresent",
		"Upper/x": "Always", "docker.io/Upper": "IfNotPresent", strings.Repeat("a", 64): "IfNotPresent",
		strings.Repeat("a", 260): "IfNotPresent",
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%q: got %s, want %s", image, got, want)
		}
	}
}

// validContainer is a container with its defaults.
func validContainer(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "x"}
	defaultContainer(&c)
	return c
}
