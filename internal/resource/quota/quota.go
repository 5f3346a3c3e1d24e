// Package quota measures what objects use of a ResourceQuota: how many there are of a kind, what pods request of nodes,
// what claims request of storage and devices. The admission plug-in charges writes by it, and the controller adds up
// what the objects of a namespace use.
//
// A quota names what it limits: count/RESOURCE.GROUP is the number of objects of any resource, requests.cpu is the CPU
// that pods request. An Evaluator belongs to one resource. It knows which of these names are about its objects, which
// objects are in a scope of a quota, and how much an object uses of each name.
package quota

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// countPrefix begins the name of the number of objects of a resource.
const countPrefix = "count/"

// An Evaluator measures the objects of one resource. Objects are in their storage version.
type Evaluator struct {
	Resource schema.GroupResource
	// Counts are the names of the number of objects, of which each object uses one.
	Counts []corev1.ResourceName
	// special is nil for resources whose objects are only counted.
	special special
}

// special is what an evaluator knows beyond the number of objects.
type special interface {
	// tracks reports whether a name other than those of the number of objects is about the objects.
	tracks(ctx context.Context, name corev1.ResourceName) (bool, error)
	// use adds to used what an object uses, beyond the number of objects.
	use(ctx context.Context, obj registry.Object, used corev1.ResourceList) error
	// inScope reports whether an object is in a scope. scoped is false for kinds that are in none and that ignore
	// the scopes in the configuration of the plug-in.
	inScope(s *corev1.ScopedResourceSelectorRequirement, obj registry.Object) (bool, error)
	scoped() bool
	// scopesChanged reports whether an update may have changed in which scopes an object is.
	scopesChanged(old, obj registry.Object) bool
	// missing says what an object does not specify although a quota for these names needs it; "" is nothing.
	missing(names []corev1.ResourceName, obj registry.Object) string
}

// Objects is where evaluators look other objects up; *registry.Registry is one.
type Objects interface {
	// Now returns the time by which pods that are being deleted are overdue.
	Now() time.Time
	// Lookup returns an object, nil if there is none.
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
	// List returns all objects of a namespace; "" is all.
	List(ctx context.Context, r schema.GroupResource, namespace string) ([]registry.Object, error)
}

// New returns the evaluator of a resource, nil if quotas ignore its objects. Objects finds device classes and the pods
// that own resource claims, and is asked only about resource claims.
func New(r schema.GroupResource, objects Objects) *Evaluator {
	e := &Evaluator{Resource: r, Counts: []corev1.ResourceName{CountName(r)}}
	switch r.Group {
	case "":
		switch r.Resource {
		case "bindings", "componentstatuses", "events":
			// The first two are not stored. Events expire by themselves.
			return nil
		case "configmaps", "resourcequotas", "replicationcontrollers", "secrets":
			// These have a second, older name of their number beside count/configmaps: configmaps.
			e.Counts = append(e.Counts, corev1.ResourceName(r.Resource))
		case "pods":
			e.special = pods{objects}
		case "services":
			e.Counts = append(e.Counts, corev1.ResourceServices)
			e.special = services{}
		case "persistentvolumeclaims":
			e.Counts = append(e.Counts, corev1.ResourcePersistentVolumeClaims)
			e.special = volumeClaims{}
		}
	case "events.k8s.io":
		if r.Resource == "events" {
			return nil
		}
	case "authentication.k8s.io", "authorization.k8s.io":
		return nil // reviews, which are not stored
	case resourcev1.GroupName:
		if r.Resource == "resourceclaims" {
			e.special = deviceClaims{objects: objects}
		}
	}
	return e
}

// CountName returns the name of the number of objects of a resource.
func CountName(r schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName(countPrefix + r.String())
}

// Counted returns the resource whose objects a name counts.
func Counted(name corev1.ResourceName) (schema.GroupResource, bool) {
	r, ok := strings.CutPrefix(string(name), countPrefix)
	return schema.ParseGroupResource(r), ok
}

