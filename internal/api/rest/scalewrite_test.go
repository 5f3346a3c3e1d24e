package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/keelson-dev/keelson/config"
)

// TestScaleApplyTakesReplicasAlone applies Scales with more fields than a Scale has, with force. Unknown fields
// are refused. Of the known fields, only the replicas change the Deployment.
func TestScaleApplyTakesReplicasAlone(t *testing.T) {
	s := startServer(t, config.InMemory()).accepting("application/json")
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	if status, answer := s.do(
		t, http.MethodPost, deployments, "application/json", []byte(body),
	); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, answer)
	}
	before := withoutReplicas(t, s, deployments+"/d")
	for i, c := range []struct {
		body   string
		status int
	}{
		{
			`"metadata":{"name":"d"},"spec":{"replicas":3,"template":{"spec":{"hostNetwork":true,"containers":[{"name":"c",` +
				`"image":"evil"}]}}}`,
			500,
		},
		{`"metadata":{"name":"d"},"spec":{"paused":true}`, 500},
		{`"metadata":{"name":"d"},"status":{"conditions":[]}`, 500},
		{`"metadata":{"name":"d","labels":{"l":"1"},"annotations":{"a":"1"},"finalizers":["example.com/f"],
			"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"spec":{"replicas":4}`, 200},
		{`"metadata":{"name":"d"},"status":{"replicas":9,"selector":"z=z"}`, 200},
		{`"metadata":{"name":"d","uid":"other"},"spec":{"replicas":6}`, 409},
		{`"metadata":{"name":"d","resourceVersion":"1"},"spec":{"replicas":6}`, 409},
		{`"metadata":{"name":"d"},"spec":{"replicas":-1}`, 422},
		{`"metadata":{"name":"d"},"spec":{"replicas":5}`, 200},
	} {
		path := fmt.Sprintf("%s/d/scale?force=true&fieldManager=m%d", deployments, i)
		sent := `{"apiVersion":"autoscaling/v1","kind":"Scale",` + c.body + `}`
		if status, answer := s.do(
			t, http.MethodPatch, path, "application/apply-patch+yaml", []byte(sent),
		); status != c.status {
			t.Errorf("%s: %d for %d: %s", sent, status, c.status, answer)
		}
		if after := withoutReplicas(t, s, deployments+"/d"); after != before {
			t.Errorf("%s\nchanged\n%s\nto\n%s", sent, before, after)
		}
	}
}

// withoutReplicas reads a Deployment without its replicas and without the fields that change with every write of
// replicas.
func withoutReplicas(t *testing.T, s testServer, path string) string {
	t.Helper()
	status, answer := s.do(t, http.MethodGet, path, "", nil)
	var obj map[string]map[string]any
	_ = json.Unmarshal(answer, &obj)
	if status != http.StatusOK || obj["spec"] == nil {
		t.Fatalf("%s: %d %s", path, status, answer)
	}
	delete(obj["spec"], "replicas")
	for _, name := range []string{"generation", "resourceVersion", "managedFields"} {
		delete(obj["metadata"], name)
	}
	text, _ := json.Marshal(obj)
	return string(text)
}
