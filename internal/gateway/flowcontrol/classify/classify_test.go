package classify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// slowFind looks at the rules one after the other.
func slowFind(specs []*flowcontrolv1.FlowSchemaSpec, info *request.Info, user *request.User) int {
	for i, s := range specs {
		for _, rule := range s.Rules {
			if slices.ContainsFunc(rule.Subjects, func(s flowcontrolv1.Subject) bool { return isSubject(s, user) }) &&
				matches(rule, info) {
				return i
			}
		}
	}
	return -1
}

func isSubject(s flowcontrolv1.Subject, user *request.User) bool {
	switch s.Kind {
	case "User":
		return s.User.Name == "*" || s.User.Name == user.Name
	case "Group":
		return s.Group.Name == "*" || slices.Contains(user.Groups, s.Group.Name)
	}
	prefix := "system:serviceaccount:" + s.ServiceAccount.Namespace + ":"
	return strings.HasPrefix(user.Name, prefix) &&
		(s.ServiceAccount.Name == "*" || user.Name == prefix+s.ServiceAccount.Name)
}

func matches(rule flowcontrolv1.PolicyRulesWithSubjects, info *request.Info) bool {
	in := func(list []string, value string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, value)
	}
	if !info.IsResource() {
		return slices.ContainsFunc(rule.NonResourceRules, func(r flowcontrolv1.NonResourcePolicyRule) bool {
			return in(r.Verbs, info.Verb) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
				return url == "*" || url == info.Path ||
					strings.HasSuffix(url, "/*") && strings.HasPrefix(info.Path, strings.TrimSuffix(url, "*"))
			})
		})
	}
	name := strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")
	return slices.ContainsFunc(rule.ResourceRules, func(r flowcontrolv1.ResourcePolicyRule) bool {
		return in(r.Verbs, info.Verb) && in(r.APIGroups, info.Group) && in(r.Resources, name) &&
			(info.Namespace == "" && r.ClusterScope || info.Namespace != "" && in(r.Namespaces, info.Namespace))
	})
}

// source makes random rules and requests of few values, so that they often match.
type source struct{ *rand.Rand }

func (s source) of(values ...string) string { return values[s.IntN(len(values))] }

func (s source) list(values ...string) []string {
	out := []string{s.of(values...)}
	for s.IntN(3) == 0 {
		out = append(out, s.of(values...))
	}
	return out
}

var (
	users  = []string{"a", "b", "system:serviceaccount:x:y", "system:serviceaccount:x:z", "system:serviceaccount:y:y"}
	groups = []string{"g", "h", "i"}
	verbs  = []string{"get", "list", "create"}
	paths  = []string{"/", "/healthz", "/healthz/etcd", "/a/b/c", "/a/b", "/a/"}
)

func (s source) spec() *flowcontrolv1.FlowSchemaSpec {
	spec := &flowcontrolv1.FlowSchemaSpec{}
	for range 1 + s.IntN(2) {
		var rule flowcontrolv1.PolicyRulesWithSubjects
		for range 1 + s.IntN(2) {
			rule.Subjects = append(rule.Subjects, s.subject())
		}
		for range s.IntN(3) {
			rule.ResourceRules = append(rule.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs: s.list(append(verbs, "*")...), APIGroups: s.list("", "apps", "*"),
				Resources: s.list("pods", "nodes", "pods/status", "*"), ClusterScope: s.IntN(2) == 0,
				Namespaces: s.list("x", "y", "*"),
			})
		}
		for range s.IntN(3) {
			rule.NonResourceRules = append(rule.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs: s.list(append(verbs, "*")...), NonResourceURLs: s.list(append(paths, "*", "/healthz/*", "/a/*", "/a/b/*")...),
			})
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec
}

func (s source) subject() flowcontrolv1.Subject {
	switch s.IntN(3) {
	case 0:
		name := s.of(append(users, "*")...)
		return flowcontrolv1.Subject{Kind: "User", User: &flowcontrolv1.UserSubject{Name: name}}
	case 1:
		name := s.of(append(groups, "*")...)
		return flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	return flowcontrolv1.Subject{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
		Namespace: s.of("x", "y"), Name: s.of("y", "z", "*"),
	}}
}

func (s source) request() (*request.Info, *request.User) {
	user := &request.User{Name: s.of(users...)}
	for range s.IntN(20) {
		user.Groups = append(user.Groups, s.of(append(groups, "many", "others")...))
	}
	if s.IntN(2) == 0 {
		return &request.Info{Verb: s.of(verbs...), Path: s.of(paths...)}, user
	}
	return &request.Info{
		Verb: s.of(verbs...), Group: s.of("", "apps"), Resource: s.of("pods", "nodes"), Subresource: s.of("", "status"),
		Namespace: s.of("", "x", "y"), AsksResource: true,
	}, user
}

