package managedfields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A conflict is a field that an apply without force would take from another manager.
type conflict struct {
	owner *metav1.ManagedFieldsEntry
	path  string
}

// conflictsOf returns the modified fields that other owners than mine have, ordered by manager and field. An apply
// without force must not take them.
func conflictsOf(owners []owner, mine int, modified *set) []conflict {
	order := make([]int, 0, len(owners))
	for i := range owners {
		if i != mine && owners[i].set.intersects(modified) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		return strings.Compare(identifier(&owners[i].entry), identifier(&owners[j].entry))
	})
	var out []conflict
	for _, i := range order {
		owners[i].set.common(modified, "", func(path string) { out = append(out, conflict{&owners[i].entry, path}) })
	}
	return out
}

// identifier returns the text by which conflicts are ordered: the fields of the entry that never change, as JSON.
func identifier(e *metav1.ManagedFieldsEntry) string {
	head := metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation, Subresource: e.Subresource}
	if e.Operation != metav1.ManagedFieldsOperationApply {
		head.APIVersion = e.APIVersion
	}
	raw, err := json.Marshal(head)
	if err != nil {
		return e.Manager
	}
	return string(raw)
}

// common visits the paths that are in both s and t, the paths of one level before the longer ones below them.
func (s *set) common(t *set, prefix string, visit func(path string)) {
	s.shared(t, func(a, b *item) {
		if a.member && b.member {
			visit(prefix + a.step.path())
		}
	})
	s.shared(t, func(a, b *item) { a.sub.common(b.sub, prefix+a.step.path(), visit) })
}

// shared visits the steps that are in both s and t.
func (s *set) shared(t *set, visit func(a, b *item)) {
	if s.empty() || t.empty() {
		return
	}
	for i, j := 0, 0; i < len(s.items) && j < len(t.items); {
		switch c := s.items[i].step.compare(&t.items[j].step); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			visit(&s.items[i], &t.items[j])
			i++
			j++
		}
	}
}

// path returns the step as error messages show it.
func (s *step) path() string {
	switch s.kind {
	case fieldStep:
		return "." + s.name
	case valueStep:
		return "[=" + s.parts[0].shown() + "]"
	}
	texts := make([]string, len(s.parts))
	for i := range s.parts {
		texts[i] = s.parts[i].name + "=" + s.parts[i].shown()
	}
	return "[" + strings.Join(texts, ",") + "]"
}

func (p *part) shown() string {
	switch p.kind {
	case numPart:
		return fmt.Sprint(p.num)
	case boolPart:
		return fmt.Sprint(p.num != 0)
	}
	return fmt.Sprintf("%q", p.text)
}

// conflictError returns the error 409 with a cause for each conflict.
func conflictError(conflicts []conflict) error {
	causes := make([]metav1.StatusCause, len(conflicts))
	for i, c := range conflicts {
		causes[i] = metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + shownManager(c.owner), Field: c.path,
		}
	}
	if len(conflicts) == 1 {
		text := fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field)
		return kerrors.NewApplyConflict(causes, text)
	}
	var lines []string
	for i, c := range conflicts {
		if i == 0 || conflicts[i-1].owner != c.owner {
			lines = append(lines, "conflicts with "+shownManager(c.owner)+":")
		}
		lines = append(lines, "- "+c.path)
	}
	text := fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n"))
	return kerrors.NewApplyConflict(causes, text)
}

// shownManager returns the manager of an entry as the messages of conflicts name it.
func shownManager(e *metav1.ManagedFieldsEntry) string {
	text := fmt.Sprintf("%q", e.Manager)
	if e.Subresource != "" {
		text = fmt.Sprintf("%s with subresource %q", text, e.Subresource)
	}
	if e.Operation == metav1.ManagedFieldsOperationUpdate {
		text = fmt.Sprintf("%s using %v", text, e.APIVersion)
	}
	return text
}
