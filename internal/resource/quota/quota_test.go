package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

// TestPodUsage checks what pods use.
func TestPodUsage(t *testing.T) {
	for _, c := range []struct{ what, spec, status, want string }{
		{"no requests", "containers: [{name: a}]", "", "count/pods=1,pods=1"},
		{"an init container that needs more than the sum",
			"{containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {requests: {cpu: 1}}}]," +
				"initContainers: [{name: i, resources: {requests: {cpu: 3}}}]}", "",
			"count/pods=1,cpu=3,pods=1,requests.cpu=3"},
		{"a sidecar counts with the containers and with later init containers",
			"{containers: [{name: a, resources: {requests: {cpu: 1}}}], initContainers: [" +
				"{name: s, restartPolicy: Always, resources: {requests: {cpu: 2}}}," +
				"{name: i, resources: {requests: {cpu: 3}}}]}", "",
			"count/pods=1,cpu=5,pods=1,requests.cpu=5"},
		{"resources of the pod as a whole, and overhead",
			"{resources: {requests: {cpu: 4}, limits: {memory: 1Gi}}, overhead: {cpu: 500m, memory: 1Mi}," +
				"containers: [{name: a, resources: {requests: {cpu: 1}}}]}", "",
			"count/pods=1,cpu=4500m,limits.memory=1025Mi,memory=1Mi,pods=1,requests.cpu=4500m,requests.memory=1Mi"},
		{"huge pages and extended resources",
			"containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi, example.com/gpu: 2}}}]", "",
			"count/pods=1,hugepages-2Mi=4Mi,pods=1,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi"},
		{"a container that is resized",
			"containers: [{name: a, resources: {requests: {cpu: 1}}}]",
			"containerStatuses: [{name: a, resources: {requests: {cpu: 2}}, allocatedResources: {cpu: 3}}]",
			"count/pods=1,cpu=3,pods=1,requests.cpu=3"},
		{"a resize that the node has refused",
			"containers: [{name: a, resources: {requests: {cpu: 9}}}]",
			"{conditions: [{type: PodResizePending, status: 'True', reason: Infeasible}]," +
				"containerStatuses: [{name: a, resources: {requests: {cpu: 2}}}]}",
			"count/pods=1,cpu=2,pods=1,requests.cpu=2"},
		{"a pod that ended", "containers: [{name: a, resources: {requests: {cpu: 1}}}]", "phase: Failed", "count/pods=1"},
	} {
		p := &corev1.Pod{Spec: *decode[corev1.PodSpec](t, c.spec), Status: *decode[corev1.PodStatus](t, c.status)}
		used, err := New(corev1.Resource("pods"), clockAlone{}).Usage(t.Context(), p)
		if got := Format(used); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", c.what, got, err, c.want)
		}
	}
}

// TestOverduePods checks that a pod whose deletion takes longer than it may uses nothing.
func TestOverduePods(t *testing.T) {
	grace, now := int64(30), time.Now()
	p := &corev1.Pod{}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(-20 * time.Second)}, &grace
	if !Runs(p, now) {
		t.Error("a pod within its grace period does not run")
	}
	if Runs(p, now.Add(11*time.Second)) {
		t.Error("an overdue pod runs")
	}
}

func TestServiceUsage(t *testing.T) {
	for spec, want := range map[string]string{
		"{type: ClusterIP, ports: [{port: 1}]}":           "count/services=1,services=1,services.loadbalancers=0,services.nodeports=0",
		"{type: NodePort, ports: [{port: 1}, {port: 2}]}": "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2",
		"{type: LoadBalancer, ports: [{port: 1}]}":        "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
		"{type: LoadBalancer, ports: [{port: 1, nodePort: 30000}, {port: 2}], allocateLoadBalancerNodePorts: false}": "" +
			"count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
	} {
		used, err := New(corev1.Resource("services"), nil).Usage(t.Context(),
			&corev1.Service{Spec: *decode[corev1.ServiceSpec](t, spec)})
		if got := Format(used); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", spec, got, err, want)
		}
	}
}

func TestVolumeClaimUsage(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{Spec: *decode[corev1.PersistentVolumeClaimSpec](t,
		"{storageClassName: gold, resources: {requests: {storage: 1500m}}}")}
	e := New(corev1.Resource("persistentvolumeclaims"), nil)
	used, err := e.Usage(t.Context(), c)
	const want = "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1," +
		"gold.storageclass.storage.k8s.io/requests.storage=2,persistentvolumeclaims=1,requests.storage=2"
	if got := Format(used); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	c.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5")}
	if used, _ := e.Usage(t.Context(), c); used.Name(corev1.ResourceRequestsStorage, resource.DecimalSI).Value() != 5 {
		t.Errorf("after a failed expansion: %s", Format(used))
	}
}

// TestCounted checks names of counts, and that reviews and events are not counted.
func TestCounted(t *testing.T) {
	for _, name := range []corev1.ResourceName{"count/pods", "count/roles.rbac.authorization.k8s.io"} {
		r, ok := Counted(name)
		if !ok || CountName(r) != name {
			t.Errorf("%s: %v", name, r)
		}
	}
	if New(corev1.Resource("events"), nil) != nil {
		t.Error("events are counted")
	}
}

// clockAlone is an Objects without objects.
type clockAlone struct{ Objects }

// Now implements Objects.
func (clockAlone) Now() time.Time { return time.Now() }
