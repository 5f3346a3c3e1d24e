// Package classify finds the FlowSchema that a request matches.
//
// The rules of all FlowSchemas are split into clauses. A clause demands something of each of several properties of a
// request: of its user, verb, API group, resource and namespace, or of its user, verb and path. It matches if all
// properties are among those that it allows. For each value of a property there is a set of the clauses that allow it,
// as bits in the order of precedence. The clauses that match a request are the intersection of one set for each
// property, and the lowest bit is the clause that decides. So the cost hardly depends on the number of FlowSchemas:
// a thousand are 16 words or a little more for each property.
package classify

import (
	"math/bits"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/keelson-dev/keelson/request"
)

// all is the value that stands for all values of a property.
const all = "*"

// Classifier finds the first of a list of FlowSchemas that matches a request. It does not change, and may be used
// concurrently.
type Classifier struct {
	words   int
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

// set is a set of clauses. nil is empty.
type set []uint64

// property has the sets of clauses by the values that they allow. The set of a value includes the clauses that allow
// all values; these alone are in others.
type property struct {
	byValue map[string]set
	others  set
}

func (p *property) get(value string) set {
	if s, ok := p.byValue[value]; ok {
		return s
	}
	return p.others
}

// clause is a rule that demands one list of values for each property.
type clause struct {
	schema   int
	subjects []flowcontrolv1.Subject
	verbs    []string
	resource *flowcontrolv1.ResourcePolicyRule // nil: paths
	paths    []string
}

// Compile returns a Classifier of specs, which are in the order of precedence.
func Compile(specs []*flowcontrolv1.FlowSchemaSpec) *Classifier {
	var clauses []clause
	for i, spec := range specs {
		for _, rule := range spec.Rules {
			for r := range rule.ResourceRules {
				resource := &rule.ResourceRules[r]
				clauses = append(clauses, clause{schema: i, subjects: rule.Subjects, verbs: resource.Verbs, resource: resource})
			}
			for _, r := range rule.NonResourceRules {
				clauses = append(clauses, clause{schema: i, subjects: rule.Subjects, verbs: r.Verbs, paths: r.NonResourceURLs})
			}
		}
	}
	const wordSize = 64
	b := builder{Classifier{words: (len(clauses) + wordSize - 1) / wordSize}}
	b.accounts, b.prefixes = map[string]set{}, map[string]set{}
	for i, c := range clauses {
		b.schemas = append(b.schemas, c.schema)
		b.add(i, &c)
	}
	for _, p := range []*property{&b.users, &b.groups, &b.verbs, &b.apiGroups, &b.names, &b.namespaces, &b.paths} {
		b.finish(p)
	}
	return &b.Classifier
}

// builder is a Classifier that is being built.
type builder struct{ Classifier }

func (b *builder) add(i int, c *clause) {
	for _, s := range c.subjects {
		b.addSubject(i, &s)
	}
	b.addValues(&b.verbs, i, c.verbs)
	if c.resource == nil {
		b.addPaths(i, c.paths)
		return
	}
	b.put(&b.resources, i)
	b.addValues(&b.apiGroups, i, c.resource.APIGroups)
	b.addValues(&b.names, i, c.resource.Resources)
	b.addValues(&b.namespaces, i, c.resource.Namespaces)
	if c.resource.ClusterScope {
		b.put(&b.clusterScope, i)
	}
}

func (b *builder) addSubject(i int, s *flowcontrolv1.Subject) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		b.addValues(&b.users, i, []string{s.User.Name})
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		b.addValues(&b.groups, i, []string{s.Group.Name})
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if account := s.ServiceAccount; account.Name == all {
			in := b.accounts[account.Namespace]
			b.put(&in, i)
			b.accounts[account.Namespace] = in
		} else {
			b.addValues(&b.users, i, []string{accountPrefix + account.Namespace + ":" + account.Name})
		}
	}
}

// addPaths adds a clause about paths. A path that ends with a slash and a star stands for all paths that begin with
// what is before the star.
func (b *builder) addPaths(i int, paths []string) {
	for _, p := range paths {
		prefix, found := strings.CutSuffix(p, all)
		if p == all || !found {
			b.addValues(&b.paths, i, []string{p})
			continue
		}
		with := b.prefixes[prefix]
		b.put(&with, i)
		b.prefixes[prefix] = with
		b.longestPrefix = max(b.longestPrefix, len(prefix))
	}
}

func (b *builder) addValues(p *property, i int, values []string) {
	if slices.Contains(values, all) {
		b.put(&p.others, i)
		return
	}
	if p.byValue == nil {
		p.byValue = map[string]set{}
	}
	for _, v := range values {
		s := p.byValue[v]
		b.put(&s, i)
		p.byValue[v] = s
	}
}

func (b *builder) put(s *set, clause int) {
	if *s == nil {
		*s = make(set, b.words)
	}
	const wordSize = 64
	(*s)[clause/wordSize] |= 1 << (clause % wordSize)
}

// finish adds the clauses that allow all values to the set of each value.
func (b *builder) finish(p *property) {
	for _, s := range p.byValue {
		for w := range p.others {
			s[w] |= p.others[w]
		}
	}
}

// accountPrefix begins the names of users that are service accounts.
const accountPrefix = "system:serviceaccount:"

// Find returns the index of the first FlowSchema that matches, -1 if none does.
func (c *Classifier) Find(info *request.Info, user *request.User) int {
	const usual = 16 // groups of a user, and prefixes of a path
	var subjectSpace, pathSpace [usual]set
	subjects := append(subjectSpace[:0], c.users.get(user.Name), c.groups.others)
	subjects = c.appendSubjects(subjects, user)
	if !info.IsResource() {
		paths := append(pathSpace[:0], c.paths.get(info.Path))
		return c.first(subjects, c.appendPrefixes(paths, info.Path), c.verbs.get(info.Verb))
	}
	name := info.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	scope := c.clusterScope
	if info.Namespace != "" {
		scope = c.namespaces.get(info.Namespace)
	}
	return c.first(subjects, append(pathSpace[:0], c.resources),
		c.verbs.get(info.Verb), c.apiGroups.get(info.Group), c.names.get(name), scope)
}

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

// first returns the schema of the first clause that is in one of the subjects' sets, in one of the sets in either, and
// in all further sets.
func (c *Classifier) first(subjects, either []set, further ...set) int {
	const wordSize = 64
	for w := range c.words {
		x := union(subjects, w)
		for _, s := range further {
			if x == 0 {
				break
			}
			x &= s.word(w)
		}
		if x != 0 {
			if x &= union(either, w); x != 0 {
				return c.schemas[w*wordSize+bits.TrailingZeros64(x)]
			}
		}
	}
	return -1
}

func (s set) word(w int) uint64 {
	if s == nil {
		return 0
	}
	return s[w]
}

func union(sets []set, w int) (x uint64) {
	for _, s := range sets {
		x |= s.word(w)
	}
	return x
}
