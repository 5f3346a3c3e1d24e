package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/api/crd/convert"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/mergetypes"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// kinds is a compiled definition: a registry.Kind for each version that is served or stored. It is created empty
// together with the definition and filled when the first request needs it.
type kinds struct {
	group     string
	storage   string // the version that is stored
	exclusive bool
	// defaultsReturn is true if a stored object may lack a value that has a default. Such objects are defaulted at
	// every read.
	defaultsReturn bool
	byName         map[string]*compiledVersion
	converter      convert.Converter
	webhook        bool // objects are converted by a webhook
	now            func() time.Time
	// normalSince is a revision: every object written after it is stored in normal form (pruned and defaulted by the
	// schema of these kinds). It is math.MaxInt64 until that is known.
	normalSince atomic.Int64

	mu       sync.Mutex // guards the fields up to previous
	state    kindsState
	err      error
	bound    map[string]*rest.CustomResource
	resource *registry.Resource // the resource in its storage version
	// previous has the kinds that these kinds replaced, as long as requests may still use them.
	previous *kinds

	// inFlight counts the requests that use the kinds, except watches.
	inFlight uses
}

type kindsState int

const (
	notCompiled kindsState = iota
	compiled
	closed
)

// compiledVersion is one version of a definition with its compiled schema.
type compiledVersion struct {
	name   string
	gvk    schema.GroupVersionKind
	schema *structuralschema.Schema
	status bool // the version has the status subresource
	scale  *apiextensionsv1.CustomResourceSubresourceScale
	// preserve keeps unknown fields (spec.preserveUnknownFields).
	preserve bool
	rules    *celrules.Validator
	times    *RuleMetrics
}

// caches holds the compiled parts of schemas. Definitions whose schemas are equal share them.
type caches struct {
	schemas *structuralschema.Cache
	types   mergetypes.Cache
	rules   celrules.Cache
}

// setPrevious records that these kinds replace old, which requests may still use.
func (k *kinds) setPrevious(old *kinds) {
	old.mu.Lock()
	defer old.mu.Unlock()
	if k.previous = old; old.state == notCompiled {
		k.previous = old.previous // no request used old
	}
}

// enter counts a request that uses the kinds until inFlight.end. It returns false if the kinds are closed because
// another state of the definition replaced them.
func (k *kinds) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == closed {
		return false
	}
	k.inFlight.begin()
	return true
}

// close ends the watches of the kinds and removes their objects from the cache.
func (k *kinds) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == compiled && k.resource != nil {
		k.resource.Unbind()
		for _, b := range k.bound {
			b.Unbind()
		}
	}
	k.state = closed
}

// size returns the number of objects and the bytes that they take in memory. ok is false if these are not known.
func (k *kinds) size() (objects int, bytes int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resource == nil {
		return 0, 0, false
	}
	return k.resource.Reader.Size()
}

// bound returns the handler of one version of a definition, and nil if the version is not served. It compiles the
// definition first if that has not been done. It fails if the definition cannot be compiled, and with cache.ErrRemoved
// if the definition was replaced.
func (s *Server) bound(d *definition, version string) (*rest.CustomResource, error) {
	k := d.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == notCompiled {
		if k.err = s.compile(d); k.err != nil {
			s.o.Log.Error("a custom resource cannot be served", "definition", d.name, "error", k.err)
		}
		k.state = compiled
	}
	switch {
	case k.state == closed:
		return nil, cache.ErrRemoved
	case k.err != nil:
		return nil, kerrors.NewInternalError(fmt.Errorf("error resolving resource"))
	}
	return k.bound[version], nil
}

// compile fills the kinds of a definition. The caller holds the mu of the kinds.
func (s *Server) compile(d *definition) error {
	spec, err := d.decodeSpec()
	if err != nil {
		return err
	}
	k := d.kinds
	k.group, k.exclusive, k.now = d.group, s.o.Exclusive, s.o.Now
	k.webhook = spec.Conversion != nil && spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
	k.byName, k.bound = map[string]*compiledVersion{}, map[string]*rest.CustomResource{}
	k.normalSince.Store(math.MaxInt64)
	if d.invalidCABundle {
		return errors.New("the conversion webhook CABundle is invalid")
	}
	if k.converter, err = s.o.Converters(d.name, spec); err != nil {
		return err
	}
	types := map[string]*structuralschema.Schema{}
	for i := range spec.Versions {
		v := &spec.Versions[i]
		if v.Storage {
			k.storage = v.Name
		}
		c, err := s.compileVersion(d, v, spec.PreserveUnknownFields)
		if err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
		k.byName[v.Name] = c
		k.defaultsReturn = k.defaultsReturn || c.statusHasDefault()
		types[v.Name] = c.schema
	}
	k.defaultsReturn = k.defaultsReturn || k.conversionsLackDefaults()
	return s.bind(d, spec, s.caches.types.NewConverter(schema.GroupKind{Group: d.group, Kind: d.status.names.Kind}, types))
}

// statusHasDefault returns true if status is a subresource and the schema has a default for it. A create removes
// the status, so that the stored object lacks the default.
func (c *compiledVersion) statusHasDefault() bool {
	if !c.status || c.schema == nil {
		return false
	}
	status := c.schema.Properties["status"]
	return status != nil && status.HasDefault
}

// conversionsLackDefaults returns true if an object written in another version may lack defaults of the storage
// version: conversion sets no defaults.
func (k *kinds) conversionsLackDefaults() bool {
	stored := k.byName[k.storage]
	if stored == nil || !stored.schema.SetsDefaults() {
		return false
	}
	for _, c := range k.byName {
		if c.schema != stored.schema {
			return true
		}
	}
	return false
}

func (s *Server) compileVersion(
	d *definition, v *apiextensionsv1.CustomResourceDefinitionVersion, preserve bool,
) (*compiledVersion, error) {
	c := &compiledVersion{
		name: v.Name, gvk: schema.GroupVersionKind{Group: d.group, Version: v.Name, Kind: d.status.names.Kind},
		status:   v.Subresources != nil && v.Subresources.Status != nil,
		preserve: preserve, times: s.o.Rules,
	}
	if v.Subresources != nil {
		c.scale = v.Subresources.Scale
	}
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return c, nil
	}
	var err error
	if c.schema, err = s.caches.schemas.New(v.Schema.OpenAPIV3Schema); err != nil {
		return nil, err
	}
	start := time.Now()
	if c.rules = s.caches.rules.Compile(c.schema, true); c.rules != nil {
		s.o.Rules.Compiled(start)
	}
	return c, nil
}

// bind creates a kind for each served or stored version and binds them all to the store.
func (s *Server) bind(
	d *definition, spec *apiextensionsv1.CustomResourceDefinitionSpec, types managedfields.TypeConverter,
) error {
	k := d.kinds
	var list []*registry.Kind
	for i := range spec.Versions {
		v := &spec.Versions[i]
		if v.Served || v.Storage {
			list = append(list, k.kind(d, spec, v, types))
		}
	}
	resources, err := s.o.Registry.BindVersions(list)
	if err != nil {
		return err
	}
	for _, r := range resources {
		name := r.Kind.Storage.Version
		k.bound[name] = s.o.Rest.Bind(r, r.Kind.Version(name), d.creates)
		if name == k.storage {
			k.resource = r
		}
	}
	s.setNormalSince(k)
	return nil
}

// setNormalSince sets normalSince to the current revision once no request uses the previous kinds any more. From
// then on reads do not prune and default what is written later. It does nothing if other processes write to the
// store. An exclusive store is in this process and returns its revision without waiting, which is why there is no
// context here.
func (s *Server) setNormalSince(k *kinds) {
	previous := k.previous
	k.previous = nil
	if !k.exclusive {
		return
	}
	record := func() {
		if revision, err := s.definitions.Reader.CurrentRevision(context.Background()); err == nil {
			k.normalSince.Store(revision)
		}
	}
	if previous == nil {
		record()
		return
	}
	previous.inFlight.whenNone(record)
}

// decodeSpec decodes the spec of the definition, including the schemas.
func (d *definition) decodeSpec() (*apiextensionsv1.CustomResourceDefinitionSpec, error) {
	spec := &apiextensionsv1.CustomResourceDefinitionSpec{}
	return spec, json.Unmarshal([]byte(d.spec), spec)
}

// kind returns the registry.Kind through which requests to version v read and write. types is the type converter
// of all versions, for managedFields.
func (k *kinds) kind(
	d *definition, spec *apiextensionsv1.CustomResourceDefinitionSpec, v *apiextensionsv1.CustomResourceDefinitionVersion,
	types managedfields.TypeConverter,
) *registry.Kind {
	names := &d.status.names
	c := k.byName[v.Name]
	out := &registry.Kind{
		Names: registry.Names{
			Group: d.group, Package: "unstructured", Resource: names.Plural, Singular: names.Singular,
			Name: names.Kind, ListName: names.ListKind, ShortNames: names.ShortNames,
			Categories: names.Categories, Namespaced: d.scope == apiextensionsv1.NamespaceScoped,
		},
		Types: types,
		Storage: registry.Storage{
			Version: v.Name, Path: d.group + "/" + names.Plural, JSON: true, Documents: newDocuments(k, v.Name),
			Since: d.created,
		},
		Requests:     registry.Requests{Resets: ownResets(v)},
		Metadata:     registry.Metadata{AnyFinalizer: true, Repeated: true, OnUpdate: registry.MetaChanges},
		Subresources: subresources(v, spec),
		Selection:    registry.Selection{Fields: selectableFields(v), FieldError: fieldError},
		Strategy:     c.strategy(),
		Table:        table(v.AdditionalPrinterColumns),
	}
	for i := range spec.Versions {
		// managedFields may name a version that is not served.
		out.Versions = append(out.Versions, k.version(c, &spec.Versions[i], spec))
	}
	return out
}