// TestClassifierAndTwin compares the classifier with one that looks at all rules, for random rules and requests.
func TestClassifierAndTwin(t *testing.T) {
	matched := 0
	for seed := range uint64(200) {
		r := source{rand.New(rand.NewPCG(seed, 1))}
		var specs []*flowcontrolv1.FlowSchemaSpec
		for range r.IntN(60) {
			specs = append(specs, r.spec())
		}
		c := Compile(specs)
		for range 200 {
			info, user := r.request()
			got, want := c.Find(info, user), slowFind(specs, info, user)
			if got != want {
				t.Fatalf("seed %d: %+v of %+v: %d, want %d", seed, *info, *user, got, want)
			}
			if got >= 0 {
				matched++
			}
		}
	}
	if matched < 10000 {
		t.Errorf("only %d requests match", matched)
	}
}

// thousand returns a thousand schemas, of which the last matches info and user.
func thousand() ([]*flowcontrolv1.FlowSchemaSpec, *request.Info, *request.User) {
	info := &request.Info{Verb: "list", Resource: "pods", Namespace: "x", AsksResource: true}
	user := &request.User{Name: "alice", Groups: []string{"g", "system:authenticated"}}
	var specs []*flowcontrolv1.FlowSchemaSpec
	for i := range 1000 {
		subject := flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "system:authenticated"}}
		namespace := fmt.Sprintf("n%d", i)
		if i == 999 {
			namespace = "x"
		}
		specs = append(specs, &flowcontrolv1.FlowSchemaSpec{Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{subject},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
				Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{namespace},
			}},
		}}})
	}
	return specs, info, user
}

// TestNoAllocations checks that classification costs no memory, with a thousand schemas as with few.
func TestNoAllocations(t *testing.T) {
	specs, info, user := thousand()
	c := Compile(specs)
	if n := testing.AllocsPerRun(100, func() {
		if got := c.Find(info, user); got != 999 {
			t.Errorf("%d", got)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkThousandSchemas(b *testing.B) {
	specs, info, user := thousand()
	c := Compile(specs)
	b.ReportAllocs()
	for b.Loop() {
		c.Find(info, user)
	}
}

// large returns schemas whose rules have many clauses and many subjects, each a user of its own. The last one matches the
// request of the user that is returned.
func large(schemas, rules, subjects, clauses int) ([]*flowcontrolv1.FlowSchemaSpec, *request.User) {
	var specs []*flowcontrolv1.FlowSchemaSpec
	user := 0
	for range schemas {
		spec := &flowcontrolv1.FlowSchemaSpec{}
		for range rules {
			rule := flowcontrolv1.PolicyRulesWithSubjects{}
			for range subjects {
				user++
				rule.Subjects = append(rule.Subjects, flowcontrolv1.Subject{
					Kind: "User", User: &flowcontrolv1.UserSubject{Name: fmt.Sprint(user)}})
			}
			for range clauses {
				rule.ResourceRules = append(rule.ResourceRules, flowcontrolv1.ResourcePolicyRule{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}})
			}
			spec.Rules = append(spec.Rules, rule)
		}
		specs = append(specs, spec)
	}
	return specs, &request.User{Name: fmt.Sprint(user)}
}

// TestMemoryIsLinear checks that the memory of a classifier grows with the length of the rules, not with its
// square, because users who may write FlowSchemas choose this length.
func TestMemoryIsLinear(t *testing.T) {
	info := &request.Info{Verb: "list", Resource: "pods", Namespace: "x", AsksResource: true}
	for _, shape := range []struct{ schemas, rules, subjects, clauses int }{
		{1, 1, 10_000, 5_000},
		{4, 5_000, 1, 1},
	} {
		specs, user := large(shape.schemas, shape.rules, shape.subjects, shape.clauses)
		var c *Classifier
		result := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c = Compile(specs)
			}
		})
		const each = 320 // bytes for each subject and each clause
		length := int64(shape.schemas * shape.rules * (shape.subjects + shape.clauses))
		if got := result.AllocedBytesPerOp(); got > each*length {
			t.Errorf("%+v: %d bytes for %d subjects and clauses", shape, got, length)
		}
		if got := c.Find(info, user); got != shape.schemas-1 {
			t.Errorf("%+v: the schema is %d", shape, got)
		}
	}
}
