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

func newCondition(
	t apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason, message string,
) condition {
	return condition{Type: t, Status: status, Reason: reason, Message: message}
}

// usedNames holds names that definitions of one API group use. No two definitions of a group may use the same name.
type usedNames struct{ resources, kinds map[string]bool }

func newUsedNames() usedNames {
	return usedNames{resources: map[string]bool{}, kinds: map[string]bool{}}
}

// accept returns the names that a definition gets and its condition NamesAccepted. It gets each wanted name that
// no other definition uses. In place of the others it keeps its present names, which u contains too.
func (u usedNames) accept(wanted, have names) (names, condition) {
	out := have
	ok := newCondition(
		apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue, "NoConflicts", "no conflicts found")
	conflict := func(reason string, err error) {
		ok.Status, ok.Reason, ok.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	assign := func(reason, wanted, have string, used map[string]bool, to *string) {
		if wanted != have && used[wanted] {
			conflict(reason, inUse(wanted))
			return
		}
		*to = wanted
	}
	assign("PluralConflict", wanted.Plural, have.Plural, u.resources, &out.Plural)
	assign("SingularConflict", wanted.Singular, have.Singular, u.resources, &out.Singular)
	if err := u.shortNames(wanted.ShortNames, have.ShortNames); err != nil {
		conflict("ShortNamesConflict", err)
	} else {
		out.ShortNames = wanted.ShortNames
	}
	assign("KindConflict", wanted.Kind, have.Kind, u.kinds, &out.Kind)
	assign("ListKindConflict", wanted.ListKind, have.ListKind, u.kinds, &out.ListKind)
	out.Categories = wanted.Categories
	return out, ok
}

// shortNames returns an error if another definition uses one of the wanted short names. They are accepted all
// together or not at all.
func (u usedNames) shortNames(wanted, have []string) error {
	var errs []error
	for _, s := range wanted {
		if !slices.Contains(have, s) && u.resources[s] {
			errs = append(errs, inUse(s))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }
