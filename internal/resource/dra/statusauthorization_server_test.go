package dra_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

// TestStatusAuthorization changes the status of a claim as users with different permissions. The answers are those of
// kube-apiserver 1.37.2.
func TestStatusAuthorization(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Create(claims, `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c"},
		"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"class"}}]}}}`)
	grant := func(user, resource, verbs string) {
		const group = "/apis/rbac.authorization.k8s.io/v1/"
		s.Create(group+"clusterroles", `{"metadata":{"name":"`+user+`"},"rules":[{"apiGroups":["resource.k8s.io"],"resources":
			["resourceclaims/status"],"verbs":["update","patch"]},{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/`+
			resource+`"],"verbs":["`+verbs+`"]}]}`)
		s.Create(group+"clusterrolebindings", `{"metadata":{"name":"`+user+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",
			"kind":"ClusterRole","name":"`+user+`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`)
		wait.Until(t, "permission of "+user, func() bool {
			return s.As(user).Send(http.MethodPatch, claims+"/c/status", "{}").Status == http.StatusOK
		})
	}
	const account = "system:serviceaccount:default:driver"
	grant("plain", "x", "patch")
	grant("scheduler", "binding", "patch")
	grant(account, "driver", "associated-node:patch")
	patch := func(user, status string, headers ...string) (code int, causes []string) {
		t.Helper()
		return causesOf(t, s.As(user).Send(http.MethodPatch, claims+"/c/status", `{"status":`+status+`}`, headers...))
	}
	refused := func(name string, code int, causes []string, want ...string) {
		t.Helper()
		if code != http.StatusUnprocessableEntity || strings.Join(causes, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %d\n%s\nwant\n%s", name, code, strings.Join(causes, "\n"), strings.Join(want, "\n"))
		}
	}
	accepted := func(name string, code int, causes []string) {
		t.Helper()
		if code != http.StatusOK {
			t.Errorf("%s: %d %q", name, code, causes)
		}
	}
	const binding = `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires ` +
		`resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "plain" ` +
		`cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`
	driver := func(user, verbs, verb string) string {
		return `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[` + verbs +
			`]" permission: resourceclaims.resource.k8s.io "d.example.com" is forbidden: User "` + user + `" cannot ` + verb +
			` resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"`
	}

	// The permission is missing, and the namespace and the values are wrong too.
	code, causes := patch("plain", `{"allocation":{"devices":{"results":[
		{"request":"r","driver":"d.example.com","pool":"p","device":"B!","adminAccess":true}]}}}`)
	refused("several faults", code, causes,
		"status.allocation.devices.results[0].adminAccess: Forbidden: admin access to devices requires the "+
			"`resource.kubernetes.io/admin-access: true` label on the containing namespace", binding,
		`status.allocation.devices.results[0].device: Invalid value: "B!": a lowercase RFC 1123 label must consist of lower case `+
			`alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or `+
			`'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`)
	code, causes = patch("plain", `{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}`)
	refused("reserve", code, causes, binding, "status.reservedFor: Forbidden: may not be specified when `allocated` is not set")
	code, causes = patch("scheduler", `{"allocation":{"devices":{"results":[{"request":"r","driver":"d.example.com","pool":"p",
		"device":"d"}]},"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}}`)
	accepted("allocate", code, causes)

	const device = `{"devices":[{"driver":"d.example.com","pool":"p","device":"d"}]}`
	const node = "Impersonate-Extra-Authentication.kubernetes.io%2fNode-Name"
	code, causes = patch("scheduler", device)
	refused("scheduler", code, causes, driver("scheduler", "arbitrary-node:patch", "arbitrary-node:patch"))
	code, causes = patch(account, device, node, "other")
	refused("another node", code, causes, driver(account, "arbitrary-node:patch", "arbitrary-node:patch"))
	code, causes = patch(account, device, node, "n")
	accepted("the node", code, causes)
	code, causes = patch("plain", `{"devices":null}`)
	refused("remove", code, causes, driver("plain", "arbitrary-node:patch", "arbitrary-node:patch"))
	code, causes = patch("plain", device)
	accepted("nothing changes", code, causes)
}

// TestAdminAccessOrder creates a claim and a template with admin access and other faults. As in kube-apiserver 1.37.2, the
// first cause is what the namespace does not allow.
func TestAdminAccessOrder(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	const spec = `{"devices":{"requests":[{"name":"R!","exactly":{"deviceClassName":"c","adminAccess":true}}]}}`
	for kind, spec := range map[string]string{"resourceclaims": spec, "resourceclaimtemplates": `{"spec":` + spec + `}`} {
		code, causes := causesOf(t, s.Send(http.MethodPost, strings.Replace(claims, "resourceclaims", kind, 1),
			`{"metadata":{"name":"B!"},"spec":`+spec+`}`))
		if code != http.StatusUnprocessableEntity || len(causes) != 3 ||
			!strings.HasPrefix(causes[0], "spec.devices.requests[0].adminAccess: Forbidden: ") ||
			!strings.HasPrefix(causes[1], "metadata.name: ") || !strings.Contains(causes[2], "devices.requests[0].name: ") {
			t.Errorf("%s: %d %q", kind, code, causes)
		}
	}
}

// causesOf returns the status of an answer and its causes in order.
func causesOf(t *testing.T, answer apitest.Answer) (code int, causes []string) {
	t.Helper()
	var body struct {
		Details struct {
			Causes []struct{ Field, Message string }
		}
	}
	if err := json.Unmarshal([]byte(answer.Body), &body); err != nil {
		t.Fatal(err)
	}
	for _, c := range body.Details.Causes {
		causes = append(causes, c.Field+": "+c.Message)
	}
	return answer.Status, causes
}
