package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/write"
	"github.com/keelson-dev/keelson/write/patch"
)

// patch changes an object by a JSON patch, a merge patch, a strategic merge patch
// or server-side apply.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	p := patcher{incoming: in, s: s, info: info}
	todo := write.Request{
		Verb: write.Update, Target: s.Served, Subresource: s.Kind.Subresource(info.Subresource),
		Namespace: info.Namespace, Name: info.Name, Options: in.options, Make: p.make,
	}
	if p.patch == types.ApplyYAMLPatchType {
		configuration, err := p.decodeApply()
		if err != nil {
			return err
		}
		todo.Verb, todo.CreateMissing = write.Apply, info.Subresource == ""
		todo.Make = p.applied(configuration, h.o.Writes.Applied(s.Served, todo.Subresource, configuration, in.options))
	}
	result, err := h.o.Writes.Do(r.Context(), todo)
	p.warn(r.Context()) // of what decoded, whatever became of it then
	if err != nil {
		return err
	}
	return h.writeResult(w, r, s, codeOf(result), in.accepted, result.Result)
}

// patcher applies one patch; make may run more than once.
type patcher struct {
	incoming
	s        *served
	info     *request.Info
	warnings []string
}

// warn hands the last run's warnings to the client.
func (p *patcher) warn(ctx context.Context) {
	for _, w := range p.warnings {
		request.Warn(ctx, w)
	}
}

// decodeApply reads a server-side apply's configuration.
func (p *patcher) decodeApply() (patch.Configuration, error) {
	configuration, err := patch.Apply(p.body, p.validation)
	if err == nil {
		if costly := write.CheckConfiguration(p.s.Served, configuration); costly != nil {
			return configuration, p.s.decoder().CannotHandle(p.s.GVK, costly)
		}
	}
	return configuration, err
}

// applied makes what apply makes of the current object, with what there is to say about the configuration.
func (p *patcher) applied(configuration patch.Configuration, apply write.Make) write.Make {
	return func(ctx context.Context, c *write.Current) (obj registry.Object, err error) {
		p.warnings = nil
		if obj, err = apply(ctx, c); err != nil {
			return nil, err
		}
		if p.warnings, err = configuration.Duplicates(p.validation); err != nil {
			return nil, err
		}
		return obj, checkName(obj, p.info)
	}
}

// make makes the new object of the current one.
func (p *patcher) make(ctx context.Context, c *write.Current) (registry.Object, error) {
	p.warnings = nil
	if !c.Exists() {
		return nil, kerrors.NewNotFound(p.s.gr, p.info.Name)
	}
	live, err := c.Requested(ctx)
	if err != nil {
		return nil, err
	}
	obj, err := p.patched(ctx, c, live)
	if err != nil {
		return nil, err
	}
	return obj, checkName(obj, p.info)
}

func (p *patcher) patched(ctx context.Context, c *write.Current, live registry.Object) (registry.Object, error) {
	obj := p.s.Version.New()
	switch p.patch {
	case types.StrategicMergePatchType:
		live.GetObjectKind().SetGroupVersionKind(p.s.GVK)
		warnings, err := patch.Strategic(live, obj, p.body, p.validation)
		if err != nil {
			return nil, err
		}
		p.warnings = warnings
	default:
		if p.mergeTree(live, obj) {
			break
		}
		if err := p.patchDocument(ctx, c, obj); err != nil {
			return nil, err
		}
	}
	if err := p.s.checkPatched(obj); err != nil {
		return nil, err
	}
	if p.s.Version.Default != nil {
		p.s.Version.Default(obj)
	}
	return obj, nil
}

// patchDocument applies a JSON patch or a merge patch to the object's document
// and decodes the result into obj.
func (p *patcher) patchDocument(ctx context.Context, c *write.Current, obj registry.Object) error {
	item, err := p.s.ItemJSON(ctx, c.Object, p.s.Version)
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
	if p.s.patchedWithoutVersion() && hasNoVersion(after) {
		return unknownMembers(after), nil
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

// hasNoVersion says that a document names a kind without an apiVersion. kube-apiserver then decodes it as
// an object of no kind: nothing in it is known, and the patched object is empty.
func hasNoVersion(doc []byte) bool {
	gvk, err := scheme.DocumentKind(doc)
	return err == nil && gvk.Version == "" && gvk.Group == "" && gvk.Kind != ""
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
