package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// TestHelm installs, upgrades, rolls back and uninstalls a chart with Helm 3 (which makes patches itself) and Helm 4
// (which uses server-side apply).
func TestHelm(t *testing.T) {
	for _, name := range []string{"helm3", "helm4"} {
		t.Run(name, func(t *testing.T) { testHelm(t, program(t, name)) })
	}
}

func testHelm(t *testing.T, path string) {
	s := serve(t)
	k := newKubectl(s, program(t, "kubectl"))
	client := kubernetes.NewForConfigOrDie(s.config(t))
	hooks := runJobs(t, client)
	helm := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, path, args...)
		c.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig(), "HOME="+s.dir,
			"HELM_CACHE_HOME="+filepath.Join(s.dir, "helm"),
			"HELM_CONFIG_HOME="+filepath.Join(s.dir, "helm"), "HELM_DATA_HOME="+filepath.Join(s.dir, "helm"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if got := k.run(t, append([]string{"get", "-n", "shop"}, args...)...); strings.TrimSpace(got) != want {
			t.Errorf("kubectl get %s: %q, want %q", strings.Join(args, " "), got, want)
		}
	}
	const chart = "testdata/chart"
	const everything = "configmap,deployment,ingress,secret,service,serviceaccount,cronjob,job"

	out := helm("install", "web", chart, "--namespace", "shop", "--create-namespace", "--timeout", "30s")
	if !strings.Contains(out, "STATUS: deployed") {
		t.Errorf("helm install said\n%s", out)
	}
	expect("nginx:1.27", "deployment", "web", "-o", "jsonpath={..image}")
	expect("Ymx1ZS1zZWNyZXQ=", "secret", "web", "-o", "jsonpath={.data.password}")
	expect("http", "ingress", "web", "-o", "jsonpath={..port.name}")
	expect("Helm", "deployment", "web", "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}`)
	expect("", "jobs", "-o", "name") // the hook ran and was deleted
	if got := hooks(); got != 1 {
		t.Errorf("%d jobs ran for the hook of an installation", got)
	}

	// Fields that other managers have set are kept by upgrades that do not change them.
	k.run(t, "annotate", "-n", "shop", "deployment", "web", "example.com/owner=someone")
	helm(
		"upgrade", "web", chart, "--namespace", "shop", "--set", "image=nginx:1.28,replicas=3,colour=red,size=big,extra=true",
		"--timeout", "30s",
	)
	expect(
		"nginx:1.28 3 someone", "deployment", "web", "-o",
		`jsonpath={..image} {.spec.replicas} {.metadata.annotations.example\.com/owner}`,
	)
	expect(`{"colour":"red","size":"big"}`, "configmap", "web", "-o", "jsonpath={.data}")
	expect("red.example.com", "ingress", "web", "-o", "jsonpath={..host}")
	expect("cronjob.batch/web-extra", "cronjobs", "-o", "name")

	if out := helm("list", "--namespace", "shop"); !strings.Contains(out, "deployed") ||
		!strings.Contains(out, "shop-0.1.0") {
		t.Errorf("helm list said\n%s", out)
	}
	if out := helm("history", "web", "--namespace", "shop"); strings.Count(out, "\n") != 3 {
		t.Errorf("helm history said\n%s", out)
	}
	if out := helm("get", "manifest", "web", "--namespace", "shop"); !strings.Contains(out, "nginx:1.28") {
		t.Errorf("helm get manifest said\n%s", out)
	}

	helm("rollback", "web", "1", "--namespace", "shop", "--timeout", "30s")
	expect("nginx:1.27 2", "deployment", "web", "-o", "jsonpath={..image} {.spec.replicas}")
	expect(`{"colour":"blue"}`, "configmap", "web", "-o", "jsonpath={.data}")
	expect("", "cronjobs", "-o", "name")
	if out := helm("status", "web", "--namespace", "shop"); !strings.Contains(out, "REVISION: 3") {
		t.Errorf("helm status said\n%s", out)
	}

	helm("upgrade", "--install", "web", chart, "--namespace", "shop", "--reuse-values", "--set", "replicas=4,hook=false")
	expect("4", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	helm("template", "web", chart, "--namespace", "shop", "--validate")

	helm("uninstall", "web", "--namespace", "shop", "--wait", "--timeout", "30s")
	expect("configmap/kube-root-ca.crt\nserviceaccount/default", everything, "-o", "name") // exist in every namespace
	if out := helm("list", "--namespace", "shop"); strings.Contains(out, "web") {
		t.Errorf("after the uninstallation helm list said\n%s", out)
	}
}

// runJobs lets every job succeed, in the place of controllers and nodes. The returned function returns how many there
// were.
func runJobs(t *testing.T, client kubernetes.Interface) func() int {
	t.Helper()
	w, err := client.BatchV1().Jobs("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := make(chan int, 1)
	count <- 0
	done := make(chan struct{})
	t.Cleanup(func() { w.Stop(); <-done })
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok || event.Type != "ADDED" {
				continue
			}
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				now := metav1.Now()
				job.Status = batchv1.JobStatus{Succeeded: 1, StartTime: &now, CompletionTime: &now,
					Conditions: []batchv1.JobCondition{
						{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
						{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
					}}
				_, err := client.BatchV1().Jobs(job.Namespace).UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
				return err
			})
			if err != nil {
				t.Errorf("completing job %s: %v", job.Name, err)
			}
			count <- 1 + <-count
		}
	}()
	return func() int { n := <-count; count <- n; return n }
}
