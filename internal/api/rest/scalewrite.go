package rest

import (
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// updateScale serves a PUT of a Scale. The body is decoded once, and each attempt gets a copy, because an attempt
// changes it.
func (h *Handler) updateScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.requests.incoming(r, info, s, updateOptions)
	if err != nil {
		return err
	}
	sub := s.Kind.Subresource(info.Subresource)
	sent, err := decodeWith(s.subDecoder(sub, registry.NewScale, "autoscaling.Scale"), r, in)
	if err != nil {
		return s.form.scaleDecodeError(err)
	}
	noteSent(r, write.ScaleKind, sent)
	if err := checkName(sent, info); err != nil {
		return err
	}
	return h.scale(w, r, info, s, in, write.Scaling{Replaces: true, Changed: func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		return sent.(*autoscalingv1.Scale).DeepCopy(), nil
	}})
}

// patchScale serves a PATCH of a Scale. Unlike other patches, it is applied to the Scale of the parent and never
// to the parent, so that it cannot change anything else.
func (h *Handler) patchScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.requests.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	p := scalePatch{incoming: in, r: r, info: info}
	if in.patch != types.ApplyYAMLPatchType {
		return h.scale(w, r, info, s, in, write.Scaling{Changed: p.changed})
	}
	configuration, err := patch.Apply(in.body, in.validation)
	if err != nil {
		return err
	}
	return h.scale(w, r, info, s, in, write.Scaling{Configuration: &configuration, Check: func(
		scale *autoscalingv1.Scale,
	) error {
		warnings, err := configuration.Duplicates(in.validation)
		p.warn(warnings)
		if err != nil {
			return err
		}
		return checkName(scale, info)
	}})
}

// scale changes and stores the current Scale as the request requires, and sends the response.
func (h *Handler) scale(
	w http.ResponseWriter, r *http.Request, info *request.Info, s *served, in incoming, scaling write.Scaling,
) error {
	sub := s.Kind.Subresource(info.Subresource)
	result, err := h.o.Writes.Do(
		r.Context(), h.o.Writes.Scale(s.Served, sub, info.Namespace, info.Name, in.options, scaling),
	)
	if err != nil {
		return err
	}
	return h.answers.scale(w, r, info, s, in.accepted, result.Object)
}

// scalePatch is a JSON patch, a merge patch or a strategic merge patch of a Scale.
type scalePatch struct {
	incoming
	r    *http.Request
	info *request.Info
}

// changed returns the patched Scale. It may be called again with a newer one. The warnings are sent also after an
// error.
func (p *scalePatch) changed(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	after := &autoscalingv1.Scale{}
	before := live.DeepCopy()
	before.SetGroupVersionKind(write.ScaleKind)
	var warnings []string
	var err error
	if p.patch == types.StrategicMergePatchType {
		warnings, err = patch.Strategic(before, after, p.body, p.validation)
	} else {
		warnings, err = p.document(before, after)
	}
	if err == nil {
		err = checkName(after, p.info)
	}
	p.warn(warnings)
	return after, err
}

func (p *scalePatch) warn(warnings []string) {
	for _, text := range warnings {
		request.Warn(p.r.Context(), text)
	}
}

// document applies a JSON patch or a merge patch to the document of a Scale and decodes the result.
func (p *scalePatch) document(before, after *autoscalingv1.Scale) ([]string, error) {
	item, err := scheme.EncodeItem(before)
	if err != nil {
		return nil, err
	}
	d := scheme.Decoder{GVK: write.ScaleKind, Internal: "autoscaling.Scale", New: func() runtime.Object { return after }}
	return p.patchOf().Document(scheme.AppendJSONObject(nil, scaleHead, item), d, nil)
}
