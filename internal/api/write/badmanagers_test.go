package write_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// badEntries are entries of managedFields that kube-apiserver does not accept from admission, each with a part of its warning.
var badEntries = []struct{ name, entry, warning string }{
	{"fields", `"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"zzz":{}}`,
		"error decoding versioned set from"},
	{"no operation", `"manager":"x","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}`,
		"operation must be `Apply` or `Update`"},
	{"operation", `"manager":"x","operation":"Y","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}`,
		"operation must be `Apply` or `Update`"},
	{"no apiVersion", `"manager":"x","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}`,
		"apiVersion must not be empty"},
	{"no fieldsType", `"manager":"x","operation":"Update","apiVersion":"v1","fieldsV1":{"f:data":{}}`,
		"missing fieldsType in managed fields entry 0"},
	{"fieldsType", `"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"Z","fieldsV1":{"f:data":{}}`,
		`invalid fieldsType "Z" in managed fields entry 0`},
}

const asApply = "application/apply-patch+yaml"

// TestManagedFieldsThatAdmissionMakesInvalid has a webhook that writes managedFields that cannot be used.
// Every write is accepted with a warning and has the managedFields that it had before admission, and the object can be
// applied to afterwards.
func TestManagedFieldsThatAdmissionMakesInvalid(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	s.DefineWidgets()
	const head = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating " +
		"admission controller; please fix your requests: "
	patch := ""
	h.On("/m", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return apitest.PatchWith(patch)(r)
	})
	s.Create(apitest.AdmissionPath+"mutatingwebhookconfigurations",
		strings.Replace(h.Configuration("MutatingWebhookConfiguration", "m", "/m", ""), `"configmaps","configmaps/*"`,
			`"configmaps","widgets","deployments","deployments/*"`, 1))
	send := func(what, warning, method, path, body string, headers ...string) {
		t.Helper()
		a := s.Send(method, path, body, headers...)
		all := strings.ReplaceAll(strings.Join(a.Header.Values("Warning"), "\n"), `\"`, `"`)
		if a.Status > http.StatusCreated || !strings.Contains(all, head) || !strings.Contains(all, warning) {
			t.Errorf("%s: %s %s: %d %.300s\nwarnings %q", what, method, path, a.Status, a.Body, all)
		}
		if strings.Contains(a.Body, `"zzz"`) || strings.Contains(a.Body, `"manager":"x"`) ||
			!strings.Contains(path, "/scale") && !strings.Contains(a.Body, `"manager":"me"`) {
			t.Errorf("%s: %s %s: %.600s", what, method, path, a.Body)
		}
	}
	const me, spec = "?fieldManager=me", `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	for i, bad := range badEntries {
		patch = `[{"op":"add","path":"/metadata/managedFields","value":[{` + bad.entry + `}]}]`
		for kind, path := range map[string]string{
			"v1 ConfigMap": apitest.ConfigMapsPath, "example.com/v1 Widget": "/apis/example.com/v1/namespaces/default/widgets",
		} {
			version, kind, _ := strings.Cut(kind, " ")
			object := func(name, value string) string {
				return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"data":{"a":%q}}`, version, kind, name, value)
			}
			name, applied := fmt.Sprint("n", i), fmt.Sprint("a", i)
			send(bad.name, bad.warning, "POST", path+me, object(name, "1"))
			send(bad.name, bad.warning, "PATCH", path+"/"+name+me, `{"data":{"a":"2"}}`)
			send(bad.name, bad.warning, "PATCH", path+"/"+name+me, `[{"op":"add","path":"/data/b","value":"x"}]`,
				"Content-Type", "application/json-patch+json")
			send(bad.name, bad.warning, "PUT", path+"/"+name+me, func() string {
				return strings.Replace(object(name, "3"), `"metadata":{`,
					`"metadata":{"resourceVersion":"`+s.Metadata(path+"/"+name).ResourceVersion+`",`, 1)
			}())
			send(bad.name, bad.warning, "PATCH", path+"/"+applied+me, object(applied, "1"), "Content-Type", asApply)
			send(bad.name, bad.warning, "PATCH", path+"/"+name+me+"&force=true", object(name, "4"), "Content-Type", asApply)
		}
		const deployments = "/apis/apps/v1/namespaces/default/deployments"
		name := fmt.Sprint("d", i)
		send(bad.name, bad.warning, "POST", deployments+me, `{"metadata":{"name":"`+name+`"},`+spec[1:]+`}`)
		send(bad.name, bad.warning, "PATCH", deployments+"/"+name+"/status"+me, `{"status":{"replicas":1}}`)
		send(bad.name, bad.warning, "PATCH", deployments+"/"+name+"/scale"+me, `{"spec":{"replicas":2}}`)
	}
}
