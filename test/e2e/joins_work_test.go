package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
)

// running waits until a number of pods of a selector in the namespace shop exist, all ready and on nodes.
func (j *joined) running(t *testing.T, selector string, want int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, unhurried, fmt.Sprintf("%d pods of %s are ready", want, selector), func(ctx context.Context) error {
		list, err := j.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		pods = list.Items
		ready := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" && podReady(&p) {
				ready++
			}
		}
		if ready != want || len(pods) != want {
			return fmt.Errorf("%d pods, %d of them ready", len(pods), ready)
		}
		return nil
	})
	return pods
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// shows waits until kubectl prints the wanted text, without surrounding whitespace.
func (j *joined) shows(t *testing.T, want, path string, args ...string) {
	t.Helper()
	eventually(t, unhurried, strings.Join(args, " ")+" shows "+want, func(context.Context) error {
		a := j.k.try(t, "", append([]string{"get", "-n", "shop", "-o", "jsonpath=" + path}, args...)...)
		if a.code != 0 || a.out != want {
			return fmt.Errorf("exit %d, %q %s", a.code, a.out, a.err)
		}
		return nil
	})
}

// gone waits until no object of a selector is left.
func (j *joined) gone(t *testing.T, resources, selector string) {
	t.Helper()
	eventually(t, unhurried, fmt.Sprintf("%s of %q are gone", resources, selector), func(context.Context) error {
		a := j.k.try(t, "", "get", resources, "-n", "shop", "-l", selector, "-o", "name")
		if a.code != 0 || a.out != "" {
			return fmt.Errorf("exit %d: %s%s", a.code, a.out, a.err)
		}
		return nil
	})
}

func (j *joined) deployment(t *testing.T) {
	j.k.run(t, words("create deployment web -n shop --image=nginx:1.27 --replicas=10")...)
	pods := j.running(t, "app=web", 10)
	nodes := map[string]int{}
	for _, p := range pods {
		nodes[p.Spec.NodeName]++
		if owner := metav1.GetControllerOf(&p); owner == nil || owner.Kind != "ReplicaSet" {
			t.Errorf("%s is owned by %v", p.Name, owner)
		}
	}
	if len(nodes) != 3 || nodes[lone] > 0 {
		t.Errorf("the pods are on %v", nodes)
	}
	j.k.says(t, words("rollout status deployment/web -n shop --timeout=160s"), `successfully rolled out`)
	j.shows(t, "10 10 10", "{.status.replicas} {.status.readyReplicas} {.status.availableReplicas}", "deployment", "web")

	j.k.run(t, words("set image deployment/web nginx=nginx:1.28 -n shop")...)
	j.k.says(t, words("rollout status deployment/web -n shop --timeout=160s"), `successfully rolled out`)
	j.k.says(t, words("rollout history deployment/web -n shop"), `^1 `, `^2 `)
	j.k.run(t, words("rollout undo deployment/web -n shop")...)
	j.k.says(t, words("rollout status deployment/web -n shop --timeout=160s"), `successfully rolled out`)
	for _, n := range []int{15, 4, 10} {
		j.k.run(t, "scale", "deployment", "web", "-n", "shop", fmt.Sprint("--replicas=", n))
		j.running(t, "app=web", n)
	}
	j.k.says(
		t, words("get events -n shop"), `Scheduled`, `SuccessfulCreate`, `ScalingReplicaSet`, `Killing|SuccessfulDelete`,
	)
}

func (j *joined) services(t *testing.T) {
	j.k.run(t, words("expose deployment web --port=80 -n shop")...)
	eventually(t, unhurried, "endpoint slices have the pods", func(ctx context.Context) error {
		list, err := j.client.DiscoveryV1().EndpointSlices("shop").List(
			ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"},
		)
		if err != nil {
			return err
		}
		n := 0
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if ptr.Deref(e.Conditions.Ready, false) && len(e.Addresses) == 1 && e.TargetRef != nil {
					n++
				}
			}
		}
		if n != 10 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
	eventually(t, unhurried, "endpoints have the pods", func(ctx context.Context) error {
		a := j.k.try(t, "", "get", "endpoints", "web", "-n", "shop", "-o", "jsonpath={.subsets[0].addresses[*].ip}")
		if n := len(strings.Fields(a.out)); n != 10 {
			return fmt.Errorf("%d addresses %s", n, a.err)
		}
		return nil
	})
}

