// Package classify finds the FlowSchema that a request matches.
//
// The rules of all FlowSchemas are split into clauses, which are numbered in the order of precedence. A clause has a
// list of allowed values for each property of a request: its user, verb, API group, resource and namespace, or its
// user, verb and path. It matches if it allows the value of each property. For each value of a property there is the
// set of the clauses that allow it. The first match is the lowest clause that is in a set of each property.
//
// A set is a list of ranges of numbers. For example, the clauses of a rule with three resources and a hundred subjects
// have the numbers 5, 6 and 7, and the range from 5 to 7 is added to the set of each subject. So the memory grows with
// the length of the FlowSchemas: at most one range for each subject of a rule and for each value of a clause.
//
// The lowest common number is found in steps. It is not below the lowest number of any property, so the search begins
// with the highest of these. It then advances each property to its next number that is not below the current one, until
// all properties have the same number.
package classify

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// all is the value that stands for all values of a property.
const all = "*"

// Classifier finds the first of a list of FlowSchemas that matches a request. It does not change, and may be used
// concurrently.
type Classifier struct {
	schemas []int // the schema of each clause

	users, groups property
	accounts      map[string]set // by namespace: all its service accounts
	verbs         property
	resources     set // clauses about resources, as opposed to paths
	apiGroups     property
	names         property // resource or resource/subresource
	namespaces    property
	clusterScope  set
	paths         property
	prefixes      map[string]set // of paths, each with a slash at its end
	longestPrefix int
}

// set is a set of clauses: ranges that do not touch, in order. nil is empty.
type set []span

// span is the clauses from begin up to, but without, end.
type span struct{ begin, end uint32 }

// add adds a range that begins in or after the last one of the set.
func (s *set) add(r span) {
	if n := len(*s); n > 0 && r.begin <= (*s)[n-1].end {
		(*s)[n-1].end = max((*s)[n-1].end, r.end)
		return
	}
	*s = append(*s, r)
}

// property has the sets of clauses by the values that they allow, and the set of clauses that allow all values.
type property struct {
	byValue map[string]set
	any     set
}

// Compile returns a Classifier of specs, which are in the order of precedence.
func Compile(specs []*flowcontrolv1.FlowSchemaSpec) *Classifier {
	b := builder{Classifier{accounts: map[string]set{}, prefixes: map[string]set{}}}
	for i, spec := range specs {
		for r := range spec.Rules {
			b.add(i, &spec.Rules[r])
		}
	}
	return &b.Classifier
}

// builder is a Classifier that is being built.
type builder struct{ Classifier }

// add adds the clauses of a rule: one for each of its resource rules and of its rules of paths.
func (b *builder) add(schema int, rule *flowcontrolv1.PolicyRulesWithSubjects) {
	all := span{begin: b.next()}
	for i := range rule.ResourceRules {
		b.addResource(b.clause(schema), &rule.ResourceRules[i])
	}
	for i := range rule.NonResourceRules {
		clause, r := b.clause(schema), &rule.NonResourceRules[i]
		b.verbs.add(clause, r.Verbs)
		b.addPaths(clause, r.NonResourceURLs)
	}
	if all.end = b.next(); all.end == all.begin {
		return
	}
	for i := range rule.Subjects {
		b.addSubject(all, &rule.Subjects[i])
	}
}

// next returns the number of the next clause.
func (b *builder) next() uint32 { return uint32(len(b.schemas)) } //nolint:gosec // a clause takes some bytes of memory

// clause begins the next clause.
func (b *builder) clause(schema int) span {
	n := b.next()
	b.schemas = append(b.schemas, schema)
	return span{n, n + 1}
}

func (b *builder) addResource(clause span, r *flowcontrolv1.ResourcePolicyRule) {
	b.resources.add(clause)
	b.verbs.add(clause, r.Verbs)
	b.apiGroups.add(clause, r.APIGroups)
	b.names.add(clause, r.Resources)
	b.namespaces.add(clause, r.Namespaces)
	if r.ClusterScope {
		b.clusterScope.add(clause)
	}
}

func (b *builder) addSubject(clauses span, s *flowcontrolv1.Subject) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		b.users.add(clauses, []string{s.User.Name})
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		b.groups.add(clauses, []string{s.Group.Name})
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if account := s.ServiceAccount; account.Name == all {
			put(b.accounts, account.Namespace, clauses)
		} else {
			b.users.add(clauses, []string{accountPrefix + account.Namespace + ":" + account.Name})
		}
	}
}