// version returns version v as a part of the registry.Kind of version hub. Each version has a registry.Kind that
// lists all versions.
func (k *kinds) version(
	hub *compiledVersion, v *apiextensionsv1.CustomResourceDefinitionVersion,
	spec *apiextensionsv1.CustomResourceDefinitionSpec,
) registry.Version {
	c := k.byName[v.Name]
	out := registry.Version{
		Name:     v.Name,
		Disabled: !v.Served,
		New:      func() registry.Object { return newObject(c.gvk) },
		Default:  func(obj registry.Object) { c.schema.SetDefaults(obj.(*unstructured.Unstructured).Object) },
		KeepEmpty: func(obj registry.Object, configuration map[string]any) {
			c.schema.KeepEmpty(obj.(*unstructured.Unstructured).Object, configuration)
		},
		Coerce: func(obj registry.Object, track bool) ([]string, error) {
			return k.coerce(c, obj.(*unstructured.Unstructured), track)
		},
	}
	if v.Deprecated {
		out.Warning = deprecationWarning(v, spec)
	}
	if c != hub {
		out.ToStorage = k.conversion(hub.name)
		out.FromStorage = k.conversion(c.name)
	}
	return out
}

// conversion returns a function that converts an object to a version without pruning it. Field management needs
// this: it compares the owned fields in both versions.
func (k *kinds) conversion(version string) func(context.Context, registry.Object) (registry.Object, error) {
	to := schema.GroupVersion{Group: k.group, Version: version}
	return func(ctx context.Context, obj registry.Object) (registry.Object, error) {
		out, err := k.converter.Convert(ctx, []*unstructured.Unstructured{obj.(*unstructured.Unstructured)}, to)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	}
}

func newObject(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind}}
}

// deprecationWarning returns the warning for requests to a deprecated version. If the definition sets none, the
// text names the best served version that is newer and not deprecated.
func deprecationWarning(
	v *apiextensionsv1.CustomResourceDefinitionVersion, spec *apiextensionsv1.CustomResourceDefinitionSpec,
) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", spec.Group, v.Name, spec.Names.Kind)
	best := ""
	for _, other := range spec.Versions {
		if !other.Served || other.Deprecated || kubeversion.CompareKubeAwareVersionStrings(v.Name, other.Name) >= 0 {
			continue
		}
		if best == "" || kubeversion.CompareKubeAwareVersionStrings(other.Name, best) > 0 {
			best = other.Name
		}
	}
	if best != "" {
		text += fmt.Sprintf("; use %s/%s %s", spec.Group, best, spec.Names.Kind)
	}
	return text
}

var statusVerbs = []string{"get", "patch", "update"}

func subresources(
	v *apiextensionsv1.CustomResourceDefinitionVersion, spec *apiextensionsv1.CustomResourceDefinitionSpec,
) []registry.Subresource {
	var out []registry.Subresource
	if v.Subresources == nil {
		return nil
	}
	if v.Subresources.Scale != nil {
		out = append(out, scaleSubresource(v.Subresources.Scale, replicasPaths(spec)))
	}
	if v.Subresources.Status != nil {
		out = append(out, registry.Subresource{
			Name: "status", Verbs: statusVerbs, Status: true, Resets: []string{"metadata", "spec"},
		})
	}
	return out
}

// ownResets returns the Resets (see registry.Subresource) for writes of the object itself.
func ownResets(v *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	if v.Subresources == nil || v.Subresources.Status == nil {
		return nil
	}
	return []string{"status"}
}

// replicasPaths returns the path of spec.replicas in each version that has a scale subresource.
func replicasPaths(spec *apiextensionsv1.CustomResourceDefinitionSpec) map[string][]string {
	paths := map[string][]string{}
	for i := range spec.Versions {
		if v := &spec.Versions[i]; v.Subresources != nil && v.Subresources.Scale != nil {
			paths[v.Name] = members(v.Subresources.Scale.SpecReplicasPath)
		}
	}
	return paths
}

// selectableFields returns the fields that field selectors of the version may use.
func selectableFields(v *apiextensionsv1.CustomResourceDefinitionVersion) []registry.Field {
	var out []registry.Field
	for _, f := range v.SelectableFields {
		name := strings.TrimPrefix(f.JSONPath, ".")
		out = append(out, registry.Field{Name: name, Members: members(f.JSONPath)})
	}
	return out
}

// members splits a simple JSON path: ".spec.color" and ".spec['color']" both return [spec color].
func members(path string) []string {
	path = strings.NewReplacer("['", ".", `["`, ".", "']", "", `"]`, "").Replace(path)
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}

// fieldError returns the error for a field selector with an unknown field.
func fieldError(_, label string) error { return fmt.Errorf("field label not supported: %s", label) }
