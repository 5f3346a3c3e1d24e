package main

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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
		got, err := mergeKubeconfig([]byte(test.existing), []byte(ownKubeconfig))
		if err != nil || !reflect.DeepEqual(parsed(t, string(got)), parsed(t, test.want)) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
		again, err := mergeKubeconfig(got, []byte(ownKubeconfig))
		if err != nil || string(again) != string(got) {
			t.Errorf("%s, again: %v\n%s", name, err, again)
		}
	}
	for _, existing := range []string{"text", "kind: Pod", "clusters: {}", "a: [", "- list"} {
		if got, err := mergeKubeconfig([]byte(existing), []byte(ownKubeconfig)); err == nil {
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
	if err := mergeKubeconfigFile(t.Context(), link, []byte(ownKubeconfig)); err != nil {
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
	// A file that cannot be merged stays as it is, and a lock is respected.
	if err := os.WriteFile(real, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := real + " was not changed: it is not a kubeconfig: kind is Pod"
	if err := mergeKubeconfigFile(t.Context(), real, []byte(ownKubeconfig)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if content, err := os.ReadFile(real); err != nil || string(content) != "kind: Pod" {
		t.Errorf("%s %v", content, err)
	}
	if err := os.WriteFile(real+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = mergeKubeconfigFile(t.Context(), real, []byte(ownKubeconfig))
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
	if err := os.WriteFile(path, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := keelson("--storage=memory", "--data-dir=", "--secure-port=0", "--write-kubeconfig="+path)
	want := "keelson: --write-kubeconfig: " + path + " was not changed: it is not a kubeconfig: kind is Pod\n"
	if code != 1 || !strings.HasSuffix(errOut, want) {
		t.Errorf("exit %d, %q, want %q at the end", code, errOut, want)
	}
}
