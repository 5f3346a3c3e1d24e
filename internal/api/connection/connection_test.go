package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// nodes are the nodes of a cluster, by name.
type nodes map[string]*corev1.Node

func (n nodes) Get(_ context.Context, r schema.GroupResource, _, name string) (registry.Object, error) {
	if node := n[name]; node != nil && r.Resource == "nodes" {
		return node, nil
	}
	return nil, kerrors.NewNotFound(r, name)
}

func (nodes) List(context.Context, schema.GroupResource, string) ([]registry.Object, error) {
	return nil, nil
}

func node(port int32, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port, n.Status.DeclaredFeatures = port, []string{"Feature"}
	for i := 0; i < len(addresses); i += 2 {
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeAddressType(addresses[i]), Address: addresses[i+1]})
	}
	return n
}

func TestKubelet(t *testing.T) {
	n := New(Options{
		Objects: nodes{
			"both": node(1234, "InternalIP", "10.0.0.1", "Hostname", "h"), "ip": node(0, "InternalIP", "10.0.0.2"),
			"other": node(0, "ExternalDNS", "x"),
		},
		AddressTypes: []string{"Hostname", "InternalIP"}, Port: 10250,
	})
	defer n.Close()
	for name, want := range map[string]string{
		"both": "h:1234", "ip": "10.0.0.2:10250", "other": "no preferred addresses found; known addresses: [{ExternalDNS x}]",
		"none": `nodes "none" not found`,
	} {
		k, err := n.Kubelet(t.Context(), name)
		if err != nil {
			if err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			continue
		}
		if got := k.Host + ":" + k.Port; got != want || !slices.Equal(k.Features, []string{"Feature"}) {
			t.Errorf("%s: %s with %q, want %s", name, got, k.Features, want)
		}
		if k.Transport == nil || k.Unverified == nil || k.Pinned == nil {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

func TestResolve(t *testing.T) {
	hosts := map[string][]string{
		"good": {"10.0.0.1", "2001:db8::1"}, "mixed": {"10.0.0.1", "127.0.0.1"}, "local": {"169.254.169.254"}, "none": {},
	}
	n := New(Options{Lookup: func(_ context.Context, host string) (found []net.IPAddr, err error) {
		addresses, ok := hosts[host]
		if !ok {
			return nil, errors.New("no such host")
		}
		for _, a := range addresses {
			found = append(found, net.IPAddr{IP: net.ParseIP(a)})
		}
		return found, nil
	}})
	defer n.Close()
	for host, want := range map[string]string{
		"good": "10.0.0.1 2001:db8::1", "mixed": "address not allowed", "local": "address not allowed",
		"none": "no addresses for hostname", "other": "no such host",
	} {
		addresses, err := n.Resolve(t.Context(), host)
		got := strings.Join(addresses, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// TestAuthorities connects to a kubelet with and without the authority of its certificate, and shows a certificate.
func TestAuthorities(t *testing.T) {
	shown := 0
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown = len(r.TLS.PeerCertificates)
	}))
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	kubelet.StartTLS()
	defer kubelet.Close()
	n := New(Options{
		Objects: nodes{"n": node(1, "InternalIP", "10.0.0.1")}, AddressTypes: []string{"InternalIP"},
		Certificate: func() (*tls.Certificate, error) { return &kubelet.TLS.Certificates[0], nil }, Timeout: time.Minute,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("connecting has no limit")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", kubelet.Listener.Addr().String())
		},
	})
	defer n.Close()
	right := x509.NewCertPool()
	right.AddCert(kubelet.Certificate())
	for name, test := range map[string]struct {
		authorities          *x509.CertPool
		verified, unverified bool // whether the connections succeed
	}{
		"none": {nil, true, true}, "another": {x509.NewCertPool(), false, true}, "the right one": {right, true, true},
	} {
		n.SetAuthorities(test.authorities)
		k, err := n.Kubelet(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		for _, transport := range []struct {
			*proxy.Transport
			ok bool
		}{{k.Transport, test.verified}, {k.Unverified, test.unverified}} {
			shown = 0
			r, err := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/", nil) // a name of the certificate
			if err != nil {
				t.Fatal(err)
			}
			w, err := transport.RoundTrip(r)
			if err == nil {
				_ = w.Body.Close()
			}
			if (err == nil) != transport.ok || err == nil && shown != 1 {
				t.Errorf("%s: %v, %d certificates shown", name, err, shown)
			}
		}
	}
}
