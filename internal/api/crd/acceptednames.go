package crd

// groupNames holds the names that the definitions of one API group have been accepted with, and the names of the
// definitions with a conflict. It is updated with each definition, so that accepting the names of one more
// definition costs the same in a group of thousands of definitions as in a group of few.
type groupNames struct {
	// resources and kinds count the definitions that use a name.
	resources, kinds map[string]int
	// conflicting has the definitions that did not get all the names that they ask for.
	conflicting map[string]bool
}

func newGroupNames() *groupNames {
	return &groupNames{resources: map[string]int{}, kinds: map[string]int{}, conflicting: map[string]bool{}}
}

// count adds by (1 or -1) to the number of definitions that use the names n.
func (g *groupNames) count(n *names, by int) {
	for _, name := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
		addCount(g.resources, name, by)
	}
	addCount(g.kinds, n.Kind, by)
	addCount(g.kinds, n.ListKind, by)
}

func addCount(counts map[string]int, name string, by int) {
	if counts[name] += by; counts[name] == 0 {
		delete(counts, name)
	}
}

// used reports for each wanted name whether a definition of the group uses it.
func (g *groupNames) used(wanted *names) usedNames {
	t := newUsedNames()
	for _, name := range append([]string{wanted.Plural, wanted.Singular}, wanted.ShortNames...) {
		t.resources[name] = g.resources[name] > 0
	}
	t.kinds[wanted.Kind], t.kinds[wanted.ListKind] = g.kinds[wanted.Kind] > 0, g.kinds[wanted.ListKind] > 0
	return t
}

// updateGroupNames replaces the names of old by those of d in the names of their group. Either may be nil. The
// caller holds mu.
func (s *Server) updateGroupNames(old, d *definition) {
	if old != nil {
		l := s.namesByGroup[old.group]
		l.count(&old.status.names, -1)
		delete(l.conflicting, old.name)
		if len(l.resources) == 0 && d == nil {
			delete(s.namesByGroup, old.group)
		}
	}
	if d == nil {
		return
	}
	l := s.namesByGroup[d.group]
	if l == nil {
		l = newGroupNames()
		s.namesByGroup[d.group] = l
	}
	l.count(&d.status.names, 1)
	if !d.status.namesAccepted() {
		l.conflicting[d.name] = true
	}
}
