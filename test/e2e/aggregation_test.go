package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// extensionService registers a program on this machine as the server of a version of a group. Nobody resolves the names of
// Services outside of a cluster, so the Service is another name of this machine.
const extensionService = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: %[1]s}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[3]s.%[2]s}
spec:
  group: %[2]s
  version: %[3]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {name: api, namespace: %[1]s, port: %[4]d}
`

// TestSampleAPIServer registers the sample extension API server of Kubernetes, whose objects are in an etcd of its own, and
// uses it with kubectl and client-go. It is killed and started again.
func TestSampleAPIServer(t *testing.T) {
	c := newCluster(t)
	k := c.kubectl(t, c.admin)
	etcd := startEtcd(t, t.TempDir())
	port := freePort(t)
	user := c.user(t, "sample-apiserver", "system:masters")
	run := func() *process {
		t.Helper()
		return start(t, filepath.Join(c.dir, "sample-apiserver.log"), nil, program(t, "sample-apiserver"),
			"--etcd-servers", etcd.url, "--bind-address", "127.0.0.1", fmt.Sprint("--secure-port=", port),
			"--cert-dir", filepath.Join(c.dir, "sample-certs"), "--kubeconfig", user.kubeconfig,
			"--authentication-kubeconfig", user.kubeconfig, "--authorization-kubeconfig", user.kubeconfig)
	}
	server := run()
	k.runWith(t, fmt.Sprintf(extensionService, "wardle", "wardle.example.com", "v1alpha1", port), "apply", "-f", "-")
	const service = "apiservice/v1alpha1.wardle.example.com"
	k.run(t, "wait", "--for=condition=Available", "--timeout=60s", service)
	k.says(t, words("get "+service), `^v1alpha1.wardle.example.com +wardle/api +True +`)

	eventually(t, unhurried, "discovery has the resources", func(context.Context) error {
		if a := k.try(t, "", "api-resources", "--api-group=wardle.example.com"); !strings.Contains(a.out, "Flunder") {
			return fmt.Errorf("%s%s", a.out, a.err)
		}
		return nil
	})
	const flunder = `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":%q,"labels":{"a":%q}}}`
	added := make(chan string, 10)
	watchFlunders(t, c, added)
	for _, name := range []string{"one", "two"} {
		k.runWith(t, fmt.Sprintf(flunder, name, name), "create", "-f", "-")
		select {
		case got := <-added:
			if got != name {
				t.Errorf("the informer has %s, want %s", got, name)
			}
		case <-time.After(unhurried):
			t.Fatalf("the informer does not have %s within %v", name, unhurried)
		}
	}
	k.says(t, words("get flunders"), `^NAME +CREATED AT`, `^one +20`, `^two +20`)
	k.says(t, words("get flunders -l a=two -o name"), `^flunder.wardle.example.com/two`)
	eventually(t, unhurried, "kubectl explains the kind", func(context.Context) error {
		if a := k.try(t, "", "explain", "flunder.spec"); !strings.Contains(a.out, "referenceType") {
			return fmt.Errorf("%s%s", a.out, a.err)
		}
		return nil
	})
	k.runWith(t, fmt.Sprintf(flunder, "two", "three"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	k.says(t, words("get flunder two -o jsonpath={.metadata.labels.a}"), `^three`)
	if a := k.try(t, fmt.Sprintf(flunder, "two", "three"), "create", "-f", "-"); !strings.Contains(a.err, "AlreadyExists") {
		t.Errorf("a second object of the same name: %s", a.err)
	}
	mine := c.user(t, "ann")
	c.kubectl(t, mine).fails(t, 1, `User "ann" cannot list resource "flunders"`, "get", "flunders")

	deletesFlunders(t, c, k, flunder)
	server.kill()
	k.run(t, "wait", "--for=condition=Available=False", "--timeout=60s", service)
	k.says(t, words("get "+service+" -o jsonpath={.status.conditions[0].reason}"), `FailedDiscoveryCheck`)
	status, body, err := c.admin.call(t.Context(), "GET", "/apis/wardle.example.com/v1alpha1/flunders", "", "")
	if err != nil || status != 503 || body != "service unavailable\n" {
		t.Errorf("without the server: %d %q %v", status, body, err)
	}
	k.says(t, words("get configmaps -A -o name"), `configmap/`) // other resources are served
	run()
	k.run(t, "wait", "--for=condition=Available", "--timeout=60s", service)
	eventually(t, unhurried, "kubectl finds the objects again", func(context.Context) error {
		if a := k.try(t, "", "get", "flunders", "-o", "name"); !strings.Contains(a.out, "flunder.wardle.example.com/one") {
			return fmt.Errorf("%s%s", a.out, a.err)
		}
		return nil
	})
	k.run(t, "delete", "flunder", "one")
	k.run(t, "delete", service)
	eventually(t, unhurried, "the group is gone", func(context.Context) error {
		if a := k.try(t, "", "api-resources", "--api-group=wardle.example.com", "-o", "name"); a.out != "" {
			return fmt.Errorf("%s%s", a.out, a.err)
		}
		return nil
	})
}

// deletesFlunders checks that kube-controller-manager deletes objects of the extension API server with their owner and with
// their namespace.
func deletesFlunders(t *testing.T, c *cluster, k kubectl, flunder string) {
	t.Helper()
	start(t, filepath.Join(c.dir, "kube-controller-manager.log"), nil, program(t, "kube-controller-manager"),
		"--kubeconfig", c.user(t, "system:kube-controller-manager").kubeconfig, "--secure-port=0", "--kube-api-qps=500",
		"--kube-api-burst=1000", "--service-account-private-key-file", c.accountKey, "--use-service-account-credentials",
		"--controllers=namespace-controller,garbage-collector-controller", "--leader-elect=false")
	k.run(t, "create", "configmap", "owner")
	uid := k.jsonpath(t, "{.metadata.uid}", "configmap", "owner")
	k.runWith(t, fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"owned",
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, uid), "create", "-f", "-")
	k.run(t, "create", "namespace", "short")
	k.runWith(t, fmt.Sprintf(flunder, "inside", "x"), "create", "-n", "short", "-f", "-")
	k.run(t, "delete", "configmap", "owner")
	k.run(t, "delete", "namespace", "short", "--timeout=90s")
	k.run(t, "wait", "--for=delete", "--timeout=90s", "flunder/owned")
}

