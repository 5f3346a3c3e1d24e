package scheduling

import (
	"fmt"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// A composite template contains templates, and further composite ones. These are the rules of a workload about all of them.

type (
	template          = schedulingv1beta1.PodGroupTemplate
	compositeTemplate = schedulingv1beta1.CompositePodGroupTemplate
)

// maxDepth is how many templates may be on the way from a workload to a template, with this one.
// For example, workload > composite > composite > composite > template is allowed, and one composite template
// more is not.
const maxDepth = 4

// validateHierarchy validates what concerns several templates. A group refers to its template by workload and
// name only, so names are unique in the whole hierarchy.
func validateHierarchy(s *schedulingv1beta1.WorkloadSpec, path *field.Path) field.ErrorList {
	names := sets.New[string]()
	for i := range s.PodGroupTemplates {
		names.Insert(s.PodGroupTemplates[i].Name)
	}
	errs := repeatedNames(s.CompositePodGroupTemplates, path, names)
	at := path.Child("compositePodGroupTemplates")
	for i := range s.CompositePodGroupTemplates {
		t := &s.CompositePodGroupTemplates[i]
		errs = append(errs, field.InvalidIf(depth(t) >= maxDepth, at.Index(i), declare.Internal(t.CompositePodGroupTemplates),
			fmt.Sprintf("maximum template hierarchy depth is %d", maxDepth))...)
	}
	errs = append(errs, validateOnePriority(s, path)...)
	return append(errs, field.Each(at, s.CompositePodGroupTemplates, validateChildren)...)
}

// repeatedNames returns errors for templates that have the name of a template in another list. A rule of each list requires
// that names are unique in it. names has the names of the earlier lists; repeatedNames adds the names of these templates.
func repeatedNames(templates []compositeTemplate, path *field.Path, names sets.Set[string]) (errs field.ErrorList) {
	at := path.Child("compositePodGroupTemplates")
	errs = append(errs, takenNames(templates, at, names, func(t *compositeTemplate) string { return t.Name })...)
	for i := range templates {
		t := &templates[i]
		errs = append(errs, takenNames(t.PodGroupTemplates, at.Index(i).Child("podGroupTemplates"), names,
			func(t *template) string { return t.Name })...)
		errs = append(errs, repeatedNames(t.CompositePodGroupTemplates, at.Index(i), names)...)
	}
	return errs
}

// takenNames returns errors for elements of a list whose names are taken before the list, and takes all of its names.
func takenNames[T any](list []T, path *field.Path, names sets.Set[string], name func(*T) string) (errs field.ErrorList) {
	for i := range list {
		errs = append(errs, field.DuplicateIf(names.Has(name(&list[i])), path.Index(i).Child("name"), name(&list[i]))...)
	}
	for i := range list {
		names.Insert(name(&list[i]))
	}
	return errs
}

// depth returns how many composite templates are below one another, t included.
func depth(t *compositeTemplate) int {
	below := 0
	for i := range t.CompositePodGroupTemplates {
		below = max(below, depth(&t.CompositePodGroupTemplates[i]))
	}
	return below + 1
}

// validateOnePriority allows one priority and one class in all templates of a workload.
// There is at most one error, without a value. Its text depends on where the difference is: among the templates
// of the workload itself, or with those below composite templates.
func validateOnePriority(s *schedulingv1beta1.WorkloadSpec, path *field.Path) field.ErrorList {
	same := &samePriority{}
	for i := range s.PodGroupTemplates {
		if t := &s.PodGroupTemplates[i]; !same.add(t.PriorityClassName, t.Priority) {
			return field.ErrorList{field.Invalid(path, nil, "detected multiple priority configurations")}
		}
	}
	if !same.addComposites(s.CompositePodGroupTemplates) {
		return field.ErrorList{field.Invalid(path, nil,
			"all priority and priorityClassName values must be identical, detected multiple values")}
	}
	return nil
}

// samePriority compares priorities with the first one.
type samePriority struct {
	has      bool
	class    string
	priority *int32
}

// add reports whether a priority is the same as the first one, or is the first.
func (p *samePriority) add(class string, priority *int32) bool {
	if !p.has {
		*p = samePriority{true, class, priority}
	}
	return p.class == class && ptr.Equal(p.priority, priority)
}

func (p *samePriority) addComposites(templates []compositeTemplate) bool {
	return !slices.ContainsFunc(templates, func(t compositeTemplate) bool {
		return !p.add(t.PriorityClassName, t.Priority) || !p.addComposites(t.CompositePodGroupTemplates) ||
			slices.ContainsFunc(t.PodGroupTemplates, func(t template) bool { return !p.add(t.PriorityClassName, t.Priority) })
	})
}

// validateChildren requires that a composite template and those below it contain templates.
func validateChildren(t *compositeTemplate, path *field.Path) field.ErrorList {
	errs := field.InvalidIf(len(t.PodGroupTemplates) == 0 && len(t.CompositePodGroupTemplates) == 0, path, t.Name,
		"must have at least one child PodGroupTemplate or CompositePodGroupTemplate")
	return append(errs,
		field.Each(path.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates, validateChildren)...)
}
