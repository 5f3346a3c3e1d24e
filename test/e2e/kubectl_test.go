package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/test/transcript"
)

// kubectl runs a kubectl program against a server.
type kubectl struct {
	path       string
	kubeconfig string
	home       string // a home directory of its own, so that no cached discovery of another server is used
}

func newKubectl(s *server, path string) kubectl {
	return kubectl{path: path, kubeconfig: s.kubeconfig(), home: s.dir}
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, k.path, args...)
	c.Env = append(
		os.Environ(), "KUBECONFIG="+k.kubeconfig, "HOME="+k.home, "TMPDIR="+k.home,
		"KUBECACHEDIR="+filepath.Join(k.home, "kubecache"),
	)
	return c
}

// answer is the output of kubectl.
type answer struct {
	out, err string
	code     int
}

func (k kubectl) try(t *testing.T, in string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := k.command(ctx, args...)
	var out, errOut bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(in), &out, &errOut
	_ = c.Run()
	return answer{out.String(), errOut.String(), c.ProcessState.ExitCode()}
}

// run fails the test unless kubectl succeeds, and returns its standard output.
func (k kubectl) run(t *testing.T, args ...string) string {
	t.Helper()
	return k.runWith(t, "", args...)
}

func (k kubectl) runWith(t *testing.T, in string, args ...string) string {
	t.Helper()
	a := k.try(t, in, args...)
	if a.code != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s%s", strings.Join(args, " "), a.code, a.out, a.err)
	}
	return a.out
}

// says fails the test unless kubectl succeeds and prints a match of each regular expression.
func (k kubectl) says(t *testing.T, args []string, patterns ...string) {
	t.Helper()
	out := k.run(t, args...)
	for _, pattern := range patterns {
		if !regexp.MustCompile(`(?m)` + pattern).MatchString(out) {
			t.Errorf("kubectl %s: nothing matches %q in\n%s", strings.Join(args, " "), pattern, out)
		}
	}
}

// fails fails the test unless kubectl exits with the code and prints the error message.
func (k kubectl) fails(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	a := k.try(t, "", args...)
	if a.code != code || !strings.Contains(a.err, words) {
		t.Errorf("kubectl %s: exit %d, want %d; want %q in\n%s%s", strings.Join(args, " "), a.code, code, words, a.out, a.err)
	}
}

func (k kubectl) jsonpath(t *testing.T, path string, args ...string) string {
	t.Helper()
	return k.run(t, append([]string{"get", "-o", "jsonpath=" + path}, args...)...)
}

func words(s string) []string { return strings.Fields(s) }

// TestKubectl carries out the usual operations with kubectl: with the version of the API, with the minor before if it is
// built, and with an older version if it is installed.
func TestKubectl(t *testing.T) {
	paths := []string{program(t, "kubectl")}
	if previous := filepath.Join(programs, "previous", "kubectl"); exists(previous) {
		paths = append(paths, previous)
	}
	if other, err := exec.LookPath("kubectl"); err == nil && other != paths[0] {
		paths = append(paths, other)
	}
	for _, path := range paths {
		t.Run(kubectlVersion(t, path), func(t *testing.T) { testKubectl(t, path) })
	}
}

func kubectlVersion(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command(path, "version", "--client", "-o", "json").Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var v struct{ ClientVersion struct{ GitVersion string } }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return v.ClientVersion.GitVersion
}

