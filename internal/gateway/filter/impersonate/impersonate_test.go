package impersonate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// permits is an authorizer that allows these questions, in the words of the function question.
type permits []string

func (p permits) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if slices.Contains(p, question(a)) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func question(a authz.Attributes) string {
	i := a.Info
	if !i.IsResource() {
		return i.Verb + " " + i.Path
	}
	name := i.Resource
	if i.Group != "" {
		name += "." + i.Group
	}
	if i.Subresource != "" {
		name += "/" + i.Subresource
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", i.Verb, name, strings.Trim(i.Namespace+"/"+i.Name, "/")))
}

// notes is an Observer that records its calls.
type notes struct{ attempts []string }

func (n *notes) Impersonation(mode, decision string, _ time.Duration) {
	n.attempts = append(n.attempts, mode+" "+decision)
}
func (n *notes) ImpersonationCheck(string, string, time.Duration) {}

// send sends a request with headers as a user. It returns the user with which the request continued, and the status.
func send(t *testing.T, h http.Handler, sender *request.User, headers ...string) (*request.User, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns/pods", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	ctx := request.WithInfo(request.WithUser(r.Context(), sender), request.ParseInfo(r))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	if w.Code == http.StatusOK {
		var u request.User
		if err := json.Unmarshal(w.Body.Bytes(), &u); err != nil {
			t.Fatal(err)
		}
		return &u, ""
	}
	var status struct{ Message string }
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	return nil, fmt.Sprint(w.Code, " ", status.Message)
}

func handler(t *testing.T, p permits, n *notes) http.Handler {
	t.Helper()
	return handlerWith(t, p, n, true)
}

func handlerWith(t *testing.T, p permits, n *notes, constrained bool) http.Handler {
	t.Helper()
	return New(p, n, constrained)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, headerPrefix) {
				t.Errorf("%s reached the handler", name)
			}
		}
		if err := json.NewEncoder(w).Encode(request.UserFrom(r.Context())); err != nil {
			t.Error(err)
		}
	}))
}

var (
	dave    = &request.User{Name: "dave", Groups: []string{"system:authenticated"}}
	account = &request.User{Name: "system:serviceaccount:ns:agent", Extra: map[string][]string{nodeNameKey: {"n1"}}}
)

func TestEachPermissionIsNeeded(t *testing.T) {
	everything := []string{
		headerUser, "jane", headerGroup, "devs", headerGroup, "ops", headerUID, "u1", extraPrefix + "Scopes", "view",
		extraPrefix + "Scopes", "edit",
	}
	needs := permits{
		"impersonate users jane", "impersonate groups devs", "impersonate groups ops",
		"impersonate uids.authentication.k8s.io u1",
		"impersonate userextras.authentication.k8s.io/scopes view",
		"impersonate userextras.authentication.k8s.io/scopes edit",
	}
	want := &request.User{
		Name: "jane", UID: "u1", Groups: []string{"devs", "ops", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"view", "edit"}},
	}
	if got, refusal := send(t, handler(t, needs, &notes{}), dave, everything...); !reflect.DeepEqual(got, want) {
		t.Errorf("with all permissions: %+v %s", got, refusal)
	}
	for i := range needs {
		less := slices.Delete(slices.Clone(needs), i, i+1)
		if got, refusal := send(t, handler(t, less, &notes{}), dave, everything...); got != nil ||
			!strings.HasPrefix(refusal, "403") {
			t.Errorf("without %q: %+v %s", needs[i], got, refusal)
		}
	}
}

func TestConstrainedModesNeedBothPermissions(t *testing.T) {
	on := func(mode string) string { return "impersonate-on:" + mode + ":list pods ns" }
	for name, c := range map[string]struct {
		sender  *request.User
		headers []string
		needs   permits
		want    *request.User
	}{
		"user-info": {
			dave, []string{headerUser, "jane", headerGroup, "devs"},
			permits{on("user-info"), "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info groups.authentication.k8s.io devs"},
			&request.User{Name: "jane", Groups: []string{"devs", "system:authenticated"}},
		},
		"serviceaccount": {
			dave, []string{headerUser, "system:serviceaccount:kube-system:x"},
			permits{on("serviceaccount"), "impersonate:serviceaccount serviceaccounts.authentication.k8s.io kube-system/x"},
			&request.User{Name: "system:serviceaccount:kube-system:x",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}},
		},
		"arbitrary-node": {
			dave, []string{headerUser, "system:node:n1"},
			permits{on("arbitrary-node"), "impersonate:arbitrary-node nodes.authentication.k8s.io n1"},
			&request.User{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}},
		},
		"associated-node": {
			account, []string{headerUser, "system:node:n1"},
			permits{on("associated-node"), "impersonate:associated-node nodes.authentication.k8s.io *"},
			&request.User{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}},
		},
		"many groups at once": {
			dave, []string{headerUser, "jane", headerGroup, "a", headerGroup, "b", headerGroup, "c", headerGroup, "d"},
			permits{on("user-info"), "impersonate:user-info users.authentication.k8s.io jane",
				"impersonate:user-info groups.authentication.k8s.io *"},
			&request.User{Name: "jane", Groups: []string{"a", "b", "c", "d", "system:authenticated"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n notes
			if got, refusal := send(t, handler(t, c.needs, &n), c.sender, c.headers...); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v %s, want %+v", got, refusal, c.want)
			}
			for i := range c.needs {
				less := slices.Delete(slices.Clone(c.needs), i, i+1)
				if got, _ := send(t, handler(t, less, &n), c.sender, c.headers...); got != nil {
					t.Errorf("without %q it goes on as %+v", c.needs[i], got)
				}
			}
		})
	}
}

