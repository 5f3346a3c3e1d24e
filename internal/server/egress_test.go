package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// fakeProxy returns the address of a proxy that records the addresses to which it was asked to connect.
func fakeProxy(t *testing.T) (address string, asked chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	asked = make(chan string, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				r, err := http.ReadRequest(reader)
				if err != nil {
					return
				}
				asked <- r.RequestURI
				if !strings.HasPrefix(r.RequestURI, "audit.") {
					_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\n\r\n")
					return
				}
				for err == nil {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					if r, err = http.ReadRequest(reader); err == nil {
						_, err = io.Copy(io.Discard, r.Body)
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), asked
}

// TestWebhooksAreReachedThroughTheProxy checks that the webhooks of authentication, authorization and audit are
// called through the proxy of the control plane, and never directly.
func TestWebhooksAreReachedThroughTheProxy(t *testing.T) {
	proxy, asked := fakeProxy(t)
	conf := testConfig(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hook := func(scheme, name string) string {
		return file(name, "clusters: [{name: c, cluster: {server: '"+scheme+"://"+name+".example/hook'}}]\n"+
			"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
	}
	conf.Network.EgressConfigFile = egressThrough(t, "controlplane", proxy)
	conf.Audit.Webhook.Mode = "blocking"
	conf.Authentication.Webhook.ConfigFile = hook("https", "authentication")
	conf.Authorization.Modes = []string{"Webhook"}
	conf.Authorization.Webhook.ConfigFile = hook("https", "authorization")
	conf.Audit.PolicyFile = file(
		"policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n",
	)
	conf.Audit.Webhook.ConfigFile = hook("http", "audit")
	s := start(t, conf)
	c := httpClient(t, s, false)
	apitest.Send(t, c, "GET", s.URL()+"/api/v1/namespaces", "", "Authorization", "Bearer somebody")
	apitest.Send(t, c, "GET", s.URL()+"/api/v1/namespaces", "")
	missing := map[string]bool{
		"authentication.example:443": true, "authorization.example:443": true, "audit.example:80": true,
	}
	for len(missing) > 0 {
		delete(missing, <-asked) // only the timeout of the test limits this wait
	}
	if a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", ""); !strings.Contains(
		a.Body, `apiserver_egress_dialer_dial_failure_count{protocol="http-connect",stage="proxy",transport="tcp"}`,
	) {
		t.Error("connections through the proxy are not counted")
	}
}

// egressThrough writes an egress configuration with one network and one proxy, and returns the path of the file.
func egressThrough(t *testing.T, network, proxy string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "egress.yaml")
	content := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" +
		"- {name: " + network + ", connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://" + proxy +
		"'}}}}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEtcdIsReachedThroughTheProxy(t *testing.T) {
	proxy, asked := fakeProxy(t)
	conf := testConfig(t)
	conf.Storage.Backend, conf.Storage.Etcd.Servers = config.StorageEtcd, []string{"http://etcd.example:2379"}
	conf.Network.EgressConfigFile = egressThrough(t, "etcd", proxy)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := Start(ctx, conf.Config, conf.Options)
		done <- err
	}()
	if target := <-asked; target != "etcd.example:2379" {
		t.Errorf("the proxy was asked for %s", target)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("the server started without its store")
	}
}

func TestMissingEgressConfiguration(t *testing.T) {
	conf := testConfig(t)
	conf.Network.EgressConfigFile = "/none"
	if _, err := Start(t.Context(), conf.Config, conf.Options); err == nil ||
		!strings.Contains(config.CommandLine(err), "egress-selector-config-file /none does not exist") {
		t.Errorf("%v", err)
	}
}
