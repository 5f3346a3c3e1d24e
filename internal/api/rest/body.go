package rest

import (
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// decodeBody reads an object of the resource's kind from the body, with the version's defaults. Errors of strict
// decoding become warnings or the error, as fieldValidation requires.
func (s *served) decodeBody(r *http.Request, in incoming) (registry.Object, error) {
	obj, err := s.decodeOwn(r, in)
	if err != nil {
		return nil, err
	}
	if s.Version.Default != nil {
		s.Version.Default(obj)
	}
	noteSent(r, s.GVK, obj)
	return obj, nil
}

// decodeWith reads an object of a built-in type from the body.
func decodeWith(d scheme.Decoder, r *http.Request, in incoming) (registry.Object, error) {
	decoded, strict, err := d.Decode(in.media, in.body, in.validation != patch.Ignore)
	if err != nil {
		return nil, err
	}
	return decoded.(registry.Object), reportStrict(d, r, d.GVK, strict, in.validation)
}

// decodeOwn reads an object of the resource's own kind from the body.
func (s *served) decodeOwn(r *http.Request, in incoming) (registry.Object, error) {
	d := s.Decoder()
	track := in.validation != patch.Ignore
	decoded, strict, err := d.Decode(in.media, in.body, track)
	switch {
	// Custom resources have no protobuf encoding, so the message does not offer it.
	case errors.Is(err, scheme.ErrNoProtobuf):
		return nil, apierr.UnsupportedMediaType([]string{scheme.TypeJSON, scheme.TypeYAML})
	case err != nil:
		return nil, err
	}
	obj := decoded.(registry.Object)
	gvk := s.form.bodyKind(obj)
	unknown, err := s.Coerce(obj, track)
	if err != nil {
		return nil, d.CannotHandle(gvk, err)
	}
	if err := reportStrict(d, r, gvk, append(strict, unknown...), in.validation); err != nil || !d.Tree {
		return obj, err
	}
	return obj, d.CheckVersion(gvk.GroupVersion())
}

// reportStrict turns errors of strict decoding into warnings or the error, as fieldValidation requires, for a body of the kind
// gvk.
func reportStrict(d scheme.Decoder, r *http.Request, gvk schema.GroupVersionKind, strict []error, v patch.Validation) error {
	switch {
	case len(strict) == 0:
		return nil
	// With Ignore nothing was tracked, so strict is empty then.
	case v == patch.Strict:
		return d.StrictError(gvk, strict)
	}
	for _, w := range patch.Warnings(strict) {
		request.Warn(r.Context(), w)
	}
	return nil
}
