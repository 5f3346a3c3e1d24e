package plugintest

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestReviewsAreExcludedFromWebhooks has webhooks that refuse every write. They are not called for reviews of
// users and of access, unless the gate is off.
func TestReviewsAreExcludedFromWebhooks(t *testing.T) {
	const can = `"resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}`
	reviews := []apitest.Step{
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`, http.StatusCreated, ""},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, http.StatusCreated, ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{` + can + `}}`, http.StatusCreated, ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, http.StatusCreated, ""},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"u",` + can + `}}`, http.StatusCreated, ""},
		{"POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
			`{"metadata":{"namespace":"default"},"spec":{"user":"u",` + can + `}}`, http.StatusCreated, ""},
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		for _, excludes := range []bool{true, false} {
			c := servertest.Default()
			if !excludes {
				c.API.FeatureGates = []string{"ExcludeAdmissionWebhookVirtualResources=false"}
			}
			s, h := servertest.Start(t, c), apitest.NewWebhooks(t)
			h.On("/refuse", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{}
			})
			s.Create(apitest.AdmissionPath+strings.ToLower(kind)+"s",
				strings.Replace(h.Configuration(kind, "refuse", "/refuse", ""), `"configmaps","configmaps/*"`, `"*"`, 1))
			for _, step := range reviews {
				if !excludes {
					step.Status = http.StatusBadRequest
				}
				s.Run([]apitest.Step{step})
			}
			s.Run([]apitest.Step{{"POST", apitest.ConfigMapsPath, apitest.ConfigMap("a"), http.StatusBadRequest, ""}})
		}
	}
}
