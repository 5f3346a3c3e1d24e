package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// joined is a cluster in which every component has its own, limited credential.
type joined struct {
	*cluster
	emulated  []string             // arguments about the minor that all emulate
	suite     *testing.T           // the programs end with this test
	k         kubectl              // of the administrator
	client    kubernetes.Interface // of the administrator
	processes map[string]*process  // of the components, by name
	kubelet   *kubelet             // of the node "lone"
	users     map[string]*identity // the users of the components, by name
}

// unhurried is how long the work of several programs may take on a busy machine.
const unhurried = 3 * time.Minute

// TestJoin runs kube-controller-manager with a service account for each controller, kube-scheduler and kwok, none of
// them as an administrator, and lets them do the usual work of a cluster. At the end it checks that their logs have no
// refused requests.
func TestJoin(t *testing.T) {
	began := time.Now()
	j := join(t)
	j.startKubelet(t)
	for _, step := range j.steps() {
		if !t.Run(step.name, step.do) && step.needed {
			break
		}
	}
	t.Run("nobody was refused", j.refusals)
	for name, p := range j.processes {
		t.Logf("peak memory of %s: %s", name, p.peak())
	}
	t.Logf("peak memory of the server: %s; all in %v", j.server.peak(), time.Since(began).Round(time.Second))
}

// join starts a server, kube-controller-manager, kube-scheduler and kwok with three nodes.
// emulated are arguments of all of them about the minor that they emulate.
func join(t *testing.T, emulated ...string) *joined {
	t.Helper()
	j := &joined{
		cluster: newCluster(t, emulated...), emulated: emulated, suite: t, processes: map[string]*process{}, users: map[string]*identity{},
	}
	j.k, j.client = j.kubectl(t, j.admin), j.admin.client()
	j.definitions(t)
	j.controllerManager(t)
	j.scheduler(t)
	j.kwok(t)
	return j
}

// step is one part of the work.
type step struct {
	name   string
	do     func(*testing.T)
	needed bool // by later steps
}

func (j *joined) steps() []step {
	return []step{
		{"start", j.starts, true},
		{"namespace", j.namespaceObjects, true},
		{"deployment", j.deployment, true},
		{"services", j.services, false},
		{"disruption", j.disruption, false},
		{"quota", j.quota, false},
		{"autoscaler", j.autoscaler, false},
		{"jobs", j.jobs, false},
		{"stateful set", j.statefulSet, false},
		{"daemon set", j.daemonSet, false},
		{"garbage collection", j.garbageCollection, false},
		{"custom resources", j.customResources, false},
		{"aggregated roles", j.aggregatedRoles, false},
		{"tokens of secrets", j.secretTokens, false},
		{"certificates", j.certificates, false},
		{"bootstrap token", j.bootstrapToken, false},
		{"what users may", j.reviews, false},
		{"what components may not", j.mayNot, false},
		{"node that is silent", j.silentNode, false},
		{"restart", j.restarted, false},
		{"cron job", j.cronJob, false},
		{"namespace deletion", j.namespaceDeletion, false},
	}
}

// run starts a component with a log file of its own.
func (j *joined) run(t *testing.T, name string, user *identity, path string, args ...string) {
	t.Helper()
	j.users[name] = user
	j.processes[name] = start(t, j.log(name), nil, path, append([]string{"--kubeconfig", user.kubeconfig}, args...)...)
}

func (j *joined) log(name string) string { return filepath.Join(j.dir, name+".log") }

func (j *joined) controllerManager(t *testing.T) {
	t.Helper()
	user := j.user(t, "system:kube-controller-manager")
	j.run(t, "kube-controller-manager", user, program(t, "kube-controller-manager"), append(slices.Clone(j.emulated),
		"--authentication-kubeconfig", user.kubeconfig, "--authorization-kubeconfig", user.kubeconfig,
		"--use-service-account-credentials=true", "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
		"--root-ca-file", j.authority.certFile, "--service-account-private-key-file", j.accountKey,
		"--cluster-signing-cert-file", j.authority.certFile, "--cluster-signing-key-file", j.authority.keyFile,
		"--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", freePort(t)), "--v=2", "--allocate-node-cidrs=false",
		"--namespace-sync-period=10s", "--horizontal-pod-autoscaler-sync-period=2s",
		"--node-monitor-period=1s", "--node-monitor-grace-period=20s")...)
}

