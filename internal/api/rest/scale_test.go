package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
)

// TestScaleViews asks for the scale subresource in every shape that kubectl and
// metadata clients ask for.
func TestScaleViews(t *testing.T) {
	s := startServer(t, config.InMemory()).accepting("application/json")
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	if status, answer := s.do(
		t, http.MethodPost, deployments, "application/json", []byte(body),
	); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, answer)
	}
	for _, c := range []struct {
		accept, query string
		status        int
		contains      []string
	}{
		{"application/json", "", 200, []string{`{"kind":"Scale","apiVersion":"autoscaling/v1"`, `"replicas":2`}},
		{
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "", 200,
			[]string{
				`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`,
				`"name":"Desired","type":"integer"`, `"name":"Available"`,
				`"cells":["d",2,0,"`, `"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
					`"metadata":{"name":"d"`,
			},
		},
		{"application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=None", 200, []string{`"object":null`}},
		{"application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=Object", 200, []string{
			`"object":{"kind":"Scale","apiVersion":"autoscaling/v1"`,
		}},
		{"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "", 200, []string{
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"d"`,
		}},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "", 200, []string{
			"k8s\x00", "PartialObjectMetadata",
		}},
	} {
		status, answer := s.accepting(c.accept).do(t, http.MethodGet, deployments+"/d/scale"+c.query, "", nil)
		if status != c.status {
			t.Errorf("%s: %d %s", c.accept, status, answer)
		}
		for _, want := range c.contains {
			if !strings.Contains(string(answer), want) {
				t.Errorf("%s%s: no %s in %s", c.accept, c.query, want, answer)
			}
		}
	}
}
