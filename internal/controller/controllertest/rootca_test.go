package controllertest

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// TestRootCertificatesArePublished: each namespace gets the certificates of the server, and gets them again after
// a client has deleted or changed them.
func TestRootCertificatesArePublished(t *testing.T) {
	s := servertest.Start(t, servertest.Default("root-ca-certificate-publisher-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	awaitPublished(t, s, path)
	s.Patch(path, `{"data":{"ca.crt":"x","other":"y"}}`)
	awaitPublished(t, s, path)
	s.Do("DELETE", path, "")
	awaitPublished(t, s, path)
}

// awaitPublished waits until the ConfigMap at a path has the certificates and nothing else.
func awaitPublished(t *testing.T, s *servertest.Server, path string) {
	t.Helper()
	wait.Seen(t, "the certificates", func() (bool, string) {
		var m corev1.ConfigMap
		got := s.Send("GET", path, "")
		err := json.Unmarshal([]byte(got.Body), &m)
		return err == nil && len(m.Data) == 1 && m.Data["ca.crt"] == string(s.CA()), got.Body
	})
}

// TestRootCertificatesAreNotFoughtOver: another program publishes other certificates again and again. The server
// must not write all the time: it corrects a change a second later, not at once.
func TestRootCertificatesAreNotFoughtOver(t *testing.T) {
	s := servertest.Start(t, servertest.Default("root-ca-certificate-publisher-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	awaitPublished(t, s, path)
	s.Idle(t)
	changed := time.Now()
	s.Patch(path, `{"data":{"ca.crt":"x"}}`)
	awaitPublished(t, s, path)
	if took := time.Since(changed); took < time.Second {
		t.Errorf("a change was corrected after %v", took)
	}
}