func (j *joined) disruption(t *testing.T) {
	j.k.run(t, words("create poddisruptionbudget web -n shop --selector=app=web --min-available=9")...)
	j.shows(t, "10 9 1", "{.status.currentHealthy} {.status.desiredHealthy} {.status.disruptionsAllowed}", "pdb", "web")
	j.k.run(t, words("scale deployment web -n shop --replicas=9")...)
	j.shows(t, "9 0", "{.status.currentHealthy} {.status.disruptionsAllowed}", "pdb", "web")
	pods := j.running(t, "app=web", 9)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: "shop"}}
	if err := j.client.PolicyV1().Evictions("shop").Evict(t.Context(), eviction); !kerrors.IsTooManyRequests(err) {
		t.Errorf("an eviction that the budget forbids: %v", err)
	}
	j.k.run(t, words("scale deployment web -n shop --replicas=10")...)
	j.shows(t, "1", "{.status.disruptionsAllowed}", "pdb", "web")
	eventually(t, unhurried, "one is evicted", func(ctx context.Context) error {
		return j.client.PolicyV1().Evictions("shop").Evict(ctx, eviction)
	})
	j.running(t, "app=web", 10)
	j.k.run(t, words("delete pdb web -n shop")...)
}

func (j *joined) quota(t *testing.T) {
	j.k.run(
		t,
		words(
			"create quota all -n shop --hard=pods=200,services=9,count/widgets.e2e.example.com=5,count/deployments.apps=7",
		)...,
	)
	j.shows(
		t, "10 1 1 0",
		`{.status.used.pods} {.status.used.services} {.status.used.count/deployments\.apps} `+
			`{.status.used.count/widgets\.e2e\.example\.com}`,
		"quota", "all",
	)
	// A server with quota admission counts a new object at once; otherwise it is counted when another object of the
	// namespace changes.
	j.k.runWith(t, widget("counted", ""), "create", "-n", "shop", "-f", "-")
	j.shows(t, "1", `{.status.used.count/widgets\.e2e\.example\.com}`, "quota", "all")
	j.k.run(t, words("delete quota all -n shop")...)
}

// autoscaler checks that an autoscaler without metrics reports that and changes nothing.
func (j *joined) autoscaler(t *testing.T) {
	j.k.run(t, words("autoscale deployment web -n shop --min=2 --max=20 --cpu=50%")...)
	j.shows(
		t, "False FailedGetResourceMetric",
		`{.status.conditions[?(@.type=="ScalingActive")].status} {.status.conditions[?(@.type=="ScalingActive")].reason}`,
		"hpa", "web",
	)
	j.shows(t, "True", `{.status.conditions[?(@.type=="AbleToScale")].status}`, "hpa", "web")
	j.k.run(t, words("delete hpa web -n shop")...)
	j.running(t, "app=web", 10)
}

// jobs also creates the sets that the next steps use.
func (j *joined) jobs(t *testing.T) {
	j.k.run(t, words("apply -n shop -f testdata/joins/work.yaml")...)
	j.k.says(t, words("wait job/thrice --for=condition=Complete -n shop --timeout=160s"), `condition met`)
	j.shows(t, "3 0-2", "{.status.succeeded} {.status.completedIndexes}", "job", "thrice")
	eventually(t, unhurried, "a job that finished and may go is gone", func(context.Context) error {
		if a := j.k.try(t, "", words("get job passing -n shop -o name")...); !strings.Contains(a.err, "NotFound") {
			return errors.New(a.out + a.err)
		}
		return nil
	})
}

func (j *joined) cronJob(t *testing.T) {
	eventually(t, unhurried, "a job of the minute is done", func(ctx context.Context) error {
		list, err := j.client.BatchV1().Jobs("shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range list.Items {
			if owner := metav1.GetControllerOf(&job); owner != nil && owner.Kind == "CronJob" && owner.Name == "tick" &&
				job.Status.Succeeded == 1 {
				return nil
			}
		}
		return fmt.Errorf("none of %d jobs", len(list.Items))
	})
	j.k.says(t, words("get cronjob tick -n shop -o yaml"), `lastScheduleTime: `)
}

func (j *joined) statefulSet(t *testing.T) {
	j.k.says(t, words("rollout status statefulset/db -n shop --timeout=160s"), `roll`)
	j.running(t, "app=db", 2)
	j.k.says(t, words("get pods -n shop -l app=db -o name"), `^pod/db-0$`, `^pod/db-1$`)
	j.shows(t, "Bound Bound", "{.items[*].status.phase}", "pvc")
	j.k.run(t, words("scale statefulset db -n shop --replicas=1")...)
	j.running(t, "app=db", 1)
	j.k.says(t, words("get pods -n shop -l app=db -o name"), `^pod/db-0$`)
}

