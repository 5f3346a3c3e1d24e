package crd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/crd/convert"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/structural"
	"github.com/keelson-dev/keelson/structural/merge"
	"github.com/keelson-dev/keelson/structural/rules"
)

// kinds is what a definition is compiled to: a kind for each version that is served
// or stored. It is made empty with the definition, and filled when a request first
// needs it.
type kinds struct {
	group     string
	storage   string // the version that is stored
	exclusive bool
	// defaultsReturn says that what writes take away comes back as a default.
	defaultsReturn bool
	byName         map[string]*compiledVersion
	converter      convert.Converter
	// since is the revision after which every object was written in the normal form
	// of these kinds.
	since atomic.Int64

	mu       sync.Mutex // guards what follows
	state    kindsState
	err      error
	bound    map[string]*rest.CustomResource
	resource *registry.Resource // of the stored version
	// previous are the kinds before, while requests still use them.
	previous *kinds

	// inFlight are the requests that use the kinds, watches aside.
	inFlight uses
}

type kindsState int

const (
	empty kindsState = iota
	compiledState
	closed
)

func newKinds() *kinds { return &kinds{} }

// compiledVersion is one version of a definition, compiled.
type compiledVersion struct {
	name   string
	gvk    schema.GroupVersionKind
	schema *structural.Schema
	// Where the status is a subresource, status is set.
	status bool
	scale  *apiextensionsv1.CustomResourceSubresourceScale
	// preserve keeps unknown fields (spec.preserveUnknownFields).
	preserve bool
	rules    *rules.Validator
}

// compiled shares what is compiled of equal schemas.
type compiled struct {
	schemas *structural.Cache
	types   merge.Cache
	rules   rules.Cache
}

func newCompiled() *compiled { return &compiled{schemas: structural.NewCache()} }

// follow takes note of the kinds before, which requests may still use.
func (k *kinds) follow(old *kinds) {
	old.mu.Lock()
	defer old.mu.Unlock()
	if k.previous = old; old.state == empty {
		k.previous = old.previous // nobody used these
	}
}

// enter counts a request that uses the kinds; false where they are closed, and
// another definition has taken their place.
func (k *kinds) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == closed {
		return false
	}
	k.inFlight.begin()
	return true
}

// close ends the watches of the kinds and what is in memory of them.
func (k *kinds) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == compiledState && k.resource != nil {
		k.resource.Unbind()
		for _, b := range k.bound {
			b.Unbind()
		}
	}
	k.state = closed
}

func (k *kinds) loaded() (int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resource == nil {
		return 0, false
	}
	return k.resource.Counted()
}

// bound returns what serves a version of a definition, and compiles it first if
// need be.
func (s *Server) bound(d *definition, version string) (*rest.CustomResource, error) {
	k := d.kinds
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == empty {
		if k.err = s.compile(d); k.err != nil {
			s.o.Log.Error("a custom resource cannot be served", "definition", d.name, "error", k.err)
		}
		k.state = compiledState
	}
	if k.err != nil {
		return nil, kerrors.NewInternalError(fmt.Errorf("error resolving resource"))
	}
	return k.bound[version], nil
}

// compile fills the kinds of a definition. Their mu is held.
func (s *Server) compile(d *definition) error {
	spec, err := d.decodeSpec()
	if err != nil {
		return err
	}
	k := d.kinds
	k.group, k.exclusive = d.group, s.o.Exclusive
	k.byName, k.bound = map[string]*compiledVersion{}, map[string]*rest.CustomResource{}
	k.since.Store(math.MaxInt64)
	if d.badAuthority {
		return errors.New("the conversion webhook CABundle is invalid")
	}
	if k.converter, err = s.o.Converters(d.name, spec); err != nil {
		return err
	}
	types := map[string]*structural.Schema{}
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
		k.defaultsReturn = k.defaultsReturn || c.defaultsReturn()
		types[v.Name] = c.schema
	}
	k.defaultsReturn = k.defaultsReturn || k.conversionsLackDefaults()
	return s.bind(d, spec, s.schemas.types.NewConverter(schema.GroupKind{Group: d.group, Kind: d.status.names.Kind}, types))
}

// defaultsReturn says that a status which is not part of what is stored has a
// default.
func (c *compiledVersion) defaultsReturn() bool {
	if !c.status || c.schema == nil {
		return false
	}
	status := c.schema.Properties["status"]
	return status != nil && status.HasDefault
}

// conversionsLackDefaults says that what is written in a version that is not stored
// may lack defaults of the stored one: a conversion sets none.
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

func (s *Server) compileVersion(d *definition, v *apiextensionsv1.CustomResourceDefinitionVersion, preserve bool) (*compiledVersion, error) {
	c := &compiledVersion{
		name: v.Name, gvk: schema.GroupVersionKind{Group: d.group, Version: v.Name, Kind: d.status.names.Kind},
		status:   v.Subresources != nil && v.Subresources.Status != nil,
		preserve: preserve,
	}
	if v.Subresources != nil {
		c.scale = v.Subresources.Scale
	}
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return c, nil
	}
	var err error
	if c.schema, err = s.schemas.schemas.New(v.Schema.OpenAPIV3Schema); err != nil {
		return nil, err
	}
	c.rules = s.schemas.rules.Compile(c.schema, true)
	return c, nil
}

