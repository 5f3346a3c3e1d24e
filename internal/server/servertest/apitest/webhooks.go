package apitest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Paths of admission configurations, and of ConfigMaps, for whose writes the webhooks of Configuration are called.
const (
	AdmissionPath  = "/apis/admissionregistration.k8s.io/v1/"
	ConfigMapsPath = "/api/v1/namespaces/default/configmaps"
)

// ConfigMap returns a ConfigMap of a name.
func ConfigMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"1"}}`, name)
}

// Webhooks is a program with admission webhooks. Each path is one webhook.
type Webhooks struct {
	*httptest.Server
	mu      sync.Mutex // guards the fields below
	answers map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
	asked   map[string][]admissionv1.AdmissionRequest
}

// NewWebhooks starts a program without webhooks.
func NewWebhooks(t testing.TB) *Webhooks {
	h := &Webhooks{
		answers: map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{},
		asked:   map[string][]admissionv1.AdmissionRequest{},
	}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		answer := h.answers[r.URL.Path]
		h.asked[r.URL.Path] = append(h.asked[r.URL.Path], *review.Request)
		h.mu.Unlock()
		if answer == nil {
			http.NotFound(w, r)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID, review.Request = review.Request.UID, nil
		_ = json.NewEncoder(w).Encode(review) // the server may be gone
	}))
	t.Cleanup(h.Close)
	return h
}

// On makes answer the webhook at a path.
func (w *Webhooks) On(path string, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[path] = answer
}

// Requests returns the requests that the webhook at a path received since the last call.
func (w *Webhooks) Requests(path string) []admissionv1.AdmissionRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked[path]
	w.asked[path] = nil
	return asked
}

// Configuration returns a configuration with one webhook for writes of ConfigMaps. fields has further JSON members
// of the webhook, each after a comma. Without a namespaceSelector, the webhook is not called for kube-system,
// because the server writes ConfigMaps there some time after its start.
func (w *Webhooks) Configuration(kind, name, path, fields string) string {
	if !strings.Contains(fields, "namespaceSelector") {
		fields += `,"namespaceSelector":{"matchExpressions":[
			{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}`
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[{
		"name":"%s.example.com","clientConfig":{"url":%q,"caBundle":%q},"admissionReviewVersions":["v1"],"sideEffects":"None",
		"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["v1"],"resources":["configmaps","configmaps/*"]}]%s}]}`,
		kind, name, name, w.URL+path, base64.StdEncoding.EncodeToString(ca), fields)
}

// Allow is a webhook that allows every write.
func Allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// PatchWith returns a webhook that applies a JSON patch.
func PatchWith(patch string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: &kind}
	}
}

// Configure creates a configuration with one webhook, and returns its path.
func (w *Webhooks) Configure(c *Client, kind, name, path, fields string) string {
	c.t.Helper()
	resource := AdmissionPath + strings.ToLower(kind) + "s"
	c.Create(resource, w.Configuration(kind, name, path, fields))
	return resource + "/" + name
}
