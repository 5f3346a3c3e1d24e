// Package managed keeps metadata.managedFields: which manager owns which fields of
// an object (KEP-555, server-side apply), to the byte of fieldsV1 as kube-apiserver
// writes them, and merges applied configurations into objects.
//
// A Manager serves one kind in one version, or one subresource of it. What the
// general algorithm of structured-merge-diff makes of sets and merges (slow.go) is
// the measure; the frequent cases are computed without it from the two objects and
// the kind's schema alone (fast.go), and tests hold one against the other.
package managed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/registry"
)

// MaxUpdateManagers is how many managers that did not apply are kept; the oldest
// beyond them become one, "ancient-changes".
const MaxUpdateManagers = 10

// Version is one version of a kind, as far as field management converts to it.
type Version struct {
	// GroupVersion is how managedFields name it.
	GroupVersion schema.GroupVersion
	New          func() registry.Object
	// ToStorage and FromStorage convert to and from the storage version; nil for
	// the storage version itself. They own their argument.
	ToStorage, FromStorage func(context.Context, registry.Object) (registry.Object, error)
}

// Config says what a Manager manages.
type Config struct {
	// Kind is the group, version and kind of the objects of a request.
	Kind schema.GroupVersionKind
	// Subresource is "" for the resource itself.
	Subresource string
	// Storage is the version that the others convert through.
	Storage schema.GroupVersion
	// Versions are all served versions; Kind's is among them. Entries of
	// managedFields in any other version are dropped.
	Versions []Version
	// Types is the schema of every version.
	Types managedfields.TypeConverter
	// Default sets the version's defaults on an applied object; may be nil.
	Default func(registry.Object)
	// Reset are the fields that a request cannot set, by version, with all below
	// them; they are never owned through it.
	Reset map[fieldpath.APIVersion]*fieldpath.Set
	// Cache holds decoded sets; nil makes a small one of the Manager's own. One
	// may serve all managers.
	Cache *Cache
}

// A Manager keeps the managedFields of one kind in one version, or of one of its
// subresources. Its methods may be called at the same time.
type Manager struct {
	config Config
	slow   *managedfields.FieldManager
	// apiVersion is Kind's group and version as entries name it.
	apiVersion string
	make       func() registry.Object
	fast       *fast
}

// New returns the Manager for c.
func New(c Config) (*Manager, error) {
	m := &Manager{config: c, apiVersion: c.Kind.GroupVersion().String()}
	for _, v := range c.Versions {
		if v.GroupVersion == c.Kind.GroupVersion() {
			m.make = v.New
		}
	}
	if m.make == nil {
		return nil, fmt.Errorf("managed: %v is not among the versions", c.Kind)
	}
	if c.Cache == nil {
		m.config.Cache = NewCache(smallCacheBytes)
	}
	var err error
	if m.slow, err = m.newSlow(context.Background()); err != nil {
		return nil, err
	}
	m.fast = newFast(m)
	return m, nil
}

// newSlow makes the general algorithm. Its conversions end with ctx.
func (m *Manager) newSlow(ctx context.Context) (*managedfields.FieldManager, error) {
	c := &m.config
	filters := fieldpath.NewExcludeFilterSetMap(c.Reset)
	convert := &converter{config: *c, ctx: ctx}
	return managedfields.NewDefaultCRDFieldManager(c.Types, convert, convert, convert, c.Kind, c.Storage, c.Subresource, filters)
}

// slowFor returns the general algorithm for one request. Where conversions may ask a webhook it is one
// of its own, so that they end with the request.
func (m *Manager) slowFor(ctx context.Context) (*managedfields.FieldManager, error) {
	if ctx.Done() == nil || !slices.ContainsFunc(m.config.Versions, func(v Version) bool { return v.ToStorage != nil }) {
		return m.slow, nil
	}
	return m.newSlow(ctx)
}

// For returns the Manager of a version of a kind, or of a subresource whose objects
// are the kind's own (status, and others that take and return the object). types is
// typed.Converter for built-in kinds and the CRD's own for a custom resource. gvk is
// the one the request came by.
func For(k *registry.Kind, gvk schema.GroupVersionKind, subresource string, types managedfields.TypeConverter, cache *Cache) (*Manager, error) {
	c := Config{
		Kind:        gvk,
		Subresource: subresource,
		Storage:     schema.GroupVersion{Group: k.Group, Version: k.Storage.Version},
		Types:       types,
		Reset:       ResetFields(k, subresource),
		Cache:       cache,
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		gv := schema.GroupVersion{Group: k.Group, Version: v.Name}
		if v.Group != "" {
			gv.Group = v.Group
		}
		if gv == gvk.GroupVersion() {
			c.Default = v.Default
		}
		c.Versions = append(c.Versions, Version{GroupVersion: gv, New: v.New, ToStorage: v.ToStorage, FromStorage: v.FromStorage})
	}
	return New(c)
}

