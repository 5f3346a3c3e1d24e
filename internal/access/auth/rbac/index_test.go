package rbac

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// twin decides by looking at all roles and bindings, as the documentation of the API describes it.
type twin struct {
	roles    map[roleKey][]rbacv1.PolicyRule
	bindings map[objectKey]twinBinding
}

type twinBinding struct {
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
}

// decide returns the reasons for which the request is allowed, none if it is not, and the roles that could not be
// found.
func (t *twin) decide(u *request.User, i *request.Info) (reasons, missing []string) {
	for key, b := range t.bindings {
		if key.namespace != "" && key.namespace != i.Namespace {
			continue
		}
		at := slices.IndexFunc(b.subjects, func(s rbacv1.Subject) bool { return twinIs(s, key.namespace, u) })
		if at < 0 {
			continue
		}
		target := roleKey{b.ref.Kind, "", b.ref.Name}
		if b.ref.Kind == "Role" {
			target.namespace = key.namespace
		}
		rules, ok := t.roles[target]
		if !ok {
			missing = append(missing,
				fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", strings.ToLower(b.ref.Kind), b.ref.Name))
			continue
		}
		if slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return twinAllows(r, i) }) {
			reasons = append(reasons, twinReason(key, b, at))
		}
	}
	return reasons, missing
}

func twinReason(key objectKey, b twinBinding, at int) string {
	kind, name := "ClusterRoleBinding", key.name
	if key.namespace != "" {
		kind, name = "RoleBinding", key.name+"/"+key.namespace
	}
	s := b.subjects[at]
	who := s.Name
	if s.Kind == "ServiceAccount" {
		namespace := s.Namespace
		if namespace == "" {
			namespace = key.namespace
		}
		who += "/" + namespace
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, s.Kind, who)
}

func twinIs(s rbacv1.Subject, namespace string, u *request.User) bool {
	switch s.Kind {
	case "User":
		return s.Name == u.Name
	case "Group":
		return slices.Contains(u.Groups, s.Name)
	case "ServiceAccount":
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return namespace != "" && u.Name == "system:serviceaccount:"+namespace+":"+s.Name
	}
	return false
}

func twinAllows(r rbacv1.PolicyRule, i *request.Info) bool {
	any := func(list []string, match func(string) bool) bool { return slices.ContainsFunc(list, match) }
	if !any(r.Verbs, func(v string) bool { return v == "*" || v == i.Verb }) {
		return false
	}
	if !i.IsResource() {
		return any(r.NonResourceURLs, func(u string) bool {
			return u == "*" || u == i.Path || strings.HasSuffix(u, "*") && strings.HasPrefix(i.Path, strings.TrimRight(u, "*"))
		})
	}
	full := i.Resource
	if i.Subresource != "" {
		full += "/" + i.Subresource
	}
	return any(r.APIGroups, func(g string) bool { return g == "*" || g == i.Group }) &&
		any(r.Resources, func(n string) bool {
			return n == "*" || n == full || i.Subresource != "" && n == "*/"+i.Subresource
		}) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, i.Name))
}

// world makes random objects. They have few different names, so that they often refer to each other.
type world struct{ *rand.Rand }

func (w world) pick(from ...string) string { return from[w.IntN(len(from))] }

func (w world) some(most int, from ...string) []string {
	var out []string
	for range w.IntN(most + 1) {
		out = append(out, w.pick(from...))
	}
	return out
}

func (w world) rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for range w.IntN(4) {
		r := rbacv1.PolicyRule{Verbs: w.some(2, "get", "list", "create", "*")}
		if w.IntN(4) == 0 {
			r.NonResourceURLs = w.some(2, "/healthz", "/apis/*", "*", "/a**", "/logs")
		} else {
			r.APIGroups = w.some(2, "", "apps", "*")
			r.Resources = w.some(3, "pods", "pods/log", "*/log", "secrets", "deployments", "*", "pods/x/y", "*/x/y")
			r.ResourceNames = w.some(1, "a", "b")
		}
		out = append(out, r)
	}
	return out
}

func (w world) subjects() []rbacv1.Subject {
	var out []rbacv1.Subject
	for range w.IntN(4) {
		s := rbacv1.Subject{Kind: w.pick("User", "Group", "ServiceAccount", "Robot"), Name: w.pick("u1", "u2", "g1", "g2")}
		if s.Kind == "ServiceAccount" {
			s.Namespace = w.pick("", "n1", "n2")
		}
		out = append(out, s)
	}
	return out
}

func (w world) user() *request.User {
	return &request.User{
		Name: w.pick("u1", "u2", "u3", "system:serviceaccount:n1:u1", "system:serviceaccount:n2:u2",
			"system:serviceaccount:n1:g1"),
		Groups: w.some(3, "g1", "g2", "g3"),
	}
}

