package crd

// A ledger has the names that the definitions of one group were given, and who was
// not given all: to name a definition in a group of thousands costs no more than in
// one of few.
type ledger struct {
	// resources and kinds count the definitions that have a name.
	resources, kinds map[string]int
	// lacking are the definitions that lack a name.
	lacking map[string]bool
}

func newLedger() *ledger {
	return &ledger{resources: map[string]int{}, kinds: map[string]int{}, lacking: map[string]bool{}}
}

// count adds to the number of definitions that have these names.
func (l *ledger) count(n *names, by int) {
	for _, name := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
		change(l.resources, name, by)
	}
	change(l.kinds, n.Kind, by)
	change(l.kinds, n.ListKind, by)
}

func change(counts map[string]int, name string, by int) {
	if counts[name] += by; counts[name] == 0 {
		delete(counts, name)
	}
}

// taken are those of the wanted names that some definition has.
func (l *ledger) taken(wanted *names) taken {
	t := newTaken()
	for _, name := range append([]string{wanted.Plural, wanted.Singular}, wanted.ShortNames...) {
		t.resources[name] = l.resources[name] > 0
	}
	t.kinds[wanted.Kind], t.kinds[wanted.ListKind] = l.kinds[wanted.Kind] > 0, l.kinds[wanted.ListKind] > 0
	return t
}

// enter brings the ledger of a definition's group up to date when d takes the place
// of old; either may be nil. mu is held.
func (s *Server) enter(old, d *definition) {
	if old != nil {
		l := s.ledgers[old.group]
		l.count(&old.status.names, -1)
		delete(l.lacking, old.name)
		if len(l.resources) == 0 && d == nil {
			delete(s.ledgers, old.group)
		}
	}
	if d == nil {
		return
	}
	l := s.ledgers[d.group]
	if l == nil {
		l = newLedger()
		s.ledgers[d.group] = l
	}
	l.count(&d.status.names, 1)
	if !d.status.namesAccepted() {
		l.lacking[d.name] = true
	}
}
