// Package registry holds what a kind is, and the generic pipeline that serves
// any kind: create, update, delete with grace and finalizers, status and the
// other subresources.
//
// A kind is one declaration: a *Kind value. The built-in ones are declared in
// resource/, one folder an API group; a CustomResourceDefinition makes the same
// value at run time. Nothing registers itself: the server is handed a list.
package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/scheme"
)

// Object is a resource in memory: a typed struct for built-in kinds, an
// unstructured tree for custom resources.
type Object = scheme.Object

// Kind declares one resource of one API group in all its versions. It is made
// once and not changed after the server has started with it.
type Kind struct {
	// Group is the API group; "" is the core group.
	Group string
	// Package is the name the reference's messages give the group's types
	// ("core" in *core.PodList).
	Package string
	// Resource is the plural name in URLs, Singular the lower-case singular one,
	// Name the kind. ListName is Name+"List" where left empty.
	Resource, Singular, Name, ListName string
	ShortNames, Categories             []string
	Namespaced                         bool

	// Versions are the served versions in the order of discovery.
	Versions []Version
	// Storage is the version that objects are stored in; hooks see objects of
	// that version. StorageJSON stores JSON instead of the protobuf envelope.
	Storage     string
	StorageJSON bool
	// StoragePath is the key below /registry/, without slashes at its ends
	// ("pods", "services/specs", "minions").
	StoragePath string
	// StorageGroupVersion is what the envelope of a stored value says where it is
	// not Group and Storage: another version with the same message.
	StorageGroupVersion string
	// StoredJSON converts to and from the stored document where that is not the
	// storage version's own JSON. StorageJSON must be set.
	StoredJSON *StoredJSON
	// Documents makes the kind one whose objects are trees; StorageJSON must be set.
	// Storage is then the version that requests come in, and hooks see.
	Documents Documents
	// Types gives the merge schemas of the kind's versions; nil is the built-in ones.
	Types managedfields.TypeConverter
	// DefaultOnRead are fields of the stored message, as in Field.Path, that may
	// lack: hooks drop what defaults had set. Where one is missing or empty the
	// storage version's defaults are set when the object is loaded.
	DefaultOnRead [][]int32
	// AfterDecode sets on a decoded object what its stored form has no place for.
	AfterDecode func(Object)
	// UncachedGet says that kube-apiserver has no watch cache for the kind (events): a GET
	// with a malformed resourceVersion is 400, as a list with one is for every kind.
	UncachedGet bool
	// TTLSeconds removes objects that long after their last write; 0 keeps them.
	TTLSeconds int64

	// Verbs are what discovery lists and the server allows; nil is AllVerbs.
	Verbs []string
	// CreateOnUpdate lets PUT create what does not exist.
	CreateOnUpdate bool
	// UnconditionalUpdate lets PUT leave out the resourceVersion.
	UnconditionalUpdate bool
	// DefaultOrphan makes Orphan the propagation policy of a delete that names
	// none; the others default to Background.
	DefaultOrphan bool
	// OrphanWarning is sent with a delete that leaves it to DefaultOrphan.
	OrphanWarning string
	// ReturnDeleted makes DELETE answer the removed object, not a Status.
	ReturnDeleted bool

	// Subresources in the order of discovery (by name).
	Subresources []Subresource
	// Fields are the selectable fields beside metadata.name and
	// metadata.namespace.
	Fields []Field
	// FieldError words the answer to an unknown field label; nil is the generic
	// one.
	FieldError func(version, label string) error

	// Columns are the table's columns; Hooks.Cells fills a row of them. Empty
	// columns mean the generic Name and Created At.
	Columns []metav1.TableColumnDefinition

	// ValidateName returns what is wrong with a name (prefix: it will be
	// extended by a generated suffix); nil is the DNS subdomain rule.
	ValidateName func(name string, prefix bool) []string

	// HiddenAnnotation is an annotation that is shown with the whole object alone: it
	// stands for a field that another version has. "" is none.
	HiddenAnnotation string
	// AnyFinalizer allows finalizers without a domain that are none of the standard
	// ones.
	AnyFinalizer bool
	// IgnoresPropagation says that the request that begins a deletion leaves the
	// finalizers of the garbage collector as they are, where the kind has a
	// DeletionStarted.
	IgnoresPropagation bool
	// MetaOnUpdate is what the kind's own validation of an update says about
	// metadata, beyond what the generic one says already. The reference reports
	// such causes as often as they are found.
	MetaOnUpdate MetaChecks

	Hooks Hooks
}

// StoredJSON converts between the storage version and a stored document of
// another version.
type StoredJSON struct {
	// Encode makes the document, with apiVersion and kind, without a newline at
	// its end.
	Encode func(Object) ([]byte, error)
	// Decode reads a document that Encode, or the reference, made.
	Decode func(document []byte) (Object, error)
}

// MetaChecks are checks of metadata on update.
type MetaChecks int

const (
	MetaChanges MetaChecks = iota // the update rules again
	MetaWhole                     // the update rules and those for new objects
	MetaNothing
)

