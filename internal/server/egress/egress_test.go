package egress

import (
	"bufio"
	"context"
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

	"google.golang.org/grpc"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"

func load(t *testing.T, config string) (*Selector, error) {
	t.Helper()
	s := New(NewMetrics(metrics.New(nil, metrics.Options{})))
	return s, s.Load(write(t, "egress.yaml", []byte(config)), os.ReadFile)
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// place starts a server that answers each line with the same line in capitals, and returns its address.
func place(t *testing.T) string {
	t.Helper()
	return serve(t, "tcp", "127.0.0.1:0", nil, func(conn net.Conn) {
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil {
			_, _ = io.WriteString(conn, strings.ToUpper(line))
		}
	})
}

func serve(t *testing.T, network, address string, config *tls.Config, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// proxyTo answers CONNECT and copies the data in both directions.
func proxyTo(conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil || r.Method != http.MethodConnect {
		fmt.Fprintf(conn, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
		return
	}
	there, err := net.Dial("tcp", r.Host)
	if target := r.RequestURI; err != nil || target == "" {
		there, err = net.Dial("tcp", target)
	}
	if err != nil {
		fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer there.Close()
	fmt.Fprintf(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(there, conn) }()
	_, _ = io.Copy(conn, there)
}

func speak(t *testing.T, s *Selector, n Network, address string) error {
	t.Helper()
	dial := s.Dialer(n)
	if dial == nil {
		t.Fatalf("%s: no dialer", n)
	}
	conn, err := dial(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "HELLO\n" {
		t.Errorf("%s: %q", n, answer)
	}
	return err
}

// socket returns a path that is short enough for a socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "egress")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// identity returns the files of a self-signed certificate and its key, and the pair.
func identity(t *testing.T) (certificate, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, DNSNames: []string{"proxy"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if pair, err = tls.X509KeyPair(certificatePEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return write(t, "crt", certificatePEM), write(t, "key", keyPEM), pair
}

func TestConnectionsGoThroughTheProxy(t *testing.T) {
	there := place(t)
	uds := socket(t)
	serve(t, "unix", uds, nil, proxyTo)
	plain := serve(t, "tcp", "127.0.0.1:0", nil, proxyTo)
	certificate, key, pair := identity(t)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	secure := serve(t, "tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}, proxyTo)
	config := head +
		"- name: Cluster\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + uds + "}}}\n" +
		"- name: etcd\n  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://" + plain + "'}}}\n" +
		"- name: controlplane\n  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://" + secure +
		"', tlsConfig: {" +
		"caBundle: " + certificate + ", clientCert: " + certificate + ", clientKey: " + key + ", tlsServerName: proxy}}}}\n"
	s, err := load(t, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []Network{Cluster, Etcd, ControlPlane} {
		if err := speak(t, s, n, there); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	if err := speak(t, s, Cluster, "127.0.0.1:1"); err == nil ||
		!strings.Contains(err.Error(), "proxy error from "+uds+" while dialing 127.0.0.1:1, code 502") {
		t.Errorf("a place that is not there: %v", err)
	}
}

func TestDirectly(t *testing.T) {
	there := place(t)
	s, err := load(t, head+"- name: cluster\n  connection: {proxyProtocol: Direct}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := speak(t, s, Cluster, there); err != nil {
		t.Error(err)
	}
	if err := speak(t, s, Etcd, there); err != nil || s.Has(Etcd) || !s.Has(Cluster) {
		t.Errorf("a network that is not in the configuration: %v, %v", err, s.Has(Etcd))
	}
	if (*Selector)(nil).Dialer(Cluster) != nil || (*Selector)(nil).Has(Cluster) {
		t.Error("a dialer that nobody asked for")
	}
}

// TestLoadAgain replaces the configuration. A dialer from before then opens its next connection by the new one.
func TestLoadAgain(t *testing.T) {
	there := place(t)
	s, err := load(t, head+"- name: cluster\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /none}}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := speak(t, s, Cluster, there); err == nil {
		t.Fatal("there is no proxy")
	}
	use := func(text string) error { return s.Load(write(t, "other.yaml", []byte(text)), os.ReadFile) }
	const etcd = "- name: etcd\n  connection: {proxyProtocol: Direct}\n"
	for _, bad := range []string{"nonsense", head + "- name: moon\n  connection: {proxyProtocol: Direct}\n", head + etcd} {
		if use(bad) == nil {
			t.Errorf("it is used: %s", bad)
		}
		if err := speak(t, s, Cluster, there); err == nil {
			t.Errorf("a bad configuration has changed something: %s", bad)
		}
	}
	if err := use(head + "- name: cluster\n  connection: {proxyProtocol: Direct}\n"); err != nil {
		t.Fatal(err)
	}
	if err := speak(t, s, Cluster, there); err != nil {
		t.Error(err)
	}
}

// TestProxiesThatMisbehave checks that the size of a proxy's response, and the time until it is complete, are limited.
func TestProxiesThatMisbehave(t *testing.T) {
	for want, answer := range map[string]string{
		"unexpected 5 bytes of buffered data": "HTTP/1.1 200 OK\r\n\r\nhello",
		"unexpected EOF":                      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20),
		"code 407":                            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
		"i/o timeout":                         "",
	} {
		address := serve(t, "tcp", "127.0.0.1:0", nil, func(conn net.Conn) {
			if _, err := io.WriteString(conn, answer); err == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
		})
		s, err := load(
			t,
			head+"- name: cluster\n  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://"+address+"'}}}\n",
		)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if answer == "" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		}
		_, err = s.Dialer(Cluster)(ctx, "tcp", "127.0.0.1:1")
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// konnectivityServer is a proxy of one connection.
type konnectivityServer struct {
	konnectivity.UnimplementedProxyServiceServer
}

func (konnectivityServer) Proxy(s konnectivity.ProxyService_ProxyServer) error {
	var there net.Conn
	for {
		p, err := s.Recv()
		if err != nil {
			return nil
		}
		switch p.Type {
		case konnectivity.PacketType_DIAL_REQ:
			q := p.GetDialRequest()
			answer := &konnectivity.DialResponse{Random: q.Random, ConnectID: 1}
			if there, err = net.Dial(q.Protocol, q.Address); err != nil {
				answer.Error = err.Error()
			}
			if err := s.Send(
				&konnectivity.Packet{
					Type: konnectivity.PacketType_DIAL_RSP, Payload: &konnectivity.Packet_DialResponse{DialResponse: answer},
				},
			); err != nil || there == nil {
				return err
			}
		case konnectivity.PacketType_DATA:
			if _, err := there.Write(p.GetData().Data); err != nil {
				return err
			}
			buffer := make([]byte, 100)
			n, err := there.Read(buffer)
			if err != nil {
				return err
			}
			data := &konnectivity.Data{ConnectID: 1, Data: buffer[:n]}
			if err := s.Send(
				&konnectivity.Packet{Type: konnectivity.PacketType_DATA, Payload: &konnectivity.Packet_Data{Data: data}},
			); err != nil {
				return err
			}
		case konnectivity.PacketType_CLOSE_REQ:
			answer := &konnectivity.CloseResponse{ConnectID: 1}
			if err := s.Send(
				&konnectivity.Packet{
					Type: konnectivity.PacketType_CLOSE_RSP, Payload: &konnectivity.Packet_CloseResponse{CloseResponse: answer},
				},
			); err != nil {
				return err
			}
			return there.Close()
		}
	}
}

func TestKonnectivity(t *testing.T) {
	there, uds := place(t), socket(t)
	listener, err := net.Listen("unix", uds)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	konnectivity.RegisterProxyServiceServer(g, konnectivityServer{})
	go g.Serve(listener) // Serve returns after Stop
	t.Cleanup(g.Stop)
	s, err := load(t, head+"- name: cluster\n  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: "+uds+"}}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := speak(t, s, Cluster, there); err != nil {
		t.Error(err)
	}
	if err := speak(t, s, Cluster, "127.0.0.1:1"); err == nil {
		t.Error("a place that is not there answers")
	}
}

func TestInvalidConfigurations(t *testing.T) {
	certificate, key, _ := identity(t)
	connection := func(c string) string { return head + "- name: cluster\n  connection: " + c + "\n" }
	for _, c := range []struct{ config, want string }{
		{"", "expected EgressSelectorConfiguration"},
		{strings.Replace(head, "v1beta1", "v1", 1), "expected EgressSelectorConfiguration"},
		{head + "- name: cluster\n  conection: {}\n", `unknown field "egressSelections[0].conection"`},
		{
			connection("{proxyProtocol: SOCKS}"),
			`service.connection.protocol: Unsupported value: "SOCKS": supported values: "Direct", "HTTPConnect", "GRPC"`,
		},
		{
			connection("{proxyProtocol: Direct, transport: {}}"),
			"service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect",
		},
		{
			connection("{proxyProtocol: HTTPConnect}"),
			"service.connection.transport: Required value: transport must be set for HTTPConnect",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {}}"),
			"service.connection.tcp: Required value: One of TCP or UDS must be set",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {uds: {udsName: x}, tcp: {url: 'http://x'}}}"),
			"TCP and UDS cannot both be set",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {uds: {}}}"),
			"service.connection.udsName: Invalid value: \"nil\": must be present for UDS connections",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'ftp://x'}}}"),
			"service.connection.url: Invalid value: \"ftp://x\": supported connection protocols are http:// and https://",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://x', tlsConfig: {}}}}"),
			"service.connection.tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP",
		},
		{
			connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x'}}}"),
			"service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS",
		},
		{
			connection(
				"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x', tlsConfig: {clientKey: " + key + "}}}}",
			),
			"service.connection.tlsConfig.clientCert: Invalid value: \"nil\": Using TLS requires clientCert",
		},
		{
			connection(
				"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x', tlsConfig: {clientCert: " + certificate +
					", clientKey: /none}}}}",
			),
			"service.connection.tlsConfig.clientKey: Invalid value: \"/none\": TLS client key does not exist",
		},
		{
			connection(
				"{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x', tlsConfig: {clientCert: " + key +
					", clientKey: " + key + "}}}}",
			),
			"failed to create dialer for egressSelection \"cluster\": failed to read key pair",
		},
		{connection("{proxyProtocol: GRPC}"), "service.connection.transport: Required value: transport must be set for GRPC"},
		{
			connection("{proxyProtocol: GRPC, transport: {tcp: {url: 'http://x'}}}"),
			"service.connection.uds: Required value: UDS must be set with GRPC",
		},
		{
			head + "- {name: master, connection: {proxyProtocol: Direct}}\n",
			`service.connection: Unsupported value: "master": supported values: "cluster", "controlplane", "etcd"`,
		},
		{
			head + "- {name: etcd, connection: {proxyProtocol: Direct}}\n- {name: ETCD, connection: {proxyProtocol: Direct}}\n",
			`service.connection[1]: Duplicate value: "etcd"`,
		},
	} {
		if _, err := load(t, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.config, err, c.want)
		}
	}
}
