package rootca_test

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// TestRootCertificatesArePublished: each namespace has the certificates of the server, also after somebody has deleted
// or changed them.
func TestRootCertificatesArePublished(t *testing.T) {
	s := servertest.Start(t, servertest.Default("root-ca-certificate-publisher-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	published := func() {
		t.Helper()
		wait.Seen(t, "the certificates", func() (bool, string) {
			var m corev1.ConfigMap
			got := s.Send("GET", path, "")
			err := json.Unmarshal([]byte(got.Body), &m)
			return err == nil && len(m.Data) == 1 && m.Data["ca.crt"] == string(s.CA()), got.Body
		})
	}
	published()
	s.Patch(path, `{"data":{"ca.crt":"x","other":"y"}}`)
	published()
	s.Do("DELETE", path, "")
	published()
}

// TestRootCertificatesAreNotFoughtOver: another program that always publishes other certificates does not make the
// server write all the time.
func TestRootCertificatesAreNotFoughtOver(t *testing.T) {
	s := servertest.Start(t, servertest.Default("root-ca-certificate-publisher-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	began := time.Now()
	corrected := 0
	for time.Since(began) < 3*time.Second {
		var m corev1.ConfigMap
		got := s.Send("GET", path, "")
		if err := json.Unmarshal([]byte(got.Body), &m); err != nil {
			t.Fatal(err)
		}
		if m.Data["ca.crt"] != string(s.CA()) {
			time.Sleep(time.Millisecond)
			continue
		}
		corrected++
		s.Patch(path, `{"data":{"ca.crt":"x"}}`)
	}
	// The first is the creation.
	if most := 2 + int(time.Since(began)/time.Second); corrected < 2 || corrected > most {
		t.Errorf("the certificates were published %d times, want 2 to %d", corrected, most)
	}
}
