package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

const ownKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: keelson, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: keelson-admin, user: {token: own}}]
contexts: [{name: keelson, context: {cluster: keelson, user: keelson-admin}}]
current-context: keelson
`

const otherKubeconfig = `# mine
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters: [{name: work, cluster: {server: "https://work", x-future: 1}}, {name: keelson, cluster: {server: "https://old"}}]
users: [{name: keelson-admin, user: {token: theirs}}]
contexts: [{name: work, context: {cluster: work, user: keelson-admin, namespace: a}}]
current-context: work
`

func TestMergeKubeconfig(t *testing.T) {
	const mine = `apiVersion: v1
kind: Config
clusters: [{name: keelson, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: keelson, user: {token: own}}]
contexts: [{name: keelson, context: {cluster: keelson, user: keelson}}]
current-context: keelson
`
	for name, test := range map[string]struct{ existing, want string }{
		"empty": {"", mine},
		"null":  {"null", mine},
		"others": {otherKubeconfig, `apiVersion: v1
kind: Config
preferences: {colors: true}
clusters: [{name: work, cluster: {server: "https://work", x-future: 1}}, {name: keelson, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: keelson-admin, user: {token: theirs}}, {name: keelson, user: {token: own}}]
contexts: [{name: work, context: {cluster: work, user: keelson-admin, namespace: a}}, {name: keelson, context: {cluster: keelson, user: keelson}}]
current-context: keelson
`},
	} {
		_, got, err := mergeKubeconfig([]byte(test.existing), []byte(ownKubeconfig))
		if err != nil || !reflect.DeepEqual(parsed(t, string(got)), parsed(t, test.want)) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
		_, again, err := mergeKubeconfig(got, []byte(ownKubeconfig))
		if err != nil || string(again) != string(got) {
			t.Errorf("%s, again: %v\n%s", name, err, again)
		}
	}
	for _, existing := range []string{"text", "kind: Pod", "clusters: {}", "a: [", "- list"} {
		if _, got, err := mergeKubeconfig([]byte(existing), []byte(ownKubeconfig)); err == nil {
			t.Errorf("%q: %s", existing, got)
		}
	}
}

func parsed(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMergeKubeconfigFile(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(real, []byte(otherKubeconfig), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if _, err := mergeKubeconfigFile(t.Context(), link, []byte(ownKubeconfig)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(real)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v %v", info.Mode(), err)
	}
	before, err := os.ReadFile(real)
	if err != nil || !strings.Contains(string(before), "https://work") {
		t.Fatalf("%s %v", before, err)
	}
	// A file that cannot be merged is not changed, and nothing is written while another program has the lock.
	if err := os.WriteFile(real, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := real + " was not changed: it is not a kubeconfig: kind is Pod"
	if _, err := mergeKubeconfigFile(t.Context(), real, []byte(ownKubeconfig)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if content, err := os.ReadFile(real); err != nil || string(content) != "kind: Pod" {
		t.Errorf("%s %v", content, err)
	}
	if err := os.WriteFile(real+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = mergeKubeconfigFile(t.Context(), real, []byte(ownKubeconfig))
	if err == nil || !strings.Contains(err.Error(), "if none does, remove "+real+".lock") {
		t.Errorf("with a lock: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("files are left: %v %v", files, err)
	}
}

// TestWriteKubeconfig starts a server with --write-kubeconfig and uses the file.
func TestWriteKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "config")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "missing")+string(filepath.ListSeparator)+path)
	p := run(t, "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0", "--write-kubeconfig")
	if want := "Try: kubectl get namespaces"; p.lines[2] != want {
		t.Errorf("it says %q, want %q", p.lines[2], want)
	}
	if status, body := get(t, path, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, body)
	}
	p.stop(t)
	if !strings.Contains(p.stderr.String(), "msg=stopped") {
		t.Errorf("it does not say that it has stopped: %s", p.stderr)
	}
	if err := os.WriteFile(path, []byte(otherKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	again := run(t, "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0", "--write-kubeconfig="+path)
	if got := contextOf(t, path); got != contextName {
		t.Errorf("the current context is %q", got)
	}
	again.stop(t)
	if got := contextOf(t, path); got != "work" {
		t.Errorf("after the stop the current context is %q, want the earlier one", got)
	}
	if err := os.WriteFile(path, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := keelson("--storage=memory", "--data-dir=", "--secure-port=0", "--write-kubeconfig="+path)
	want := "keelson: --write-kubeconfig: " + path + " was not changed: it is not a kubeconfig: kind is Pod\n"
	if code != 1 || !strings.HasSuffix(errOut, want) {
		t.Errorf("exit %d, %q, want %q at the end", code, errOut, want)
	}
}

// contextOf returns the name of the current context of a kubeconfig.
func contextOf(t *testing.T, path string) any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(content))["current-context"]
}

// TestLeaveContext checks that leaveContext changes the current context only if this program has set it.
func TestLeaveContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for name, test := range map[string]struct{ current, earlier, want string }{
		"left":              {"keelson", "work", "work"},
		"changed by a user": {"home", "work", "home"},
		"deleted":           {"keelson", "gone", "keelson"},
		"none before":       {"keelson", "", "keelson"},
	} {
		if err := os.WriteFile(path, []byte("contexts: [{name: work}, {name: home}]\ncurrent-context: "+test.current), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := leaveContext(path, test.earlier); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := contextOf(t, path); got != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

// TestJSONLog checks that a server with --log-format=json prints nothing else, from the start to the error of its end.
func TestJSONLog(t *testing.T) {
	dir := t.TempDir()
	lines := func(text string) {
		t.Helper()
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	}
	serve := command("--data-dir", filepath.Join(dir, "data"), "--secure-port=0", "--log-format=json", "--kubelet-port=1")
	var out bytes.Buffer
	serve.Stdout = &out
	errOut, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill() }) // long gone if the test went well
	var log strings.Builder
	seen := bufio.NewScanner(errOut)
	for seen.Scan() {
		log.WriteString(seen.Text() + "\n")
		if strings.Contains(seen.Text(), "Try: kubectl") {
			if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := serve.Wait(); err != nil || out.Len() > 0 {
		t.Errorf("%v, standard output %q", err, &out)
	}
	lines(log.String())
	for _, want := range []string{"Keelson serves the Kubernetes API at", "Flag --kubelet-port has been deprecated", `"msg":"stopped"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line says %q:\n%s", want, &log)
		}
	}
	_, failed, code := keelson("--data-dir=/proc/keelson", "--log-format=json")
	if lines(failed); code != 1 || !strings.Contains(failed, "cannot use the data directory") {
		t.Errorf("exit %d, %q", code, failed)
	}
}
