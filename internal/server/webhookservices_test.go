package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// ownAddress returns an address of this machine that endpoints may have: not a loopback address.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has only loopback addresses")
	return ""
}

// serviceHook starts a webhook at an address that allows every write and has a certificate for one name. It returns its
// port and its certificate as PEM in base64.
func serviceHook(t *testing.T, address, name string) (port, bundle string) {
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
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review) // the server may be gone
	}))
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	_ = hook.Listener.Close()
	hook.Listener, hook.TLS = l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	hook.StartTLS()
	t.Cleanup(hook.Close)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestWebhooksAsServices calls webhooks that are Services, by cluster IP and, with --enable-aggregator-routing, by
// endpoint. The messages are those of kube-apiserver 1.36.
func TestWebhooksAsServices(t *testing.T) {
	address := ownAddress(t)
	port, bundle := serviceHook(t, address, "good.default.svc")
	const noCertificate = "tls: failed to verify certificate"
	for _, routing := range []bool{false, true} {
		config := testConfig(t)
		config.Network.Aggregation.ByEndpoints = routing
		s := start(t, config)
		c := httpClient(t, s, true)
		makeServices(t, c, s.URL(), address, port)
		for _, test := range []struct {
			service        string
			port           int
			cluster, route string // parts of the message, "" if the webhook is called
		}{
			{"missing", 443, `service "missing" not found`, `service "missing" not found`},
			{"empty", 444, `no service port 444 found for service "empty"`, `no service port 444 found for service "empty"`},
			{"good", 443, `cannot route to service with ClusterIP "None"`, ""},
			{"impostor", 443, `cannot route to service with ClusterIP "None"`, noCertificate},
			{"named", 1, "dial tcp 127.0.0.1:1: connect: connection refused", `unsupported service type "ExternalName"`},
			{"kubernetes", 443, noCertificate, noCertificate},
		} {
			want := test.cluster
			if routing {
				want = test.route
			}
			got := callService(t, c, s.URL(), test.service, test.port, bundle)
			prefix := fmt.Sprintf(`Post "https://%s.default.svc:%d/judge?timeout=5s": `, test.service, test.port)
			ok := got.status == http.StatusInternalServerError && strings.Contains(got.message(), prefix) &&
				strings.Contains(got.message(), want)
			if want == "" {
				ok = got.status == http.StatusCreated
			}
			if !ok {
				t.Errorf("routing %t, %s: %d %s, want %q", routing, test.service, got.status, got.message(), want)
			}
		}
	}
}

// makeServices creates Services: one of type ExternalName, one without endpoints, and two with endpoints at address and
// port.
func makeServices(t *testing.T, c *http.Client, url, address, port string) {
	t.Helper()
	const services, slices = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	slice := func(service string) [2]string {
		return [2]string{slices, fmt.Sprintf(
			`{"metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},"addressType":"IPv4",
			"endpoints":[{"addresses":["192.0.2.9"],"conditions":{"ready":false}},{"addresses":[%q]}],
			"ports":[{"name":"https","port":%s}]}`, service, service, address, port)}
	}
	const headless = `"spec":{"clusterIP":"None","ports":[{"name":"https","port":443}]}}`
	for _, made := range [][2]string{
		{services, `{"metadata":{"name":"named"},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`},
		{services, `{"metadata":{"name":"empty"},"spec":{"ports":[{"name":"https","port":443}]}}`},
		{services, `{"metadata":{"name":"good"},` + headless}, {services, `{"metadata":{"name":"impostor"},` + headless},
		slice("good"), slice("impostor"),
	} {
		if a := sendJSON(t, c, "POST", url+made[0], made[1]); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
	}
}

// callService makes a Service a webhook for ConfigMaps, creates one, and removes the webhook. It returns the answer to
// the creation.
func callService(t *testing.T, c *http.Client, url, service string, port int, bundle string) answer {
	t.Helper()
	configurations := url + webhookConfigurations + "validatingwebhookconfigurations"
	made := sendJSON(t, c, "POST", configurations, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
		"kind":"ValidatingWebhookConfiguration","metadata":{"name":"w"},"webhooks":[{"name":"w.example.com","timeoutSeconds":5,
		"clientConfig":{"service":{"namespace":"default","name":%q,"port":%d,"path":"/judge"},"caBundle":%q},
		"admissionReviewVersions":["v1"],"sideEffects":"None",
		"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`,
		service, port, bundle))
	if made.status != http.StatusCreated {
		t.Fatal(made.status, made.body)
	}
	got := sendJSON(t, c, "POST", url+configMapsPath, configMapNamed("a"))
	if a := call(t, c, "DELETE", configurations+"/w"); a.status != http.StatusOK {
		t.Fatal(a.status, a.body)
	}
	return got
}

// TestConversionWebhooksAsServices: conversion webhooks are found as admission webhooks are.
func TestConversionWebhooksAsServices(t *testing.T) {
	config := testConfig(t)
	config.Network.Aggregation.ByEndpoints = true
	s := start(t, config)
	c := httpClient(t, s, true)
	service := `{"metadata":{"name":"empty"},"spec":{"ports":[{"name":"https","port":443}]}}`
	if a := sendJSON(t, c, "POST", s.URL()+"/api/v1/namespaces/default/services", service); a.status != http.StatusCreated {
		t.Fatal(a.status, a.body)
	}
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`, name, storage)
	}
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Cluster",
		"names":{"plural":"widgets","kind":"Widget"},"versions":[` + version("v1", true) + `,` + version("v2", false) + `],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
		"clientConfig":{"service":{"namespace":"default","name":"empty"}}}}}}`
	definitions := s.URL() + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if a := sendJSON(t, c, "POST", definitions, definition); a.status != http.StatusCreated {
		t.Fatal(a.status, a.body)
	}
	widgets := s.URL() + "/apis/example.com/v2/widgets"
	for end := time.Now().Add(30 * time.Second); call(t, c, "GET", widgets).status == http.StatusNotFound; {
		if time.Now().After(end) {
			t.Fatal("the custom resource is not served after 30 seconds")
		}
		time.Sleep(10 * time.Millisecond)
	}
	a := sendJSON(t, c, "POST", widgets, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"}}`)
	const want = `conversion webhook for example.com/v2, Kind=Widget failed: Post "https://empty.default.svc:443/?timeout=30s": ` +
		`no endpoints available for service "empty"`
	if a.status != http.StatusInternalServerError || a.message() != want {
		t.Errorf("%d %s, want %s", a.status, a.message(), want)
	}
}