func testKubectl(t *testing.T, path string) {
	s := serve(t)
	k := newKubectl(s, path)
	manifest := func(name string) string { return filepath.Join("testdata", "kubectl", name) }
	web := manifest("web.yaml")
	step := func(name string, f func(*testing.T)) { t.Helper(); t.Run(name, f) }

	step("version", func(t *testing.T) { k.says(t, words("version"), `^Server Version: v1\.37\.`) })
	step("cluster-info", func(t *testing.T) { k.says(t, words("cluster-info"), `is running at`) })
	step(
		"api-versions",
		func(t *testing.T) { k.says(t, words("api-versions"), `^apps/v1$`, `^v1$`, `^networking.k8s.io/v1$`) },
	)
	step("api-resources", func(t *testing.T) {
		k.says(t, words("api-resources"), `^deployments +deploy +apps/v1 +true +Deployment$`, `^nodes +no +v1 +false +Node$`)
		k.says(t, words("api-resources --verbs=list --namespaced=true -o name"), `^pods$`, `^deployments.apps$`)
		k.says(
			t, words("api-resources --api-group=batch -o wide"), `^cronjobs +cj +batch/v1 +true +CronJob +\S*create\S* +all$`,
		)
	})
	step("explain", func(t *testing.T) {
		k.says(t, words("explain pods"), `^KIND: +Pod`, `^VERSION: +v1`, `^ +spec\t<PodSpec>`)
		k.says(
			t, words("explain pods.spec.containers"), `^FIELD: containers <\[\]Container>`, `imagePullPolicy`, `IfNotPresent`,
			`-required-`,
		)
		k.says(t, words("explain deployment --recursive"), `progressDeadlineSeconds\t<integer>`, `maxSurge\t<IntOrString>`)
		k.says(t, words("explain --api-version=autoscaling/v2 hpa.spec"), `maxReplicas`)
		k.says(t, words("explain deployment -o plaintext-openapiv2"), `^KIND: +Deployment`)
		k.fails(t, 1, `field "nonsense" does not exist`, "explain", "pods.nonsense")
	})
	step("create", func(t *testing.T) { testKubectlCreate(t, k) })
	step("run and expose", func(t *testing.T) {
		k.says(
			t, words("run shell --image=busybox --labels=app=shell --env=A=b --port=80 -- sleep 1d"), `^pod/shell created$`,
		)
		k.says(t, words("expose pod shell --port=8080 --target-port=80"), `^service/shell exposed$`)
		k.says(t, words("get service shell -o wide"), `^shell +ClusterIP +\S+ +<none> +8080/TCP +\S+ +app=shell$`)
		k.says(t, words("get pod shell -o wide"), `^shell +0/1 +Pending +0 +\S+ +<none> +<none> +<none> +<none>$`)
		k.says(t, words("set image pod/shell shell=busybox:2"), `pod/shell image updated`)
		k.says(t, words("delete pod/shell service/shell --now"), `pod "shell"`, `service "shell"`)
	})
	step("apply", func(t *testing.T) {
		k.says(
			t, words("apply -f "+web), `^configmap/web-config created$`, `^deployment.apps/web created$`,
			`^service/web created$`,
		)
		k.says(
			t, words("apply -f "+web), `^configmap/web-config unchanged$`, `^deployment.apps/web unchanged$`,
			`^service/web unchanged$`,
		)
		changed := change(t, web, "nginx:1.27", "nginx:1.28", "colour: blue", "color: red")
		if a := k.try(t, "", "diff", "-f", changed); a.code != 1 || !strings.Contains(a.out, "+        image: nginx:1.28") ||
			!strings.Contains(a.out, "-  colour: blue") {
			t.Errorf("diff: exit %d\n%s%s", a.code, a.out, a.err)
		}
		k.says(t, words("apply --dry-run=server -f "+changed), `^deployment.apps/web configured \(server dry run\)$`)
		if got := k.jsonpath(t, "{..image}", "deployment/web"); got != "nginx:1.27" {
			t.Errorf("a dry run changed the image to %s", got)
		}
		k.says(
			t, words("apply -f "+changed), `^configmap/web-config configured$`, `^deployment.apps/web configured$`,
			`^service/web unchanged$`,
		)
		if got := k.jsonpath(t, "{.data}", "configmap/web-config"); got != `{"color":"red"}` {
			t.Errorf("data %s: what the manifest no longer has is still there", got)
		}
		k.run(t, "diff", "-f", changed) // exit code 0: there is no difference
		k.says(t, words("apply view-last-applied configmap/web-config"), `color: red`)
		k.says(t, words("apply -f "+web+" --prune -l app=web --dry-run=server"), `deployment.apps/web`)
		k.run(t, "apply", "-f", web)
	})
	step("apply server-side", func(t *testing.T) {
		k.run(t, "create", "namespace", "ssa")
		apply := words("apply -n ssa --server-side -f " + web)
		k.says(t, apply, `^deployment.apps/web serverside-applied$`)
		k.says(t, apply, `^deployment.apps/web serverside-applied$`)
		k.run(t, "scale", "-n", "ssa", "deployment/web", "--replicas=5")
		k.fails(
			t, 1, `conflict with "kubectl"`,
			append(
				words("apply -n ssa --server-side --field-manager=other -f"), change(t, web, "replicas: 2", "replicas: 7"),
			)...,
		)
		k.says(t, append(apply, "--force-conflicts"), `^deployment.apps/web serverside-applied$`)
		if got := k.jsonpath(t, "{.spec.replicas}", "-n", "ssa", "deployment/web"); got != "2" {
			t.Errorf("%s replicas", got)
		}
		k.says(
			t, words("get deployment web -n ssa -o yaml --show-managed-fields"), `manager: kubectl$`, `operation: Apply`,
			`f:replicas: {}`,
		)
		k.says(t, append(apply, "--dry-run=server"), `serverside-applied \(server dry run\)`)
		k.run(t, words("diff -n ssa --server-side -f "+web)...)
		// From client-side to server-side and back.
		k.says(t, words("apply --server-side -f "+web), `^deployment.apps/web serverside-applied$`)
		k.says(t, words("apply -f "+web), `^deployment.apps/web (unchanged|configured)$`)
	})
	step("get", func(t *testing.T) {
		k.says(
			t, words("get deployment web -o wide"), `^NAME +READY +UP-TO-DATE +AVAILABLE +AGE +CONTAINERS +IMAGES +SELECTOR$`,
			`^web +0/2 +0 +0 +\S+ +nginx +nginx:1.27 +app=web$`,
		)
		k.says(
			t, words("get deployment web -o yaml"), `^apiVersion: apps/v1$`, `^kind: Deployment$`, `^    type: RollingUpdate$`,
		)
		k.says(t, words("get deployments -o yaml"), `^kind: List$`, `^- apiVersion: apps/v1$`)
		var object struct{ Kind string }
		if err := json.Unmarshal([]byte(k.run(t, "get", "deployment", "web", "-o", "json")), &object); err != nil ||
			object.Kind != "Deployment" {
			t.Errorf("-o json: %v %q", err, object.Kind)
		}
		k.says(
			t, words("get deployment,service,configmap -o name"), `^deployment.apps/web$`, `^service/web$`,
			`^configmap/web-config$`,
		)
		k.says(t, words("get all"), `^deployment.apps/web`, `^service/web`)
		k.says(t, words("get deployments -A --show-labels"), `^NAMESPACE +NAME`, `^ssa +web .* app=web$`)
		k.says(t, words("get deploy -l app=web,app!=other -o custom-columns=N:.metadata.name,R:.spec.replicas"), `^web +2$`)
		k.says(t, words("get ns --field-selector=metadata.name=default --no-headers"), `^default +Active +\S+$`)
		k.says(t, words("get events"), ``)
		k.says(t, words("get --raw /readyz"), `^ok$`)
		k.says(t, words("get cm --sort-by=.metadata.creationTimestamp -o name"), `web-config`)
		k.says(t, words("get cm --chunk-size=1 -A -o name"), `web-config`)
		k.fails(t, 1, `Error from server (NotFound): deployments.apps "none" not found`, "get", "deployment", "none")
		k.fails(t, 1, `the server doesn't have a resource type "nonsense"`, "get", "nonsense")
		k.says(t, words("get deployment web --subresource=status -o name"), `^deployment.apps/web$`)
		k.says(t, words("get deployment web --subresource=scale"), `^NAME +DESIRED +AVAILABLE`, `^web +2 +0`)
	})
	step("get -w", func(t *testing.T) { testKubectlWatch(t, k) })
	step("describe", func(t *testing.T) {
		k.says(
			t, words("describe deployment web"), `^Name: +web$`, `^Replicas: +2 desired`, `^StrategyType: +RollingUpdate`,
			`Image: +nginx:1.27`,
		)
		k.says(t, words("describe service web"), `^Selector: +app=web$`)
		k.says(t, words("describe configmaps"), `^Name: +web-config$`, `^blue$`)
		k.says(t, words("describe namespace default"), `^Status: +Active$`)
	})
	step("edit", func(t *testing.T) {
		sed := func(script string) kubectl {
			e := k
			e.path = filepath.Join(t.TempDir(), "kubectl")
			content := fmt.Sprintf("#!/bin/sh\nKUBE_EDITOR=\"sed -i -e '%s'\" exec %q \"$@\"\n", script, k.path)
			if err := os.WriteFile(e.path, []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
			return e
		}
		sed("s/colour: blue/colour: green/").says(t, words("edit configmap web-config"), `^configmap/web-config edited$`)
		if got := k.jsonpath(t, "{.data.colour}", "configmap/web-config"); got != "green" {
			t.Errorf("colour %q", got)
		}
		a := sed("s/colour: green/colour: green/").try(t, "", "edit", "configmap", "web-config")
		if a.code != 0 || !strings.Contains(a.out+a.err, "Edit cancelled, no changes made") {
			t.Errorf("edit without a change: exit %d\n%s%s", a.code, a.out, a.err)
		}
		sed("s/replicas: 2/replicas: 4/").says(t, words("edit deployment web"), `^deployment.apps/web edited$`)
		sed("s/^status: {}/status: {observedGeneration: 3}/").says(
			t, words("edit deployment web --subresource=status"), `^deployment.apps/web edited$`,
		)
	})
	step("patch", func(t *testing.T) {
		k.says(
			t,
			[]string{
				"patch", "deployment", "web", "-p",
				`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`,
			},
			`^deployment.apps/web patched$`,
		)
		if got := k.jsonpath(t, "{.spec.template.spec.containers[*].name}", "deployment/web"); !sameWords(got, "side nginx") {
			t.Errorf("a strategic patch left containers %q", got)
		}
		k.says(
			t, []string{"patch", "cm", "web-config", "--type=merge", "-p", `{"data":{"colour":null,"size":"big"}}`},
			`^configmap/web-config patched$`,
		)
		if got := k.jsonpath(t, "{.data}", "cm/web-config"); got != `{"size":"big"}` {
			t.Errorf("a merge patch left %s", got)
		}
		k.says(
			t,
			[]string{
				"patch", "cm", "web-config", "--type=json", "-p",
				`[{"op":"test","path":"/data/size","value":"big"},{"op":"replace","path":"/data/size","value":"small"}]`,
			},
			`^configmap/web-config patched$`,
		)
		k.says(
			t, []string{"patch", "cm", "web-config", "--type=merge", "-p", `{"data":{"size":"small"}}`},
			`^configmap/web-config patched \(no change\)$`,
		)
		k.fails(
			t, 1, "The request is invalid: the server rejected our request due to an error in our request", "patch", "cm",
			"web-config", "--type=json", "-p", `[{"op":"test","path":"/data/size","value":"huge"}]`,
		)
		k.says(
			t, []string{"patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":3}}`},
			`scale.autoscaling/web patched`,
		)
	})
	step("label, annotate, set", func(t *testing.T) {
		k.says(t, words("label deployment web tier=front"), `^deployment.apps/web labeled$`)
		k.fails(t, 1, "'tier' already has a value", words("label deployment web tier=back")...)
		k.says(t, words("label deployment web tier=back --overwrite"), `^deployment.apps/web labeled$`)
		k.says(t, words("label deployment web tier-"), `^deployment.apps/web unlabeled$`)
		k.says(t, words("label deployments --all x=y"), `^deployment.apps/web labeled$`)
		k.fails(
			t, 1, "is invalid: metadata.labels: Invalid value", "patch", "deployment", "web", "-p",
			`{"metadata":{"labels":{"x":"not/valid"}}}`,
		)
		k.says(t, words("annotate deployment web note=yes"), `^deployment.apps/web annotated$`)
		k.says(t, words("annotate deployment web note-"), `^deployment.apps/web annotated$`)
		k.says(t, words("set env deployment/web A=b"), `^deployment.apps/web env updated$`)
		k.says(t, words("set resources deployment/web --limits=cpu=1"), `^deployment.apps/web resource requirements updated$`)
		k.says(t, words("set serviceaccount deployment/web default"), `^deployment.apps/web serviceaccount updated$`)
		k.says(t, words("set selector service/web app=web,x=y"), `^service/web selector updated$`)
	})
	step("scale and autoscale", func(t *testing.T) {
		k.says(t, words("scale deployment web --replicas=6"), `^deployment.apps/web scaled$`)
		k.says(t, words("scale deployment web --current-replicas=6 --replicas=2"), `^deployment.apps/web scaled$`)
		k.fails(t, 1, "Expected replicas to be 6", words("scale deployment web --current-replicas=6 --replicas=1")...)
		k.says(t, words("autoscale deployment web --max=4 --cpu-percent=80"), `autoscaled$`)
		k.says(t, words("get hpa web"), `^web +Deployment/web +\S*cpu: <unknown>/80%\S* +1 +4 +0 +`)
	})
	step("rollout", func(t *testing.T) {
		k.says(t, words("rollout restart deployment/web"), `^deployment.apps/web restarted$`)
		k.says(t, words("rollout pause deployment/web"), `^deployment.apps/web paused$`)
		k.says(t, words("rollout resume deployment/web"), `^deployment.apps/web resumed$`)
		uid := k.jsonpath(t, "{.metadata.uid}", "deployment/web")
		k.run(t, "apply", "-f", change(t, manifest("history.yaml"), "$UID", uid))
		k.says(t, words("rollout history deployment/web"), `^REVISION +CHANGE-CAUSE$`, `^1 +first$`)
		k.says(t, words("rollout history deployment/web --revision=1"), `Image:\tnginx:1.27`)
		k.says(t, words("rollout status deployment/web --watch=false"), `Waiting for deployment`)
		k.run(
			t, "patch", "deployment", "web", "--subresource=status", "-p",
			`{"status":{"observedGeneration":100,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}`,
		)
		k.says(t, words("rollout status deployment/web --timeout=10s"), `successfully rolled out`)
	})
	step("wait", func(t *testing.T) {
		k.fails(t, 1, "timed out waiting", words("wait deployment/web --for=condition=Available --timeout=1s")...)
		done := make(chan answer, 1)
		go func() {
			done <- k.try(t, "", words("wait deployment/web --for=condition=Available --timeout=30s")...)
		}()
		time.Sleep(300 * time.Millisecond)
		k.run(
			t, "patch", "deployment", "web", "--subresource=status", "-p",
			`{"status":{"conditions":[{"type":"Available","status":"True"}]}}`,
		)
		if a := <-done; a.code != 0 || !strings.Contains(a.out, "deployment.apps/web condition met") {
			t.Errorf("wait: exit %d\n%s%s", a.code, a.out, a.err)
		}
		k.says(t, words("wait deployment/web --for=jsonpath={.spec.replicas}=2 --timeout=5s"), `condition met`)
		k.run(t, "create", "cm", "waited")
		go func() { done <- k.try(t, "", words("wait cm/waited --for=delete --timeout=30s")...) }()
		time.Sleep(300 * time.Millisecond)
		k.run(t, "delete", "cm", "waited")
		if a := <-done; a.code != 0 {
			t.Errorf("wait --for=delete: exit %d\n%s%s", a.code, a.out, a.err)
		}
	})
	step("replace", func(t *testing.T) {
		k.says(t, words("replace -f "+web), `^deployment.apps/web replaced$`)
		k.says(t, words("replace --force -f "+web), `^deployment.apps/web replaced$`)
	})
	step("nodes", func(t *testing.T) {
		node := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"node-role.kubernetes.io/worker":""}}}`
		k.runWith(t, node, "create", "-f", "-")
		k.says(t, words("cordon n1"), `^node/n1 cordoned$`)
		k.says(t, words("get nodes"), `^n1 +Unknown,SchedulingDisabled +worker`)
		k.says(t, words("uncordon n1"), `^node/n1 uncordoned$`)
		k.says(t, words("taint node n1 a=b:NoSchedule"), `^node/n1 tainted$`)
		k.says(t, words("taint node n1 a=b:NoSchedule-"), `^node/n1 untainted$`)
		k.says(t, words("describe node n1"), `^Name: +n1$`)
		k.runWith(
			t,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"on-n1"},"spec":{"nodeName":"n1","containers":[{"name":"c",`+
				`"image":"i"}]}}`,
			"create", "-f", "-",
		)
		k.says(t, words("drain n1 --force --grace-period=0 --timeout=20s"), `^node/n1 drained$`)
		k.run(t, "delete", "node", "n1")
	})
	step("validation", func(t *testing.T) {
		bad := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"dato":{"a":"b"}}`
		a := k.try(t, bad, "create", "-f", "-")
		if a.code != 1 || !strings.Contains(a.err, `strict decoding error: unknown field "dato"`) {
			t.Errorf("unknown field: exit %d\n%s%s", a.code, a.out, a.err)
		}
		a = k.try(t, bad, "create", "--validate=warn", "-f", "-")
		if a.code != 0 || !strings.Contains(a.err, `Warning: unknown field "dato"`) {
			t.Errorf("unknown field, warned of: exit %d\n%s%s", a.code, a.out, a.err)
		}
		k.fails(t, 1, `is invalid: metadata.name: Invalid value: "Bad_Name"`, "create", "configmap", "Bad_Name")
	})
	step("delete", func(t *testing.T) {
		k.says(
			t, words("delete -f "+web+" --cascade=foreground --wait=false"), `deployment.apps "web" deleted`,
			`service "web" deleted`,
		)
		k.says(t, words("delete cm bad --dry-run=server"), `\(server dry run\)`)
		k.says(t, words("delete configmaps --all"), `configmap "bad" deleted`)
		k.says(t, words("delete cm none --ignore-not-found"), `^$`)
		k.fails(t, 1, "NotFound", "delete", "cm", "none")
	})
	step("who", func(t *testing.T) {
		// These are not served yet; the error must say so.
		for _, args := range [][]string{words("auth whoami"), words("auth can-i create pods")} {
			a := k.try(t, "", args...)
			t.Logf("kubectl %s: exit %d: %s%s", strings.Join(args, " "), a.code, a.out, a.err)
			if strings.Contains(a.err, "panic") || a.code < 0 {
				t.Errorf("kubectl %s: %s", strings.Join(args, " "), a.err)
			}
		}
	})
}

// testKubectlCreate uses every generator of kubectl create.
func testKubectlCreate(t *testing.T, k kubectl) {
	for _, c := range []struct{ args, says string }{
		{"namespace team", "namespace/team created"},
		{"configmap cm --from-literal=a=b --from-file=testdata/kubectl/web.yaml", "configmap/cm created"},
		{"secret generic s --from-literal=a=b", "secret/s created"},
		{"secret docker-registry reg --docker-server=x --docker-username=u --docker-password=p", "secret/reg created"},
		{"deployment d --image=nginx --replicas=3 --port=80", "deployment.apps/d created"},
		{"job j --image=busybox -- true", "job.batch/j created"},
		{"cronjob cj --image=busybox --schedule=*/5 -- true", ""},
		{"service clusterip ci --tcp=80:8080", "service/ci created"},
		{"service nodeport np --tcp=80:8080 --node-port=30080", "service/np created"},
		{"service loadbalancer lb --tcp=80", "service/lb created"},
		{"service externalname en --external-name=example.com", "service/en created"},
		{"serviceaccount sa", "serviceaccount/sa created"},
		{"role r --verb=get,list --resource=pods,deployments.apps", "role.rbac.authorization.k8s.io/r created"},
		{"rolebinding rb --role=r --serviceaccount=default:sa", "rolebinding.rbac.authorization.k8s.io/rb created"},
		{"clusterrole cr --verb=get --resource=nodes", "clusterrole.rbac.authorization.k8s.io/cr created"},
		{"clusterrolebinding crb --clusterrole=cr --user=u", "clusterrolebinding.rbac.authorization.k8s.io/crb created"},
		{"quota q --hard=pods=5", "resourcequota/q created"},
		{"poddisruptionbudget pdb --selector=app=x --min-available=1", "poddisruptionbudget.policy/pdb created"},
		{"priorityclass pc --value=10", "priorityclass.scheduling.k8s.io/pc created"},
		{"ingress ing --rule=example.com/*=ci:80", "ingress.networking.k8s.io/ing created"},
	} {
		args := append([]string{"create"}, words(c.args)...)
		if i := slices.Index(args, "--schedule=*/5"); i >= 0 {
			args[i], c.says = "--schedule=*/5 * * * *", "cronjob.batch/cj created"
		}
		if got := strings.TrimSpace(k.run(t, args...)); got != c.says {
			t.Errorf("kubectl create %s: %q", c.args, got)
		}
	}
	k.fails(t, 1, `Error from server (AlreadyExists): namespaces "team" already exists`, "create", "namespace", "team")
	k.says(
		t, words("create deployment dry --image=nginx --dry-run=server -o yaml"), `^  uid: `, `progressDeadlineSeconds: 600`,
	)
	k.fails(t, 1, "NotFound", "get", "deployment", "dry")
	k.says(t, words("get secret s -o jsonpath={.data.a}"), `^Yg==$`)
	k.says(t, words("get job j"), `^j +\S* *0/1 +`)
	k.says(t, words("get cronjob cj"), `^cj +\*/5 \* \* \* \* +<none> +False +0 +<none>`)
	k.says(t, words("get rolebinding rb -o wide"), `^rb +Role/r +\S+ +default/sa$`)
	k.says(t, words("create job from --from=cronjob/cj"), `^job.batch/from created$`)
	for _, what := range []string{
		"cm/cm", "secret/s", "secret/reg", "deployment/d", "job/j", "job/from", "cj/cj", "svc/ci", "svc/np", "svc/lb",
		"svc/en", "sa/sa", "role/r",
		"rolebinding/rb", "clusterrole/cr", "clusterrolebinding/crb", "quota/q", "pdb/pdb", "pc/pc", "ing/ing",
	} {
		k.run(t, "delete", what, "--cascade=orphan", "--wait=false")
	}
}

// testKubectlWatch watches while an object is created, changed and deleted.
func testKubectlWatch(t *testing.T, k kubectl) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := k.command(
		ctx, "get", "configmaps", "-w", "--output-watch-events", "--field-selector=metadata.name=watched", "--no-headers",
	)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // it lists first
	k.run(t, "create", "configmap", "watched")
	k.run(t, "patch", "configmap", "watched", "-p", `{"data":{"a":"b"}}`)
	k.run(t, "delete", "configmap", "watched")
	buffer := make([]byte, 1<<16)
	n := 0
	for strings.Count(string(buffer[:n]), "\n") < 3 {
		m, err := out.Read(buffer[n:])
		n += m
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	_ = c.Wait()
	if !regexp.MustCompile(`^ADDED +watched +0 .*\nMODIFIED +watched +1 .*\nDELETED +watched +1 .*\n$`).Match(buffer[:n]) {
		t.Errorf("kubectl get -w said\n%s", buffer[:n])
	}
}

// change writes a changed copy of a file and returns its path.
func change(t *testing.T, path string, oldNew ...string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(changed, []byte(strings.NewReplacer(oldNew...).Replace(string(content))), 0o600); err != nil {
		t.Fatal(err)
	}
	return changed
}

func sameWords(a, b string) bool {
	x, y := words(a), words(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// TestReadmeOnKubeAPIServer runs the commands of the README on kube-apiserver, which prints the same. It begins to enforce a
// policy about a second after the policy was created.
func TestReadmeOnKubeAPIServer(t *testing.T) {
	steps, err := transcript.Read("../../README.md", "Five minutes")
	if err != nil {
		t.Fatal(err)
	}
	dir := logDir(t)
	s := kubeAPIServer(t, dir, startEtcd(t, dir))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.url, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: adminToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(dir, "keelson-data", "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	environment := []string{
		"HOME=" + dir, "KUBECONFIG=" + kubeconfig, "PATH=" + filepath.Dir(program(t, "kubectl")) + ":" + os.Getenv("PATH"),
	}
	t.Chdir(dir)
	for _, step := range steps[1:] {
		step.Script = strings.Replace(step.Script, "\nkubectl create -f", "\nsleep 5\nkubectl create -f", 1)
		if d := step.Differs(step.Run(t.Context(), environment...)); d != "" {
			t.Error(d)
		}
	}
}