// addPaths adds a clause about paths. A path that ends with "/*" matches all paths that begin with the part before the
// star.
func (b *builder) addPaths(clause span, paths []string) {
	for _, p := range paths {
		prefix, found := strings.CutSuffix(p, all)
		if p == all || !found {
			b.paths.add(clause, []string{p})
			continue
		}
		put(b.prefixes, prefix, clause)
		b.longestPrefix = max(b.longestPrefix, len(prefix))
	}
}

func (p *property) add(clauses span, values []string) {
	if slices.Contains(values, all) {
		p.any.add(clauses)
		return
	}
	if p.byValue == nil {
		p.byValue = map[string]set{}
	}
	for _, v := range values {
		put(p.byValue, v, clauses)
	}
}

func put(sets map[string]set, key string, clauses span) {
	s := sets[key]
	s.add(clauses)
	sets[key] = s
}

// accountPrefix begins the names of users that are service accounts.
const accountPrefix = "system:serviceaccount:"

// usual is the number of groups of a user, or prefixes of a path, up to which no memory is allocated.
const usual = 16

// Find returns the index of the first FlowSchema that matches, -1 if none does.
func (c *Classifier) Find(info *request.Info, user *request.User) int {
	var subjectSpace, pathSpace [usual]set
	subjects := append(subjectSpace[:0], c.users.byValue[user.Name], c.users.any, c.groups.any)
	subjects = c.appendSubjects(subjects, user)
	verbs := c.verbs.of(info.Verb)
	if !info.IsResource() {
		paths := append(pathSpace[:0], c.paths.byValue[info.Path], c.paths.any)
		paths = c.appendPrefixes(paths, info.Path)
		return c.first(subjects, paths, verbs[:])
	}
	name := info.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	groups, names, scope := c.apiGroups.of(info.Group), c.names.of(name), [2]set{c.clusterScope}
	if info.Namespace != "" {
		scope = c.namespaces.of(info.Namespace)
	}
	return c.first(subjects, append(pathSpace[:0], c.resources), verbs[:], groups[:], names[:], scope[:])
}

// of returns the sets of the clauses that allow a value.
func (p *property) of(value string) [2]set { return [2]set{p.byValue[value], p.any} }

func (c *Classifier) appendSubjects(subjects []set, user *request.User) []set {
	for _, g := range user.Groups {
		if s, ok := c.groups.byValue[g]; ok {
			subjects = append(subjects, s)
		}
	}
	if rest, ok := strings.CutPrefix(user.Name, accountPrefix); ok && len(c.accounts) > 0 {
		if namespace, _, ok := strings.Cut(rest, ":"); ok {
			subjects = append(subjects, c.accounts[namespace])
		}
	}
	return subjects
}

func (c *Classifier) appendPrefixes(paths []set, path string) []set {
	if len(c.prefixes) == 0 {
		return paths
	}
	for i := range min(len(path), c.longestPrefix) {
		if path[i] == '/' {
			if s, ok := c.prefixes[path[:i+1]]; ok {
				paths = append(paths, s)
			}
		}
	}
	return paths
}

// first returns the schema of the lowest clause that is in a set of each property; -1 if there is none. Each property
// is a list of sets, which first consumes.
func (c *Classifier) first(properties ...[]set) int {
	clause, agreed := uint32(0), 0
	for i := 0; agreed < len(properties); i = (i + 1) % len(properties) {
		next, ok := seek(properties[i], clause)
		switch {
		case !ok:
			return -1
		case next > clause:
			clause, agreed = next, 1
		default:
			agreed++
		}
	}
	return c.schemas[clause]
}

// seek returns the lowest clause in any of the sets that is at least from, and whether there is one. It removes the
// ranges below from.
func seek(sets []set, from uint32) (lowest uint32, found bool) {
	for i := range sets {
		s := sets[i]
		if len(s) > 0 && s[0].end <= from {
			n, _ := slices.BinarySearchFunc(s, from, func(r span, from uint32) int {
				if r.end <= from {
					return -1
				}
				return 1
			})
			s = s[n:]
			sets[i] = s
		}
		if len(s) == 0 {
			continue
		}
		if next := max(s[0].begin, from); !found || next < lowest {
			lowest, found = next, true
		}
	}
	return lowest, found
}
