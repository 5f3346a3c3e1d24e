package structuralschema

// combinators checks a value by the combinators of a node, in the order anyOf, oneOf, allOf, not. It returns how
// many checks passed.
func (ch *checks) combinators(values *Values, x any) int {
	passed := 0
	if len(values.AnyOf) > 0 {
		passed += ch.anyOf(values.AnyOf, x)
	}
	if len(values.OneOf) > 0 {
		passed += ch.oneOf(values.OneOf, x)
	}
	if len(values.AllOf) > 0 {
		passed += ch.allOf(values.AllOf, x)
	}
	if values.Not != nil {
		if _, ok := ch.try(values.Not, x); ok {
			ch.whole("%q must not validate the schema (not)", ch.displayPath())
		}
	}
	return passed
}

// try reports whether a value satisfies a condition, without adding errors.
func (ch *checks) try(c *Condition, x any) (passed int, ok bool) {
	failed, quiet := ch.failed, ch.quiet
	ch.quiet = true
	passed = ch.condition(c, x)
	ok = ch.failed == failed
	ch.failed, ch.quiet = failed, quiet
	return passed, ok
}

// best is the alternative of an anyOf or oneOf with the most checks passed so far.
type best struct {
	condition *Condition
	passed    int
}

func (b *best) consider(c *Condition, passed int) {
	if b.condition == nil || passed > b.passed {
		b.condition, b.passed = c, passed
	}
}

// report adds the errors of the best alternative.
func (b *best) report(v *checks, x any) {
	if b.condition != nil && !v.quiet {
		v.condition(b.condition, x)
	}
}

func (ch *checks) anyOf(all []*Condition, x any) int {
	var nearest best
	for _, c := range all {
		passed, ok := ch.try(c, x)
		if ok {
			return passed
		}
		nearest.consider(c, passed)
	}
	ch.whole("%q must validate at least one schema (anyOf)", ch.displayPath())
	nearest.report(ch, x)
	return nearest.passed
}

func (ch *checks) oneOf(all []*Condition, x any) int {
	var nearest best
	valid, first := 0, 0
	for _, c := range all {
		passed, ok := ch.try(c, x)
		switch {
		case ok:
			if valid++; valid == 1 {
				first = passed
			}
			nearest = best{}
		case valid == 0:
			nearest.consider(c, passed)
		}
	}
	switch valid {
	case 1:
		return first
	case 0:
		ch.whole("%q must validate one and only one schema (oneOf). Found none valid", ch.displayPath())
	default:
		ch.whole("%q must validate one and only one schema (oneOf). Found %d valid alternatives", ch.displayPath(), valid)
	}
	nearest.report(ch, x)
	return nearest.passed
}

func (ch *checks) allOf(all []*Condition, x any) int {
	valid, passed := 0, 0
	for _, c := range all {
		failed := ch.failed
		passed += ch.condition(c, x)
		if ch.failed == failed {
			valid++
		}
	}
	switch valid {
	case len(all):
	case 0:
		ch.whole("%q must validate all the schemas (allOf). None validated", ch.displayPath())
	default:
		ch.whole("%q must validate all the schemas (allOf)", ch.displayPath())
	}
	return passed
}

// displayPath returns the path that error messages use. It returns "" while ch is quiet, which saves building the
// path.
func (ch *checks) displayPath() string {
	if ch.quiet {
		return ""
	}
	return ch.pathText()
}
