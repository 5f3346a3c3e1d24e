package structuralschema

// combinators checks a value by the combinators of a node, in the order anyOf, oneOf, allOf, not. It returns how
// many checks passed.
func (v *checks) combinators(values *Values, x any) int {
	passed := 0
	if len(values.AnyOf) > 0 {
		passed += v.anyOf(values.AnyOf, x)
	}
	if len(values.OneOf) > 0 {
		passed += v.oneOf(values.OneOf, x)
	}
	if len(values.AllOf) > 0 {
		passed += v.allOf(values.AllOf, x)
	}
	if values.Not != nil {
		if _, ok := v.try(values.Not, x); ok {
			v.whole("%q must not validate the schema (not)", v.displayPath())
		}
	}
	return passed
}

// try reports whether a value satisfies a condition, without adding errors.
func (v *checks) try(c *Condition, x any) (passed int, ok bool) {
	failed, quiet := v.failed, v.quiet
	v.quiet = true
	passed = v.condition(c, x)
	ok = v.failed == failed
	v.failed, v.quiet = failed, quiet
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

func (v *checks) anyOf(all []*Condition, x any) int {
	var nearest best
	for _, c := range all {
		passed, ok := v.try(c, x)
		if ok {
			return passed
		}
		nearest.consider(c, passed)
	}
	v.whole("%q must validate at least one schema (anyOf)", v.displayPath())
	nearest.report(v, x)
	return nearest.passed
}

func (v *checks) oneOf(all []*Condition, x any) int {
	var nearest best
	valid, first := 0, 0
	for _, c := range all {
		passed, ok := v.try(c, x)
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
		v.whole("%q must validate one and only one schema (oneOf). Found none valid", v.displayPath())
	default:
		v.whole("%q must validate one and only one schema (oneOf). Found %d valid alternatives", v.displayPath(), valid)
	}
	nearest.report(v, x)
	return nearest.passed
}

func (v *checks) allOf(all []*Condition, x any) int {
	valid, passed := 0, 0
	for _, c := range all {
		failed := v.failed
		passed += v.condition(c, x)
		if v.failed == failed {
			valid++
		}
	}
	switch valid {
	case len(all):
	case 0:
		v.whole("%q must validate all the schemas (allOf). None validated", v.displayPath())
	default:
		v.whole("%q must validate all the schemas (allOf)", v.displayPath())
	}
	return passed
}

// displayPath is the path that error messages use; "" while v is quiet, which saves building it.
func (v *checks) displayPath() string {
	if v.quiet {
		return ""
	}
	return v.pathText()
}
