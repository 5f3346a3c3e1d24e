package field

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ruleCases has a valid value and an invalid one for each rule, and the errors of the invalid one.
var ruleCases = []struct {
	name           string
	valid, invalid func(p *Path) ErrorList
	want           []string
}{
	{"InvalidIf", func(p *Path) ErrorList { return InvalidIf(false, p, "x", "why") },
		func(p *Path) ErrorList { return InvalidIf(true, p, "x", "why") }, []string{`a: Invalid value: "x": why`}},
	{"RequiredIf", func(p *Path) ErrorList { return RequiredIf(false, p, "why") },
		func(p *Path) ErrorList { return RequiredIf(true, p, "why") }, []string{"a: Required value: why"}},
	{"ForbiddenIf", func(p *Path) ErrorList { return ForbiddenIf(false, p, "why") },
		func(p *Path) ErrorList { return ForbiddenIf(true, p, "why") }, []string{"a: Forbidden: why"}},
	{"DuplicateIf", func(p *Path) ErrorList { return DuplicateIf(false, p, "x") },
		func(p *Path) ErrorList { return DuplicateIf(true, p, "x") }, []string{`a: Duplicate value: "x"`}},
	{"Messages", func(p *Path) ErrorList { return Messages(p, 7, nil) },
		func(p *Path) ErrorList { return Messages(p, 7, []string{"b", "c"}) },
		[]string{"a: Invalid value: 7: b", "a: Invalid value: 7: c"}},
	{"NotEmpty", func(p *Path) ErrorList { return NotEmpty(p, "x") },
		func(p *Path) ErrorList { return NotEmpty(p, "") }, []string{"a: Required value"}},
	{"NotEmptyAnd", func(p *Path) ErrorList { return NotEmptyAnd(p, "x", DNSLabel) },
		func(p *Path) ErrorList { return Join(NotEmptyAnd(p, "", DNSLabel), NotEmptyAnd(p, "X", DNSLabel)) },
		[]string{"a: Required value", `a: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"RequiredAnd", func(p *Path) ErrorList { return RequiredAnd(p, "x", "why", DNSLabel) },
		func(p *Path) ErrorList {
			return Join(RequiredAnd(p, "", "why", DNSLabel), RequiredAnd(p, "X", "why", DNSLabel))
		},
		[]string{"a: Required value: why", `a: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"Joined", func(p *Path) ErrorList { return Joined(p, 7, "x: ", nil) },
		func(p *Path) ErrorList { return Joined(p, 7, "x: ", []string{"b", "c"}) }, []string{"a: Invalid value: 7: x: b,c"}},
	{"IfPresent", func(p *Path) ErrorList {
		return Join(IfPresent(p, nil, elementLabel), IfPresent(p, &elements[0], elementLabel))
	},
		func(p *Path) ErrorList { return IfPresent(p, &elements[1], elementLabel) },
		[]string{`a: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"MandatoryOneOf", func(p *Path) ErrorList { return MandatoryOneOf(p, &elements[0], "z", "x") },
		func(p *Path) ErrorList { return Join(MandatoryOneOf(p, nil, "z"), MandatoryOneOf(p, new("y"), "z")) },
		[]string{"a: Required value", `a: Unsupported value: "y": supported values: "z"`}},
	{"EachValue", func(p *Path) ErrorList { return EachValue(p, elements[:1], DNSLabel) },
		func(p *Path) ErrorList { return EachValue(p, elements, DNSLabel) },
		[]string{`a[1]: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"IfSet", func(p *Path) ErrorList { return Join(IfSet(p, "", DNSLabel), IfSet(p, "x", DNSLabel)) },
		func(p *Path) ErrorList { return IfSet(p, "X", DNSLabel) }, []string{`a: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"Optional", func(p *Path) ErrorList {
		return Join(Optional(p, nil, NonNegative[int32]), Optional(p, &zero, NonNegative))
	},
		func(p *Path) ErrorList { return Optional(p, new(int32(-1)), NonNegative) },
		[]string{"a: Invalid value: -1: must be greater than or equal to 0"}},
	{"OneOf", func(p *Path) ErrorList { return OneOf(p, "y", "z", "y") },
		func(p *Path) ErrorList { return OneOf(p, "", "z", "y") }, []string{`a: Unsupported value: "": supported values: "z", "y"`}},
	{"RequiredOneOf", func(p *Path) ErrorList { return RequiredOneOf(p, "y", "z", "y") },
		func(p *Path) ErrorList { return Join(RequiredOneOf(p, "", "z"), RequiredOneOf(p, "y", "z")) },
		[]string{"a: Required value", `a: Unsupported value: "y": supported values: "z"`}},
	{"OptionalOneOf", func(p *Path) ErrorList { return OptionalOneOf(p, nil, "z") },
		func(p *Path) ErrorList { return OptionalOneOf(p, new(""), "z") }, []string{`a: Unsupported value: "": supported values: "z"`}},
	{"NonNegative", func(p *Path) ErrorList { return NonNegative(p, int32(0)) },
		func(p *Path) ErrorList { return NonNegative(p, int64(-1)) }, []string{"a: Invalid value: -1: must be greater than or equal to 0"}},
	{"AtLeast", func(p *Path) ErrorList { return Join(AtLeast(p, nil, int32(1), "why"), AtLeast(p, &zero, 0, "why")) },
		func(p *Path) ErrorList { return AtLeast(p, &zero, 1, "why") }, []string{"a: Invalid value: 0: why"}},
	{"InRange", func(p *Path) ErrorList { return Join(InRange(p, 1, 1, 2), InRange(p, 2, 1, 2)) },
		func(p *Path) ErrorList { return Join(InRange(p, 0, 1, 2), InRange(p, 3, 1, 2)) },
		[]string{"a: Invalid value: 0: must be between 1 and 2, inclusive", "a: Invalid value: 3: must be between 1 and 2, inclusive"}},
	{"MaxLength", func(p *Path) ErrorList { return MaxLength(p, "xx", 2) },
		func(p *Path) ErrorList { return MaxLength(p, "xxx", 2) }, []string{"a: Too long: may not be more than 2 bytes"}},
	{"MaxItems", func(p *Path) ErrorList { return MaxItems(p, 2, 2) },
		func(p *Path) ErrorList { return MaxItems(p, 3, 2) }, []string{"a: Too many: 3: must have at most 2 items"}},
	{"DNSLabel", func(p *Path) ErrorList { return DNSLabel(p, "x") },
		func(p *Path) ErrorList { return DNSLabel(p, "x.y") }, []string{`a: Invalid value: "x.y": must not contain dots`}},
	{"DNSSubdomain", func(p *Path) ErrorList { return DNSSubdomain(p, "x.y") },
		func(p *Path) ErrorList { return DNSSubdomain(p, "x_y") }, []string{`a: Invalid value: "x_y": a lowercase RFC 1123 subdomain must`}},
	{"LabelKey", func(p *Path) ErrorList { return LabelKey(p, "x.y/Z") },
		func(p *Path) ErrorList { return LabelKey(p, "x/y/z") }, []string{`a: Invalid value: "x/y/z": a valid label key must`}},
	{"LabelValue", func(p *Path) ErrorList { return LabelValue(p, "") },
		func(p *Path) ErrorList { return LabelValue(p, "x/y") }, []string{`a: Invalid value: "x/y": a valid label must`}},
	{"PortNumber", func(p *Path) ErrorList { return Join(PortNumber(p, 1), PortNumber(p, 65535)) },
		func(p *Path) ErrorList { return PortNumber(p, 0) }, []string{"a: Invalid value: 0: must be between 1 and 65535, inclusive"}},
	{"PortName", func(p *Path) ErrorList { return PortName(p, "http") },
		func(p *Path) ErrorList { return PortName(p, "80") }, []string{`a: Invalid value: "80": must contain at least one letter`}},
	{"PathSegment", func(p *Path) ErrorList { return PathSegment(p, "x") },
		func(p *Path) ErrorList { return PathSegment(p, "x/y") }, []string{`a: Invalid value: "x/y": may not contain '/'`}},
	{"LabelSelector", func(p *Path) ErrorList { return LabelSelector(p, nil) },
		func(p *Path) ErrorList {
			return LabelSelector(p, &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y z"}})
		}, []string{`a.matchLabels: Invalid value: "y z": a valid label must`}},
	{"Each", func(p *Path) ErrorList { return Each(p, elements[:1], elementLabel) },
		func(p *Path) ErrorList { return Each(p, elements, elementLabel) },
		[]string{`a[1]: Invalid value: "X": a lowercase RFC 1123 label must`}},
	{"Unique", func(p *Path) ErrorList { return Unique(sets.Set[string]{}, p, "x") },
		func(p *Path) ErrorList {
			seen := sets.Set[string]{}
			return Join(Unique(seen, p, "x"), Unique(seen, p, "y"), Unique(seen, p, "x"))
		}, []string{`a: Duplicate value: "x"`}},
}

var (
	zero     int32
	elements = []string{"x", "X"}
)

func elementLabel(s *string, p *Path) ErrorList { return DNSLabel(p, *s) }

func TestRules(t *testing.T) {
	for _, c := range ruleCases {
		if errs := c.valid(NewPath("a")); errs != nil {
			t.Errorf("%s: %v for a valid value", c.name, errs)
		}
		var got []string
		for _, err := range c.invalid(NewPath("a")) {
			got = append(got, err.Error())
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := NonNegative(NewPath("a"), int32(-1))[0]; got.Origin != "minimum" || got.BadValue != int64(-1) {
		t.Errorf("NonNegative: %#v", got)
	}
}

// TestRulesAllocateNothing counts the allocations of the rules for valid values. Each, EachValue and Unique are left out,
// because they make paths, or add to a set.
func TestRulesAllocateNothing(t *testing.T) {
	p := NewPath("a")
	for _, c := range ruleCases {
		if c.name == "Unique" || c.name == "Each" || c.name == "EachValue" {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { c.valid(p) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