// watchFlunders starts an informer that sends the names of new objects to added.
func watchFlunders(t *testing.T, c *cluster, added chan<- string) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.admin.config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	resource := schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}
	informer := factory.ForResource(resource).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		added <- obj.(metav1.Object).GetName()
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
}

// TestMetricsServer runs metrics-server, which reads the usage of a node and its pod from a kubelet that this test plays, and
// shows it with kubectl top.
func TestMetricsServer(t *testing.T) {
	c := newCluster(t)
	k := c.kubectl(t, c.admin)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(serveUsage))
	t.Cleanup(kubelet.Close)
	_, kubeletPort, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k.runWith(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"}}`, "apply", "-f", "-")
	k.run(t, "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"capacity":{"cpu":"4","memory":"8Gi"},
		"allocatable":{"cpu":"4","memory":"8Gi"},"conditions":[{"type":"Ready","status":"True"}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, kubeletPort))
	k.runWith(t, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`, "apply", "-f", "-")
	k.runWith(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"nodeName":"node-1",
		"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`, "apply", "-f", "-")
	k.run(t, "patch", "pod", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running"}}`)

	port := freePort(t)
	user := c.user(t, "metrics-server", "system:masters")
	start(t, filepath.Join(c.dir, "metrics-server.log"), nil, program(t, "metrics-server"),
		"--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", port), "--cert-dir", t.TempDir(),
		"--kubeconfig", user.kubeconfig, "--authentication-kubeconfig", user.kubeconfig,
		"--authorization-kubeconfig", user.kubeconfig, "--kubelet-insecure-tls", "--kubelet-use-node-status-port",
		"--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s",
		"--kubelet-request-timeout=5s")
	k.runWith(t, fmt.Sprintf(extensionService, "metrics", "metrics.k8s.io", "v1beta1", port), "apply", "-f", "-")
	k.run(t, "wait", "--for=condition=Available", "--timeout=60s", "apiservice/v1beta1.metrics.k8s.io")
	eventually(t, unhurried, "kubectl top shows the pod", func(context.Context) error {
		if a := k.try(t, "", "top", "pod", "web"); a.code != 0 {
			return fmt.Errorf("%s%s", a.out, a.err)
		}
		return nil
	})
	// kubectl rounds up, and metrics-server may compute a little more than the rate.
	k.says(t, words("top pod web"), `^NAME +CPU\(cores\) +MEMORY\(bytes\)`, `^web +25[01]m +100Mi`)
	k.says(t, words("top node"), `^node-1 +50[01]m +12% +1024Mi +12%`)
	k.says(t, words("get --raw /apis/metrics.k8s.io/v1beta1/nodes/node-1"), `"usage":{"cpu":"`)
}

// serveUsage is what a kubelet says about a node that uses half a processor and 1 GiB, and a pod that uses a quarter and
// 100 MiB.
func serveUsage(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	seconds := float64(now.UnixMilli()) / 1000
	const labels = `container="c",namespace="default",pod="web"`
	for _, line := range []struct {
		name  string
		value float64
	}{
		{"node_cpu_usage_seconds_total", seconds / 2},
		{"node_memory_working_set_bytes", 1 << 30},
		{"container_cpu_usage_seconds_total{" + labels + "}", seconds / 4},
		{"container_memory_working_set_bytes{" + labels + "}", 100 << 20},
		{"container_start_time_seconds{" + labels + "}", seconds - 3600},
	} {
		_, _ = fmt.Fprintf(w, "%s %f %d\n", line.name, line.value, now.UnixMilli())
	}
}
