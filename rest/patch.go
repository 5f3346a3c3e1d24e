package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
	"github.com/keelson-dev/keelson/scheme"
)

// patch changes an object by a JSON patch, a merge patch, a strategic merge patch
// or server-side apply.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	p := patcher{incoming: in, h: h, r: r, s: s, info: info}
	options := h.updateOptions(info, s, s.Kind.Subresource(info.Subresource), in.writeOptions)
	options.Create = p.patch == types.ApplyYAMLPatchType && info.Subresource == ""
	if p.patch == types.ApplyYAMLPatchType {
		if err := p.decodeApply(); err != nil {
			return err
		}
	}
	result, err := s.Update(r.Context(), info.Namespace, info.Name, options, h.admitted(r.Context(), info, s, in.writeOptions, p.change))
	p.warn() // of what decoded, whatever became of it then
	if err != nil {
		return err
	}
	return h.writeResult(w, r, s, codeOf(result), in.accepted, result)
}

// patcher applies one patch; change may run more than once.
type patcher struct {
	incoming
	h        *Handler
	r        *http.Request
	s        *served
	info     *request.Info
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
	if p.apply, err = patch.Apply(p.body, p.validation); err != nil || p.s.Kind.Trees() {
		return err
	}
	// The quantities of a configuration are read without a Decoder, whatever they cost.
	if err := scheme.CheckQuantities(p.s.version.New(), p.apply.Object); err != nil {
		return p.s.decoder().CannotHandle(p.s.gvk, err)
	}
	return nil
}

// change makes the new object of the current one.
func (p *patcher) change(c *registry.Current) (registry.Object, error) {
	p.warnings = nil
	s := p.s
	if !c.Exists() && p.patch != types.ApplyYAMLPatchType {
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
	if p.patch == types.ApplyYAMLPatchType {
		return p.applied(live)
	}
	obj := p.s.version.New()
	switch p.patch {
	case types.StrategicMergePatchType:
		live.GetObjectKind().SetGroupVersionKind(p.s.gvk)
		warnings, err := patch.Strategic(live, obj, p.body, p.validation)
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
	return p.h.own(p.s, p.info.Subresource, live, obj, p.manager)
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
	if p.patch == types.JSONPatchType {
		run = patch.JSON
	}
	after, strict, err := run(doc, p.body, p.validation)
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
	track := p.validation != patch.Ignore
	more, err := d.DecodePatched(after, track)
	if err == nil {
		var unknown []error
		unknown, err = p.s.coerce(obj, track)
		more = append(more, unknown...)
	}
	if err == nil && len(more) > 0 {
		err = runtime.NewStrictDecodingError(more)
	}
	return patch.Decoded(after, strict, err, p.validation)
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
	force := p.force != nil && *p.force
	if live != nil {
		// The result shares memory with it and is changed further on.
		live = live.DeepCopyObject().(registry.Object)
	}
	obj, err := m.Apply(live, p.apply.Object, p.manager, force, p.h.o.Now())
	if err != nil {
		return nil, err
	}
	p.warnings, err = p.apply.Duplicates(p.validation)
	return obj, err
}
