package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// TestComponents runs the real kube-controller-manager and kube-scheduler with the server. The test acts as the
// kubelet of one node. Each of them is a user of its own.
func TestComponents(t *testing.T) {
	c := newCluster(t)
	client := c.admin.client()
	k := c.kubectl(t, c.admin)
	c.startManager(t)
	start(t, filepath.Join(c.dir, "kube-scheduler.log"), nil, program(t, "kube-scheduler"),
		"--kubeconfig", c.user(t, "system:kube-scheduler").kubeconfig, "--secure-port=0", "--v=3", "--kube-api-qps=500",
		"--kube-api-burst=1000")
	kubelet := newKubelet(t, c.user(t, "system:node:node-1", "system:nodes").client(), "node-1")

	t.Run("leader election", func(t *testing.T) {
		for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
			eventually(t, time.Minute, name+" leads", func(ctx context.Context) error {
				lease, err := client.CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
				if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
					err = errors.New("nobody leads")
				}
				return err
			})
		}
	})
	t.Run("default service account and root CA", func(t *testing.T) {
		eventually(t, time.Minute, "made", func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			_, err2 := client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return errors.Join(err, err2)
		})
	})
	t.Run("node", func(t *testing.T) {
		eventually(t, time.Minute, "untainted", func(ctx context.Context) error {
			node, err := client.CoreV1().Nodes().Get(ctx, kubelet.node, metav1.GetOptions{})
			if err == nil && len(node.Spec.Taints) > 0 {
				err = fmt.Errorf("taints %v", node.Spec.Taints)
			}
			return err
		})
		k.says(t, words("get node node-1"), `^node-1 +Ready +`)
	})

	k.run(t, "create", "namespace", "shop")
	pods := func(ctx context.Context) ([]corev1.Pod, error) {
		list, err := client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	// running waits until exactly so many pods of one ReplicaSet with an image exist, all on the node.
	running := func(t *testing.T, want int, image string) {
		t.Helper()
		eventually(t, time.Minute, fmt.Sprintf("%d pods of %s on the node", want, image), func(ctx context.Context) error {
			list, err := pods(ctx)
			if err != nil {
				return err
			}
			good := 0
			for _, p := range list {
				owner := metav1.GetControllerOf(&p)
				if p.Spec.NodeName == kubelet.node && p.Status.Phase == corev1.PodRunning && owner != nil &&
					owner.Kind == "ReplicaSet" && p.Spec.Containers[0].Image == image {
					good++
				}
			}
			if good != want || len(list) != want {
				return fmt.Errorf("%d pods, %d as they should be", len(list), good)
			}
			return nil
		})
	}
	t.Run("deployment", func(t *testing.T) {
		k.run(t, "create", "deployment", "web", "-n", "shop", "--image=nginx:1.27", "--replicas=3")
		running(t, 3, "nginx:1.27")
		k.says(t, words("rollout status deployment/web -n shop --timeout=60s"), `successfully rolled out`)
		eventually(t, 30*time.Second, "status", func(context.Context) error {
			if out := k.run(t, words("get deployment web -n shop --no-headers")...); !strings.Contains(out, "3/3") {
				return errors.New(out)
			}
			return nil
		})
	})
	t.Run("scale", func(t *testing.T) {
		for _, n := range []int{10, 2} {
			k.run(t, "scale", "deployment", "web", "-n", "shop", fmt.Sprint("--replicas=", n))
			running(t, n, "nginx:1.27")
		}
	})
	t.Run("rolling update", func(t *testing.T) {
		k.run(t, words("set image deployment/web nginx=nginx:1.28 -n shop")...)
		k.says(t, words("rollout status deployment/web -n shop --timeout=60s"), `successfully rolled out`)
		running(t, 2, "nginx:1.28")
		sets, err := client.AppsV1().ReplicaSets("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var replicas []int32
		for _, set := range sets.Items {
			replicas = append(replicas, set.Status.Replicas)
		}
		slices.Sort(replicas)
		if !slices.Equal(replicas, []int32{0, 2}) {
			t.Errorf("the ReplicaSets have %v pods", replicas)
		}
		k.says(t, words("rollout history deployment/web -n shop"), `^1 `, `^2 `)
		k.says(t, words("rollout undo deployment/web -n shop"), `rolled back`)
		k.says(t, words("rollout status deployment/web -n shop --timeout=60s"), `successfully rolled out`)
		running(t, 2, "nginx:1.27")
		k.says(t, words("describe deployment web -n shop"), `ScalingReplicaSet`, `^  Available +True`)
		k.says(t, words("get events -n shop"), `Scheduled`, `SuccessfulCreate`)
	})
	t.Run("endpoints", func(t *testing.T) {
		k.run(t, words("expose deployment web --port=80 -n shop")...)
		eventually(t, time.Minute, "endpoint slices have the pods", func(ctx context.Context) error {
			slices, err := client.DiscoveryV1().EndpointSlices("shop").List(
				ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"},
			)
			if err != nil {
				return err
			}
			n := 0
			for _, slice := range slices.Items {
				n += len(slice.Endpoints)
			}
			if n != 2 {
				return fmt.Errorf("%d endpoints", n)
			}
			return nil
		})
	})
	t.Run("pod is replaced", func(t *testing.T) {
		list, err := pods(t.Context())
		if err != nil || len(list) == 0 {
			t.Fatal(err, len(list))
		}
		k.run(t, "delete", "pod", list[0].Name, "-n", "shop")
		running(t, 2, "nginx:1.27")
	})
	t.Run("job, daemon set, stateful set", func(t *testing.T) {
		k.run(t, words("create job once --image=job -n shop")...)
		k.runWith(t, `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"ds"},"spec":{"selector":{"matchLabels":{"app":"ds"}},
			"template":{"metadata":{"labels":{"app":"ds"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`, "create", "-n", "shop", "-f", "-")
		k.runWith(t, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"ss"},"spec":{"replicas":2,"serviceName":"ss","selector":{"matchLabels":{"app":"ss"}},
			"template":{"metadata":{"labels":{"app":"ss"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`, "create", "-n", "shop", "-f", "-")
		k.says(t, words("wait job/once --for=condition=Complete -n shop --timeout=60s"), `condition met`)
		k.says(t, words("rollout status daemonset/ds -n shop --timeout=60s"), `successfully rolled out`)
		k.says(t, words("rollout status statefulset/ss -n shop --timeout=60s"), `roll`)
		k.says(t, words("get pods -n shop -l app=ss -o name"), `^pod/ss-0$`, `^pod/ss-1$`)
	})
	t.Run("restart", func(t *testing.T) {
		if c.restart == nil {
			t.Skip("not of this server")
		}
		c.restart()
		k.run(t, words("scale deployment web --replicas=4 -n shop")...)
		running(t, 4, "nginx:1.27")
	})
	t.Run("garbage collection", func(t *testing.T) {
		k.run(t, words("delete deployment web -n shop")...)
		eventually(t, time.Minute, "ReplicaSets and pods are gone", func(ctx context.Context) error {
			list, err := pods(ctx)
			sets, err2 := client.AppsV1().ReplicaSets("shop").List(ctx, metav1.ListOptions{})
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if len(list)+len(sets.Items) > 0 {
				return fmt.Errorf("%d ReplicaSets and %d pods are left", len(sets.Items), len(list))
			}
			return nil
		})
	})
	t.Run("foreground deletion and orphans", func(t *testing.T) {
		k.run(t, words("create deployment fore --image=i -n shop --replicas=2")...)
		k.says(t, words("rollout status deployment/fore -n shop --timeout=60s"), `successfully rolled out`)
		k.run(t, words("delete deployment fore -n shop --cascade=foreground --timeout=60s")...)
		if out := k.run(t, words("get replicasets,pods -l app=fore -n shop -o name")...); out != "" {
			t.Errorf("a foreground deletion left %s", out)
		}
		k.run(t, words("create deployment orphan --image=i -n shop")...)
		k.says(t, words("rollout status deployment/orphan -n shop --timeout=60s"), `successfully rolled out`)
		k.run(t, words("delete deployment orphan -n shop --cascade=orphan --timeout=60s")...)
		var sets appsv1.ReplicaSetList
		if err := json.Unmarshal([]byte(k.run(t, words("get rs -l app=orphan -n shop -o json")...)), &sets); err != nil {
			t.Fatal(err)
		}
		if len(sets.Items) != 1 || len(sets.Items[0].OwnerReferences) != 0 {
			t.Errorf("a deletion that orphans left %d ReplicaSets: %+v", len(sets.Items), sets.Items)
		}
	})
	t.Run("namespace deletion", func(t *testing.T) {
		k.run(t, words("delete namespace shop --wait=false")...)
		k.fails(t, 1, "because it is being terminated", words("create configmap late -n shop")...)
		k.run(t, words("wait namespace shop --for=delete --timeout=90s")...)
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{}); !kerrors.IsNotFound(err) {
			t.Errorf("after its deletion: %v", err)
		}
		if out := k.run(
			t,
			words(
				"get pods,replicasets,statefulsets,daemonsets,jobs,services,endpointslices,serviceaccounts,"+
					"configmaps -n shop -o name",
			)...,
		); out != "" {
			t.Errorf("the namespace is gone, these are left: %s", out)
		}
	})
}

// startManager starts kube-controller-manager with all controllers.
func (c *cluster) startManager(t *testing.T) {
	t.Helper()
	start(t, filepath.Join(c.dir, "kube-controller-manager.log"), nil, program(t, "kube-controller-manager"),
		"--kubeconfig", c.user(t, "system:kube-controller-manager").kubeconfig, "--secure-port=0", "--v=2",
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--root-ca-file", c.authority.certFile, "--service-account-private-key-file", c.accountKey,
		"--use-service-account-credentials",
		"--controllers=*", "--allocate-node-cidrs=false", "--namespace-sync-period=10s")
}

// kubelet acts as the kubelet of one node: the node is ready, its pods run at once (and succeed if their image is
// "job"), and deleted pods are removed.
type kubelet struct {
	client kubernetes.Interface
	node   string
	t      *testing.T
	since  metav1.Time // since the node is ready
	cancel context.CancelFunc
	loops  sync.WaitGroup
}

func newKubelet(t *testing.T, client kubernetes.Interface, name string) *kubelet {
	t.Helper()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{notReady}},
	}
	node, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 1 {
		t.Errorf("the node was made with taints %v", node.Spec.Taints)
	}
	return runKubelet(t, client, name)
}

// runKubelet acts as the kubelet of an existing node.
func runKubelet(t *testing.T, client kubernetes.Interface, name string) *kubelet {
	ctx, cancel := context.WithCancel(context.Background())
	k := &kubelet{client: client, node: name, t: t, since: metav1.Now(), cancel: cancel}
	k.loops.Go(func() { k.renew(ctx) })
	k.loops.Go(func() { k.run(ctx) })
	t.Cleanup(k.stop)
	return k
}

// stop ends it; the node sends no heartbeats from then on.
func (k *kubelet) stop() {
	k.cancel()
	k.loops.Wait()
}

// report writes a status of the node like that of a kubelet.
func (k *kubelet) report(ctx context.Context) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{
			{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(),
				LastTransitionTime: k.since,
			},
		},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
	}})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(
		ctx, k.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status",
	)
	return err
}

// renew updates the node's status and its Lease repeatedly.
func (k *kubelet) renew(ctx context.Context) {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: k.node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.node, LeaseDurationSeconds: ptr.To[int32](40)},
	}
	for {
		if err := k.report(ctx); err != nil && ctx.Err() == nil {
			k.t.Logf("kubelet: status: %v", err)
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		if kerrors.IsNotFound(err) {
			renewed, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		}
		if err == nil {
			lease = renewed
		} else if kerrors.IsConflict(err) {
			lease.ResourceVersion = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

// run watches the node's pods.
func (k *kubelet) run(ctx context.Context) {
	onNode := func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=" + k.node }
	pods := cache.NewFilteredListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, onNode)
	handle := func(obj any) {
		if pod := obj.(*corev1.Pod); ctx.Err() == nil {
			if err := k.sync(ctx, pod); err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) && ctx.Err() == nil {
				k.t.Logf("kubelet: pod %s: %v", pod.Name, err)
			}
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pods, ObjectType: &corev1.Pod{}, ResyncPeriod: 5 * time.Second,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }},
	})
	controller.RunWithContext(ctx)
}

func (k *kubelet) sync(ctx context.Context, pod *corev1.Pod) error {
	pods := k.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		return pods.Delete(
			ctx, pod.Name,
			metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			},
		)
	}
	job := pod.Spec.Containers[0].Image == "job"
	switch {
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodRunning && !job:
		return nil
	}
	phase, ready := corev1.PodRunning, corev1.ConditionTrue
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if job {
		phase, ready = corev1.PodSucceeded, corev1.ConditionFalse
		state = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()},
		}
	}
	status := corev1.PodStatus{
		Phase: phase, PodIP: "10.244.0.9", PodIPs: []corev1.PodIP{{IP: "10.244.0.9"}}, HostIP: "192.0.2.1",
		StartTime: ptr.To(metav1.Now()),
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Now()},
		},
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(
			status.ContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: !job, Started: ptr.To(!job), State: state},
		)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
