package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// referenceFlag is a flag of kube-apiserver 1.37, as its help shows it.
type referenceFlag struct{ group, name, kind, standard string }

func referenceFlags(t *testing.T) []referenceFlag {
	t.Helper()
	content, err := os.ReadFile("testdata/kube-apiserver-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []referenceFlag
	for line := range strings.Lines(string(content)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, referenceFlag{f[0], f[1], f[2], f[3]})
	}
	return out
}

// TestDefaultsOfKubeAPIServer compares the defaults of `keelson kube-apiserver` with those of kube-apiserver 1.37.
func TestDefaultsOfKubeAPIServer(t *testing.T) {
	flags := newKubeAPIServer(io.Discard, io.Discard).Flags()
	zero := map[string]bool{"": true, "0": true, "0s": true, "false": true, "[]": true, "map[]": true}
	for _, want := range referenceFlags(t) {
		f := flags.Lookup(want.name)
		if f == nil || f.DefValue == want.standard || zero[f.DefValue] && zero[want.standard] {
			continue
		}
		t.Errorf("--%s is %q by default, want %q", want.name, f.DefValue, want.standard)
	}
}

// TestRunUnderTheNameKubeAPIServer starts the program as a link of the name kube-apiserver, with certificates in --cert-dir.
func TestRunUnderTheNameKubeAPIServer(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "kube-apiserver")
	if err := os.Symlink(os.Args[0], link); err != nil {
		t.Fatal(err)
	}
	set, err := certs.Ensure(certs.Options{
		Dir: dir, Serving: true, Admin: true, Names: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	cmd := exec.Command(link, "--storage=memory", "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--client-ca-file="+filepath.Join(dir, "ca.crt"), "--authorization-mode=RBAC", "--service-account-issuer=https://issuer",
		"--service-account-key-file="+filepath.Join(dir, "ca.key"),
		"--service-account-signing-key-file="+filepath.Join(dir, "ca.key"))
	cmd.Env, cmd.Dir = append(os.Environ(), "KEELSON_TEST_MAIN=1"), work
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // long gone if the test went well
	pair, err := set.Admin.TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, //nolint:gosec // the test is about the files
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	wait.NoError(t, "an answer to the given administrator", func() error {
		w, err := client.Get("https://127.0.0.1:" + port + "/api/v1/namespaces/kube-system")
		if err != nil {
			return err
		}
		_ = w.Body.Close()
		if w.StatusCode != http.StatusOK {
			return errors.New(w.Status)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.Len() > 0 {
		t.Errorf("%v, standard output %q\n%s", err, &out, &errOut)
	}
	if files, err := os.ReadDir(work); err != nil || len(files) > 0 {
		t.Errorf("the working directory has %v %v", files, err)
	}
	const given = 1 + 6 // the link, and three pairs
	if files, err := os.ReadDir(dir); err != nil || len(files) != given {
		t.Errorf("the directory of certificates has %v %v", files, err)
	}
}

func TestKubeAPIServerTakesNoArguments(t *testing.T) {
	_, errOut, code := keelson("kube-apiserver", "extra")
	if want := `keelson: "kube-apiserver" does not take any arguments, got ["extra"]` + "\n"; code != 1 || errOut != want {
		t.Errorf("%d %q", code, errOut)
	}
	_, errOut, code = keelson("kube-apiserver", "--cert-dir="+t.TempDir())
	if code != 1 || !strings.Contains(errOut, "--etcd-servers must be specified\n") {
		t.Errorf("%d %q", code, errOut)
	}
}

// TestCommandLinesOfOthers parses the command lines with which other programs start kube-apiserver.
func TestCommandLinesOfOthers(t *testing.T) {
	for name, line := range map[string]string{
		"envtest of controller-runtime": "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/c " +
			"--client-ca-file=/c/client-cert-auth-ca.crt --disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:1 " +
			"--secure-port=1 --service-account-issuer=https://127.0.0.1:1/ --service-account-key-file=/c/sa-signer.crt " +
			"--service-account-signing-key-file=/c/sa-signer.key --service-cluster-ip-range=10.0.0.0/24",
		"k3s without its own --advertise-port": "--advertise-address=10.0.0.1 --allow-privileged=true --anonymous-auth=false " +
			"--api-audiences=https://kubernetes.default.svc.cluster.local,k3s --authorization-mode=Node,RBAC " +
			"--bind-address=127.0.0.1 --cert-dir=/c --client-ca-file=/c/ca.crt --egress-selector-config-file=/c/e.yaml " +
			"--enable-admission-plugins=NodeRestriction --enable-aggregator-routing=true --enable-bootstrap-token-auth=true " +
			"--etcd-servers=unix:///c/kine.sock --kubelet-certificate-authority=/c/ca.crt --kubelet-client-certificate=/c/k.crt " +
			"--kubelet-client-key=/c/k.key --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --profiling=false " +
			"--proxy-client-cert-file=/c/p.crt --proxy-client-key-file=/c/p.key --requestheader-allowed-names=system:auth-proxy " +
			"--requestheader-client-ca-file=/c/r.crt --requestheader-extra-headers-prefix=X-Remote-Extra- " +
			"--requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User --secure-port=6444 " +
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file=/c/s.key " +
			"--service-account-signing-key-file=/c/s.key --service-cluster-ip-range=10.43.0.0/16 " +
			"--service-node-port-range=30000-32767 --storage-backend=etcd3 --tls-cert-file=/c/t.crt " +
			"--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 --tls-private-key-file=/c/t.key --v=2",
	} {
		if err := newKubeAPIServer(io.Discard, io.Discard).ParseFlags(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