// AllVerbs are the verbs of an ordinary resource, as discovery lists them.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupResource names the kind's resource.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// GroupKind names the kind.
func (k *Kind) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Name} }

// GVK returns the group, version and kind for a served version.
func (k *Kind) GVK(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name}
}

// GroupVersion returns the group and version under which v is served.
func (k *Kind) GroupVersion(v *Version) schema.GroupVersion {
	if v.Group != "" {
		return schema.GroupVersion{Group: v.Group, Version: v.Name}
	}
	return schema.GroupVersion{Group: k.Group, Version: v.Name}
}

// List returns the kind of a list.
func (k *Kind) List() string {
	if k.ListName != "" {
		return k.ListName
	}
	return k.Name + "List"
}

// Version returns the served version of that name, nil if there is none.
func (k *Kind) Version(name string) *Version {
	for i := range k.Versions {
		if k.Versions[i].Name == name {
			return &k.Versions[i]
		}
	}
	return nil
}

// HasVerb says whether the verb is allowed on the main resource.
func (k *Kind) HasVerb(verb string) bool {
	verbs := k.Verbs
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

// Version is one served version of a kind.
type Version struct {
	Name string
	// Group is set where the kind is served under another group than Kind.Group
	// too (events in events.k8s.io); empty is the Kind's own.
	Group string
	// New makes an empty object of this version.
	New func() Object
	// Default sets the version's defaults on what a client sent, and brings
	// deprecated and current fields of the same meaning together, as the
	// reference's conversion to its internal version and back does.
	Default func(Object)
	// Coerce drops from what a client sent what the version's schema does not know,
	// and returns the paths of that if track is set. An error is about a value that
	// cannot be read. Nil where decoding has done so (typed objects).
	Coerce func(obj Object, track bool) (unknown []string, err error)
	// Check refuses an object of this version, with defaults, that decodes and that
	// kube-apiserver cannot convert to its internal version all the same. It is called
	// for what every write makes; the answer is 400.
	Check func(Object) error
	// ToStorage and FromStorage convert to and from the storage version; nil for
	// the storage version itself. They may share parts of their argument, which
	// is not used afterwards.
	ToStorage, FromStorage func(context.Context, Object) (Object, error)
	// FieldAliases maps a field label of this version to the Field's Name.
	FieldAliases map[string]string
	// Warning is sent with every request for a deprecated version.
	Warning string
}

// Field is a selectable field. It is read from the stored protobuf without
// decoding the object.
type Field struct {
	// Name is the field's label, e.g. "spec.nodeName".
	Name string
	// Path holds the protobuf field numbers from the object to the value; the
	// value of a repeated field is the first one.
	Path []int32
	// Members is the path in kinds whose objects are trees: the names of members
	// from the object to a value that is no object or list.
	Members []string
	Type    FieldType
	// Default is the value when the field is absent ("" for strings).
	Default string
	// Index keeps a secondary index, and posting lists for its watchers.
	Index bool
	// Get replaces Path where a path cannot say it: it is given the storage
	// version.
	Get func(Object) string
}

// FieldType says how a field's wire value reads as text.
type FieldType int

const (
	String FieldType = iota
	Bool             // "true" or "false"; absent is Default, or "false"
	Int              // decimal; absent is Default, or "0"
)

// Hooks are what a kind adds to the generic pipeline. Objects are of the storage
// version. Every hook may be nil. They must not keep their arguments. Use
// HooksOf to write them for the kind's own Go type.
type Hooks struct {
	// Spec and Status return pointers to the parts of an object; they are what
	// the generic pipeline resets and compares. A kind with Status drops a
	// status sent to the main resource, and all but the status sent to
	// the subresource.
	Spec, Status func(Object) any
	// Generation keeps metadata.generation: 1 on create, one more when Spec (or
	// what GenerationOf returns) changed.
	Generation   bool
	GenerationOf func(Object) any

	// PrepareCreate and PrepareUpdate change obj before validation, after Status
	// was reset.
	PrepareCreate func(ctx context.Context, obj Object)
	PrepareUpdate func(ctx context.Context, obj, old Object)
	// PrepareStatusUpdate runs after everything but Status was taken from old.
	PrepareStatusUpdate func(ctx context.Context, obj, old Object)
	// StatusKeepsMeta takes labels, annotations, owner references and finalizers
	// from the old object too when the status is updated.
	StatusKeepsMeta bool

	// RightType says whether an object is of the kind at all, which that of a tree may
	// not be: the kind's own validation says so then, and nothing about metadata.
	RightType            func(obj Object) bool
	Validate             func(ctx context.Context, obj Object) field.ErrorList
	ValidateUpdate       func(ctx context.Context, obj, old Object) field.ErrorList
	ValidateStatusUpdate func(ctx context.Context, obj, old Object) field.ErrorList

	// Canonicalize brings a valid object into the one form that is kept and shown.
	Canonicalize func(obj Object)

	// Warn returns warnings for the client; old is nil on create.
	Warn func(ctx context.Context, obj, old Object) []string

	// Cells returns a table row's cells, in the order of Kind.Columns, and the
	// row's conditions.
	Cells func(obj Object) ([]any, []metav1.TableRowCondition)

	// Grace returns the grace period in seconds for a delete with these options,
	// and whether the kind is deleted gracefully at all (pods).
	Grace func(obj Object, options *metav1.DeleteOptions) (seconds int64, graceful bool)
	// DeletionStarted changes an object whose deletion begins but which stays for
	// now (a namespace becomes Terminating).
	DeletionStarted func(obj Object)
	// Finalizing says that something other than metadata.finalizers keeps a
	// deleted object (a namespace's spec.finalizers).
	Finalizing func(obj Object) bool
	// BeforeDelete refuses a delete (the default namespace).
	BeforeDelete func(ctx context.Context, obj Object) error
}

// TypedHooks are Hooks for one Go type.
type TypedHooks[T Object] struct {
	Spec, Status         func(T) any
	Generation           bool
	GenerationOf         func(T) any
	PrepareCreate        func(ctx context.Context, obj T)
	PrepareUpdate        func(ctx context.Context, obj, old T)
	PrepareStatusUpdate  func(ctx context.Context, obj, old T)
	StatusKeepsMeta      bool
	RightType            func(obj T) bool
	Validate             func(ctx context.Context, obj T) field.ErrorList
	ValidateUpdate       func(ctx context.Context, obj, old T) field.ErrorList
	ValidateStatusUpdate func(ctx context.Context, obj, old T) field.ErrorList
	Canonicalize         func(obj T)
	// Warn is given a nil old on create.
	Warn            func(ctx context.Context, obj, old T) []string
	Cells           func(obj T) ([]any, []metav1.TableRowCondition)
	Grace           func(obj T, options *metav1.DeleteOptions) (int64, bool)
	DeletionStarted func(obj T)
	Finalizing      func(obj T) bool
	BeforeDelete    func(ctx context.Context, obj T) error
}

// HooksOf erases the type of h.
func HooksOf[T Object](h TypedHooks[T]) Hooks {
	var out Hooks
	part := func(f func(T) any) func(Object) any {
		if f == nil {
			return nil
		}
		return func(o Object) any { return f(o.(T)) }
	}
	change := func(f func(context.Context, T, T)) func(context.Context, Object, Object) {
		if f == nil {
			return nil
		}
		return func(ctx context.Context, o, old Object) { f(ctx, o.(T), old.(T)) }
	}
	compare := func(f func(context.Context, T, T) field.ErrorList) func(context.Context, Object, Object) field.ErrorList {
		if f == nil {
			return nil
		}
		return func(ctx context.Context, o, old Object) field.ErrorList { return f(ctx, o.(T), old.(T)) }
	}
	out.Spec, out.Status, out.GenerationOf = part(h.Spec), part(h.Status), part(h.GenerationOf)
	out.Generation, out.StatusKeepsMeta = h.Generation, h.StatusKeepsMeta
	out.PrepareUpdate, out.PrepareStatusUpdate = change(h.PrepareUpdate), change(h.PrepareStatusUpdate)
	out.ValidateUpdate, out.ValidateStatusUpdate = compare(h.ValidateUpdate), compare(h.ValidateStatusUpdate)
	if f := h.PrepareCreate; f != nil {
		out.PrepareCreate = func(ctx context.Context, o Object) { f(ctx, o.(T)) }
	}
	if f := h.RightType; f != nil {
		out.RightType = func(o Object) bool { return f(o.(T)) }
	}
	if f := h.Validate; f != nil {
		out.Validate = func(ctx context.Context, o Object) field.ErrorList { return f(ctx, o.(T)) }
	}
	if f := h.Canonicalize; f != nil {
		out.Canonicalize = func(o Object) { f(o.(T)) }
	}
	if f := h.Warn; f != nil {
		out.Warn = func(ctx context.Context, o, old Object) []string {
			before, _ := old.(T)
			return f(ctx, o.(T), before)
		}
	}
	if f := h.Cells; f != nil {
		out.Cells = func(o Object) ([]any, []metav1.TableRowCondition) { return f(o.(T)) }
	}
	if f := h.Grace; f != nil {
		out.Grace = func(o Object, options *metav1.DeleteOptions) (int64, bool) { return f(o.(T), options) }
	}
	if f := h.DeletionStarted; f != nil {
		out.DeletionStarted = func(o Object) { f(o.(T)) }
	}
	if f := h.Finalizing; f != nil {
		out.Finalizing = func(o Object) bool { return f(o.(T)) }
	}
	if f := h.BeforeDelete; f != nil {
		out.BeforeDelete = func(ctx context.Context, o Object) error { return f(ctx, o.(T)) }
	}
	return out
}

// Defaulter erases the type of a version's default function.
func Defaulter[T Object](f func(T)) func(Object) { return func(o Object) { f(o.(T)) } }

// Converter erases the types of a conversion.
func Converter[A, B Object](f func(A) (B, error)) func(context.Context, Object) (Object, error) {
	return func(_ context.Context, o Object) (Object, error) { return f(o.(A)) }
}
