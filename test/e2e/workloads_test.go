package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkloads shows what docs/workloads.md says: without controllers kubectl prints a warning and describes an Event,
// and with examples/cluster the pods of a Deployment run.
func TestWorkloads(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		k := newKubectl(serve(t), program(t, "kubectl"))
		const notice = "this server only stores the Deployment: it has no Lease of kube-controller-manager and of kube-scheduler"
		a := k.try(t, "", "create", "deployment", "web", "--image=nginx")
		if a.code != 0 || !strings.HasPrefix(a.err, "Warning: "+notice) {
			t.Errorf("kubectl create: exit %d\n%s%s", a.code, a.out, a.err)
		}
		k.says(t, []string{"describe", "deployment", "web"}, "NothingRunsThis .*"+notice)
	})
	t.Run("cluster", func(t *testing.T) {
		dir := logDir(t)
		command := filepath.Join(dir, "cluster")
		build := exec.Command("go", "build", "-o", command, "./examples/cluster")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data := filepath.Join(dir, "data")
		p := start(t, filepath.Join(dir, "cluster.log"), func(out io.Reader) error {
			line, err := bufio.NewReader(out).ReadString('\n')
			if err == nil && !strings.HasPrefix(line, "A cluster with three nodes") {
				err = fmt.Errorf("it says %q", line)
			}
			return err
		}, command, "-programs", filepath.Dir(program(t, "kwok")), "-data-dir", data, "-port", fmt.Sprint(freePort(t)))
		k := kubectl{path: program(t, "kubectl"), kubeconfig: filepath.Join(data, "kubeconfig"), home: dir}
		k.run(t, "create", "deployment", "web", "--image=nginx", "--replicas=3")
		k.run(t, "rollout", "status", "deployment", "web", "--timeout=2m")
		k.run(t, "create", "job", "pi", "--image=perl")
		k.run(t, "wait", "--for=condition=Complete", "job/pi", "--timeout=2m")
		k.run(t, "delete", "deployment", "web")
		eventually(t, unhurried, "the pods are gone", func(context.Context) error {
			if out := k.run(t, "get", "pods", "--selector=app=web", "--output=name"); out != "" {
				return fmt.Errorf("there are %s", out)
			}
			return nil
		})
		p.stop(t)
	})
}
