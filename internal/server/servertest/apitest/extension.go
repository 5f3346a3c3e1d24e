package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Extension is an extension API server that serves version v1 of the group agg.example.com.
type Extension struct {
	*httptest.Server
	// Port is where it listens, Bundle its certificate as PEM in base64.
	Port, Bundle string
	// Broken makes it answer every request 503.
	Broken atomic.Bool
	// Last is the last request below the version.
	Last atomic.Pointer[http.Request]
	// Special, unless it is nil, is called for each request. If it returns true, it has written the response.
	Special func(http.ResponseWriter, *http.Request) bool
}

// ExtensionVersion is the path of the version that an Extension serves.
const ExtensionVersion = "/apis/agg.example.com/v1"

// extensionDocuments has the documents that the server serves, by path.
var extensionDocuments = map[string]string{
	"/apis": `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"agg.example.com"},
		"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"widgets","scope":"Namespaced",
		"responseKind":{"group":"agg.example.com","version":"v1","kind":"Widget"},"singularResource":"widget","verbs":["get"]}]}]}]}`,
	ExtensionVersion: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"agg.example.com/v1","resources":[]}`,
	"/openapi/v3": `{"paths":{"apis/agg.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/agg.example.com/v1?hash=AAA"},
		"version":{"serverRelativeURL":"/openapi/v3/version?hash=B"}}}`,
	"/openapi/v3/apis/agg.example.com/v1": `{"openapi":"3.0.0","info":{"title":"extension","version":"1"},"paths":{}}`,
	"/openapi/v2": `{"paths":{"/apis/agg.example.com/v1/widgets":{"get":{"responses":{"200":{"description":"OK",
		"schema":{"$ref":"#/definitions/example.Widget"}}}}},"/version/":{}},"definitions":{"example.Widget":{}}}`,
}

// SelfSigned returns a self-signed certificate for a host name, and the certificate as PEM in base64.
func SelfSigned(t testing.TB, name string) (pair tls.Certificate, bundle string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// NewExtension starts an extension API server.
func NewExtension(t testing.TB) *Extension {
	t.Helper()
	e := &Extension{}
	e.Server = httptest.NewUnstartedServer(e)
	e.EnableHTTP2 = true
	var pair tls.Certificate
	pair, e.Bundle = SelfSigned(t, "extension.default.svc")
	e.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	e.StartTLS()
	t.Cleanup(e.Close)
	_, e.Port, _ = net.SplitHostPort(e.Listener.Addr().String())
	return e
}

// ServeHTTP serves the documents, and some paths below the version.
func (e *Extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	below, _ := strings.CutPrefix(r.URL.Path, ExtensionVersion+"/")
	switch {
	case e.Broken.Load():
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	case e.Special != nil && e.Special(w, r):
		return
	case extensionDocuments[r.URL.Path] != "":
		contentType := "application/json"
		if r.URL.Path == "/apis" {
			contentType += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, extensionDocuments[r.URL.Path])
		return
	}
	e.Last.Store(r.Clone(r.Context()))
	switch below {
	case "echo": // sends each part of the body back as soon as it arrives
		_ = http.NewResponseController(w).EnableFullDuplex()
		buffer := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	case "redirect":
		http.Redirect(w, r, "https://127.0.0.1:1/elsewhere", http.StatusFound)
	case "hang":
		<-r.Context().Done()
	case "upgrade":
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "got "+line)
	default:
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}
}

// Register registers the extension API server and waits until it is available.
func (e *Extension) Register(c *Client) {
	c.t.Helper()
	c.Create("/api/v1/namespaces/default/services",
		`{"metadata":{"name":"extension"},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`)
	c.Create("/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"metadata":{"name":"v1.agg.example.com"},
		"spec":{"group":"agg.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"caBundle":%q,
		"service":{"name":"extension","namespace":"default","port":%s}}}`, e.Bundle, e.Port))
	c.Served(ExtensionVersion)
}
