package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// installed runs `keelson envtest install` into a new directory and returns that.
func installed(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "assets")
	out, errOut, code := keelson("envtest", "install", dir)
	if want := "export KUBEBUILDER_ASSETS='" + dir + "'\n"; code != 0 || !strings.Contains(out, want) {
		t.Fatalf("exit %d, %q, %q", code, out, errOut)
	}
	return dir
}

// background is a program that runs until the test ends.
type background struct {
	*exec.Cmd
	output bytes.Buffer
}

func startBackground(t *testing.T, path string, args ...string) *background {
	t.Helper()
	b := &background{Cmd: exec.Command(path, args...)}
	b.Env = append(os.Environ(), "KEELSON_TEST_MAIN=1")
	b.Stdout, b.Stderr = &b.output, &b.output
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.end(t) })
	return b
}

// end ends the program with SIGTERM, as envtest does, unless it has ended.
func (b *background) end(t *testing.T) {
	t.Helper()
	if b.ProcessState != nil {
		return
	}
	_ = b.Process.Signal(syscall.SIGTERM)
	if err := b.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(b.Path), err, &b.output)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const assetsToken = "envtest-token"

// pair is an etcd and a kube-apiserver that uses it, started from a directory of assets with the flags of envtest.
type pair struct {
	assets, etcd, dir string
	server            *background
	url               string
}

func startPair(t *testing.T, assets string, flags ...string) *pair {
	t.Helper()
	p := &pair{assets: assets, etcd: "http://" + freeAddress(t), dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"sa-signer.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"tokens.csv":    assetsToken + `,admin,admin,"system:masters"`,
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startBackground(t, filepath.Join(assets, etcdName), "--listen-peer-urls=http://"+freeAddress(t),
		"--data-dir="+t.TempDir(), "--advertise-client-urls="+p.etcd, "--listen-client-urls="+p.etcd, "--unsafe-no-fsync=true")
	awaitOK(t, p.etcd+"/health")
	p.startServer(t, flags...)
	return p
}

func (p *pair) startServer(t *testing.T, flags ...string) {
	t.Helper()
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	p.url = "https://" + address
	key := filepath.Join(p.dir, "sa-signer.key")
	flags = append([]string{"--allow-privileged=true",
		"--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=" + p.dir,
		"--disable-admission-plugins=ServiceAccount", "--etcd-servers=" + p.etcd, "--secure-port=" + port,
		"--service-account-issuer=" + p.url + "/", "--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key, "--service-cluster-ip-range=10.0.0.0/24",
		"--token-auth-file=" + filepath.Join(p.dir, "tokens.csv")}, flags...)
	p.server = startBackground(t, filepath.Join(p.assets, kubeAPIServerName), flags...)
	awaitOK(t, p.url+"/healthz")
}

// status sends a request as the administrator and returns the status code of the response.
func (p *pair) status(t *testing.T, method, path, body string) int {
	t.Helper()
	q, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+assetsToken)
	q.Header.Set("Content-Type", "application/json")
	r, err := unverified.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// unverified is a client that does not verify certificates, like the one with which envtest waits for a server.
var unverified = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
}}

