package kubectlhistory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const testKubeconfig = `apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: one, user: jane, namespace: shop}}
- {name: b, context: {cluster: one, user: plugin}}
- {name: c, context: {cluster: gone}}
- {name: d, context: {cluster: one, user: gone}}
- {name: e, context: {cluster: bad}}
- {name: f, context: {cluster: one, user: acting}}
clusters:
- {name: one, cluster: {server: "https://one:6443/prefix/"}}
- {name: bad, cluster: {server: "one:6443"}}
users:
- {name: jane, user: {tokenFile: token}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, env: [{name: T, value: fromplugin}]}}}
- {name: acting, user: {username: u, password: p, as: other, as-groups: [g, h], as-user-extra: {scopes: [x]}}}
`

func TestConnect(t *testing.T) {
	path := writeFile(t, "config", testKubeconfig, 0o600)
	for name, content := range map[string]string{"token": "secret\n", "plugin": "#!/bin/sh\necho '{\"status\":{\"token\":\"'$T'\"}}'\n"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	second := writeFile(t, "second", "current-context: b\nclusters: [{name: one, cluster: {server: 'https://two'}}]\n", 0o600)
	for name, c := range map[string]struct {
		flags                   connection
		env                     string
		base, header, namespace string
		err                     string
	}{
		"the current context": {flags: connection{kubeconfig: path}, base: "https://one:6443/prefix", namespace: "shop",
			header: "Bearer secret"},
		"files of the variable": {env: "/does-not-exist:" + path + ":" + second, base: "https://one:6443/prefix", namespace: "shop",
			header: "Bearer secret"},
		"the first file counts": {env: second + ":" + path, base: "https://two", namespace: "default", header: "Bearer fromplugin"},
		"flags": {flags: connection{kubeconfig: path, context: "b", namespace: "n"}, base: "https://one:6443/prefix", namespace: "n",
			header: "Bearer fromplugin"},
		"impersonation": {flags: connection{kubeconfig: path, context: "f"}, base: "https://one:6443/prefix", namespace: "default",
			header: "Basic dTpw other g h x"},
		"no file":            {flags: connection{kubeconfig: "/does-not-exist"}, err: "cannot read the kubeconfig /does-not-exist: no such file or directory"},
		"none of the files":  {env: "/does-not-exist", err: "there is no kubeconfig; name one with --kubeconfig, or with the variable KUBECONFIG"},
		"unknown context":    {flags: connection{kubeconfig: path, context: "x"}, err: `the kubeconfig has no context "x"`},
		"unknown cluster":    {flags: connection{kubeconfig: path, context: "c"}, err: `the context "c" of the kubeconfig names a cluster "gone", which is not there`},
		"unknown user":       {flags: connection{kubeconfig: path, context: "d"}, err: `the context "d" of the kubeconfig names a user "gone", who is not there`},
		"no URL":             {flags: connection{kubeconfig: path, context: "e"}, err: `the context "e" of the kubeconfig: the server "one:6443" is not a URL of http or https`},
		"not a namespace":    {flags: connection{kubeconfig: path, namespace: "a/b"}, err: `"a/b" is not the name of a namespace`},
		"no current context": {flags: connection{kubeconfig: writeFile(t, "x", "{}", 0o600)}, err: "the kubeconfig has no current context; choose one with --context"},
	} {
		c.flags.getenv = func(name string) string { return map[string]string{"KUBECONFIG": c.env}[name] }
		cl, namespace, err := c.flags.connect(t.Context())
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var header []string
		for _, key := range []string{"Authorization", "Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scopes"} {
			header = append(header, cl.header[key]...)
		}
		if got := strings.Join(header, " "); cl.base != c.base || namespace != c.namespace || got != c.header {
			t.Errorf("%s: %s, namespace %s, %s", name, cl.base, namespace, got)
		}
	}
}