func (j *joined) daemonSet(t *testing.T) {
	j.k.says(t, words("rollout status daemonset/agent -n shop --timeout=160s"), `successfully rolled out`)
	nodes := map[string]bool{}
	for _, p := range j.running(t, "app=agent", 4) {
		nodes[p.Spec.NodeName] = true
	}
	if len(nodes) != 4 || !nodes[lone] {
		t.Errorf("the pods are on %v", nodes)
	}
}

func (j *joined) garbageCollection(t *testing.T) {
	for _, name := range []string{"back", "fore", "orphan"} {
		j.k.run(t, "create", "deployment", name, "-n", "shop", "--image=i", "--replicas=2")
		j.running(t, "app="+name, 2)
	}
	j.k.run(t, words("delete deployment back -n shop")...)
	j.gone(t, "replicasets,pods", "app=back")
	j.k.run(t, words("delete deployment fore -n shop --cascade=foreground --timeout=160s")...)
	if out := j.k.run(t, words("get replicasets,pods -l app=fore -n shop -o name")...); out != "" {
		t.Errorf("a foreground deletion left %s", out)
	}
	j.k.run(t, words("delete deployment orphan -n shop --cascade=orphan --timeout=160s")...)
	if owners := j.k.run(
		t, words("get replicasets -l app=orphan -n shop -o jsonpath={.items[*].metadata.ownerReferences}")...,
	); owners != "" {
		t.Errorf("an orphan has owners %s", owners)
	}
	j.k.run(t, words("delete replicasets -l app=orphan -n shop")...)
	j.gone(t, "replicasets,pods", "app=orphan")
}

// widget returns the manifest of a widget; owner is the JSON of its owner reference, or "".
func widget(name, owner string) string {
	if owner != "" {
		owner = `,"ownerReferences":[` + owner + `]`
	}
	return `{"apiVersion":"e2e.example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"e2e":"` +
		name + `"}` + owner + `},"spec":{"a":1}}`
}

// reference returns an owner reference to an object in the namespace shop.
func (j *joined) reference(t *testing.T, apiVersion, kind, resource, name string) string {
	t.Helper()
	ref, err := json.Marshal(metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: name, BlockOwnerDeletion: ptr.To(true),
		UID: types.UID(j.k.jsonpath(t, "{.metadata.uid}", resource, name, "-n", "shop")),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(ref)
}

// customResources checks owner references between custom and built-in kinds.
func (j *joined) customResources(t *testing.T) {
	j.k.run(t, words("create configmap root -n shop")...)
	j.k.runWith(
		t, widget("middle", j.reference(t, "v1", "ConfigMap", "configmap", "root")), "create", "-n", "shop", "-f", "-",
	)
	j.k.runWith(t,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"leaf","labels":{"e2e":"leaf"},"ownerReferences":[`+
			j.reference(t, "e2e.example.com/v1", "Widget", "widget", "middle")+`]}}`, "create", "-n", "shop", "-f", "-")
	j.k.run(t, words("delete configmap root -n shop --cascade=foreground --timeout=160s")...)
	for _, object := range []string{"widget/middle", "secret/leaf"} {
		j.k.fails(t, 1, "NotFound", "get", object, "-n", "shop")
	}
}

// namespaceDeletion checks that with a namespace all objects in it are deleted, including those of a definition that
// was created after the controllers were started.
func (j *joined) namespaceDeletion(t *testing.T) {
	j.k.run(t, words("apply -f testdata/joins/gadgets.yaml")...)
	j.k.run(t, words("wait crd gadgets.e2e.example.com --for=condition=Established --timeout=30s")...)
	j.k.runWith(t, strings.ReplaceAll(widget("g", ""), "Widget", "Gadget"), "create", "-n", "shop", "-f", "-")
	j.k.run(t, words("delete namespace shop --wait=false")...)
	j.k.run(t, words("wait namespace shop --for=delete --timeout=160s")...)
	client, err := metadata.NewForConfig(j.admin.config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := j.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			left, err := client.Resource(gv.WithResource(r.Name)).Namespace("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(left.Items) > 0 {
				t.Errorf("%v: %v; %d are left", gv.WithResource(r.Name), err, len(left.Items))
			}
		}
	}
}
