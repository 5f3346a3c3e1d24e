package openapi

import (
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestClientGo reads the documents with the discovery client of client-go.
func TestClientGo(t *testing.T) {
	server := httptest.NewServer(newHandler(t, Options{}))
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	v2, err := client.OpenAPISchema()
	if err != nil || len(v2.Definitions.AdditionalProperties) != 624 {
		t.Fatalf("v2: %v", err)
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil || len(versions) != 23 {
		t.Errorf("%v, %d versions", err, len(versions))
	}
	spec, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil || spec.Components.Schemas["io.k8s.api.apps.v1.Deployment"] == nil {
		t.Errorf("apps/v1: %v", err)
	}
}
