package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/transcript"
)

func linkTo(t *testing.T, program, link string) {
	t.Helper()
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
}

// TestHistorySession runs the commands of the section "A session" in docs/history.md, with the plug-in on the PATH of kubectl.
func TestHistorySession(t *testing.T) {
	steps, err := transcript.Read("../../docs/history.md", "A session")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--workload-notices=false")
	bin := t.TempDir()
	for _, name := range []string{"kubectl-history", "kubectl_complete-history"} {
		linkTo(t, program(t, "keelson"), filepath.Join(bin, name))
	}
	environment := []string{
		"HOME=" + s.dir, "KUBECONFIG=" + s.kubeconfig(),
		"PATH=" + bin + ":" + filepath.Dir(program(t, "kubectl")) + ":" + os.Getenv("PATH"),
	}
	values := transcript.Values{}
	for _, step := range steps {
		step = values.In(step)
		output := step.Run(t.Context(), environment...)
		values.Learn(step.Output, output)
		if d := values.In(step).Differs(output); d != "" {
			t.Error(d)
		}
	}
}

// TestHistoryHelm takes back a bad upgrade of a Helm release, and brings a release back with its namespace.
func TestHistoryHelm(t *testing.T) {
	for _, name := range []string{"helm3", "helm4"} {
		t.Run(name, func(t *testing.T) { testHistoryHelm(t, program(t, name)) })
	}
}

func testHistoryHelm(t *testing.T, path string) {
	s := serve(t)
	k := newKubectl(s, program(t, "kubectl"))
	history := historyPlugin(t, k)
	const chart = "testdata/chart"
	helm := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, path, append(args, "--namespace", "shop")...)
		c.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig(), "HOME="+s.dir, "HELM_CACHE_HOME="+filepath.Join(s.dir, "helm"),
			"HELM_CONFIG_HOME="+filepath.Join(s.dir, "helm"), "HELM_DATA_HOME="+filepath.Join(s.dir, "helm"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	upgrade := func(values string) {
		t.Helper()
		helm("upgrade", "web", chart, "--set", "hook=false,"+values)
	}
	// expect compares the image and the replicas of the Deployment, the ConfigMap and the host of the Ingress.
	expect := func(when, want string) {
		t.Helper()
		got := k.jsonpath(t, "{..image} {.spec.replicas}", "deployment", "web", "-n", "shop") + " " +
			k.jsonpath(t, "{.data}", "configmap", "web", "-n", "shop") + " " + k.jsonpath(t, "{..host}", "ingress", "web", "-n", "shop")
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	const good = `nginx:1.27 2 {"colour":"blue","size":"big"} blue.example.com`
	const bad = `nginx:missing 3 {"colour":"red"} red.example.com`

	helm("install", "web", chart, "--create-namespace", "--set", "hook=false,size=big")
	expect("after the installation", good)
	time.Sleep(10 * time.Millisecond) // times have milliseconds
	then := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	time.Sleep(10 * time.Millisecond)
	upgrade("image=nginx:missing,replicas=3,colour=red")
	expect("after the upgrade", bad)

	revert := []string{"revert", "deployments,configmaps,ingresses", "-n", "shop", "-l", "app.kubernetes.io/managed-by=Helm", "--as-of", then}
	for _, text := range []string{"-      - image: nginx:missing", "+  size: big", "3 would be reverted, 0 skipped, 0 refused."} {
		if a := history.try(t, "", revert...); a.code != 0 || !strings.Contains(a.out+a.err, strings.TrimLeft(text, "-+ ")) {
			t.Errorf("without --yes: exit %d, %q is missing in\n%s%s", a.code, text, a.out, a.err)
		}
	}
	expect("after it was only shown", bad)
	history.run(t, append(revert, "--yes")...)
	expect("after the revert", good)

	// Helm does not know of it: for Helm the upgrade is still installed.
	if out := helm("history", "web"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "deployed") {
		t.Errorf("helm history said\n%s", out)
	}
	if out := helm("get", "manifest", "web"); !strings.Contains(out, "nginx:missing") {
		t.Errorf("helm get manifest said\n%s", out)
	}
	upgrade("image=nginx:1.28,replicas=4,colour=green,size=small")
	expect("after the next upgrade", `nginx:1.28 4 {"colour":"green","size":"small"} green.example.com`)
	helm("rollback", "web", "1")
	expect("after a rollback", good)

	// With its namespace the release comes back too, because Helm keeps it in Secrets there.
	k.run(t, words("delete namespace shop")...)
	if a := history.try(t, "", words("undelete namespace shop --yes")...); a.code != 0 {
		t.Fatalf("undelete: exit %d\n%s%s", a.code, a.out, a.err)
	}
	expect("after the namespace came back", good)
	if out := helm("history", "web"); strings.Count(out, "\n") != 5 {
		t.Errorf("helm history said\n%s", out)
	}
	upgrade("image=nginx:1.29") // the key that is not in its values any more goes away
	expect("after an upgrade", `nginx:1.29 2 {"colour":"blue"} blue.example.com`)
	helm("uninstall", "web", "--wait", "--timeout", "30s")
	if out := k.run(t, words("get deployments,services,ingresses,secrets -n shop -o name")...); out != "" {
		t.Errorf("after the uninstallation these are left: %s", out)
	}
}
