package policy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func parse(t *testing.T, rules string) *Policy {
	t.Helper()
	p, err := Parse([]byte(head+rules), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRules(t *testing.T) {
	joe := &request.User{Name: "joe", Groups: []string{"dev", "system:authenticated"}}
	for _, test := range []struct {
		rule    string
		matches []string // METHOD path
		not     []string
	}{
		{`{}`, []string{"GET /healthz", "GET /api/v1/pods"}, nil},
		{`{users: [joe]}`, []string{"GET /x"}, nil},
		{`{users: [bob]}`, nil, []string{"GET /x"}},
		{`{userGroups: [ops, dev]}`, []string{"GET /x"}, nil},
		{`{userGroups: [ops]}`, nil, []string{"GET /x"}},
		{`{verbs: [get, watch]}`, []string{"GET /x", "GET /api/v1/pods?watch=1", "GET /api/v1/namespaces/n/pods/p"},
			[]string{"GET /api/v1/pods", "POST /x"}},
		{`{namespaces: [ns]}`, []string{"GET /api/v1/namespaces/ns/pods"},
			[]string{"GET /api/v1/pods", "GET /x", "GET /api/v1/nodes/n"}},
		{`{namespaces: [""]}`, []string{"GET /api/v1/nodes/n"}, []string{"GET /api/v1/namespaces/n/pods"}},
		{`{resources: [{group: ""}]}`, []string{"GET /api/v1/pods", "GET /api/v1/namespaces/n/pods/p/log"},
			[]string{"GET /apis/apps/v1/deployments", "GET /x"}},
		{`{resources: [{group: "*", resources: [deployments]}]}`, []string{"GET /apis/apps/v1/deployments"},
			[]string{"GET /api/v1/pods"}},
		{`{resources: [{group: "", resources: [pods]}]}`, []string{"GET /api/v1/pods"},
			[]string{"GET /api/v1/namespaces/n/pods/p/log", "GET /apis/x/v1/pods"}},
		{`{resources: [{group: "", resources: [pods/log]}]}`, []string{"GET /api/v1/namespaces/n/pods/p/log"},
			[]string{"GET /api/v1/pods", "GET /api/v1/namespaces/n/pods/p/status"}},
		{`{resources: [{group: "", resources: [pods/*]}]}`,
			[]string{"GET /api/v1/pods", "GET /api/v1/namespaces/n/pods/p/log"}, []string{"GET /api/v1/nodes"}},
		{`{resources: [{group: "*", resources: ["*/scale"]}]}`,
			[]string{"GET /apis/apps/v1/namespaces/n/deployments/d/scale"}, []string{"GET /apis/apps/v1/deployments"}},
		{`{resources: [{group: "", resources: ["*"]}]}`, []string{"GET /api/v1/pods", "GET /api/v1/namespaces/n/pods/p/log"},
			[]string{"GET /apis/apps/v1/deployments"}},
		{`{resources: [{group: "", resources: [configmaps], resourceNames: [a]}]}`,
			[]string{"GET /api/v1/namespaces/n/configmaps/a"},
			[]string{"GET /api/v1/namespaces/n/configmaps/b", "GET /api/v1/namespaces/n/configmaps"}},
		{`{nonResourceURLs: [/healthz*, /version]}`, []string{"GET /healthz", "GET /healthz/ping", "GET /version"},
			[]string{"GET /version/x", "GET /api/v1/pods", "GET /api"}},
		{`{nonResourceURLs: ["*"]}`, []string{"GET /healthz", "GET /api"}, []string{"GET /api/v1/pods"}},
	} {
		p := parse(t, "rules:\n- "+strings.Replace(test.rule, "{", "{level: Metadata, ", 1)+"\n")
		for want, paths := range map[audit.Level][]string{audit.Metadata: test.matches, audit.None: test.not} {
			for _, path := range paths {
				method, url, _ := strings.Cut(path, " ")
				if got := p.For(request.ParseInfo(httptest.NewRequest(method, url, nil)), joe).Level; got != want {
					t.Errorf("%s, %s: %s, want %s", test.rule, path, got, want)
				}
			}
		}
	}
}

// TestAnswersWithOthers: an answer that has objects of other resources is not recorded, whatever the rule for the request says.
func TestAnswersWithOthers(t *testing.T) {
	p := parse(t, "rules:\n- {level: None, resources: [{group: apps}]}\n- {level: RequestResponse}\n")
	for asked, want := range map[string]audit.Level{
		"GET /api/v1/namespaces/n/undelete":                            audit.Metadata,
		"GET /api/v1/namespaces/n/configmaps/c/undelete":               audit.Metadata,
		"GET /apis/history.keelson.dev/v1alpha1/namespaces/n/undelete": audit.Metadata,
		"GET /apis/apps/v1/namespaces/n/deployments/d/undelete":        audit.None,
		"GET /api/v1/namespaces/n/configmaps/c/history":                audit.RequestResponse,
		"GET /apis/history.keelson.dev/v1alpha1/namespaces/n/changes":  audit.RequestResponse,
		"GET /apis/example.com/v1/namespaces/n/undelete":               audit.RequestResponse,
		// Other servers may have a subresource of this name.
		"GET /apis/example.com/v1/namespaces/n/x/y/undelete":     audit.Metadata,
		"POST /apis/example.com/v1/namespaces/n/x/y/undelete":    audit.RequestResponse,
		"PUT /apis/example.com/v1/namespaces/n/x/y/undelete":     audit.RequestResponse,
		"DELETE /apis/example.com/v1/namespaces/n/x/y/undelete":  audit.RequestResponse,
		"GET /apis/example.com/v1/namespaces/n/x/y/undelete/all": audit.RequestResponse,
	} {
		method, path, _ := strings.Cut(asked, " ")
		if got := p.For(request.ParseInfo(httptest.NewRequest(method, path, nil)), nil).Level; got != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	p := parse(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [probe]}
- {level: Request, users: [joe], omitStages: [Panic], omitManagedFields: false}
- {level: Metadata, userGroups: [g]}
`)
	info := request.ParseInfo(httptest.NewRequest("GET", "/x", nil))
	for user, want := range map[string]audit.Settings{
		"probe": {Level: audit.None, Omit: audit.RequestReceived, OmitManagedFields: true},
		"joe":   {Level: audit.Request, Omit: audit.RequestReceived | audit.Panic},
		"other": {Level: audit.Metadata, Omit: audit.RequestReceived, OmitManagedFields: true},
	} {
		if got := p.For(info, &request.User{Name: user, Groups: []string{"g"}}); got != want {
			t.Errorf("%s: %+v, want %+v", user, got, want)
		}
	}
	want := audit.Settings{Omit: audit.RequestReceived, OmitManagedFields: true}
	if got := p.For(info, nil); got != want {
		t.Errorf("nobody: %+v", got)
	}
}

func TestWrongPolicies(t *testing.T) {
	for policy, want := range map[string]string{
		head:                                     "loaded illegal policy with 0 rules",
		"kind: Policy\nrules: [{level: None}]":   `Object 'apiVersion' is missing`,
		"apiVersion: audit.k8s.io/v1\nrules: []": `Object 'Kind' is missing`,
		"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: " +
			"None}]": `no kind "Policy" is registered for version "audit.k8s.io/v1beta1"`,
		head + "rules: [{}]": "rules[0].level: Required value",
		head + "rules: [{level: All}]": `rules[0].level: Unsupported ` +
			`value: "All": supported values: "None", "Metadata", "Request", "RequestResponse"`,
		head + "omitStages: [X]\nrules: [{level: None}]": `omitStages[0]: Invalid value: ` +
			`"X": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic`,
		head + "rules: [{level: None, omitStages: [X]}]": `rules[0].omitStages[0]: ` +
			`Invalid value: "X": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic`,
		head + "rules: [{level: None, nonResourceURLs: [x]}]": `rules[0].nonResourceURLs[0]: ` +
			`Invalid value: "x": non-resource URL rules must begin with a '/' character`,
		head + "rules: [{level: None, nonResourceURLs: ['/*/x']}]": `rules[0].nonResourceURLs[0]: ` +
			`Invalid value: "/*/x": non-resource URL wildcards '*' must be the final character of the rule`,
		head + "rules: [{level: None, nonResourceURLs: [/x], namespaces: [ns]}]": `rules[0].nonResourceURLs: ` +
			`Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs`,
		head + "rules: [{level: None, resources: [{group: a/v1}]}]": `rules[0].resources.group: Invalid ` +
			`value: "a/v1": a lowercase RFC 1123 subdomain`,
		head + "rules: [{level: None, resources: [{resourceNames: [a]}]}]": `rules[0].resources.resourceNames: ` +
			`Invalid value: ["a"]: using resourceNames requires at least one resource`,
	} {
		_, err := Parse([]byte(policy), quiet)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", policy, err, want)
		}
	}
}

func TestUnknownFieldsAreAWarning(t *testing.T) {
	var log strings.Builder
	p, err := Parse([]byte(head+"rules:\n- {level: Metadata, user: [x]}\n"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || p.For(&request.Info{}, nil).Level != audit.Metadata ||
		!strings.Contains(log.String(), "unknown field") {
		t.Errorf("%v %q", err, log.String())
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := Load(path, os.ReadFile, quiet); err == nil ||
		!strings.HasPrefix(err.Error(), fmt.Sprintf("loading audit policy file: failed to read file path %q: ", path)) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, os.ReadFile, quiet); err == nil ||
		err.Error() != "loading audit policy file: loaded illegal policy with 0 rules: from file "+path {
		t.Errorf("%v", err)
	}
}
