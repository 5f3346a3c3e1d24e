package plugintest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
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

// serviceHook starts a webhook at an address. The webhook allows every write, and its certificate is for one name.
// It returns the port, and the certificate as PEM in base64.
func serviceHook(t *testing.T, address, name string) (port, bundle string) {
	t.Helper()
	pair, bundle := apitest.SelfSigned(t, name)
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
	hook.Listener, hook.TLS = l, &tls.Config{Certificates: []tls.Certificate{pair}}
	hook.StartTLS()
	t.Cleanup(hook.Close)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, bundle
}

// TestWebhooksAsServices calls webhooks that are Services, by cluster IP and, with --enable-aggregator-routing, by
// endpoint. The messages are those of kube-apiserver 1.36.
func TestWebhooksAsServices(t *testing.T) {
	address := ownAddress(t)
	port, bundle := serviceHook(t, address, "good.default.svc")
	const noCertificate = "tls: failed to verify certificate"
	for _, routing := range []bool{false, true} {
		config := servertest.Default()
		config.Network.Aggregation.ByEndpoints = routing
		s := servertest.Start(t, config)
		makeServices(s, address, port)
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
			got := callService(s, test.service, test.port, bundle)
			prefix := fmt.Sprintf(`Post "https://%s.default.svc:%d/judge?timeout=5s": `, test.service, test.port)
			ok := got.Status == http.StatusInternalServerError && strings.Contains(got.Message(), prefix) &&
				strings.Contains(got.Message(), want)
			if want == "" {
				ok = got.Status == http.StatusCreated
			}
			if !ok {
				t.Errorf("routing %t, %s: %d %s, want %q", routing, test.service, got.Status, got.Message(), want)
			}
		}
	}
}

// makeServices creates Services: one of type ExternalName, one without endpoints, and two with endpoints at address and
// port.
func makeServices(s *servertest.Server, address, port string) {
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
		s.Create(made[0], made[1])
	}
}

// callService configures a Service as a webhook for ConfigMaps, creates a ConfigMap, and removes the webhook. It
// returns the answer to the creation.
func callService(s *servertest.Server, service string, port int, bundle string) apitest.Answer {
	const configurations = apitest.AdmissionPath + "validatingwebhookconfigurations"
	s.Create(configurations, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
		"kind":"ValidatingWebhookConfiguration","metadata":{"name":"w"},"webhooks":[{"name":"w.example.com","timeoutSeconds":5,
		"clientConfig":{"service":{"namespace":"default","name":%q,"port":%d,"path":"/judge"},"caBundle":%q},
		"admissionReviewVersions":["v1"],"sideEffects":"None",
		"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`,
		service, port, bundle))
	got := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("a"))
	s.Do("DELETE", configurations+"/w", "")
	return got
}

// TestConversionWebhooksAsServices checks that conversion webhooks are found in the same way as admission
// webhooks.
func TestConversionWebhooksAsServices(t *testing.T) {
	config := servertest.Default()
	config.Network.Aggregation.ByEndpoints = true
	s := servertest.Start(t, config)
	service := `{"metadata":{"name":"empty"},"spec":{"ports":[{"name":"https","port":443}]}}`
	s.Create("/api/v1/namespaces/default/services", service)
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`, name, storage)
	}
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Cluster",
		"names":{"plural":"widgets","kind":"Widget"},"versions":[` + version("v1", true) + `,` + version("v2", false) + `],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
		"clientConfig":{"service":{"namespace":"default","name":"empty"}}}}}}`
	s.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	const widgets = "/apis/example.com/v2/widgets"
	wait.Until(t, "the custom resource to be served", func() bool {
		return s.Send("GET", widgets, "").Status != http.StatusNotFound
	})
	a := s.Send("POST", widgets, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"}}`)
	const want = `conversion webhook for example.com/v2, Kind=Widget failed: Post "https://empty.default.svc:443/?timeout=30s": ` +
		`no endpoints available for service "empty"`
	if a.Status != http.StatusInternalServerError || a.Message() != want {
		t.Errorf("%d %s, want %s", a.Status, a.Message(), want)
	}
}