func (w world) info() *request.Info {
	if w.IntN(4) == 0 {
		return &request.Info{Verb: w.pick("get", "post", "list"),
			Path: w.pick("/healthz", "/apis", "/apis/apps", "/abc", "/logs", "")}
	}
	return &request.Info{
		Verb: w.pick("get", "list", "create", ""), Group: w.pick("", "apps"), Namespace: w.pick("", "n1", "n2"),
		Resource: w.pick("pods", "secrets", "deployments"), Subresource: w.pick("", "log", "x/y", "scale"),
		Name: w.pick("", "a", "b", "c"),
	}
}

func (w world) change(x *Index, t *twin) {
	namespace, name := w.pick("", "n1", "n2"), w.pick("r1", "r2", "r3", "r4")
	gone := w.IntN(4) == 0
	if w.IntN(2) == 0 {
		rules := w.rules()
		if gone {
			x.DeleteRole(namespace, name)
			delete(t.roles, keyOfRole(namespace, name))
		} else {
			x.SetRole(namespace, name, rules)
			t.roles[keyOfRole(namespace, name)] = rules
		}
		return
	}
	// Many bindings, so that some holders are large.
	key := objectKey{namespace, fmt.Sprint("b", w.IntN(60))}
	if gone {
		x.DeleteBinding(key.namespace, key.name)
		delete(t.bindings, key)
		return
	}
	b := twinBinding{rbacv1.RoleRef{Kind: w.pick("Role", "ClusterRole"), Name: name}, w.subjects()}
	if namespace == "" && b.ref.Kind == "Role" {
		b.ref.Kind = "ClusterRole" // as validation has it
	}
	x.SetBinding(key.namespace, key.name, b.ref, b.subjects)
	t.bindings[key] = b
}

func checkAgainstTwin(t *testing.T, seed uint64, steps int) {
	w := world{rand.New(rand.NewPCG(seed, 1))}
	x, tw := NewIndex(), &twin{roles: map[roleKey][]rbacv1.PolicyRule{}, bindings: map[objectKey]twinBinding{}}
	for step := range steps {
		w.change(x, tw)
		for range 4 {
			u, i := w.user(), w.info()
			allowed, reason := x.Decide(u, i)
			reasons, missing := tw.decide(u, i)
			switch {
			case allowed != (len(reasons) > 0):
				t.Fatalf("seed %d step %d: %+v %+v: allowed %v (%s), but the twin says %v", seed, step, *u, *i, allowed, reason,
					reasons)
			case allowed && !slices.Contains(reasons, reason):
				t.Fatalf("seed %d step %d: %+v %+v: reason %q, want one of %q", seed, step, *u, *i, reason, reasons)
			case !allowed && (reason == "") != (len(missing) == 0):
				t.Fatalf("seed %d step %d: %+v %+v: reason %q, missing %q", seed, step, *u, *i, reason, missing)
			}
			for _, m := range missing {
				if !allowed && !strings.Contains(reason, m) {
					t.Fatalf("seed %d step %d: reason %q lacks %q", seed, step, reason, m)
				}
			}
		}
	}
	// After everything is deleted, nothing may be left in the index.
	for key := range tw.bindings {
		x.DeleteBinding(key.namespace, key.name)
	}
	for key := range tw.roles {
		x.DeleteRole(key.namespace, key.name)
	}
	if len(x.subjects)+len(x.roles)+len(x.bindings) != 0 {
		t.Fatalf("seed %d: %d holders, %d roles, %d bindings are left", seed, len(x.subjects), len(x.roles), len(x.bindings))
	}
}

func TestIndexAgainstTwin(t *testing.T) {
	for seed := range uint64(40) {
		checkAgainstTwin(t, seed, 400)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkAgainstTwin(t, seed, 300) })
}

// coversTwin reports whether held allows everything that one simple rule allows, by checking
// each rule.
func coversTwin(held []rbacv1.PolicyRule, atom rbacv1.PolicyRule) bool {
	all := func(list, wanted []string, match func(have, want string) bool) bool {
		for _, w := range wanted {
			if !slices.ContainsFunc(list, func(h string) bool { return match(h, w) }) {
				return false
			}
		}
		return true
	}
	wild := func(have, want string) bool { return have == "*" || have == want }
	return slices.ContainsFunc(held, func(r rbacv1.PolicyRule) bool {
		return all(r.Verbs, atom.Verbs, wild) && all(r.APIGroups, atom.APIGroups, wild) &&
			all(r.Resources, atom.Resources, func(have, want string) bool {
				_, sub, ok := strings.Cut(want, "/")
				return wild(have, want) || ok && have == "*/"+sub
			}) &&
			all(r.NonResourceURLs, atom.NonResourceURLs, func(have, want string) bool {
				return have == want || strings.HasSuffix(have, "*") && strings.HasPrefix(want, strings.TrimRight(have, "*"))
			}) &&
			(len(r.ResourceNames) == 0 || len(atom.ResourceNames) > 0 &&
				all(r.ResourceNames, atom.ResourceNames, func(h, w string) bool { return h == w }))
	})
}

