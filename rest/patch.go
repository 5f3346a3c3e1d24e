package rest

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/managed"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/typed"
)

// patchTypes are the accepted Content-Types of a PATCH.
var patchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
}

// treePatchTypes are those of custom resources: a strategic merge wants Go types.
var treePatchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// noSuchPatch answers a PATCH of a built-in resource with another Content-Type.
var noSuchPatch = apierr.WithEmptyDetails(apierr.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type"))

func typesPatch(t string) types.PatchType { return types.PatchType(t) }

// managers are the field managers, made when first needed: one for each served
// version and subresource.
type managers struct {
	sync.Map // managerKey -> *managed.Manager
	cache    *managed.Cache
}

type managerKey struct {
	s           *served
	subresource string
}

// managedCacheBytes bounds the decoded field sets that are kept.
const managedCacheBytes = 8 << 20

// forget drops the managers of a resource that is served no more.
func (m *managers) forget(s *served) {
	for i := range s.Kind.Subresources {
		m.Delete(managerKey{s, s.Kind.Subresources[i].Name})
	}
	m.Delete(managerKey{s, ""})
}

func (h *Handler) manager(s *served, subresource string) (*managed.Manager, error) {
	key := managerKey{s, subresource}
	if m, ok := h.managers.Load(key); ok {
		return m.(*managed.Manager), nil
	}
	var types managedfields.TypeConverter = typed.Converter{}
	if s.Kind.Types != nil {
		types = s.Kind.Types
	}
	m, err := managed.For(s.Kind, s.gvk, subresource, types, h.managers.cache)
	if err != nil {
		return nil, err
	}
	h.managers.Store(key, m)
	return m, nil
}

// patch changes an object by a JSON patch, a merge patch, a strategic merge patch
// or server-side apply.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	sub := s.Kind.Subresource(info.Subresource)
	patchType, err := h.patchTypeOf(r, s)
	if err != nil {
		return err
	}
	accepted, err := h.objectsFor(r, info, s)
	if err != nil {
		return err
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	o, err := parseWriteOptions(r, "PatchOptions", patchType)
	if err != nil {
		return err
	}
	if patchType == string(types.ApplyCBORPatchType) {
		patchType = string(types.ApplyYAMLPatchType)
		if body, err = scheme.CBORToJSON(body); err != nil {
			return kerrors.NewBadRequest(err.Error())
		}
	}
	notePatch(r, patchType, body)
	p := patcher{h: h, r: r, s: s, info: info, o: o, body: body, kind: types.PatchType(patchType)}
	if !s.Kind.Trees() && (p.kind == types.ApplyYAMLPatchType || p.kind == types.StrategicMergePatchType) {
		// No Decoder reads what becomes of these. Trees have no quantities.
		if err := s.decoder().CheckQuantities(scheme.YAML, body); err != nil {
			return err
		}
	}
	options := h.updateOptions(info, s, sub, o)
	options.Create = p.kind == types.ApplyYAMLPatchType && info.Subresource == ""
	if p.kind == types.ApplyYAMLPatchType {
		if err := p.decodeApply(); err != nil {
			return err
		}
	}
	result, err := s.Update(r.Context(), info.Namespace, info.Name, options, h.admitted(r.Context(), info, s, o, p.change))
	p.warn() // of what decoded, whatever became of it then
	if err != nil {
		return err
	}
	code := http.StatusOK
	if result.Created {
		code = http.StatusCreated
	}
	return h.writeResult(w, r, s, code, accepted, result)
}

// patchTypeOf reads the Content-Type.
func (h *Handler) patchTypeOf(r *http.Request, s *served) (string, error) {
	header := r.Header.Get("Content-Type")
	mediaType, _, err := mime.ParseMediaType(header)
	if err != nil {
		mediaType = header
	}
	accepted := patchTypes
	if s.Kind.Trees() {
		accepted = treePatchTypes
	}
	if h.formats.CBOR {
		accepted = append(slices.Clone(accepted), string(types.ApplyCBORPatchType))
	}
	if slices.Contains(accepted, mediaType) {
		return mediaType, nil
	}
	if s.Kind.Trees() {
		return "", apierr.UnsupportedMediaType(accepted)
	}
	return "", noSuchPatch
}

// patcher applies one patch; change may run more than once.
type patcher struct {
	h        *Handler
	r        *http.Request
	s        *served
	info     *request.Info
	o        writeOptions
	body     []byte
	kind     types.PatchType
	apply    patch.Configuration
	warnings []string
}

// warn hands the last run's warnings to the client.
func (p *patcher) warn() {
	for _, w := range p.warnings {
		request.Warn(p.r.Context(), w)
	}
}

// decodeApply reads a server-side apply's configuration.
func (p *patcher) decodeApply() (err error) {
	p.apply, err = patch.Apply(p.body, p.o.validation)
	return err
}

// change makes the new object of the current one.
func (p *patcher) change(c *registry.Current) (registry.Object, error) {
	p.warnings = nil
	s := p.s
	if !c.Exists() && p.kind != types.ApplyYAMLPatchType {
		return nil, kerrors.NewNotFound(s.gr, p.info.Name)
	}
	var live registry.Object
	var err error
	if c.Exists() {
		if live, err = c.As(s.version); err != nil {
			return nil, err
		}
	}
	obj, err := p.patched(c, live)
	if err != nil {
		return nil, err
	}
	if err := checkName(obj, p.info); err != nil {
		return nil, err
	}
	return s.ToStorage(obj, s.version)
}

func (p *patcher) patched(c *registry.Current, live registry.Object) (registry.Object, error) {
	if p.kind == types.ApplyYAMLPatchType {
		return p.applied(live)
	}
	obj := p.s.version.New()
	switch p.kind {
	case types.StrategicMergePatchType:
		live.GetObjectKind().SetGroupVersionKind(p.s.gvk)
		warnings, err := patch.Strategic(live, obj, p.body, p.o.validation)
		if err != nil {
			return nil, err
		}
		p.warnings = warnings
	default:
		if p.mergeTree(live, obj) {
			break
		}
		if err := p.patchDocument(c, obj); err != nil {
			return nil, err
		}
	}
	if p.s.Kind.Trees() && obj.GetObjectKind().GroupVersionKind().Version == "" {
		return nil, kerrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	if p.s.version.Default != nil {
		p.s.version.Default(obj)
	}
	return p.h.own(p.s, p.info.Subresource, live, obj, p.o.manager)
}

// patchDocument applies a JSON patch or a merge patch to the object's document
// and decodes the result into obj.
func (p *patcher) patchDocument(c *registry.Current, obj registry.Object) error {
	item, err := p.s.ItemJSON(c.Object, p.s.version)
	if err != nil {
		return err
	}
	doc := scheme.AppendJSONObject(nil, p.s.objectHead, item)
	run := patch.Merge
	if p.kind == types.JSONPatchType {
		run = patch.JSON
	}
	after, strict, err := run(doc, p.body, p.o.validation)
	if err != nil {
		return err
	}
	p.warnings, err = p.decodePatched(after, strict, obj)
	return err
}

func (p *patcher) decodePatched(after []byte, strict []error, obj registry.Object) ([]string, error) {
	if !p.s.Kind.Trees() {
		if gvk, err := scheme.DocumentKind(after); err == nil && gvk.Version == "" && gvk.Group == "" && gvk.Kind != "" {
			// Without an apiVersion the document is of no kind: nothing in it is known.
			return unknownMembers(after), nil
		}
	}
	d := p.s.decoder()
	d.New = func() runtime.Object { return obj }
	track := p.o.validation != patch.Ignore
	more, err := d.DecodePatched(after, track)
	if err == nil {
		var unknown []error
		unknown, err = p.s.coerce(obj, track)
		more = append(more, unknown...)
	}
	if err == nil && len(more) > 0 {
		err = runtime.NewStrictDecodingError(more)
	}
	return patch.Decoded(after, strict, err, p.o.validation)
}

// unknownMembers are the warnings for the members of a document of no kind.
func unknownMembers(doc []byte) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil {
		return nil
	}
	var warnings []string
	for name := range members {
		if name != "kind" {
			warnings = append(warnings, fmt.Sprintf("unknown field %q", name))
		}
	}
	slices.Sort(warnings)
	return warnings
}

func (p *patcher) applied(live registry.Object) (registry.Object, error) {
	m, err := p.h.manager(p.s, p.info.Subresource)
	if err != nil {
		return nil, err
	}
	force := p.o.force != nil && *p.o.force
	if live != nil {
		// The result shares memory with it and is changed further on.
		live = live.DeepCopyObject().(registry.Object)
	}
	obj, err := m.Apply(live, p.apply.Object, p.o.manager, force, p.h.o.Now())
	if err != nil {
		return nil, err
	}
	p.warnings, err = p.apply.Duplicates(p.o.validation)
	return obj, err
}