func awaitOK(t *testing.T, url string) {
	t.Helper()
	wait.NoError(t, url+" to answer 200", func() error {
		r, err := unverified.Get(url)
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
}

// TestEnvtestAssets starts two pairs of etcd and kube-apiserver at the same time. They share no data. A restarted
// kube-apiserver still has its objects, as with etcd.
func TestEnvtestAssets(t *testing.T) {
	assets := installed(t)
	a, b := startPair(t, assets), startPair(t, assets, "--controllers=*")
	const maps = "/api/v1/namespaces/default/configmaps"
	if code := a.status(t, "POST", maps, `{"metadata":{"name":"one"}}`); code != http.StatusCreated {
		t.Errorf("creation: %d", code)
	}
	if code := b.status(t, "GET", maps+"/one", ""); code != http.StatusNotFound {
		t.Errorf("the other pair answers %d", code)
	}
	// Only the pair with --controllers=* runs controllers.
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	wait.Until(t, "the default service account, with --controllers=*", func() bool {
		return b.status(t, "GET", account, "") == http.StatusOK
	})
	if other := a.status(t, "GET", account, ""); other != http.StatusNotFound {
		t.Errorf("the default service account: %d without --controllers", other)
	}
	a.server.end(t)
	a.startServer(t)
	if code := a.status(t, "GET", maps+"/one", ""); code != http.StatusOK {
		t.Errorf("after a restart: %d", code)
	}
}

func TestEnvtestInstallAgain(t *testing.T) {
	dir := installed(t)
	if content, err := os.ReadFile(filepath.Join(dir, markerName)); err != nil ||
		strings.TrimSpace(string(content)) != version.Get().GitVersion {
		t.Errorf("%s: %q %v", markerName, content, err)
	}
	out, errOut, code := keelson("envtest", "install", dir, "--print=path")
	if code != 0 || out != dir+"\n" {
		t.Errorf("again: exit %d, %q, %q", code, out, errOut)
	}
}

func TestEnvtestInstallKeepsOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, etcdName)
	if err := os.WriteFile(path, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := keelson("envtest", "install", dir)
	want := "keelson: " + dir + " has a program etcd that is not Keelson; name another directory, or replace it with --force\n"
	if code != 1 || errOut != want {
		t.Errorf("exit %d, %q, want %q", code, errOut, want)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "another" {
		t.Errorf("%q %v", content, err)
	}
	if _, errOut, code := keelson("envtest", "install", dir, "--force"); code != 0 {
		t.Errorf("--force: exit %d, %q", code, errOut)
	}
}

func TestEnvtestInstallKubectl(t *testing.T) {
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(kubectl, []byte("kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	install := func(path string, args ...string) (dir, errOut string) {
		dir = t.TempDir()
		cmd := command(append([]string{"envtest", "install", dir, "-p", "env"}, args...)...)
		cmd.Env = append(cmd.Env, "PATH="+path, "HOME="+dir, "XDG_DATA_HOME=", "KUBEBUILDER_ASSETS=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v %s", err, &stderr)
		}
		return dir, stderr.String()
	}
	for name, args := range map[string][]string{"on the PATH": nil, "named": {"--kubectl", kubectl}} {
		path := filepath.Dir(kubectl)
		if len(args) > 0 {
			path = ""
		}
		dir, errOut := install(path, args...)
		if to, err := os.Readlink(filepath.Join(dir, "kubectl")); err != nil || to != kubectl || errOut != "" {
			t.Errorf("%s: %q %v %q", name, to, err, errOut)
		}
	}
	if _, err := os.Stat("/usr/local/kubebuilder/bin/kubectl"); err == nil {
		t.Skip("kubebuilder's own kubectl is installed on this machine")
	}
	dir, errOut := install("")
	if _, err := os.Stat(filepath.Join(dir, "kubectl")); err == nil ||
		!strings.Contains(errOut, "There is no kubectl on the PATH") || !strings.Contains(errOut, "--kubectl FILE") {
		t.Errorf("without kubectl: %v %q", err, errOut)
	}
}

// TestEtcdProgram checks the output of the program under the name etcd.
func TestEtcdProgram(t *testing.T) {
	etcd := filepath.Join(installed(t), etcdName)
	for _, test := range []struct {
		args []string
		code int
		want string // a part of the output
	}{
		{[]string{"--help"}, 0, "\n      --unsafe-no-fsync "}, // envtest looks for the flag at the beginning of a line
		{[]string{"--version"}, 0, "etcd Version: 3.6.8+keelson\nThis is Keelson"},
		{[]string{"-no-such-flag", "x"}, 1, "etcd: unknown flag: --no-such-flag (this is Keelson in the place of etcd"},
		{[]string{"-listen-client-urls", "https://127.0.0.1:1"}, 1, "serves http://HOST:PORT only"},
	} {
		cmd := exec.Command(etcd, test.args...)
		cmd.Env = append(os.Environ(), "KEELSON_TEST_MAIN=1")
		out, _ := cmd.CombinedOutput() // the exit code is checked instead
		if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(out), test.want) {
			t.Errorf("%q: exit %d, %s", test.args, code, out)
		}
	}
}
