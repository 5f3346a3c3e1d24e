package plugintest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestWebhooksSeeOptionsOfWrites checks the options that webhooks and policies see. A PATCH has CreateOptions or
// UpdateOptions; a field manager is only shown if the client has named it; a deletion has the options that the
// kind has completed, such as the grace period of a pod.
func TestWebhooksSeeOptionsOfWrites(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/", apitest.Allow)
	before, rest, _ := strings.Cut(h.Configuration("ValidatingWebhookConfiguration", "all", "/", ""), `"rules":[`)
	_, rest, _ = strings.Cut(rest, "}]")
	s.Create(apitest.AdmissionPath+"validatingwebhookconfigurations", before+`"rules":[{"operations":["CREATE","UPDATE","DELETE"],`+
		`"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps","pods","namespaces"]}]`+rest)
	const (
		maps, pods = apitest.ConfigMapsPath, "/api/v1/namespaces/default/pods"
		applied    = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
		pod        = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	)
	s.Send("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`) // the server may have made it already
	// A pod on a node has a grace period of 30 seconds; a pod without a node is deleted at once.
	bind := apitest.Step{"POST", pods + "/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, http.StatusCreated, ""}
	for _, c := range []struct {
		method, path, contentType, body string
		want                            string // the options without apiVersion; "" does not look
	}{
		{"POST", maps, "", `{"metadata":{"name":"c"}}`, `{"kind":"CreateOptions"}`},
		{"PUT", maps + "/c?fieldManager=m", "", `{"metadata":{"name":"c"},"data":{"a":"b"}}`, `{"fieldManager":"m","kind":"UpdateOptions"}`},
		{"PATCH", maps + "/c", "application/merge-patch+json", `{"data":{"x":"y"}}`, `{"kind":"UpdateOptions"}`},
		{"PATCH", maps + "/c?fieldValidation=Warn", "application/json-patch+json", `[{"op":"add","path":"/data/z","value":"1"}]`,
			`{"fieldValidation":"Warn","kind":"UpdateOptions"}`},
		{"PATCH", maps + "/a?fieldManager=m&force=true", "application/apply-patch+yaml", applied, `{"fieldManager":"m","kind":"CreateOptions"}`},
		{"PATCH", maps + "/a?fieldManager=m&force=true&dryRun=All", "application/apply-patch+yaml", strings.Replace(applied, `"v"`, `"w"`, 1),
			`{"dryRun":["All"],"fieldManager":"m","kind":"UpdateOptions"}`},
		{"DELETE", maps + "/c?gracePeriodSeconds=-1&dryRun=All", "", "", `{"dryRun":["All"],"gracePeriodSeconds":1,"kind":"DeleteOptions"}`},
		{"DELETE", maps + "/c", "", "", `{"kind":"DeleteOptions"}`},
		{"POST", pods, "", pod, ""},
		{"DELETE", pods + "/p?dryRun=All", "", "", `{"dryRun":["All"],"gracePeriodSeconds":0,"kind":"DeleteOptions"}`},
		{bind.Method, bind.Path, "", bind.Body, ""},
		{"DELETE", pods + "/p", "", "", `{"gracePeriodSeconds":30,"kind":"DeleteOptions"}`},
		{"DELETE", pods + "/p?gracePeriodSeconds=7", "", "", `{"gracePeriodSeconds":7,"kind":"DeleteOptions"}`},
		{"DELETE", pods + "/p?gracePeriodSeconds=-1", "", "", `{"gracePeriodSeconds":1,"kind":"DeleteOptions"}`},
		{"DELETE", pods + "/p?gracePeriodSeconds=0", "", "", `{"gracePeriodSeconds":0,"kind":"DeleteOptions"}`},
		{"POST", "/api/v1/namespaces", "", `{"metadata":{"name":"n"}}`, ""},
		{"DELETE", "/api/v1/namespaces/n", "", "", `{"kind":"DeleteOptions","preconditions":{"uid":"UID"}}`},
	} {
		h.Requests("/")
		contentType := c.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		if a := s.Send(c.method, c.path, c.body, "Content-Type", contentType); a.Status >= http.StatusBadRequest {
			t.Fatalf("%s %s: %d %.500s", c.method, c.path, a.Status, a.Body)
		}
		if c.want == "" {
			continue
		}
		asked := h.Requests("/")
		if len(asked) == 0 {
			t.Errorf("%s %s: the webhook is not called", c.method, c.path)
			continue
		}
		var options map[string]any
		if err := json.Unmarshal(asked[0].Options.Raw, &options); err != nil {
			t.Fatal(err)
		}
		delete(options, "apiVersion")
		if p, _ := options["preconditions"].(map[string]any); p["uid"] != nil {
			p["uid"] = "UID"
		}
		if got, err := json.Marshal(options); err != nil || string(got) != c.want {
			t.Errorf("%s %s: options %s, want %s", c.method, c.path, got, c.want)
		}
	}
}