// Update brings the managedFields of object up to date after a create, an update or
// a patch that is not an apply. live is the object before the request, nil on
// create; both are of the Manager's version, and the managedFields of object are
// what the client sent. It changes only the managedFields of object, to which it may
// hand parts of live's, and returns object. live is not changed.
//
// It cannot fail: where the object does not fit its schema, managedFields are
// dropped. Call it once a request, on what the client asked for with defaults set,
// before mutating admission and before the kind's own preparation: what those set
// is nobody's.
func (m *Manager) Update(ctx context.Context, live, object registry.Object, manager string, now time.Time) registry.Object {
	if live == nil {
		live = m.fast.empty()
	}
	if m.fast.update(live, object, manager, now) {
		return object
	}
	return m.updateSlow(ctx, live, object, manager, now)
}

// Apply merges the configuration that manager applies into live and returns the new object in the Manager's
// version, with defaults, or a *errors.StatusError: a 409 with a cause for each conflict unless force is set,
// a 400 for a configuration of another type, a 500 with the plain text for one that does not fit its schema.
//
// live is the object as it is read from the store, nil where there is none yet. Neither argument is changed, and
// the result shares no memory with them but the entries of managedFields, which nobody changes. Where nothing
// changed, managedFields included, the result equals live.
func (m *Manager) Apply(ctx context.Context, live registry.Object, configuration map[string]any, manager string, force bool, now time.Time) (registry.Object, error) {
	if live == nil {
		if object, ok := m.fast.applyNew(configuration, manager, now); ok {
			return object, nil
		}
		live = m.make()
	} else if object, ok, err := m.fast.apply(ctx, live, configuration, manager, force, now); ok {
		return object, err
	}
	return m.applySlow(ctx, live, configuration, manager, force, now)
}

// plain answers 500 with the text and no reason.
func plain(err error) error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}

// converter converts between a kind's versions for the general algorithm.
type converter struct {
	config Config
	ctx    context.Context // of the request; the algorithm has no place for it
}

func (c *converter) version(gv schema.GroupVersion) *Version {
	for i := range c.config.Versions {
		if c.config.Versions[i].GroupVersion == gv {
			return &c.config.Versions[i]
		}
	}
	return nil
}

func (c *converter) unknown(gv schema.GroupVersion) error {
	return runtime.NewNotRegisteredErrForKind("managed", gv.WithKind(c.config.Kind.Kind))
}

// ConvertToVersion implements runtime.ObjectConvertor. It may return its argument,
// and does not change it otherwise.
func (c *converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds(c.kinds(from))
	if !ok {
		return nil, c.unknown(from.GroupVersion())
	}
	source, destination := c.version(from.GroupVersion()), c.version(to.GroupVersion())
	if source == nil {
		return nil, c.unknown(from.GroupVersion())
	}
	if destination == nil {
		return nil, c.unknown(to.GroupVersion())
	}
	object, err := c.typed(in, source, from)
	if err != nil {
		return nil, err
	}
	if source == destination {
		return object, nil
	}
	object = object.DeepCopyObject().(registry.Object)
	for _, step := range []func(context.Context, registry.Object) (registry.Object, error){source.ToStorage, destination.FromStorage} {
		if step == nil {
			continue
		}
		if object, err = step(c.ctx, object); err != nil {
			return nil, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(to)
	return object, nil
}

// kinds returns what an object of kind from can be converted to: from itself, and the kind in all
// versions, which may be of other groups (an Event is served as v1 and as events.k8s.io/v1).
func (c *converter) kinds(from schema.GroupVersionKind) []schema.GroupVersionKind {
	out := make([]schema.GroupVersionKind, 0, len(c.config.Versions)+1)
	out = append(out, from)
	for i := range c.config.Versions {
		out = append(out, c.config.Versions[i].GroupVersion.WithKind(from.Kind))
	}
	return out
}

// typed makes a tree the version's own Go type.
func (c *converter) typed(in runtime.Object, v *Version, kind schema.GroupVersionKind) (registry.Object, error) {
	tree, isTree := in.(*unstructured.Unstructured)
	object := v.New()
	if _, wantsTree := object.(*unstructured.Unstructured); !isTree || wantsTree {
		return in.(registry.Object), nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object, object); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %v", kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, nil
}

// Convert and ConvertFieldLabel complete runtime.ObjectConvertor; field management
// asks for neither.
func (c *converter) Convert(in, out, context any) error {
	return fmt.Errorf("managed: no conversion of %T into %T", in, out)
}

func (c *converter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", fmt.Errorf("managed: no field labels")
}

// Default implements runtime.ObjectDefaulter.
func (c *converter) Default(in runtime.Object) {
	if c.config.Default != nil {
		c.config.Default(in.(registry.Object))
	}
}

// New implements runtime.ObjectCreater.
func (c *converter) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	v := c.version(kind.GroupVersion())
	if v == nil || kind.Kind != c.config.Kind.Kind {
		return nil, c.unknown(kind.GroupVersion())
	}
	object := v.New()
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, nil
}
