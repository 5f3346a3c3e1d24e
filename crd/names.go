package crd

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

type (
	names     = apiextensionsv1.CustomResourceDefinitionNames
	condition = apiextensionsv1.CustomResourceDefinitionCondition
)

// taken are the names that the definitions of one group have been given: no two
// may share one.
type taken struct{ resources, kinds map[string]bool }

func newTaken() taken { return taken{resources: map[string]bool{}, kinds: map[string]bool{}} }

// add takes the names of a definition.
func (t taken) add(n *names) {
	t.resources[n.Plural], t.resources[n.Singular] = true, true
	for _, s := range n.ShortNames {
		t.resources[s] = true
	}
	t.kinds[n.Kind], t.kinds[n.ListKind] = true, true
}

// accept gives a definition the names that it wants, as far as nobody else has
// them; it keeps those that it has in place of the others. t includes its own.
func (t taken) accept(wanted, have names) (names, condition) {
	out := have
	ok := condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"}
	conflict := func(reason string, err error) {
		ok.Status, ok.Reason, ok.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	one := func(reason, wanted, have string, used map[string]bool, to *string) {
		if wanted != have && used[wanted] {
			conflict(reason, inUse(wanted))
			return
		}
		*to = wanted
	}
	one("PluralConflict", wanted.Plural, have.Plural, t.resources, &out.Plural)
	one("SingularConflict", wanted.Singular, have.Singular, t.resources, &out.Singular)
	if err := t.shortNames(wanted.ShortNames, have.ShortNames); err != nil {
		conflict("ShortNamesConflict", err)
	} else {
		out.ShortNames = wanted.ShortNames
	}
	one("KindConflict", wanted.Kind, have.Kind, t.kinds, &out.Kind)
	one("ListKindConflict", wanted.ListKind, have.ListKind, t.kinds, &out.ListKind)
	out.Categories = wanted.Categories
	return out, ok
}

// shortNames are taken together or not at all.
func (t taken) shortNames(wanted, have []string) error {
	var errs []error
	for _, s := range wanted {
		if !slices.Contains(have, s) && t.resources[s] {
			errs = append(errs, inUse(s))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }
