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

// MaxUpdateManagers limits the entries of managers that update. If there are more, the oldest are merged into one
// entry of the manager "ancient-changes".
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

// Config describes the kind for a Manager.
type Config struct {
	// Kind is the group, version and kind of the objects of a request.
	Kind schema.GroupVersionKind
	// Subresource is "" for the resource itself.
	Subresource string
	// Storage is the version that objects are stored in. Other versions are converted through it.
	Storage schema.GroupVersion
	// Versions are all versions that objects can be converted to, including the one of Kind. Entries of managedFields
	// in any other version are dropped.
	Versions []Version
	// Custom is set for custom resources. An apply that drops an entry in a version that is not in Versions warns of it.
	Custom bool
	// Types has the schema of every version.
	Types k8sfields.TypeConverter
	// Default sets the defaults of the version on an applied object; it may be nil.
	Default func(registry.Object)
	// KeepEmpty replaces null in an applied object by {} where the configuration has {}, the merge has left null,
	// and the schema does not allow null. It may be nil.
	KeepEmpty func(object registry.Object, configuration map[string]any)
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

// generalFor returns the general algorithm for one request. If a conversion may call a webhook, the request gets
// its own instance, whose conversions end with the request.
func (m *Manager) generalFor(ctx context.Context) (*k8sfields.FieldManager, error) {
	converts := slices.ContainsFunc(m.config.Versions, func(v Version) bool { return v.ToStorage != nil })
	if ctx.Done() == nil || !converts {
		return m.general, nil
	}
	return m.newGeneral(ctx)
}

// For returns the Manager of a version of a kind, or of a subresource that takes and returns the object, such as
// status. types is mergeschema.Converter for built-in kinds, and the Converter of the definition for a custom
// resource. gvk is the kind in the version of the request.
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
		// Events have two groups. As in kube-apiserver, an entry of one group is unknown in the other.
		if gv.Group != gvk.Group {
			continue
		}
		if gv == gvk.GroupVersion() {
			c.Default, c.KeepEmpty = v.Default, v.KeepEmpty
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

// Update updates and returns object: it computes the managedFields after a create, an update, or a patch that is not an
// apply. live is the object before the request, nil for a create. Both are in the Manager's version, and object has the
// managedFields of the request. Only the managedFields of object are changed; they may share memory with those of live
// afterwards.
//
// Update cannot fail: if an object does not fit its schema, its managedFields are removed. Call it once per request,
// after defaulting and before mutating admission and the kind's preparation, because no manager owns the fields that
// these set.
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

// Apply merges the configuration that manager applies into live. It returns the new object in the Manager's version,
// with defaults, or a *errors.StatusError: 409 with a cause for each conflict unless force is set, 400 for a
// configuration of another type, 500 with the plain text for one that does not fit its schema.
//
// live is the object as read from the store, nil if there is none. Neither argument is changed. The result shares only
// the entries of managedFields with them, which are immutable. If nothing has changed, including managedFields, the
// result equals live.
func (m *Manager) Apply(
	ctx context.Context, live registry.Object, configuration map[string]any, manager string, force bool, now time.Time,
) (registry.Object, error) {
	if live == nil {
		if object, ok := m.incremental.applyNew(configuration, manager, now); ok {
			return object, nil
		}
		return m.applyGeneral(ctx, m.make(), configuration, manager, force, now)
	}
	object, ok, err := m.incremental.apply(ctx, live, configuration, manager, force, now)
	if !ok {
		object, err = m.applyGeneral(ctx, live, configuration, manager, force, now)
	}
	if err == nil && m.config.KeepEmpty != nil {
		m.config.KeepEmpty(object, configuration)
	}
	return object, err
}

// internalError returns the error 500 with the text of err and no reason.
func internalError(err error) error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}
