package managedfields

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sfields "k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// MaxUpdateManagers is how many entries of managers that did not apply an object keeps. The oldest beyond them
// are put together in one entry of the manager "ancient-changes".
const MaxUpdateManagers = 10

// Version is one version of a kind.
type Version struct {
	// GroupVersion is the version as managedFields name it.
	GroupVersion schema.GroupVersion
	New          func() registry.Object
	// ToStorage and FromStorage convert to and from the storage version; they are nil for the storage version
	// itself. They may change their argument.
	ToStorage, FromStorage func(context.Context, registry.Object) (registry.Object, error)
}

// Config is what a Manager is made of.
type Config struct {
	// Kind is the group, version and kind of the objects of a request.
	Kind schema.GroupVersionKind
	// Subresource is "" for the resource itself.
	Subresource string
	// Storage is the version that objects are stored in. Other versions are converted through it.
	Storage schema.GroupVersion
	// Versions are all versions that objects can be converted to, that of Kind among them. Entries of managedFields
	// in any other version are dropped, unless Custom is set.
	Versions []Version
	// Custom is set for custom resources, as whose entries kube-apiserver judges those in a version that is not among
	// Versions: it refuses an apply, and any other write removes all managedFields of the object.
	Custom bool
	// Types has the schema of every version.
	Types k8sfields.TypeConverter
	// Default sets the defaults of the version on an applied object; it may be nil.
	Default func(registry.Object)
	// Reset are the fields that a request cannot set, by version, with all fields below them. A manager never
	// owns them through such a request.
	Reset map[fieldpath.APIVersion]*fieldpath.Set
	// Cache keeps decoded field sets; nil makes a small Cache for this Manager alone. Managers may share one.
	Cache *Cache
}

// A Manager keeps the managedFields of the objects of one kind in one version, or of one of its subresources.
// Its methods may be called at the same time.
type Manager struct {
	config  Config
	general *k8sfields.FieldManager
	// apiVersion is the group and version of Kind as entries name them.
	apiVersion  string
	make        func() registry.Object
	incremental *incremental
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
		return nil, fmt.Errorf("managedfields: %v is not among the versions", c.Kind)
	}
	if c.Cache == nil {
		m.config.Cache = NewCache(smallCacheBytes)
	}
	var err error
	if m.general, err = m.newGeneral(context.Background()); err != nil {
		return nil, err
	}
	m.incremental = newIncremental(m)
	return m, nil
}

// newGeneral makes the general algorithm. Its conversions end with ctx.
func (m *Manager) newGeneral(ctx context.Context) (*k8sfields.FieldManager, error) {
	c := &m.config
	filters := fieldpath.NewExcludeFilterSetMap(c.Reset)
	convert := &converter{config: *c, ctx: ctx}
	return k8sfields.NewDefaultCRDFieldManager(
		c.Types, convert, convert, convert, c.Kind, c.Storage, c.Subresource, filters)
}

// generalFor returns the general algorithm for one request. Where a conversion may call a webhook, the request
// gets an instance of its own, whose conversions end with the request.
func (m *Manager) generalFor(ctx context.Context) (*k8sfields.FieldManager, error) {
	converts := slices.ContainsFunc(m.config.Versions, func(v Version) bool { return v.ToStorage != nil })
	if ctx.Done() == nil || !converts {
		return m.general, nil
	}
	return m.newGeneral(ctx)
}

// For returns the Manager of a version of a kind, or of a subresource whose objects are those of the kind (status,
// and others that take and return the object). types is typed.Converter for built-in kinds, and the Converter of
// the definition for a custom resource. gvk is the kind in the version of the request.
func For(
	k *registry.Kind, gvk schema.GroupVersionKind, subresource string, types k8sfields.TypeConverter, cache *Cache,
) (*Manager, error) {
	c := Config{
		Kind:        gvk,
		Subresource: subresource,
		Storage:     schema.GroupVersion{Group: k.Group, Version: k.Storage.Version},
		Types:       types,
		Reset:       ResetFields(k, subresource),
		Custom:      k.Unstructured(),
		Cache:       cache,
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		gv := schema.GroupVersion{Group: k.Group, Version: v.Name}
		if v.Group != "" {
			gv.Group = v.Group
		}
		// Events have two groups. A manager in one of them is unknown in the other, as with kube-apiserver.
		if gv.Group != gvk.Group {
			continue
		}
		if gv == gvk.GroupVersion() {
			c.Default = v.Default
		}
		c.Versions = append(c.Versions, Version{
			GroupVersion: gv, New: v.New, ToStorage: v.ToStorage, FromStorage: v.FromStorage,
		})
	}
	if gvk.Group != k.Group {
		c.Storage = gvk.GroupVersion()
	}
	return New(c)
}

// Update brings the managedFields of object up to date after a create, an update, or a patch that is not an apply,
// and returns object. live is the object before the request, nil on create. Both are of the Manager's version, and
// the managedFields of object are what the client sent. Update changes nothing but the managedFields of object,
// which may share memory with those of live afterwards.
//
// Update cannot fail: the managedFields of an object that does not fit its schema are removed. Call it once a
// request, on what the client asked for with defaults set, before mutating admission and before the preparation
// by the rules of the kind: nobody owns what those set.
func (m *Manager) Update(
	ctx context.Context, live, object registry.Object, manager string, now time.Time,
) registry.Object {
	if live == nil {
		live = m.incremental.empty()
	}
	if m.incremental.update(live, object, manager, now) {
		return object
	}
	return m.updateGeneral(ctx, live, object, manager, now)
}

// Apply merges the configuration that manager applies into live and returns the new object in the Manager's
// version, with defaults, or a *errors.StatusError: a 409 with a cause for each conflict unless force is set,
// a 400 for a configuration of another type, a 500 with the plain text for one that does not fit its schema.
//
// live is the object as it is read from the store, nil where there is none yet. Neither argument is changed, and
// the result shares no memory with them but the entries of managedFields, which nobody changes. Where nothing
// changed, managedFields included, the result equals live.
func (m *Manager) Apply(
	ctx context.Context, live registry.Object, configuration map[string]any, manager string, force bool, now time.Time,
) (registry.Object, error) {
	if live == nil {
		if object, ok := m.incremental.applyNew(configuration, manager, now); ok {
			return object, nil
		}
		live = m.make()
	} else if object, ok, err := m.incremental.apply(ctx, live, configuration, manager, force, now); ok {
		return object, err
	}
	return m.applyGeneral(ctx, live, configuration, manager, force, now)
}

// internalError answers 500 with the text of err and no reason.
func internalError(err error) error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}
