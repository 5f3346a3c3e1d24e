package managedfields

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

func benchConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default", Labels: map[string]string{"app": "a"}},
		Data:       map[string]string{"a": "1", "b": "2", "c": "3"},
	}
}

// benchPod is about 2.5 KB of JSON as sent, with defaults set.
func benchPod(t testing.TB) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	containers := ""
	for i := range 2 {
		if i > 0 {
			containers += ","
		}
		containers += fmt.Sprintf(`{"name":"c%d","image":"registry.example.com/team/app:v1.2.%d","imagePullPolicy":"IfNotPresent",
			"args":["--listen=:8080","--config=/etc/app/config.yaml"],
			"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,
				"protocol":"TCP"}],
			"env":[{"name":"A","value":"1"},{"name":"B","value":"2"},{"name":"POD_IP",
				"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],
			"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"1","memory":"256Mi"}},
			"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,
				"successThreshold":1,"failureThreshold":3},
			"volumeMounts":[{"name":"config","mountPath":"/etc/app","readOnly":true},{"name":"tmp","mountPath":"/tmp"}],
			"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
			"securityContext":{"runAsNonRoot":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}`, i, i)
	}
	raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"app-6d4b75cb6d-abcde","namespace":"default",
		"labels":{"app":"app","pod-template-hash":"6d4b75cb6d","tier":"backend"},
			"annotations":{"prometheus.io/scrape":"true"},
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-6d4b75cb6d",
			"uid":"7c1b6f0e-0000-0000-0000-000000000000","controller":true,"blockOwnerDeletion":true}]},
		"spec":{"containers":[` + containers + `],
		"volumes":[{"name":"config","configMap":{"name":"settings","defaultMode":420}},{"name":"tmp","emptyDir":{}}],
		"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"app",
			"serviceAccount":"app",
		"securityContext":{"fsGroup":1000},"schedulerName":"default-scheduler","enableServiceLinks":true,
		"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`
	if err := json.Unmarshal([]byte(raw), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func benchStatus(pod *corev1.Pod, n int) {
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "10.1.0.1", PodIP: "10.2.0.1", PodIPs: []corev1.PodIP{{IP: "10.2.0.1"}},
		QOSClass: corev1.PodQOSBurstable,
	}
	for _, name := range []corev1.PodConditionType{
		"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled",
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: name, Status: "True", Message: fmt.Sprint(n), LastTransitionTime: metav1.Unix(1700000000, 0)})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, ContainerID: "containerd://x", RestartCount: int32(n)})
	}
}

func named(kind string, sub string) testKind {
	for _, k := range testKinds() {
		if k.gvk.Kind == kind && k.sub == sub {
			return k
		}
	}
	panic(kind)
}

// both runs a benchmark with the fast algorithm and the general one.
func both(b *testing.B, m *Manager, live registry.Object, object func() registry.Object) {
	if live == nil {
		live = m.incremental.empty()
	}
	b.Run("fast", func(b *testing.B) {
		b.ReportAllocs()
		o := object()
		sent := o.GetManagedFields()
		for b.Loop() {
			o.SetManagedFields(sent)
			if !m.incremental.update(live, o, "manager", time.Now()) {
				b.Fatal("not fast")
			}
		}
	})
	b.Run("general", func(b *testing.B) {
		b.ReportAllocs()
		o := object()
		sent := o.GetManagedFields()
		for b.Loop() {
			o.SetManagedFields(sent)
			m.updateGeneral(context.Background(), live, o, "manager", time.Now())
		}
	})
}

func BenchmarkCreateConfigMap(b *testing.B) {
	m := named("ConfigMap", "").manager(b)
	both(b, m, nil, func() registry.Object { return benchConfigMap() })
}

func BenchmarkCreatePod(b *testing.B) {
	m := named("Pod", "").manager(b)
	both(b, m, nil, func() registry.Object { return benchPod(b) })
}

// BenchmarkPodStatus is an update of the status by the manager that wrote it last.
func BenchmarkPodStatus(b *testing.B) {
	pod := benchPod(b)
	named("Pod", "").manager(b).Update(context.Background(), nil, pod, "creator", time.Now())
	pod.UID = "u"
	m := named("Pod", "status").manager(b)
	withStatus := pod.DeepCopy()
	benchStatus(withStatus, 1)
	m.Update(context.Background(), pod, withStatus, "manager", time.Now())
	both(b, m, withStatus, func() registry.Object {
		next := withStatus.DeepCopy()
		benchStatus(next, 2)
		return next
	})
}

// BenchmarkPodUpdate changes the image of a container.
func BenchmarkPodUpdate(b *testing.B) {
	pod := benchPod(b)
	m := named("Pod", "").manager(b)
	m.Update(context.Background(), nil, pod, "creator", time.Now())
	pod.UID = "u"
	both(b, m, pod, func() registry.Object {
		next := pod.DeepCopy()
		next.Spec.Containers[0].Image = "other"
		return next
	})
}

func BenchmarkApplyNewConfigMap(b *testing.B) {
	m := named("ConfigMap", "").manager(b)
	configuration := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "settings", "namespace": "default", "labels": map[string]any{"app": "a"}},
		"data":     map[string]any{"a": "1", "b": "2", "c": "3"},
	}
	b.Run("fast", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Apply(context.Background(), nil, configuration, "manager", false, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("general", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.applyGeneral(
				context.Background(), m.make(), configuration, "manager", false, time.Now(),
			); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWalk compares two Pods that differ in the image of a container: as Go values, as trees, and as Go
// values that are converted to trees first.
func BenchmarkWalk(b *testing.B) {
	f := named("Pod", "").manager(b).incremental
	f.prepare()
	old, now := benchPod(b), benchPod(b)
	now.Spec.Containers[0].Image = "other"
	converted := func(pod *corev1.Pod) map[string]any {
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	left, right := converted(old), converted(now)
	w := new(walk)
	for name, compare := range map[string]func(){
		"values": func() { w.values(f.plan, reflect.ValueOf(old), reflect.ValueOf(now)) },
		"trees":  func() { w.trees(f.shape, tree{left, true}, tree{right, true}) },
		"values to trees": func() {
			w.trees(f.shape, tree{converted(old), true}, tree{converted(now), true})
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.begin(nil)
				if compare(); w.failed || w.result(changed) == nil {
					b.Fatal("not compared")
				}
			}
		})
	}
}
