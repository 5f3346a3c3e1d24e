package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestUnstoredObjectsAreAdmitted checks that validating admission is also called for valid token requests and reviews.
func TestUnstoredObjectsAreAdmitted(t *testing.T) {
	c := testConfig(t)
	var judged atomic.Pointer[string]
	c.testPlugins = []admission.Plugin{{Name: "Refuse", Validate: func(ctx context.Context, a *admission.Attributes) error {
		what := strings.Trim(a.Resource.Resource+"/"+a.Subresource, "/")
		if what == "serviceaccounts" || request.UserFrom(ctx) == nil { // requests of the server itself
			return nil
		}
		judged.Store(&what)
		return a.Forbidden(errors.New("no"))
	}}}
	s := start(t, c)
	post(t, s, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, http.StatusCreated)
	const authn, authz = "/apis/authentication.k8s.io/v1/", "/apis/authorization.k8s.io/v1/"
	for path, body := range map[string]string{
		authn + "tokenreviews":             `{"spec":{"token":"x"}}`,
		authn + "selfsubjectreviews":       `{}`,
		authz + "subjectaccessreviews":     `{"spec":{"user":"u","nonResourceAttributes":{"verb":"get","path":"/"}}}`,
		authz + "selfsubjectaccessreviews": `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
		authz + "selfsubjectrulesreviews":  `{"spec":{"namespace":"default"}}`,
		authz + "namespaces/default/localsubjectaccessreviews": `{"spec":{"user":"u",` +
			`"resourceAttributes":{"verb":"get","resource":"pods","namespace":"default"}}}`,
		"/api/v1/namespaces/default/serviceaccounts/robot/token": `{"spec":{}}`,
		"/api/v1/namespaces/default/pods/p/binding":              `{"metadata":{"name":"p"},"target":{"name":"n"}}`,
		"/api/v1/namespaces/default/pods/p/eviction":             `{"metadata":{"name":"p"}}`,
	} {
		judged.Store(nil)
		post(t, s, path, body, http.StatusForbidden)
		if what := judged.Load(); what == nil || !strings.HasSuffix(path, strings.TrimPrefix(*what, "serviceaccounts/")) &&
			!strings.HasSuffix(path, strings.TrimPrefix(*what, "pods/")) {
			t.Errorf("%s: nobody was asked", path)
		}
	}
	// Requests that are invalid by themselves do not reach the test plug-ins.
	judged.Store(nil)
	post(t, s, authn+"tokenreviews", `{"spec":{}}`, http.StatusBadRequest)
	post(
		t, s, "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":1}}`,
		http.StatusUnprocessableEntity,
	)
	if what := judged.Load(); what != nil {
		t.Errorf("an invalid one was judged: %s", *what)
	}
}

// TestDecidingOnCertificatesNeedsTheSigner checks that a user who may update the approval of certificate requests can
// only approve requests for signers that the user has permission for.
func TestDecidingOnCertificatesNeedsTheSigner(t *testing.T) {
	s := start(t, testConfig(t))
	der, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "n"}}, newAuthority(t).key,
	)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), "signerName": "example.com/s",
		"usages": []string{"client auth"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	post(t, s, path, string(body), http.StatusCreated)
	const roles = "/apis/rbac.authorization.k8s.io/v1/"
	grant := func(name, rule string) {
		post(t, s, roles+"clusterroles", `{"metadata":{"name":"`+name+`"},"rules":[`+rule+`]}`, http.StatusCreated)
		post(
			t, s, roles+"clusterrolebindings",
			`{"metadata":{"name":"`+name+`"},"subjects":[{"kind":"User","name":"u"}],`+
				`"roleRef":{"kind":"ClusterRole","name":"`+name+`"}}`,
			http.StatusCreated,
		)
	}
	approve := func() *httptest.ResponseRecorder {
		patch := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r"}]}}`
		r := httptest.NewRequest(http.MethodPatch, path+"/r/approval", strings.NewReader(patch))
		r.Header.Set("Authorization", "Bearer admintoken")
		r.Header.Set("Impersonate-User", "u")
		r.Header.Set("Content-Type", "application/merge-patch+json")
		w := httptest.NewRecorder()
		s.http.server.Handler.ServeHTTP(w, r)
		return w
	}
	// The authorizer sees a grant a little after it is written.
	await := func(status int, words string) {
		t.Helper()
		wait.Seen(t, fmt.Sprintf("the status %d with %s", status, words), func() (bool, string) {
			w := approve()
			return w.Code == status && strings.Contains(w.Body.String(), words), fmt.Sprint(w.Code, " ", w.Body)
		})
	}
	grant(
		"subresource",
		`{"verbs":["patch"],"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests/approval"]}`,
	)
	await(http.StatusForbidden, `user not permitted to approve requests with signerName \"example.com/s\"`)
	grant(
		"signer",
		`{"verbs":["approve"],"apiGroups":["certificates.k8s.io"],"resources":["signers"],"resourceNames":["example.com/*"]}`,
	)
	await(http.StatusOK, `"Approved"`)
}
