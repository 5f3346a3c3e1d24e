package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
	"github.com/keelson-dev/keelson/scheme"
)

// maxBody is the largest request body, as in the reference: 3 MiB.
const maxBody = 3 << 20

// readBody reads the whole body. The slice is the caller's.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	tooLarge := kerrors.NewRequestEntityTooLargeError("limit is 3145728")
	if r.ContentLength > maxBody {
		return nil, tooLarge
	}
	size := r.ContentLength
	if size < 0 {
		size = 512
	}
	b := make([]byte, 0, size+1)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > maxBody {
			return nil, tooLarge
		}
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, kerrors.NewBadRequest(err.Error())
		}
	}
}

// writeOptions are the options that creates, updates and patches share.
type writeOptions struct {
	dryRun     bool
	manager    string
	validation patch.Validation
	force      *bool
}

// parseWriteOptions reads and checks the query parameters. kind is CreateOptions,
// UpdateOptions or PatchOptions; the words of errors name it.
func parseWriteOptions(r *http.Request, kind string, patchType string) (writeOptions, error) {
	var o metav1.PatchOptions
	if r.URL.RawQuery != "" {
		values, _ := url.ParseQuery(r.URL.RawQuery)
		if err := metav1.Convert_url_Values_To_v1_PatchOptions(&values, &o, nil); err != nil {
			return writeOptions{}, kerrors.NewBadRequest(err.Error())
		}
		var errs field.ErrorList
		switch kind {
		case "CreateOptions":
			errs = metavalidation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation})
		case "UpdateOptions":
			errs = metavalidation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation})
		}
		if kind != "PatchOptions" && len(errs) > 0 {
			return writeOptions{}, invalidOptions(kind, errs)
		}
	}
	if kind == "PatchOptions" {
		if errs := metavalidation.ValidatePatchOptions(&o, typesPatch(patchType)); len(errs) > 0 {
			return writeOptions{}, invalidOptions(kind, errs)
		}
	}
	w := writeOptions{dryRun: len(o.DryRun) > 0, manager: o.FieldManager, validation: patch.Warn, force: o.Force}
	if o.FieldValidation != "" {
		w.validation = patch.Validation(o.FieldValidation)
	}
	if w.manager == "" {
		w.manager = managerFromAgent(r.UserAgent())
	}
	return w, nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return kerrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// managerFromAgent names the manager of a request without fieldManager: the user
// agent up to its first slash, at most 128 printable characters.
func managerFromAgent(agent string) string {
	const most = 128
	name, _, _ := strings.Cut(agent, "/")
	out := make([]rune, 0, len(name))
	size := 0
	for _, c := range name {
		if !unicode.IsPrint(c) {
			continue
		}
		if size += len(string(c)); size > most {
			break
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return "unknown"
	}
	return string(out)
}

// decoder reads bodies of the resource's kind.
func (s *served) decoder() scheme.Decoder {
	return scheme.Decoder{GVK: s.gvk, Tree: s.Kind.Trees(), Internal: s.Kind.Package + "." + s.Kind.Name, New: func() runtime.Object { return s.version.New() }}
}

// decodeBody reads an object of the resource's kind from the body, with the
// version's defaults. What strict decoding finds becomes warnings or the error,
// as fieldValidation asks.
func (s *served) decodeBody(r *http.Request, media scheme.Media, body []byte, v patch.Validation) (registry.Object, error) {
	obj, err := s.decodeOwn(r, media, body, v)
	if err != nil {
		return nil, err
	}
	if s.version.Default != nil {
		s.version.Default(obj)
	}
	noteSent(r, s.gvk, obj)
	return obj, nil
}

// coerce drops what the version's schema does not know from a decoded object, and
// returns a strict error for each field if track is set.
func (s *served) coerce(obj registry.Object, track bool) ([]error, error) {
	if s.version.Coerce == nil {
		return nil, nil
	}
	unknown, err := s.version.Coerce(obj, track)
	return unknownFields(unknown), err
}

func unknownFields(paths []string) []error {
	var strict []error
	for _, path := range paths {
		strict = append(strict, fmt.Errorf("unknown field %q", path))
	}
	return strict
}

// decodeWith reads an object of a built-in type from the body.
func decodeWith(d scheme.Decoder, r *http.Request, media scheme.Media, body []byte, v patch.Validation) (registry.Object, error) {
	decoded, strict, err := d.Decode(media, body, v != patch.Ignore)
	if err != nil {
		return nil, err
	}
	return decoded.(registry.Object), judge(d, r, d.GVK, strict, v)
}

// decodeOwn reads an object of the resource's own kind from the body.
func (s *served) decodeOwn(r *http.Request, media scheme.Media, body []byte, v patch.Validation) (registry.Object, error) {
	d := s.decoder()
	track := v != patch.Ignore
	decoded, strict, err := d.Decode(media, body, track)
	switch {
	case errors.Is(err, scheme.ErrNoProtobuf):
		return nil, apierr.UnsupportedMediaType([]string{scheme.TypeJSON, scheme.TypeYAML})
	case err != nil:
		return nil, err
	}
	obj, gvk := decoded.(registry.Object), s.gvk
	if d.Tree {
		gvk = saidKind(obj)
	}
	unknown, err := s.coerce(obj, track)
	if err != nil {
		return nil, d.CannotHandle(gvk, err)
	}
	if err := judge(d, r, gvk, append(strict, unknown...), v); err != nil || !d.Tree {
		return obj, err
	}
	return obj, d.CheckVersion(gvk.GroupVersion())
}

// saidKind is what a tree says it is, as far as it does.
func saidKind(obj registry.Object) schema.GroupVersionKind {
	tree := obj.(*unstructured.Unstructured)
	gv, err := schema.ParseGroupVersion(tree.GetAPIVersion())
	if err != nil {
		return schema.GroupVersionKind{Kind: tree.GetKind()}
	}
	return gv.WithKind(tree.GetKind())
}

// judge makes of what strict decoding finds warnings or the error, as
// fieldValidation asks, for a body that says that it is of a kind.
func judge(d scheme.Decoder, r *http.Request, gvk schema.GroupVersionKind, strict []error, v patch.Validation) error {
	switch {
	case len(strict) == 0:
		return nil
	case v == patch.Strict:
		return d.StrictError(gvk, strict)
	}
	for _, w := range patch.Warnings(strict) {
		request.Warn(r.Context(), w)
	}
	return nil
}
