package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// certificateOf returns the client certificate in a kubeconfig.
func certificateOf(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	k, transport := credentials(t, path)
	transport.CloseIdleConnections()
	block, _ := pem.Decode(k.Users[0].User.Cert)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKubeconfigCreate makes a kubeconfig for another person, and checks who the user is for the server.
func TestKubeconfigCreate(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "anna")
	if _, errOut, code := keelson("kubeconfig", "create", "--user=anna", "--data-dir="+data); code != 1 ||
		!strings.Contains(errOut, "which the server writes at each start") {
		t.Errorf("without a data directory: %d %s", code, errOut)
	}
	p := run(t, "--data-dir", data, "--secure-port=0", "--external-hostname=localhost")
	_, errOut, code := keelson("kubeconfig", "create", "--user=anna", "--group=developers", "--group=testers", "--data-dir="+data, "-o", file)
	if code != 0 || !strings.HasPrefix(errOut, "The certificate of anna for https://localhost:") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("%d %s", code, errOut)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	status, body := post(t, file, review, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	for _, want := range []string{`"username":"anna"`, `"developers"`, `"testers"`} {
		if status != http.StatusCreated || !strings.Contains(body, want) {
			t.Errorf("%d, no %s: %s", status, want, body)
		}
	}
	if status, body := get(t, file, "/api/v1/secrets"); status != http.StatusForbidden {
		t.Errorf("without a role: %d %s", status, body)
	}
	if left := time.Until(certificateOf(t, file).NotAfter); left < standardTTL-time.Hour || left > standardTTL {
		t.Errorf("it is valid for %s", left)
	}
	p.stop(t)
	out, errOut, code := keelson("kubeconfig", "create", "--user", "a: b", "--ttl=9000h", "--allow-long-ttl", "--server=https://127.0.0.1:7",
		"--data-dir="+data)
	if code != 0 || parsed(t, out)["current-context"] != "keelson" || !strings.Contains(out, "server: \"https://127.0.0.1:7\"\n") ||
		!strings.Contains(errOut, "Other machines do not reach this address") {
		t.Errorf("of a stopped server: %d %s%s", code, out, errOut)
	}
	for flags, want := range map[string]string{
		"":                                  "--user must name the user",
		"--user=a --group=system:masters":   "--group must not be system:masters: its members may do everything",
		"--user=a --group=b,system:masters": "--group must not be system:masters",
		"--user=a --ttl=8761h":              "--ttl must be at most a year (8760h0m0s), unless --allow-long-ttl is given",
		"--user=a --ttl=0":                  "--ttl must be positive",
		"--user=a --ttl=30":                 `--ttl: "30" has no unit`,
		"--user=a --server=http://a":        "--server must be a URL that begins with https://",
		"--user=a --server=https://":        "--server must be a URL that begins with https://",
		"--user=a\x7fb":                     "names of users and groups must be valid UTF-8 without control characters",
		"--user=a -o " + file:               file + " exists; --force replaces it",
	} {
		args := append([]string{"kubeconfig", "create", "--data-dir=" + data}, strings.Fields(flags)...)
		if out, errOut, code := keelson(args...); code != 1 || out != "" || !strings.HasPrefix(errOut, "keelson: "+want) {
			t.Errorf("%s: %d %s%s", flags, code, out, errOut)
		}
	}
	// If the administrator verifies the server by another name, the kubeconfigs of others have that name too.
	own := filepath.Join(data, "kubeconfig")
	content, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	named := strings.Replace(string(content), "    certificate-authority-data:", "    tls-server-name: api.example.com\n"+
		"    certificate-authority-data:", -1)
	if err := os.WriteFile(own, []byte(named), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := keelson("kubeconfig", "create", "--user=a", "--data-dir="+data); !strings.Contains(out, `tls-server-name: "api.example.com"`) {
		t.Errorf("it has no tls-server-name: %s", out)
	}
	// With --client-ca-file, the server does not accept certificates of its own authority.
	q := run(t, "--data-dir", data, "--secure-port=0", "--client-ca-file="+filepath.Join(data, "pki", "ca.crt"))
	q.stop(t)
	if _, errOut, code := keelson("kubeconfig", "create", "--user=a", "--data-dir="+data); code != 1 ||
		!strings.Contains(errOut, "because --client-ca-file names others") {
		t.Errorf("%d %s", code, errOut)
	}
}

// TestKubeconfigForOtherMachines checks that the administrator's kubeconfig has an address for the machine itself
// and another one for other machines.
func TestKubeconfigForOtherMachines(t *testing.T) {
	servers := regexp.MustCompile(`server: "https://(\S+):\d+"\n`)
	for flags, want := range map[string]string{
		"":                                     "127.0.0.1",
		"--external-hostname=api.example.com":  "127.0.0.1 api.example.com",
		"--bind-address=127.0.0.2":             "127.0.0.2",
		"--advertise-address=203.0.113.7":      "127.0.0.1",
		"--bind-address=127.0.0.1 --tls-san=a": "127.0.0.1",
	} {
		data := filepath.Join(t.TempDir(), "data")
		p := run(t, append([]string{"--data-dir", data, "--secure-port=0"}, strings.Fields(flags)...)...)
		p.stop(t)
		content, err := os.ReadFile(filepath.Join(data, "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, found := range servers.FindAllStringSubmatch(string(content), -1) {
			got = append(got, found[1])
		}
		if strings.Join(got, " ") != want || parsed(t, string(content))["current-context"] != "keelson" {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
}
