package controllertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const signingRequestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// requestCertificate creates a request of the user anna and returns its key.
func requestCertificate(t *testing.T, s *servertest.Server, name, signer, usages string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "anna", Organization: []string{"developers"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	s.Create(signingRequestsPath, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"request":%q,"signerName":%q,"expirationSeconds":3600,"usages":[%s]}}`,
		name, text, signer, usages))
	return key
}

func readSigningRequest(t *testing.T, s *servertest.Server, name string) (r certificatesv1.CertificateSigningRequest) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.Get(signingRequestsPath+"/"+name)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func decideSigningRequest(s *servertest.Server, name, decision string) {
	s.Patch(signingRequestsPath+"/"+name+"/approval", `{"status":{"conditions":[{"type":"`+decision+`","status":"True","reason":"Test"}]}}`)
}

// TestApprovedRequestsAreSigned checks that an approved request gets a certificate that the server accepts, and
// that a request that is not approved gets none.
func TestApprovedRequestsAreSigned(t *testing.T) {
	s := servertest.Start(t, servertest.Default("csrsigning"))
	const signer, usages = "kubernetes.io/kube-apiserver-client", `"client auth","digital signature"`
	requestCertificate(t, s, "pending", signer, usages)
	requestCertificate(t, s, "denied", signer, usages)
	decideSigningRequest(s, "denied", "Denied")
	requestCertificate(t, s, "other", "example.com/signer", usages)
	decideSigningRequest(s, "other", "Approved")
	requestCertificate(t, s, "server", signer, `"client auth","server auth"`)
	decideSigningRequest(s, "server", "Approved")
	requestCertificate(t, s, "useless", signer, `"digital signature"`)
	decideSigningRequest(s, "useless", "Approved")
	key := requestCertificate(t, s, "good", signer, usages)
	decideSigningRequest(s, "good", "Approved")

	for name, want := range map[string]string{"server": `the usage "server auth" is not allowed`, "useless": "client auth is missing"} {
		wait.Seen(t, "the request "+name+" to fail", func() (bool, string) {
			r := readSigningRequest(t, s, name)
			c := r.Status.Conditions
			return len(c) == 2 && c[1].Type == "Failed" && strings.Contains(c[1].Message, want), fmt.Sprint(c)
		})
	}
	wait.Seen(t, "the certificate", func() (bool, string) {
		return len(readSigningRequest(t, s, "good").Status.Certificate) > 0, s.Get(signingRequestsPath + "/good")
	})
	cert := readSigningRequest(t, s, "good").Status.Certificate
	block, _ := pem.Decode(cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(parsed.NotAfter); left > time.Hour || left < 30*time.Minute || parsed.IsCA {
		t.Errorf("it is valid for %s, an authority: %t", left, parsed.IsCA)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	who := apitest.Send(t, &http.Client{Transport: transport}, "POST", s.URL()+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Content-Type", "application/json")
	if !strings.Contains(who.Body, `"username":"anna"`) || !strings.Contains(who.Body, `"developers"`) {
		t.Errorf("%d %s", who.Status, who.Body)
	}
	for _, name := range []string{"pending", "denied", "other"} {
		if r := readSigningRequest(t, s, name); len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 1 {
			t.Errorf("%s: %+v", name, r.Status)
		}
	}
}