func TestConstraints(t *testing.T) {
	all := permits{
		"impersonate-on:user-info:list pods ns", "impersonate:user-info users.authentication.k8s.io jane",
		"impersonate:user-info groups.authentication.k8s.io system:masters",
		"impersonate:user-info groups.authentication.k8s.io",
		"impersonate:user-info userextras.authentication.k8s.io/scopes",
		"impersonate:user-info userextras.authentication.k8s.io/a_b x",
		"impersonate-on:associated-node:list pods ns", "impersonate:associated-node nodes.authentication.k8s.io *",
	}
	for name, c := range map[string]struct {
		sender  *request.User
		headers []string
		want    string
	}{
		"the group system:masters": {dave, []string{headerUser, "jane", headerGroup, "system:masters"},
			"impersonating the system:masters group is not allowed"},
		"an empty group": {dave, []string{headerUser, "jane", headerGroup, ""},
			"impersonating the empty string group is not allowed"},
		"an empty extra value": {dave, []string{headerUser, "jane", extraPrefix + "Example.com%2fscopes", ""},
			"impersonating the empty string value in extra is not allowed"},
		"an extra key of no domain": {dave, []string{headerUser, "jane", extraPrefix + "Scopes", "x"},
			"impersonating an invalid key in extra is not allowed"},
		"a node that the sender is not on": {
			account, []string{headerUser, "system:node:n2"}, `cannot impersonate-on:arbitrary-node:list resource "pods"`,
		},
		"a node by a sender that is no service account": {
			&request.User{Name: "dave", Extra: account.Extra}, []string{headerUser, "system:node:n1"},
			`cannot impersonate-on:arbitrary-node:list resource "pods"`,
		},
		"a node with groups of its own": {account, []string{headerUser, "system:node:n1", headerGroup, "g"},
			`cannot impersonate resource "users"`},
	} {
		if got, refusal := send(t, handler(t, all, &notes{}), c.sender, c.headers...); got != nil ||
			!strings.Contains(refusal, c.want) {
			t.Errorf("%s: %+v %q, want %q", name, got, refusal, c.want)
		}
	}
}

func TestHeadersWithoutAUser(t *testing.T) {
	_, refusal := send(t, handler(t, nil, &notes{}), dave, headerGroup, "g")
	want := `400 requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, ` +
		`Extra:map[string][]string(nil)} without impersonating a user name`
	if refusal != want {
		t.Errorf("got %s, want %s", refusal, want)
	}
	if got, refusal := send(t, handler(t, nil, &notes{}), dave); got == nil || got.Name != "dave" {
		t.Errorf("without headers: %+v %s", got, refusal)
	}
}

// TestWithoutConstrainedModes checks that only the permission of the legacy mode counts if
// ConstrainedImpersonation is off.
func TestWithoutConstrainedModes(t *testing.T) {
	constrained := permits{"impersonate-on:user-info:list pods ns", "impersonate:user-info users.authentication.k8s.io jane"}
	got, refusal := send(t, handlerWith(t, constrained, &notes{}, false), dave, headerUser, "jane")
	want := `403 users "jane" is forbidden: User "dave" cannot impersonate resource "users" in API group "" at the cluster scope`
	if got != nil || refusal != want {
		t.Errorf("by the permissions of a constrained mode: %+v %s, want %s", got, refusal, want)
	}
	h := handlerWith(t, permits{"impersonate users jane"}, &notes{}, false)
	if got, refusal := send(t, h, dave, headerUser, "jane"); got == nil || got.Name != "jane" {
		t.Errorf("by the permission of the legacy mode: %+v %s", got, refusal)
	}
	_, refusal = send(t, h, dave, headerGroup, "g", headerUID, "u", extraPrefix+"A%2fb", "x")
	want = "400 requested [{Group  g    } {UserExtra  x  authentication.k8s.io/v1  a/b} {UID  u  authentication.k8s.io/v1  }] " +
		"without impersonating a user"
	if refusal != want {
		t.Errorf("without a user: %s, want %s", refusal, want)
	}
}

func TestSuccessfulModeIsTriedFirst(t *testing.T) {
	var n notes
	h := handler(t, permits{"impersonate users jane", "impersonate users joe"}, &n)
	_, refusal := send(t, h, dave, headerUser, "john")
	if !strings.Contains(refusal, "cannot impersonate-on:user-info:list resource") {
		t.Errorf("at first: %s", refusal)
	}
	if got, refusal := send(t, h, dave, headerUser, "jane"); got == nil {
		t.Fatal(refusal)
	}
	_, refusal = send(t, h, dave, headerUser, "john")
	if !strings.Contains(refusal,
		`users "john" is forbidden: User "dave" cannot impersonate resource "users" in API group "" at the cluster scope`) {
		t.Errorf("afterwards: %s", refusal)
	}
	if want := []string{" denied", "legacy allowed", " denied"}; !slices.Equal(n.attempts, want) {
		t.Errorf("noted %q, want %q", n.attempts, want)
	}
}

func TestAnonymousStaysUnauthenticated(t *testing.T) {
	got, refusal := send(t, handler(t, permits{"impersonate users system:anonymous"}, &notes{}), dave, headerUser,
		"system:anonymous")
	if want := (&request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}); !reflect.DeepEqual(
		got, want) {
		t.Errorf("got %+v %s, want %+v", got, refusal, want)
	}
}