func (j *joined) scheduler(t *testing.T) {
	t.Helper()
	user := j.user(t, "system:kube-scheduler")
	j.run(t, "kube-scheduler", user, program(t, "kube-scheduler"), append(slices.Clone(j.emulated),
		"--authentication-kubeconfig", user.kubeconfig, "--authorization-kubeconfig", user.kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", freePort(t)), "--v=2")...)
}

// definitions creates the definitions that exist before the controllers start: those of kwok, and widgets with a role
// for them.
func (j *joined) definitions(t *testing.T) {
	t.Helper()
	j.k.run(t, "apply", "--server-side", "-k", kwokKustomize(t, "crd"))
	j.k.run(t, "apply", "-f", "testdata/joins/widgets.yaml")
	j.k.run(t, words("wait crd --all --for=condition=Established --timeout=30s")...)
}

func kwokKustomize(t *testing.T, path string) string {
	t.Helper()
	return filepath.Join(filepath.Dir(program(t, "kwok")), "kwok-kustomize", path)
}

// lone is the node that has an identity of its own.
const lone = "n1"

// kwok simulates the nodes of the pool, with the service account and the role of its installation.
func (j *joined) kwok(t *testing.T) {
	t.Helper()
	j.k.run(t, "apply", "-n", "kube-system", "-k", kwokKustomize(t, "rbac"))
	for _, stages := range []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"} {
		j.k.run(t, "apply", "-k", kwokKustomize(t, "stage/"+stages))
	}
	account := j.account(t, "kube-system", "kwok-controller")
	j.run(t, "kwok", account, program(t, "kwok"), "--config", kwokKustomize(t, "kwok/kwok.yaml"),
		"--server-address", fmt.Sprint("127.0.0.1:", freePort(t)), "--node-lease-duration-seconds=10", "--v=info")
	j.k.run(t, "apply", "-f", "testdata/joins/nodes.yaml")
}

// startKubelet acts as the kubelet of the node "lone", with a kubelet's certificate. Kwok cannot do so, because it
// lists all nodes when it starts, which a kubelet may not do.
func (j *joined) startKubelet(t *testing.T) {
	t.Helper()
	user := j.user(t, "system:node:"+lone, "system:nodes")
	j.users["kubelet"] = user
	j.kubectl(t, user).run(t, "create", "-f", "testdata/joins/node-lone.yaml")
	j.kubelet = runKubelet(j.suite, user.client(), lone)
}

func (j *joined) starts(t *testing.T) {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		eventually(t, unhurried, name+" leads", func(ctx context.Context) error {
			lease, err := j.client.CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
			if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
				err = errors.New("nobody leads")
			}
			return err
		})
	}
	j.awaitNodes(t, 4)
	// The manager creates a service account for each controller.
	for _, name := range []string{
		"deployment-controller", "generic-garbage-collector", "node-controller", "horizontal-pod-autoscaler",
		"clusterrole-aggregation-controller",
	} {
		eventually(t, unhurried, name+" has its account", func(ctx context.Context) error {
			_, err := j.client.CoreV1().ServiceAccounts("kube-system").Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}
}

// awaitNodes waits until all nodes are ready and have no taints of the controllers.
func (j *joined) awaitNodes(t *testing.T, nodes int) {
	t.Helper()
	eventually(t, unhurried, "nodes are ready", func(ctx context.Context) error {
		list, err := j.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != nodes {
			return fmt.Errorf("%d nodes", len(list.Items))
		}
		for _, n := range list.Items {
			if readiness(&n) != corev1.ConditionTrue {
				return fmt.Errorf("%s is not ready", n.Name)
			}
			if keys := controllerTaints(&n); len(keys) > 0 {
				return fmt.Errorf("%s has taints %v", n.Name, keys)
			}
		}
		return nil
	})
}

func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// controllerTaints are the keys and effects of the taints that show the state of a node.
func controllerTaints(n *corev1.Node) []string {
	var keys []string
	for _, taint := range n.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			keys = append(keys, taint.Key+":"+string(taint.Effect))
		}
	}
	slices.Sort(keys)
	return keys
}

