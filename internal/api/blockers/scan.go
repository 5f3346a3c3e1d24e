package blockers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
)

// maxReads bounds the objects that are read for their managedFields.
const maxReads = 100

// found has the objects of one resource that a scan was looking for.
type found struct {
	discovery.Resource
	count, withFinalizers int
	// holding and others are the first objects with and without finalizers, at most maxNamed of each.
	holding, others []client.Metadata
}

// resources returns the resources of this server that have all the given verbs, sorted by name, without Events. It
// leaves out resources of extension API servers, so that nobody waits for them.
func (s *search) resources(verbs ...string) (list []discovery.Resource) {
	all, _ := s.Resources()
	remote := false
	for _, r := range all {
		lacks := func(verb string) bool { return !slices.Contains(r.Verbs, verb) }
		switch {
		case r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io"), slices.ContainsFunc(verbs, lacks):
		case r.Remote:
			remote = true
		default:
			list = append(list, r)
		}
	}
	if remote {
		s.notExamined("Objects of extension API servers are not examined.")
	}
	slices.SortFunc(list, func(a, b discovery.Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return list
}

// exhausted reports whether a limit was reached. If so, it records that objects of the resource are not examined.
func (s *search) exhausted(gr schema.GroupResource) bool {
	if s.objects < s.maxObjects() && s.bytes < s.maxBytes() {
		return false
	}
	if name := gr.String(); !slices.Contains(s.skipped, name) {
		s.skipped = append(s.skipped, name)
	}
	return true
}

// budget counts an object of a resource that is examined. It returns false if a limit was reached before.
func (s *search) budget(gr schema.GroupResource, bytes int) bool {
	if s.exhausted(gr) {
		return false
	}
	s.objects++
	s.bytes += bytes
	return true
}

// scan returns the objects of a resource in a namespace for which wanted returns true. The namespace "" means all
// namespaces.
func (s *search) scan(ctx context.Context, r discovery.Resource, namespace string, wanted func(*client.Metadata) bool) found {
	f := found{Resource: r}
	if s.exhausted(r.GroupResource()) {
		return f
	}
	list := client.ListRequest{Resource: r.GroupVersionResource, Namespace: namespace}
	_, err := s.Client.ListMetadata(ctx, list, func(m client.Metadata) bool {
		if !s.budget(r.GroupResource(), m.Bytes) || ctx.Err() != nil {
			return false
		}
		if !wanted(&m) {
			return true
		}
		f.count++
		to := &f.others
		if len(m.Finalizers) > 0 {
			f.withFinalizers++
			to = &f.holding
		}
		if len(*to) < maxNamed {
			*to = append(*to, m)
		}
		return true
	})
	s.unreadable(ctx, err, r.GroupVersionResource, namespace)
	return f
}

// unreadable notes that objects cannot be read. The error may name them, so it is only for users who may list them.
func (s *search) unreadable(ctx context.Context, err error, gvr schema.GroupVersionResource, namespace string) {
	switch {
	case err == nil:
	case s.mayList(ctx, gvr, namespace):
		s.notExamined("The objects of %s cannot all be read: %s.", gvr.GroupResource(), shorten(err.Error()))
	default:
		s.notExamined("The objects of %s cannot all be read.", gvr.GroupResource())
	}
}

// item returns the blocker for the objects of a scan. format is a sentence without its full stop, in which %s
// stands for the number of the objects and their resource.
func (s *search) item(ctx context.Context, t Type, f found, format string) Blocker {
	b := Blocker{Type: t, Name: f.GroupResource().String(), Count: f.count}
	hidden := false
	for _, m := range slices.Concat(f.holding, f.others) {
		if len(b.Objects) == maxNamed {
			break
		}
		if !s.mayList(ctx, f.GroupVersionResource, m.Namespace) {
			hidden = true
			continue
		}
		b.Objects = append(b.Objects, s.object(ctx, f.Resource, m))
	}
	b.Message = fmt.Sprintf(format, counted(f.count, b.Name))
	switch {
	case hidden && len(b.Objects) == 0:
		b.Message += "; you may not list them"
	case hidden:
		b.Message += "; only those are named that you may list"
	}
	b.Message += "."
	return b
}

// counted returns a phrase such as "3 objects of pods".
func counted(n int, resource string) string {
	if n == 1 {
		return "1 object of " + resource
	}
	return fmt.Sprintf("%d objects of %s", n, resource)
}

// object returns another object, with its finalizers and who removes them.
func (s *search) object(ctx context.Context, r discovery.Resource, m client.Metadata) Object {
	o := reference(r.GroupVersionResource, m.Namespace, m.Name)
	o.UID, o.Deleting = m.UID, m.Deleting
	var managers metav1.Object
	unknown := func(name string) bool { return s.removerOf(name) == nil }
	if slices.ContainsFunc(m.Finalizers, unknown) && s.reads < maxReads {
		s.reads++
		if obj, err := s.Client.Get(ctx, client.Ref{Resource: r.GroupVersionResource, Namespace: m.Namespace, Name: m.Name}); err == nil {
			managers = obj
		}
	}
	o.Finalizers = s.holders(m.Finalizers, managers)
	return o
}

func reference(gvr schema.GroupVersionResource, namespace, name string) Object {
	return Object{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: namespace, Name: name}
}

// addDependents adds the objects that the garbage collector waits for. They have an ownerReference to the object.
// If the object is deleted in the foreground, only references with blockOwnerDeletion count.
func (s *search) addDependents(ctx context.Context) {
	foreground := slices.Contains(s.obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
	if !foreground && !slices.Contains(s.obj.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		return // nothing waits for dependents
	}
	uid, namespace := s.obj.GetUID(), s.obj.GetNamespace()
	refers := func(m *client.Metadata) bool {
		return slices.ContainsFunc(m.Owners, func(o metav1.OwnerReference) bool {
			return o.UID == uid && (!foreground || o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion)
		})
	}
	format := "The garbage collector first removes the reference from %s"
	if foreground {
		format = "The garbage collector first deletes %s with blockOwnerDeletion"
	}
	for _, r := range s.resources("delete", "list", "watch") {
		if namespace != "" && !r.Namespaced {
			continue // its objects cannot have owners in namespaces
		}
		if f := s.scan(ctx, r, namespace, refers); f.count > 0 {
			s.add(s.item(ctx, Dependent, f, format))
		}
	}
}

// addContent adds what is left in a namespace.
func (s *search) addContent(ctx context.Context, namespace string) {
	for _, r := range s.resources("delete", "list") {
		if !r.Namespaced {
			continue
		}
		f := s.scan(ctx, r, namespace, func(*client.Metadata) bool { return true })
		if f.count == 0 {
			continue
		}
		s.add(s.item(ctx, NamespaceContent, f, fmt.Sprintf("Left: %%s, %d of them with finalizers", f.withFinalizers)))
		s.webhooksOfFirst(ctx, f)
	}
}
