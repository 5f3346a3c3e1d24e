package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority issues certificates with a key that a server trusts, as an administrator would do for components.
type authority struct {
	pair     tls.Certificate
	certFile string
	keyFile  string
}

// readAuthority reads an authority from ca.crt and ca.key in a folder.
func readAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{certFile: filepath.Join(dir, "ca.crt"), keyFile: filepath.Join(dir, "ca.key")}
	var err error
	if a.pair, err = tls.LoadX509KeyPair(a.certFile, a.keyFile); err != nil {
		t.Fatal(err)
	}
	return a
}

// makeAuthority creates an authority in a folder.
func makeAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key := newKey(t)
	cert := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "e2e-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, key, nil)
	writePEM(t, filepath.Join(dir, "ca.crt"), cert)
	writePEM(t, filepath.Join(dir, "ca.key"), keyPEM(t, key))
	return readAuthority(t, dir)
}

// client issues a client certificate for a user.
func (a *authority) client(t *testing.T, name string, groups []string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	return sign(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: name, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, k, a), keyPEM(t, k)
}

// server issues the certificate of a server on this machine.
func (a *authority) server(t *testing.T) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	return sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, k, a), keyPEM(t, k)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// sign signs a certificate that is valid for a day. Without an authority it is self-signed.
func sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey, by *authority) []byte {
	t.Helper()
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(24*time.Hour)
	parent, signer := template, crypto.PrivateKey(key)
	if by != nil {
		parent, signer = by.pair.Leaf, by.pair.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func writePEM(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// cluster is a server that components join, each with its own credential.
type cluster struct {
	server     *process
	restart    func() // kills the server and starts it again; nil if that is not tested
	dir, url   string
	authority  *authority
	accountKey string // the file with the key that signs service account tokens
	admin      *identity
}

// newCluster starts Keelson with some arguments. If KEELSON_JOIN is "kube-apiserver", it starts kube-apiserver with etcd instead, to
// check the expectations of the test.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	if os.Getenv("KEELSON_JOIN") == "kube-apiserver" {
		return referenceCluster(t, args...)
	}
	s := serve(t, append(args, "--enable-bootstrap-token-auth", "--service-account-issuer", accountIssuer)...)
	pki := filepath.Join(s.dir, "data", "pki")
	c := &cluster{
		server: s.process, dir: s.dir, url: fmt.Sprintf("https://127.0.0.1:%d", s.port),
		authority: readAuthority(t, pki), accountKey: filepath.Join(pki, "sa.key"),
	}
	c.restart = func() {
		s.kill()
		s.start(t)
		c.server = s.process
	}
	c.admin = c.user(t, "admin", "system:masters")
	eventually(t, time.Minute, "the key of service accounts is there", func(context.Context) error {
		_, err := os.Stat(c.accountKey)
		return err
	})
	return c
}

const accountIssuer = "https://kubernetes.default.svc"

func referenceCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	dir := logDir(t)
	a := makeAuthority(t, dir)
	cert, key := a.server(t)
	writePEM(t, filepath.Join(dir, "server.crt"), cert)
	writePEM(t, filepath.Join(dir, "server.key"), key)
	proxies := t.TempDir()
	cert, key = makeAuthority(t, proxies).client(t, "proxy", nil)
	writePEM(t, filepath.Join(dir, "proxy.crt"), cert)
	writePEM(t, filepath.Join(dir, "proxy.key"), key)
	s := kubeAPIServer(t, dir, startEtcd(t, dir), append(args, "--client-ca-file", a.certFile, "--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--tls-cert-file", filepath.Join(dir, "server.crt"), "--tls-private-key-file", filepath.Join(dir, "server.key"),
		"--proxy-client-cert-file", filepath.Join(dir, "proxy.crt"),
		"--proxy-client-key-file", filepath.Join(dir, "proxy.key"),
		"--requestheader-client-ca-file", filepath.Join(proxies, "ca.crt"), "--requestheader-allowed-names", "proxy",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-")...)
	c := &cluster{server: s.process, dir: dir, url: s.url, authority: a, accountKey: filepath.Join(dir, "sa.key")}
	c.admin = c.user(t, "admin", "system:masters")
	return c
}

// identity is a user with its credential.
type identity struct {
	name       string
	config     *rest.Config
	kubeconfig string // a file
	http       *http.Client
	home       string
}

// user returns a user with a certificate.
func (c *cluster) user(t *testing.T, name string, groups ...string) *identity {
	t.Helper()
	cert, key := c.authority.client(t, name, groups)
	return c.identity(t, name, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// bearer returns a user with a token.
func (c *cluster) bearer(t *testing.T, name, token string) *identity {
	t.Helper()
	return c.identity(t, name, &clientcmdapi.AuthInfo{Token: token})
}

// account returns the user of a service account, with a token from a TokenRequest.
func (c *cluster) account(t *testing.T, namespace, name string) *identity {
	t.Helper()
	token := c.kubectl(t, c.admin).run(t, "create", "token", name, "-n", namespace, "--duration=2h")
	return c.bearer(t, "system:serviceaccount:"+namespace+":"+name, strings.TrimSpace(token))
}

func (c *cluster) identity(t *testing.T, name string, auth *clientcmdapi.AuthInfo) *identity {
	t.Helper()
	ca, err := os.ReadFile(c.authority.certFile)
	if err != nil {
		t.Fatal(err)
	}
	const entry = "e2e"
	file := clientcmdapi.NewConfig()
	file.Clusters[entry] = &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: ca}
	file.AuthInfos[entry] = auth
	file.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	file.CurrentContext = entry
	i := &identity{
		name: name, home: c.dir,
		kubeconfig: filepath.Join(c.dir, strings.NewReplacer(":", "-", "/", "-").Replace(name)+".kubeconfig"),
	}
	if err := clientcmd.WriteToFile(*file, i.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if i.config, err = clientcmd.BuildConfigFromFlags("", i.kubeconfig); err != nil {
		t.Fatal(err)
	}
	i.config.QPS = -1
	if i.http, err = rest.HTTPClientFor(i.config); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *identity) client() kubernetes.Interface { return kubernetes.NewForConfigOrDie(i.config) }

func (c *cluster) kubectl(t *testing.T, as *identity) kubectl {
	t.Helper()
	return kubectl{path: program(t, "kubectl"), kubeconfig: as.kubeconfig, home: c.dir}
}

// call sends a request and returns the status code and the body.
func (i *identity) call(ctx context.Context, method, path, contentType, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, i.config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := i.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// peak returns the largest amount of resident memory that a process had, as counted by the kernel.
func (p *process) peak() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
