package crd

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestAccept(t *testing.T) {
	first := names{
		Plural: "firsts", Singular: "first", Kind: "First", ListKind: "FirstList", ShortNames: []string{"ff", "gg"},
	}
	tests := map[string]struct {
		wanted, have, want names
		reason, message    string
	}{
		"free": {
			wanted: names{Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList"},
			want:   names{Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList"},
			reason: "NoConflicts", message: "no conflicts found",
		},
		"its own": {wanted: first, have: first, want: first, reason: "NoConflicts", message: "no conflicts found"},
		"plural taken as a short name": {
			wanted: names{Plural: "ff", Singular: "second", Kind: "Second", ListKind: "SecondList"},
			want:   names{Singular: "second", Kind: "Second", ListKind: "SecondList"},
			reason: "PluralConflict", message: `"ff" is already in use`,
		},
		"short names go together": {
			wanted: names{
				Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList",
				ShortNames: []string{"zz", "gg", "ff"},
			},
			want:   names{Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList"},
			reason: "ShortNamesConflict", message: `["gg" is already in use, "ff" is already in use]`,
		},
		"the last conflict is told": {
			wanted: names{Plural: "first", Singular: "firsts", Kind: "FirstList", ListKind: "First"},
			reason: "ListKindConflict", message: `"First" is already in use`,
		},
		"keeps what it had": {
			wanted: names{
				Plural: "seconds", Singular: "first", Kind: "Second", ListKind: "SecondList", Categories: []string{"all"},
			},
			have: names{Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList"},
			want: names{
				Plural: "seconds", Singular: "second", Kind: "Second", ListKind: "SecondList", Categories: []string{"all"},
			},
			reason: "SingularConflict", message: `"first" is already in use`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := newUsedNames()
			all.add(&first)
			all.add(&tt.have)
			got, c := all.accept(tt.wanted, tt.have)
			if !sameNames(&got, &tt.want) {
				t.Errorf("names %+v, want %+v", got, tt.want)
			}
			if c.Type != apiextensionsv1.NamesAccepted || c.Reason != tt.reason || c.Message != tt.message {
				t.Errorf("condition %s %s %q, want %s %q", c.Type, c.Reason, c.Message, tt.reason, tt.message)
			}
			if good := tt.reason == "NoConflicts"; (c.Status == apiextensionsv1.ConditionTrue) != good {
				t.Errorf("status %s", c.Status)
			}
		})
	}
}

// TestGeneratedNamesAreUnique adds, changes and removes definitions at random: no two definitions may be accepted with
// the same name.
func TestGeneratedNamesAreUnique(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, seed))
	pick := func() string { return string(rune('a' + r.IntN(6))) }
	given, book := map[int]names{}, newGroupNames()
	for range 20_000 {
		who := r.IntN(8)
		had, known := given[who]
		if known && r.IntN(10) == 0 {
			book.count(&had, -1)
			delete(given, who)
			continue
		}
		all := newUsedNames()
		for _, n := range given {
			all.add(&n)
		}
		wanted := names{Plural: pick(), Singular: pick(), Kind: pick(), ListKind: pick()}
		for range r.IntN(3) {
			wanted.ShortNames = append(wanted.ShortNames, pick())
		}
		got, told := all.accept(wanted, had)
		if again, same := book.used(&wanted).accept(wanted, had); !reflect.DeepEqual(again, got) || same != told {
			t.Fatalf("by the ledger %v %v, by all names %v %v", again, same, got, told)
		}
		if known {
			book.count(&had, -1)
		}
		book.count(&got, 1)
		given[who] = got
		resources, kinds := map[string]int{}, map[string]int{}
		for id, n := range given {
			claim(t, resources, id, append(slices.Clone(n.ShortNames), n.Plural, n.Singular))
			claim(t, kinds, id, []string{n.Kind, n.ListKind})
		}
	}
}

func claim(t *testing.T, owners map[string]int, id int, names []string) {
	t.Helper()
	for _, name := range names {
		if owner, used := owners[name]; used && owner != id && name != "" {
			t.Fatalf("%q belongs to %d and %d", name, owner, id)
		}
		owners[name] = id
	}
}

// add adds the names of a definition.
func (u usedNames) add(n *names) {
	u.resources[n.Plural], u.resources[n.Singular] = true, true
	for _, s := range n.ShortNames {
		u.resources[s] = true
	}
	u.kinds[n.Kind], u.kinds[n.ListKind] = true, true
}