func TestUncoveredReturnsMissingPermissions(t *testing.T) {
	w := world{rand.New(rand.NewPCG(3, 4))}
	for range 3000 {
		held, wanted := w.rules(), w.rules()
		var want []string
		for i := range wanted {
			eachSimpleRule(&wanted[i], func(atom rbacv1.PolicyRule) {
				if !coversTwin(held, atom) {
					want = append(want, describeRule(&atom))
				}
			})
		}
		var got []string
		for _, r := range Uncovered(held, wanted) {
			got = append(got, describeRule(&r))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("held %v, wanted %v: lacking %q, want %q", held, wanted, got, want)
		}
	}
}

// TestContainsMeansNothingUncovered compares contains with Uncovered, which checks the permissions one by one.
func TestContainsMeansNothingUncovered(t *testing.T) {
	w := world{rand.New(rand.NewPCG(7, 8))}
	contained := 0
	for range 100_000 {
		held, wanted := w.rules(), w.rules()
		for i := range held {
			for j := range wanted {
				if n, _ := permissions(&wanted[j], maxPermissions); n == 0 {
					continue // a rule without permissions is not large
				}
				got := compile(held[i : i+1])[0].contains(&wanted[j])
				if want := len(Uncovered(held[i:i+1], wanted[j:j+1])) == 0; got != want {
					t.Fatalf("%v contains %v: %v, want %v", held[i], wanted[j], got, want)
				}
				if got {
					contained++
				}
			}
		}
	}
	if contained < 50 {
		t.Errorf("only %d cases say something", contained)
	}
}

// TestLargeRulesAreNotSplit checks rules with more permissions than can be looked at one by one.
func TestLargeRulesAreNotSplit(t *testing.T) {
	list := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("x", i))
		}
		return out
	}
	large := rbacv1.PolicyRule{APIGroups: list(300), Resources: list(300), Verbs: list(300), ResourceNames: list(300)}
	small := rbacv1.PolicyRule{APIGroups: []string{"a"}, Resources: []string{"b"}, Verbs: []string{"get", "list"}}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	for _, c := range []struct {
		name         string
		held, wanted []rbacv1.PolicyRule
		large        int
	}{
		{"nothing is held", nil, []rbacv1.PolicyRule{small, large}, 1},
		{"the rule itself", []rbacv1.PolicyRule{large}, []rbacv1.PolicyRule{large, large}, 0},
		{"all", []rbacv1.PolicyRule{small, all}, []rbacv1.PolicyRule{large}, 0},
		{"many that are too large together", nil, slices.Repeat([]rbacv1.PolicyRule{small}, maxPermissions/2+3), 3},
	} {
		rest, left := splitOffLarge(c.held, c.wanted)
		if len(left) != c.large || len(rest)+len(left) > len(c.wanted) {
			t.Errorf("%s: %d rules are too large, want %d; %d are looked at", c.name, len(left), c.large, len(rest))
		}
		sum := 0
		for i := range rest {
			n, _ := permissions(&rest[i], maxPermissions)
			sum += n
		}
		if sum > maxPermissions {
			t.Errorf("%s: %d permissions are looked at", c.name, sum)
		}
	}
}

// TestUncoveredIsEmptyForAllowedRequests checks that a user who covers a rule is allowed every request that the
// rule allows.
func TestUncoveredIsEmptyForAllowedRequests(t *testing.T) {
	w := world{rand.New(rand.NewPCG(5, 6))}
	covered := 0
	for range 200000 {
		held, wanted, info := w.rules(), w.rules(), w.info()
		if Compile(wanted).Allow(info) && len(Uncovered(held, wanted)) == 0 {
			covered++
			if !Compile(held).Allow(info) {
				t.Fatalf("%v covers %v, which allows %+v, but does not allow it itself", held, wanted, *info)
			}
		}
	}
	if covered < 50 {
		t.Errorf("only %d cases say something", covered)
	}
}