// Tracked returns those of names that are about objects of the resource, sorted.
func (e *Evaluator) Tracked(ctx context.Context, names corev1.ResourceList) ([]corev1.ResourceName, error) {
	var out []corev1.ResourceName
	for name := range names {
		tracked := slices.Contains(e.Counts, name)
		if !tracked && e.special != nil {
			var err error
			if tracked, err = e.special.tracks(ctx, name); err != nil {
				return nil, err
			}
		}
		if tracked {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Usage returns what an object uses, by all names that the evaluator knows.
func (e *Evaluator) Usage(ctx context.Context, obj registry.Object) (corev1.ResourceList, error) {
	used := corev1.ResourceList{}
	for _, name := range e.Counts {
		used[name] = quantity(1)
	}
	if e.special == nil {
		return used, nil
	}
	err := e.special.use(ctx, obj, used)
	return used, err
}

// InScope reports whether an object is in a scope.
func (e *Evaluator) InScope(s *corev1.ScopedResourceSelectorRequirement, obj registry.Object) (bool, error) {
	if e.special == nil {
		return false, nil
	}
	return e.special.inScope(s, obj)
}

// InScopes reports whether an object is in all scopes.
func (e *Evaluator) InScopes(scopes []corev1.ScopedResourceSelectorRequirement, obj registry.Object) (bool, error) {
	for i := range scopes {
		if in, err := e.InScope(&scopes[i], obj); err != nil || !in {
			return false, err
		}
	}
	return true, nil
}

// Scoped reports whether objects of the resource can be in scopes.
func (e *Evaluator) Scoped() bool { return e.special != nil && e.special.scoped() }

// ScopesChanged reports whether an update may have changed in which scopes an object is.
func (e *Evaluator) ScopesChanged(old, obj registry.Object) bool {
	return e.special != nil && e.special.scopesChanged(old, obj)
}

// Missing says what an object has to specify because a quota limits one of names, in the words of kube-apiserver's
// message; "" means that nothing is missing.
func (e *Evaluator) Missing(names []corev1.ResourceName, obj registry.Object) string {
	if e.special == nil {
		return ""
	}
	return e.special.missing(names, obj)
}

// Scopes returns all scopes of a quota, each as a requirement.
func Scopes(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		out = append(out,
			corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if s := q.Spec.ScopeSelector; s != nil {
		out = append(out, s.MatchExpressions...)
	}
	return out
}

// unscoped is embedded in evaluators whose objects are in no scope and have to specify nothing.
type unscoped struct{}

func (unscoped) inScope(*corev1.ScopedResourceSelectorRequirement, registry.Object) (bool, error) {
	return false, nil
}

func (unscoped) scoped() bool { return false }

func (unscoped) scopesChanged(_, _ registry.Object) bool { return false }

func (unscoped) missing([]corev1.ResourceName, registry.Object) string { return "" }

// matchesValue reports whether a requirement about the name of a class holds for a value; "" stands for no class.
// A class named "" does not exist, so an operator such as NotIn matches an object without a class.
func matchesValue(s *corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	requirement, err := labels.NewRequirement(string(s.ScopeName), operators[s.Operator], s.Values)
	if err != nil {
		return false, err
	}
	set := labels.Set{}
	if value != "" {
		set[string(s.ScopeName)] = value
	}
	return requirement.Matches(set), nil
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// rounded returns a quantity rounded up to a whole number.
// For example, a claim for 0.5 bytes counts as one byte, so that sums have no fractions.
func rounded(q resource.Quantity) resource.Quantity {
	q = q.DeepCopy()
	q.RoundUp(0)
	return q
}

// OnlyCounts reports whether only the number of objects is counted, so that the objects need not be decoded.
func (e *Evaluator) OnlyCounts() bool { return e.special == nil }

// Resources returns the resources whose objects may use one of names.
// It is a superset: the resources that have names of their own are always in it, whatever the names are.
func Resources(names corev1.ResourceList) []schema.GroupResource {
	out := []schema.GroupResource{
		corev1.Resource("configmaps"), corev1.Resource("persistentvolumeclaims"), corev1.Resource("pods"),
		corev1.Resource("replicationcontrollers"), corev1.Resource("resourcequotas"), corev1.Resource("secrets"),
		corev1.Resource("services"), resourcev1.Resource("resourceclaims"),
	}
	for name := range names {
		if r, ok := Counted(name); ok && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}
