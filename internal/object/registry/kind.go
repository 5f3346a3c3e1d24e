// Package registry has the declaration of a kind (this file and names.go, storage.go, selection.go, strategy.go
// and subresource.go), and the objects of each kind (resource.go, and a file for each part of a Resource:
// reader.go, past.go, decoder.go, renderer.go and writer.go). The steps of a write before it is committed are in
// package write.
//
// A kind is one declaration: a *Kind value. The built-in ones are declared in
// resource/, one folder an API group; a CustomResourceDefinition makes the same
// value at run time. Nothing registers itself: the server is handed a list.
package registry

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mergetyped "sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// Object is a resource in memory: a typed struct for built-in kinds, an
// unstructured tree for custom resources.
type Object = scheme.Object

// TypeConverter converts objects to and from values of a merge schema. It is the same as
// managedfields.TypeConverter of apimachinery, and is declared here because otherwise almost every test would link
// that package.
type TypeConverter interface {
	ObjectToTyped(runtime.Object, ...mergetyped.ValidationOptions) (*mergetyped.TypedValue, error)
	TypedToObject(*mergetyped.TypedValue) (runtime.Object, error)
}

// Kind declares one resource of one API group in all its versions. It is made once and not changed after the server
// has started with it. Names, Versions and Storage must be set; the zero value of each other group is what most kinds
// need.
type Kind struct {
	Names
	// Versions are all versions in the order of discovery, also those that are Disabled.
	Versions []Version
	// Types has the merge schemas for server-side apply; nil means those of the built-in kinds.
	Types   TypeConverter
	Storage Storage

	// Requests are the requests that the kind serves, Metadata the rules of its metadata.
	Requests Requests
	Metadata Metadata
	// Subresources are in the order of discovery (by name).
	Subresources []Subresource
	// Selection holds the fields by which lists and watches select.
	Selection Selection

	// RunBy are the components of a cluster that objects of the kind need until their containers run on a node, by the names of
	// their Leases; nil for kinds without containers.
	RunBy []string
	// Finalizers are those that controllers of Kubernetes put on objects of the kind. They are only used to
	// explain what keeps an object from being removed (package blockers).
	Finalizers []Finalizer

	// Strategy, Deletion and Table are functions of the kind's Go type. A declaration writes them for that type and
	// ends with Untyped():
	//
	//	Strategy: registry.Strategy[*corev1.Node]{ValidateCreate: validateNode, Warn: warnNode}.Untyped(),
	Strategy UntypedStrategy
	Deletion Deletion[Object]
	Table    Table[Object]
}

// Requests are the requests that a kind serves, and how they differ from those of most kinds.
type Requests struct {
	// Verbs are the allowed verbs, which discovery lists; nil means AllVerbs.
	Verbs []string
	// CreateOnUpdate lets PUT create an object that does not exist.
	CreateOnUpdate bool
	// UnconditionalUpdate lets PUT leave out the resourceVersion.
	UnconditionalUpdate bool
	// DefaultOrphan makes Orphan the propagation policy of a delete that names none; for other kinds it is Background.
	DefaultOrphan bool
	// OrphanWarning is the warning in the response to a delete that names no propagation policy, if DefaultOrphan
	// is set.
	OrphanWarning string
	// ReturnDeleted makes DELETE answer with the removed object instead of a Status.
	ReturnDeleted bool
	// UncachedGet means that kube-apiserver has no watch cache for the kind (events): it responds 400 to a GET
	// with a malformed resourceVersion. For a list it does so for every kind.
	UncachedGet bool
	// Resets is Subresource.Resets for writes of the object itself; nil means "status" if the Strategy has one.
	Resets []string
}

// Metadata are the special rules of a kind's metadata.
type Metadata struct {
	// ValidateName returns what is wrong with a name; nil means the rule of DNS subdomains. prefix means that a
	// generated suffix will be added to the name.
	ValidateName func(name string, prefix bool) []string
	// AnyFinalizer allows names of finalizers that have no domain and are not standard ones.
	AnyFinalizer bool
	// Last means that the metadata of a new object is checked only if there are no other errors, because
	// kube-apiserver's validation of the kind does not check it.
	Last bool
	// Repeated means that a cause is reported once for each check that finds it, as kube-apiserver does for kinds without
	// declarative validation (KEP-5073), and for custom resources. For other kinds each cause is reported once.
	Repeated bool
	// OnUpdate are the checks of metadata that are run once more on update, after the rules of all kinds. In
	// kube-apiserver the kind's own validation of an update repeats them.
	OnUpdate MetaChecks
	// OnStatusUpdate is the same for updates of the status subresource.
	OnStatusUpdate MetaChecks
	// HiddenAnnotation is an annotation that contains a field of another version. Only responses with the complete
	// object contain it, not those with metadata only. "" means none.
	HiddenAnnotation string
}

// MetaChecks are checks of metadata on update.
type MetaChecks int

const (
	MetaChanges    MetaChecks = iota // the update rules again
	MetaWhole                        // the update rules and those for new objects
	MetaNew                          // those for new objects
	MetaNewUnnamed                   // those for new objects, without the rule for names
	MetaNothing
)

