package rest

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
)

// ApplyAs applies a configuration, a JSON document, to an object or to what a
// subresource stands for, as a client with that field manager would with
// server-side apply and force: what the server does by itself to the status of its
// own objects.
func (h *Handler) ApplyAs(ctx context.Context, resource, version, group, namespace, name, subresource, manager string, document []byte) error {
	s := h.served[servedKey{group, version, resource}]
	if s == nil {
		return apierr.PathNotFound()
	}
	info := &request.Info{
		Verb: "patch", Group: group, Version: version, Resource: resource, Namespace: namespace, Name: name, Subresource: subresource,
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, "/", nil) // its context takes warnings
	if err != nil {
		return err
	}
	force := true
	o := writeOptions{manager: manager, force: &force, validation: patch.Ignore}
	p := patcher{h: h, r: r, s: s, info: info, o: o, body: document, kind: types.ApplyYAMLPatchType}
	if err := p.decodeApply(); err != nil {
		return err
	}
	options := h.updateOptions(info, s, s.Kind.Subresource(subresource), o)
	options.Create = subresource == ""
	_, err = s.Update(ctx, namespace, name, options, h.admitted(ctx, info, s, o, p.change))
	return err
}