// bind makes a kind of each version and binds them all to the store.
func (s *Server) bind(d *definition, spec *apiextensionsv1.CustomResourceDefinitionSpec, types managedfields.TypeConverter) error {
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
		k.bound[name] = s.o.Rest.Bind(r, r.Kind.Version(name), d.terminating())
		if name == k.storage {
			k.resource = r
		}
	}
	s.settle(k)
	return nil
}

// settle makes reads trust what is written from now on, once no request writes by the
// kinds before any more. Only a store of which nobody else writes settles: it is in this
// process, and gives its revision without waiting.
func (s *Server) settle(k *kinds) {
	previous := k.previous
	k.previous = nil
	if !k.exclusive {
		return
	}
	settled := func() {
		if revision, err := s.definitions.CurrentRevision(context.Background()); err == nil {
			k.since.Store(revision)
		}
	}
	if previous == nil {
		settled()
		return
	}
	previous.inFlight.whenNone(settled)
}

// decodeSpec decodes the specification, schemas included.
func (d *definition) decodeSpec() (*apiextensionsv1.CustomResourceDefinitionSpec, error) {
	spec := &apiextensionsv1.CustomResourceDefinitionSpec{}
	return spec, unmarshalSpec(d.spec, spec)
}

// kind declares a version of the definition as the one that requests come in.
func (k *kinds) kind(d *definition, spec *apiextensionsv1.CustomResourceDefinitionSpec, v *apiextensionsv1.CustomResourceDefinitionVersion, types managedfields.TypeConverter) *registry.Kind {
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
		},
		Metadata:     registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaChanges},
		Subresources: subresources(v, spec),
		Selection:    registry.Selection{Fields: selectable(v), FieldError: fieldError},
		Strategy:     c.strategy(),
		Table:        table(v.AdditionalPrinterColumns),
	}
	for i := range spec.Versions {
		other := &spec.Versions[i]
		if other.Served || other.Storage {
			out.Versions = append(out.Versions, k.version(c, other, spec))
		}
	}
	return out
}

// version declares a version of a kind whose hub is c.
func (k *kinds) version(hub *compiledVersion, v *apiextensionsv1.CustomResourceDefinitionVersion, spec *apiextensionsv1.CustomResourceDefinitionSpec) registry.Version {
	c := k.byName[v.Name]
	out := registry.Version{
		Name:    v.Name,
		New:     func() registry.Object { return newTree(c.gvk) },
		Default: func(obj registry.Object) { c.setDefaults(obj.(*unstructured.Unstructured)) },
		Coerce: func(obj registry.Object, track bool) ([]string, error) {
			return k.coerce(c, obj.(*unstructured.Unstructured), track)
		},
	}
	if v.Deprecated {
		out.Warning = deprecation(v, spec)
	}
	if c != hub {
		out.ToStorage = k.conversion(hub.name)
		out.FromStorage = k.conversion(c.name)
	}
	return out
}

// conversion is that for managedFields, which compares what it gives in both versions:
// nothing is pruned.
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

func newTree(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind}}
}

// deprecation is the warning of a deprecated version.
func deprecation(v *apiextensionsv1.CustomResourceDefinitionVersion, spec *apiextensionsv1.CustomResourceDefinitionSpec) string {
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

func subresources(v *apiextensionsv1.CustomResourceDefinitionVersion, spec *apiextensionsv1.CustomResourceDefinitionSpec) []registry.Subresource {
	var out []registry.Subresource
	if v.Subresources == nil {
		return nil
	}
	if v.Subresources.Scale != nil {
		out = append(out, scaleOf(v.Subresources.Scale, replicasPaths(spec)))
	}
	if v.Subresources.Status != nil {
		out = append(out, registry.Subresource{Name: "status", Verbs: statusVerbs, Status: true})
	}
	return out
}

// replicasPaths are the paths of the replicas in the versions that have a scale subresource.
func replicasPaths(spec *apiextensionsv1.CustomResourceDefinitionSpec) map[string][]string {
	paths := map[string][]string{}
	for i := range spec.Versions {
		if v := &spec.Versions[i]; v.Subresources != nil && v.Subresources.Scale != nil {
			paths[v.Name] = members(v.Subresources.Scale.SpecReplicasPath)
		}
	}
	return paths
}

// selectable are the selectable fields of a version.
func selectable(v *apiextensionsv1.CustomResourceDefinitionVersion) []registry.Field {
	var out []registry.Field
	for _, f := range v.SelectableFields {
		name := strings.TrimPrefix(f.JSONPath, ".")
		out = append(out, registry.Field{Name: name, Members: members(f.JSONPath)})
	}
	return out
}

// members splits a simple path: ".spec.color" and ".spec['color']" alike.
func members(path string) []string {
	path = strings.NewReplacer("['", ".", `["`, ".", "']", "", `"]`, "").Replace(path)
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}

// fieldError words the answer to a field that cannot be selected by.
func fieldError(_, label string) error { return fmt.Errorf("field label not supported: %s", label) }