// The components in Kind.RunBy.
const (
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// A Finalizer is what is known about an entry of metadata.finalizers.
type Finalizer struct {
	Name string // of the finalizer; one that ends with "/" stands for all names that begin so
	// Remover removes it, and When says when: "the PVC protection controller of ...", "when no pod uses the claim".
	Remover, When string
}

// Is reports whether f stands for a finalizer of this name.
func (f *Finalizer) Is(name string) bool {
	return f.Name == name || strings.HasSuffix(f.Name, "/") && strings.HasPrefix(name, f.Name)
}

// AllVerbs are the verbs of an ordinary resource, as discovery lists them.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupVersion returns the group and version under which v is served.
func (k *Kind) GroupVersion(v *Version) schema.GroupVersion {
	if v.Group != "" {
		return schema.GroupVersion{Group: v.Group, Version: v.Name}
	}
	return schema.GroupVersion{Group: k.Group, Version: v.Name}
}

// Unstructured reports whether the objects of the kind have no Go type: they are custom resources.
func (k *Kind) Unstructured() bool { return k.Storage.Documents != nil }

// ServedByDefault reports whether a built-in version of that name is served unless it is switched off: GA versions are,
// beta and alpha versions are not.
func ServedByDefault(version string) bool {
	return !strings.Contains(version, "alpha") && !strings.Contains(version, "beta")
}

// Version returns the version of that name, nil if there is none.
func (k *Kind) Version(name string) *Version {
	for i := range k.Versions {
		if k.Versions[i].Name == name {
			return &k.Versions[i]
		}
	}
	return nil
}

// HasVerb reports whether the verb is allowed on the main resource.
func (k *Kind) HasVerb(verb string) bool {
	verbs := k.Requests.Verbs
	if verbs == nil {
		verbs = AllVerbs
	}
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// Subresource returns the declared subresource, nil if there is none.
func (k *Kind) Subresource(name string) *Subresource {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}

// Resets returns the Resets of writes of a subresource, or of the object itself ("").
func (k *Kind) Resets(subresource string) []string {
	switch sub := k.Subresource(subresource); {
	case subresource != "" && sub != nil:
		return sub.Resets
	case subresource != "":
		return nil
	case k.Requests.Resets == nil && k.Strategy.Status != nil:
		return []string{"status"}
	}
	return k.Requests.Resets
}

// Version is one version of a kind.
type Version struct {
	Name string
	// Disabled means that clients are not served the version. The server itself uses it all the same: objects may be
	// stored in it, and managedFields may name it.
	Disabled bool
	// Introduced is the first minor of Kubernetes that has the version. It is only set if the emulated release is
	// older than that. Gone means that the emulated release no longer has the version.
	Introduced int
	Gone       bool
	// Group is the group under which the version is served, if it is not Kind.Group. It is set
	// for kinds that are served in two groups, such as events (also in events.k8s.io).
	Group string
	// New makes an empty object of this version.
	New func() Object
	// Default sets the version's defaults on an object that a client sent. If a deprecated
	// and a current field have the same meaning, it also makes them agree, as
	// kube-apiserver's conversion to its internal version and back does.
	Default func(Object)
	// KeepEmpty replaces null in an applied object by an empty map where the configuration has an empty map, the
	// merge has left null, and the version's schema does not allow null. It is nil if the version has no such
	// field.
	KeepEmpty func(obj Object, configuration map[string]any)
	// Coerce removes from an object that a client sent all fields that the version's schema
	// does not have. If track is set, it returns the paths of these fields. It fails for a
	// value that cannot be read. It is nil for Go types, where decoding does this.
	Coerce func(obj Object, track bool) (unknown []string, err error)
	// Check refuses an object of this version, with defaults, that can be decoded but that
	// kube-apiserver cannot convert to its internal version. It is called for the result of
	// every write; the response to an error is 400.
	Check func(Object) error
	// Metadata, unless nil, replaces the rules of metadata of the kind for writes in this version.
	Metadata *Metadata
	// Requests, unless nil, replaces those of the kind for requests in this version. Only its fields UnconditionalUpdate and
	// ReturnDeleted are read: what else a kind serves is the same in all versions.
	Requests *Requests
	// ToStorage and FromStorage convert to and from the storage version; nil for
	// the storage version itself. They may share parts of their argument, which
	// is not used afterwards.
	ToStorage, FromStorage func(context.Context, Object) (Object, error)
	// FieldAliases maps a field label of this version to the Field's Name.
	FieldAliases map[string]string
	// Warning is sent with every request for a deprecated version.
	Warning string
	// Removed is the release of Kubernetes that does not serve a deprecated version any more, such as "1.36". It is empty if
	// none is known.
	Removed string
}

// KeepFor sets how long an object is kept after its last write, in whole seconds; 0 keeps it. It is called before the kind
// is bound.
func (k *Kind) KeepFor(d time.Duration) { k.Storage.TTLSeconds = int64(d / time.Second) }

// isStored reports whether objects are stored in this version.
func (v *Version) isStored() bool { return v.FromStorage == nil }

// fromStorage converts an object from the storage version to this one.
func (v *Version) fromStorage(ctx context.Context, obj Object) (Object, error) {
	if v.FromStorage == nil {
		return obj, nil
	}
	return v.FromStorage(ctx, obj)
}

// Defaulter converts a function for objects of a Go type to a function for any Object, which must be of that type.
func Defaulter[T Object](f func(T)) func(Object) { return func(o Object) { f(o.(T)) } }

// Converter converts a conversion between two Go types to one for any Object, which must be of the first type.
func Converter[A, B Object](f func(A) (B, error)) func(context.Context, Object) (Object, error) {
	return func(_ context.Context, o Object) (Object, error) { return f(o.(A)) }
}
