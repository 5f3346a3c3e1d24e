package abac

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func read(t *testing.T, lines ...string) (*Policies, error) {
	t.Helper()
	p := &Policies{}
	return p, p.Replace([]byte(strings.Join(lines, "\n")))
}

const head = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":`

func TestPolicies(t *testing.T) {
	p, err := read(t,
		"# comments and empty lines do not count", "",
		head+`{"user":"admin","apiGroup":"*","namespace":"*","resource":"*","nonResourcePath":"*"}}`,
		head+`{"group":"readers","apiGroup":"","namespace":"ns","resource":"pods","readonly":true}}`,
		head+`{"user":"both","group":"g","apiGroup":"*","namespace":"*","resource":"*"}}`,
		head+`{"user":"*","nonResourcePath":"/version","readonly":true}}`,
		head+`{"apiGroup":"*","namespace":"*","resource":"nobody"}}`,
		`{"user":"old","resource":"secrets","namespace":"ns"}`,
		`{"user":"older","readonly":true}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	pod := request.Info{Verb: "get", Resource: "pods", Namespace: "ns"}
	with := func(change func(*request.Info)) request.Info { i := pod; change(&i); return i }
	for name, c := range map[string]struct {
		user   string
		groups []string
		info   request.Info
		want   bool
	}{
		"everything": {"admin", nil,
			request.Info{Verb: "delete", Group: "apps", Resource: "deployments", Namespace: "x"}, true},
		"every path":             {"admin", nil, request.Info{Verb: "post", Path: "/x"}, true},
		"a group":                {"x", []string{"readers"}, pod, true},
		"no member":              {"x", []string{"writers"}, pod, false},
		"a write of a reader":    {"x", []string{"readers"}, with(func(i *request.Info) { i.Verb = "create" }), false},
		"another namespace":      {"x", []string{"readers"}, with(func(i *request.Info) { i.Namespace = "other" }), false},
		"another API group":      {"x", []string{"readers"}, with(func(i *request.Info) { i.Group = "apps" }), false},
		"user and group":         {"both", []string{"g"}, pod, true},
		"user without the group": {"both", nil, pod, false},
		"a path of all": {"x", []string{"system:authenticated"}, request.Info{Verb: "get", Path: "/version"},
			true},
		"a path of the signed in": {"x", []string{"system:unauthenticated"}, request.Info{Verb: "get", Path: "/version"},
			false},
		"a policy for nobody": {"", nil, request.Info{Verb: "get", Resource: "nobody"}, false},
		"the old form": {"old", nil,
			request.Info{Verb: "delete", Resource: "secrets", Namespace: "ns", Group: "any"}, true},
		"the old form, elsewhere":  {"old", nil, request.Info{Verb: "delete", Resource: "secrets", Namespace: "x"}, false},
		"the old form, everything": {"older", nil, request.Info{Verb: "get", Path: "/metrics"}, true},
		"the old form, to read":    {"older", nil, request.Info{Verb: "put", Path: "/metrics"}, false},
	} {
		decision, _, err := p.Authorize(t.Context(),
			authz.Attributes{User: &request.User{Name: c.user, Groups: c.groups}, Info: &c.info})
		if err != nil || (decision == authz.Allow) != c.want {
			t.Errorf("%s: %v %v", name, decision, err)
		}
	}
	rules, err := p.RulesFor(t.Context(), &request.User{Name: "x", Groups: []string{"readers"}}, "ns")
	if err != nil || len(rules.Resource) != 1 || len(rules.Resource[0].Verbs) != 3 || len(rules.NonResource) != 0 {
		t.Errorf("rules %+v %v", rules, err)
	}
}

func TestInvalidPolicyIsNamedInTheError(t *testing.T) {
	for _, line := range []string{"nope", `{"apiVersion":"v1","kind":"Policy"}`, `{"user":5}`} {
		if _, err := read(t, "", line); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
