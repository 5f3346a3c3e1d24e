package rest

import (
	"context"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// patch changes an object by a JSON patch, a merge patch, a strategic merge patch
// or server-side apply.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.requests.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	p := patcher{incoming: in, s: s, info: info}
	todo := write.Request{
		Verb: write.Update, Target: s.Served, Subresource: s.Kind.Subresource(info.Subresource),
		Namespace: info.Namespace, Name: info.Name, Options: in.options,
	}
	if in.patch == types.ApplyYAMLPatchType {
		configuration, err := p.decodeApply()
		if err != nil {
			return err
		}
		todo.Verb, todo.CreateMissing = write.Apply, info.Subresource == ""
		todo.Make = p.applied(configuration, h.o.Writes.Applied(s.Served, todo.Subresource, configuration, in.options))
	} else {
		todo.Make = p.patched(&write.Patched{Patch: in.patchOf(), Target: s.Served})
	}
	result, err := h.o.Writes.Do(r.Context(), todo)
	p.warn(r.Context()) // also if the write has failed after decoding
	if err != nil {
		return err
	}
	return h.answers.result(w, r, s, codeOf(result), in.accepted, result.Result)
}

// patchOf returns the patch that a request brings.
func (in incoming) patchOf() patch.Patch {
	return patch.Patch{Type: in.patch, Body: in.body, Validation: in.validation}
}

// patcher makes the new objects of one patch, one for each attempt.
type patcher struct {
	incoming
	s        *served
	info     *request.Info
	warnings []string
}

// warn sends the warnings of the last attempt to the client.
func (p *patcher) warn(ctx context.Context) {
	for _, w := range p.warnings {
		request.Warn(ctx, w)
	}
}

// decodeApply reads the configuration of a server-side apply.
func (p *patcher) decodeApply() (patch.Configuration, error) {
	configuration, err := patch.Apply(p.body, p.validation)
	if err == nil {
		if costly := write.CheckConfiguration(p.s.Served, configuration); costly != nil {
			return configuration, p.s.Decoder().CannotHandle(p.s.GVK, costly)
		}
	}
	return configuration, err
}

// applied returns a Make that applies the configuration to the current object, and warns about the configuration.
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

// patched returns a Make that patches the current object, and warns about the patch.
func (p *patcher) patched(by *write.Patched) write.Make {
	return func(ctx context.Context, c *write.Current) (registry.Object, error) {
		p.warnings = nil
		if !c.Exists() {
			return nil, kerrors.NewNotFound(p.s.gr, p.info.Name)
		}
		obj, err := by.Make(ctx, c)
		p.warnings = by.Warnings
		if err != nil {
			return nil, err
		}
		return obj, checkName(obj, p.info)
	}
}
