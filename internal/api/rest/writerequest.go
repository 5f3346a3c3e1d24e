package rest

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// An incoming is the parts of a request that writes. They are read and checked in the order in which
// kube-apiserver checks them: the type of a PATCH, the media type of the answer, the media type of the body,
// the body, the options. The body is decoded later.
type incoming struct {
	accepted negotiate.Accepted
	// media is the format of a body that is not a patch, patch the type of a patch.
	media   scheme.Media
	patch   types.PatchType
	body    []byte
	options write.Options
	// validation determines how unknown fields are handled.
	validation patch.Validation
}

// The options of writes by the names that errors give them.
const (
	createOptions = "CreateOptions"
	updateOptions = "UpdateOptions"
	patchOptions  = "PatchOptions"
)

// incoming reads a POST or PUT. options is the kind of its options, createOptions or updateOptions.
func (q requests) incoming(r *http.Request, info *request.Info, s *served, options string) (in incoming, err error) {
	if in.accepted, err = q.response(r, info, s); err != nil {
		return in, err
	}
	if options == updateOptions {
		// The options of an update are checked before the encoding of its body.
		if err := in.read(r, options); err != nil {
			return in, err
		}
		in.media, err = q.formats.Body(r)
		return in, err
	}
	if in.media, err = q.formats.Body(r); err != nil {
		return in, err
	}
	return in, in.read(r, options)
}

// incomingPatch reads a PATCH.
func (q requests) incomingPatch(r *http.Request, info *request.Info, s *served) (in incoming, err error) {
	if in.patch, err = q.patchTypeOf(r, s); err != nil {
		return in, err
	}
	if in.accepted, err = q.response(r, info, s); err != nil {
		return in, err
	}
	if err := in.read(r, patchOptions); err != nil {
		return in, err
	}
	// JSON is YAML too, so an applied configuration in CBOR goes on as YAML.
	if in.patch == types.ApplyCBORPatchType {
		in.patch = types.ApplyYAMLPatchType
		if in.body, err = scheme.CBORToJSON(in.body); err != nil {
			return in, kerrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	}
	if err := patch.Check(in.patch, in.body); err != nil {
		return in, err
	}
	notePatch(r, in.patch, in.body)
	return in, nil
}

func (in *incoming) read(r *http.Request, options string) (err error) {
	if in.body, err = readBody(r); err != nil {
		return err
	}
	in.options, in.validation, err = parseWriteOptions(r, options, in.patch)
	return err
}

// patchTypeOf returns the patch type in the header Content-Type. As in kube-apiserver, parameters after a semicolon
// are ignored, and the text before them must equal an accepted type exactly, in the same case and without spaces.
func (q requests) patchTypeOf(r *http.Request, s *served) (types.PatchType, error) {
	header := r.Header.Get("Content-Type")
	mediaType := header
	if i := strings.IndexByte(header, ';'); i > 0 {
		mediaType = header[:i]
	}
	accepted := s.form.patchTypes()
	if q.formats.CBOR {
		accepted = append(slices.Clone(accepted), string(types.ApplyCBORPatchType))
	}
	if slices.Contains(accepted, mediaType) {
		return types.PatchType(mediaType), nil
	}
	return "", s.form.refusePatchType(header, accepted)
}

// maxBody is the largest request body, as with kube-apiserver.
const maxBody = scheme.MaxBytes

// readBody reads the whole body. The slice is the caller's.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	// 3145728 bytes are 3 MiB, the value of maxBody.
	tooLarge := kerrors.NewRequestEntityTooLargeError("limit is 3145728")
	if r.ContentLength > maxBody {
		return nil, tooLarge
	}
	if info := request.InfoFrom(r.Context()); info != nil && info.Body != nil {
		content, err := info.Body.Take()
		switch {
		case len(content) > maxBody:
			return nil, tooLarge
		case err != nil:
			return nil, kerrors.NewBadRequest(err.Error())
		}
		return content, nil
	}
	size := r.ContentLength
	if size < 0 {
		size = 512
	}
	// The further byte lets the last Read report the end without a larger buffer. A declared length may be wrong,
	// so the loop still checks the limit.
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

// parseWriteOptions reads and checks the query parameters. kind is CreateOptions, UpdateOptions or PatchOptions;
// errors name it.
func parseWriteOptions(
	r *http.Request, kind string, patchType types.PatchType,
) (write.Options, patch.Validation, error) {
	var o metav1.PatchOptions
	if r.URL.RawQuery != "" {
		values, _ := url.ParseQuery(r.URL.RawQuery)
		if err := metav1.Convert_url_Values_To_v1_PatchOptions(&values, &o, nil); err != nil {
			return write.Options{}, "", kerrors.NewBadRequest(err.Error())
		}
		if kind != patchOptions {
			// The options of an update have the same fields and rules.
			errs := metavalidation.ValidateCreateOptions(
				&metav1.CreateOptions{DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation},
			)
			if len(errs) > 0 {
				return write.Options{}, "", invalidOptions(kind, errs)
			}
		}
	}
	// A PATCH without a query is checked too: server-side apply requires a fieldManager.
	if kind == patchOptions {
		if errs := metavalidation.ValidatePatchOptions(&o, patchType); len(errs) > 0 {
			return write.Options{}, "", invalidOptions(kind, errs)
		}
	}
	w := write.Options{
		DryRun: len(o.DryRun) > 0, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation, Force: o.Force,
	}
	// Warn is the default of fieldValidation (KEP-2885).
	validation := patch.Warn
	if o.FieldValidation != "" {
		validation = patch.Validation(o.FieldValidation)
	}
	if w.FieldManager == "" {
		w.FieldManager, w.OwnManager = managerFromAgent(r.UserAgent()), true
	}
	return w, validation, nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return kerrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// managerFromAgent names the manager of a request without fieldManager: the user
// agent up to its first slash, at most 128 printable characters. "kubectl/v1.36.0 (linux/amd64)" becomes
// "kubectl", and an empty header "unknown".
func managerFromAgent(agent string) string {
	// The unit is bytes; validation of a fieldManager has the same limit.
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
