package plugintest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestWebhookMetrics compares the metrics of calls with those that kube-apiserver 1.36 has after the same requests.
func TestWebhookMetrics(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/allow", apitest.Allow)
	h.On("/deny", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 500, Reason: "InternalError"}}
	})
	h.On("/deny700", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 700}}
	})
	h.On("/patch", apitest.PatchWith(`[{"op":"remove","path":"/metadata/nothing/x"}]`))
	const ignore = `,"failurePolicy":"Ignore"`
	conditions := func(expressions ...string) string {
		out := `,"matchConditions":[`
		for i, e := range expressions {
			out += fmt.Sprintf(`{"name":"c%d","expression":%q},`, i, e)
		}
		return strings.TrimSuffix(out, ",") + "]"
	}
	for i, test := range []struct {
		path, fields string
		want         []string // the type is %s for "validating" or "admit", %.5s for "validate" or "admit"
	}{
		{"/allow", "", []string{`webhook_request_total{code="200",name="w",operation="CREATE",rejected="false",type="%s"} 1`}},
		{"/deny", ignore, []string{
			`webhook_request_total{code="500",name="w",operation="CREATE",rejected="true",type="%s"} 1`,
			`webhook_rejection_count{error_type="no_error",name="w",operation="CREATE",rejection_code="500",type="%s"} 1`,
			`webhook_admission_duration_seconds_count{name="w",operation="CREATE",rejected="true",type="%s"} 1`,
		}},
		{"/deny700", "", []string{
			`webhook_request_total{code="600",name="w",operation="CREATE",rejected="true",type="%s"} 1`,
			`webhook_rejection_count{error_type="no_error",name="w",operation="CREATE",rejection_code="600",type="%s"} 1`,
		}},
		{"/missing", "", []string{
			`webhook_request_total{code="404",name="w",operation="CREATE",rejected="true",type="%s"} 1`,
			`webhook_rejection_count{error_type="calling_webhook_error",name="w",operation="CREATE",rejection_code="404",type="%s"} 1`,
		}},
		{"/missing", ignore, []string{
			`webhook_request_total{code="404",name="w",operation="CREATE",rejected="false",type="%s"} 1`,
			`webhook_fail_open_count{name="w",type="%s"} 1`,
		}},
		{"/allow", conditions("true"), nil},
		{"/allow", conditions("true", "false"), []string{
			`match_condition_evaluation_seconds_count{kind="webhook",name="w",operation="CREATE",type="%s"} 1`,
			`match_condition_exclusions_total{kind="webhook",name="w",operation="CREATE",type="%.5s"} 1`,
		}},
		{"/allow", conditions("object.metadata.nothing == 'x'", "false"), []string{
			`match_condition_evaluation_seconds_count{kind="webhook",name="w",operation="CREATE",type="%s"} 1`,
			`match_condition_evaluation_errors_total{kind="webhook",name="w",operation="CREATE",type="%s"} 1`,
			`match_condition_exclusions_total{kind="webhook",name="w",operation="CREATE",type="%.5s"} 1`,
		}},
		{"/allow", conditions("object.metadata.nothing == 'x'") + ignore, []string{
			`match_condition_evaluation_errors_total{kind="webhook",name="w",operation="CREATE",type="%s"} 1`,
			`match_condition_exclusions_total{kind="webhook",name="w",operation="CREATE",type="%.5s"} 1`,
		}},
		{"/allow", conditions("object.metadata.nothing == 'x'"), []string{
			`match_condition_evaluation_errors_total{kind="webhook",name="w",operation="CREATE",type="%s"} 1`,
		}},
	} {
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			got := countedCall(s, h, fmt.Sprintf("%c%d", kind[0]|0x20, i), kind, test.path, test.fields)
			for _, want := range test.want {
				want = "apiserver_admission_" + strings.Replace(want, `type="%.5s"`, `type="validate"`, 1)
				if kind == "MutatingWebhookConfiguration" {
					want = strings.Replace(want, `type="validate"`, `type="admit"`, 1)
					want = strings.Replace(want, `type="%s"`, `type="admit"`, 1)
				}
				want = strings.Replace(want, `type="%s"`, `type="validating"`, 1)
				if !strings.Contains(got, want) {
					t.Errorf("%s %s%s: there is no %s in\n%s", kind, test.path, test.fields, want, got)
				}
			}
			if strings.Contains(test.fields, "true") && strings.Contains(got, "match_condition") != (len(test.want) > 0) {
				t.Errorf("%s %s: %s", kind, test.fields, got)
			}
		}
	}
}

// countedCall creates a ConfigMap with one webhook, and returns the metrics of that webhook, whose name is "w" there.
func countedCall(s *servertest.Server, h *apitest.Webhooks, name, kind, path, fields string) string {
	configuration := h.Configure(s.Client, kind, name, path, fields)
	s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap(name))
	s.Do("DELETE", configuration, "")
	var lines []string
	for _, line := range strings.Split(s.Get("/metrics"), "\n") {
		full := `name="` + name + `.example.com"`
		if strings.Contains(line, full) && !strings.Contains(line, "_bucket") {
			lines = append(lines, strings.Replace(line, full, `name="w"`, 1))
		}
	}
	return strings.Join(lines, "\n")
}

// TestWebhookResponses checks responses that are not AdmissionReviews. The messages are those of kube-apiserver
// 1.36.
func TestWebhookResponses(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	var response atomic.Pointer[string]
	h := &apitest.Webhooks{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, strings.ReplaceAll(*response.Load(), "UID", string(review.Request.UID)))
	}))}
	t.Cleanup(h.Close)
	configurations := apitest.AdmissionPath + "validatingwebhookconfigurations"
	body := h.Configuration("ValidatingWebhookConfiguration", "w", "/", "")
	s.Create(configurations, body)
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":`
	const failed = `Internal error occurred: failed calling webhook "w.example.com": `
	for body, want := range map[string]string{
		review + `{"uid":"UID","allowed":true,"unknown":1}}`: "",
		review + `{"uid":"UID","Allowed":true}}`:             `admission webhook "w.example.com" denied the request without explanation`,
		`{}`:                                                 failed + "received invalid webhook response: webhook response was absent",
		`{`:                                                  failed + "failed to call webhook: couldn't get version/kind; json parse error: unexpected end of JSON input",
		`{"apiVersion":"a/b/c","kind":"AdmissionReview"}`: failed + "failed to call webhook: unexpected GroupVersion string: a/b/c",
		review + `{"uid":"UID","allowed":true,"patch":"!!","patchType":"JSONPatch"}}`: failed +
			"failed to call webhook: illegal base64 data at input byte 0",
	} {
		response.Store(&body)
		a := s.Send("POST", apitest.ConfigMapsPath+"?dryRun=All", apitest.ConfigMap("a"))
		if want == "" && a.Status != http.StatusCreated || want != "" && a.Message() != want {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}
