package main

import (
	"crypto/tls"
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
	"time"

	"github.com/keelson-dev/keelson/server/certs"
)

// referenceFlag is a flag of kube-apiserver 1.36, as its help shows it.
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

// TestDefaultsOfKubeAPIServer compares the defaults of `keelson kube-apiserver` with those of kube-apiserver 1.36.
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
	var status int
	for end := time.Now().Add(20 * time.Second); status != http.StatusOK && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if w, err := client.Get("https://127.0.0.1:" + port + "/api/v1/namespaces/kube-system"); err == nil {
			status = w.StatusCode
			_ = w.Body.Close()
		}
	}
	if status != http.StatusOK {
		t.Errorf("the given administrator gets %d", status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.Len() > 0 || status != http.StatusOK {
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