// namespaceObjects checks that each namespace gets its service account and the ConfigMap with the cluster's
// certificate authority.
func (j *joined) namespaceObjects(t *testing.T) {
	j.k.run(t, words("create namespace shop")...)
	j.k.run(t, "create", "cronjob", "tick", "-n", "shop", "--image=job", "--schedule=* * * * *")
	ca, err := os.ReadFile(j.authority.certFile)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, unhurried, "each namespace has its objects", func(ctx context.Context) error {
		list, err := j.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ns := range list.Items {
			roots, err := j.client.CoreV1().ConfigMaps(ns.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && roots.Data["ca.crt"] != string(ca) {
				err = errors.New("it is another authority")
			}
			_, err2 := j.client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
			if err := errors.Join(err, err2); err != nil {
				return fmt.Errorf("%s: %w", ns.Name, err)
			}
		}
		return nil
	})
}

// silentNode checks that a node without heartbeats gets its taints, that its pods are removed, and that the node is
// used again when it is back.
func (j *joined) silentNode(t *testing.T) {
	j.k.run(t, "apply", "-f", "testdata/joins/lone-pod.yaml")
	j.k.run(t, words("wait pod/lone -n shop --for=condition=Ready --timeout=30s")...)
	j.kubelet.stop()
	eventually(t, unhurried, "the node is unreachable", func(ctx context.Context) error {
		n, err := j.client.CoreV1().Nodes().Get(ctx, lone, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := []string{
			corev1.TaintNodeUnreachable + ":" + string(corev1.TaintEffectNoExecute),
			corev1.TaintNodeUnreachable + ":" + string(corev1.TaintEffectNoSchedule),
		}
		if taints := controllerTaints(n); readiness(n) != corev1.ConditionUnknown || !slices.Equal(taints, want) {
			return fmt.Errorf("Ready is %s, taints are %v", readiness(n), taints)
		}
		return nil
	})
	eventually(t, unhurried, "its pod is told to go", func(ctx context.Context) error {
		pod, err := j.client.CoreV1().Pods("shop").Get(ctx, "lone", metav1.GetOptions{})
		if err == nil && pod.DeletionTimestamp == nil {
			err = errors.New("it is not being deleted")
		}
		return err
	})
	j.kubelet = runKubelet(j.suite, j.users["kubelet"].client(), lone)
	eventually(t, unhurried, "its pod is gone when it is back", func(ctx context.Context) error {
		_, err := j.client.CoreV1().Pods("shop").Get(ctx, "lone", metav1.GetOptions{})
		if kerrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	j.awaitNodes(t, 4)
}

// restarted kills the server, and checks that all components continue.
func (j *joined) restarted(t *testing.T) {
	if j.restart == nil {
		t.Skip("this server is not restarted")
	}
	j.faults(t) // before the restart, which resets the counters
	j.restart()
	j.k.run(t, words("scale deployment web -n shop --replicas=12")...)
	j.running(t, "app=web", 12)
}

// refused matches the log lines of a program about a refused request.
var refused = regexp.MustCompile(`(?i)forbidden|unauthorized`)

// counted matches a sample of the server's counter of requests that it answered with an error.
var counted = regexp.MustCompile(`^apiserver_request_total\{.*code="([45]\d\d)".*\} (\d+)`)

// faults checks the server's metrics for requests that it answered 5xx.
func (j *joined) faults(t *testing.T) {
	t.Helper()
	status, body, err := j.admin.call(t.Context(), "GET", "/metrics", "", "")
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %v", status, err)
	}
	for line := range strings.Lines(body) {
		match := counted.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		t.Log(strings.TrimSpace(line))
		// Before it is ready, the server answers health checks with 500, which have no resource.
		if strings.HasPrefix(match[1], "5") && !strings.Contains(line, `resource=""`) {
			t.Errorf("the server failed: %s", line)
		}
	}
}

// refusals checks the logs of the components. Refusals because a namespace is terminating are ignored.
func (j *joined) refusals(t *testing.T) {
	j.faults(t)
	for name, p := range j.processes {
		select {
		case <-p.ended:
			t.Errorf("%s ended: %v", name, p.err)
		default:
		}
		content, err := os.ReadFile(j.log(name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if refused.MatchString(line) && !strings.Contains(line, "FLAG: --") &&
				!strings.Contains(line, "because it is being terminated") {
				t.Errorf("%s: %s", name, strings.TrimSpace(line))
			}
		}
	}
}