// large is an index of 2,000 roles and 5,000 bindings.
func large() *Index {
	x := NewIndex()
	rules := func(i int) []rbacv1.PolicyRule {
		var out []rbacv1.PolicyRule
		for n := range 8 {
			out = append(out, rbacv1.PolicyRule{
				APIGroups: []string{"", "apps"}, Verbs: []string{"get", "list", "watch"},
				Resources: []string{fmt.Sprintf("things%d-%d", i, n), fmt.Sprintf("things%d-%d/status", i, n)},
			})
		}
		return append(out,
			rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"get"}, Resources: []string{"configmaps"},
				ResourceNames: []string{fmt.Sprint("c", i)}})
	}
	for i := range 2000 {
		x.SetRole([]string{"", "team"}[i%2], fmt.Sprint("role", i), rules(i))
	}
	for i := range 5000 {
		kind, namespace := "ClusterRole", ""
		if i%2 == 1 {
			kind, namespace = "Role", "team"
		}
		// The worst case: all bindings name one group, and a user of its own.
		x.SetBinding(namespace, fmt.Sprint("b", i), rbacv1.RoleRef{Kind: kind, Name: fmt.Sprint("role", i%2000)},
			[]rbacv1.Subject{
				{Kind: "Group", Name: "everyone"}, {Kind: "User", Name: fmt.Sprint("user", i)},
			})
	}
	return x
}

func TestDecisionsAllocateNothing(t *testing.T) {
	x := large()
	for _, c := range []struct {
		user     request.User
		resource string
		allowed  bool
	}{
		{request.User{Name: "user4999", Groups: []string{"system:authenticated"}}, "things999-0", true},
		{request.User{Name: "x", Groups: []string{"everyone", "system:authenticated"}}, "things999-3", true},
		{request.User{Name: "x", Groups: []string{"everyone", "system:authenticated"}}, "others", false},
	} {
		i := &request.Info{Verb: "get", Resource: c.resource, Subresource: "status", Namespace: "team", Name: "n"}
		if allowed, reason := x.Decide(&c.user, i); allowed != c.allowed {
			t.Errorf("%s %s: %v %s", c.user.Name, c.resource, allowed, reason)
		}
		if n := testing.AllocsPerRun(100, func() { x.Decide(&c.user, i) }); n != 0 {
			t.Errorf("%s %s: %v allocations", c.user.Name, c.resource, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	x := large()
	for _, c := range []struct {
		name string
		user request.User
		info request.Info
	}{
		{"one-binding", request.User{Name: "user4999", Groups: []string{"system:authenticated"}},
			request.Info{Verb: "get", Resource: "things999-7", Namespace: "team"}},
		{"all-bindings", request.User{Name: "x", Groups: []string{"everyone", "system:authenticated"}},
			request.Info{Verb: "get", Resource: "things999-3", Namespace: "team"}},
		{"all-bindings-refused", request.User{Name: "x", Groups: []string{"everyone", "system:authenticated"}},
			request.Info{Verb: "get", Resource: "others", Namespace: "team"}},
		{"same-resource-in-all", request.User{Name: "x", Groups: []string{"everyone", "system:authenticated"}},
			request.Info{Verb: "get", Resource: "configmaps", Namespace: "team", Name: "c1999"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Decide(&c.user, &c.info)
			}
		})
	}
}

func BenchmarkChange(b *testing.B) {
	x := large()
	subjects := []rbacv1.Subject{{Kind: "Group", Name: "everyone"}}
	for b.Loop() {
		x.SetBinding("team", "b1", rbacv1.RoleRef{Kind: "Role", Name: "role1"}, subjects)
	}
}

func TestMissingPermissionsAreListed(t *testing.T) {
	x := NewIndex()
	x.SetRole("ns", "r",
		[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}})
	ella := []rbacv1.Subject{{Kind: "User", Name: "ella"}}
	x.SetBinding("ns", "b", rbacv1.RoleRef{Kind: "Role", Name: "r"}, ella)
	x.SetBinding("ns", "broken", rbacv1.RoleRef{Kind: "Role", Name: "gone"}, ella)
	u := &request.User{Name: "ella", Groups: []string{"system:authenticated"}}
	wanted := []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"", "apps"}, Resources: []string{"configmaps"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"b", "a"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
	}
	err := x.ConfirmNoEscalation(u, "ns", rbacv1.Resource("roles"), wanted)
	want := `user "ella" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["configmaps"], Verbs:["list"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}
{APIGroups:["apps"], Resources:["configmaps"], Verbs:["get" "list"]}
{NonResourceURLs:["/metrics"], Verbs:["get"]}; resolution errors: [roles.rbac.authorization.k8s.io "gone" not found]`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := x.ConfirmNoEscalation(u, "ns", rbacv1.Resource("roles"), wanted[:0]); err != nil {
		t.Errorf("nothing: %v", err)
	}
}
