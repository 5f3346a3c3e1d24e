package scheme

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Media is an encoding of request and response bodies.
type Media int

const (
	JSON Media = iota
	YAML
	Protobuf
	CBOR
)

// The media types in HTTP headers.
const (
	TypeJSON     = "application/json"
	TypeYAML     = "application/yaml"
	TypeProtobuf = "application/vnd.kubernetes.protobuf"
)

// String returns the media type.
func (m Media) String() string {
	switch m {
	case YAML:
		return TypeYAML
	case Protobuf:
		return TypeProtobuf
	case CBOR:
		return TypeCBOR
	}
	return TypeJSON
}

// Decoder decodes request bodies of one kind.
type Decoder struct {
	// GVK is the kind of the resource in the URL. A body need not contain it.
	GVK schema.GroupVersionKind
	// Internal is the name of kube-apiserver's internal type for messages ("core.Pod").
	Internal string
	// New returns an empty object.
	New func() runtime.Object
	// Also has further kinds that a body may have. They have the same fields.
	Also []schema.GroupVersionKind
	// Tree is true for custom resources: New returns an *unstructured.Unstructured.
	Tree bool
}

// Decode decodes a body. If strict is true, the second result has the strict errors (unknown
// and duplicate fields); the object is valid nevertheless. The error is a Status with
// kube-apiserver's message.
func (d Decoder) Decode(media Media, body []byte, strict bool) (runtime.Object, []error, error) {
	switch media {
	case Protobuf:
		if d.Tree {
			return nil, nil, ErrNoProtobuf
		}
		obj, err := d.decodeProto(body)
		return obj, nil, err
	case CBOR:
		return d.decodeCBOR(body, strict)
	}
	doc := body
	var strictErrs []error
	if media == YAML {
		converted, err := YAMLToJSON(body)
		if err != nil {
			return nil, nil, d.unrecognized(body, err)
		}
		if strict {
			strictErrs = append(strictErrs, yamlErrors(body)...)
		}
		doc = converted
	}
	if obj := d.decodePlain(doc); obj != nil {
		return obj, strictErrs, nil
	}
	if err := checkDepth(doc); err != nil {
		return nil, nil, d.unrecognized(body, err)
	}
	gvk, known := scanKind(doc)
	if !known {
		var err error
		if gvk, err = documentKind(doc); err != nil {
			return nil, nil, d.unrecognized(body, err)
		}
	}
	shown := body
	if !strict {
		shown = doc
	}
	var err error
	if d.Tree {
		err = d.checkTree(gvk, shown, body, strict)
	} else {
		err = d.checkKind(withDefaults(gvk, d.GVK))
	}
	if err != nil {
		return nil, nil, err
	}
	obj, errs, err := d.unmarshal(doc, strict)
	if err == nil && d.Tree && obj.GetObjectKind().GroupVersionKind().Kind == "" {
		// documentKind accepts names of members in any case.
		gvk.Kind = ""
		return nil, nil, d.checkTree(gvk, shown, body, strict)
	}
	if err != nil {
		if _, kerr := documentKind(doc); known && kerr != nil {
			return nil, nil, d.unrecognized(body, kerr)
		}
		return nil, nil, d.cannotHandle(d.GVK, err)
	}
	return obj, append(strictErrs, errs...), nil
}

// decodePlain decodes a JSON document of the right kind without unknown members, which is the
// common case. It returns nil for any other document.
func (d Decoder) decodePlain(doc []byte) runtime.Object {
	if d.Tree {
		return nil
	}
	obj := d.New()
	if !structjson.Decode(doc, obj) {
		return nil
	}
	said, ok := obj.GetObjectKind().(*metav1.TypeMeta)
	if !ok {
		return nil
	}
	gv, err := schema.ParseGroupVersion(said.APIVersion)
	if err != nil || d.checkKind(withDefaults(gv.WithKind(said.Kind), d.GVK)) != nil {
		return nil
	}
	return obj
}

// unmarshal decodes a JSON document of the right kind.
func (d Decoder) unmarshal(doc []byte, strict bool) (runtime.Object, []error, error) {
	obj := d.New()
	if tree, ok := obj.(*unstructured.Unstructured); ok {
		errs, err := d.unmarshalTree(doc, tree, strict)
		return obj, errs, err
	}
	errs, err := unmarshalTyped(doc, obj, strict)
	return obj, errs, err
}

// unmarshalTyped decodes a JSON document into an empty object of a Go type. Package structjson
// decodes documents without errors; the others are decoded by the general decoder, which finds
// the errors, after checkDocument.
func unmarshalTyped(doc []byte, obj runtime.Object, strict bool) ([]error, error) {
	value := reflect.ValueOf(obj).Elem()
	read := reflect.New(value.Type())
	if structjson.Decode(doc, read.Interface()) {
		value.Set(read.Elem())
		return nil, nil
	}
	if err := checkDocument(doc, obj); err != nil {
		return nil, err
	}
	if strict {
		return kjson.UnmarshalStrict(doc, obj)
	}
	return nil, kjson.UnmarshalCaseSensitivePreserveInts(doc, obj)
}

// DecodePatched decodes a patched JSON document into a new object. The error has no prefix;
// package patch adds one.
func (d Decoder) DecodePatched(doc []byte, strict bool) ([]error, error) {
	if err := checkDepth(doc); err != nil {
		return nil, err
	}
	gvk, err := documentKind(doc)
	if err != nil {
		return nil, err
	}
	if d.Tree {
		return d.patchedTree(gvk, doc, strict)
	}
	if gvk = withDefaults(gvk, d.GVK); gvk != d.GVK {
		if !Known(gvk) {
			return nil, NotRegistered(gvk)
		}
		return nil, d.otherKind(gvk)
	}
	return unmarshalTyped(doc, d.New(), strict)
}

// yamlErrors returns an error if a YAML document has duplicate keys.
func yamlErrors(body []byte) []error {
	if _, err := yaml.YAMLToJSONStrict(body); err != nil {
		return []error{err}
	}
	return nil
}

// OpenBody returns the envelope of a protobuf body from a client. It returns kube-apiserver's
// error for any malformed envelope. wire.OpenEnvelope, which opens stored values, is less
// strict.
func OpenBody(body []byte) (runtime.Unknown, error) {
	var envelope runtime.Unknown
	message, found := bytes.CutPrefix(body, []byte(wire.EnvelopePrefix))
	switch {
	case len(body) == 0:
		return envelope, errors.New("empty data")
	case !found:
		return envelope,
			fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", []byte(wire.EnvelopePrefix))
	case len(message) == 0:
		return envelope, errors.New("empty body")
	}
	err := envelope.Unmarshal(message)
	return envelope, err
}

func (d Decoder) decodeProto(body []byte) (runtime.Object, error) {
	env, err := OpenBody(body)
	if err != nil {
		return nil, d.unrecognized(body, err)
	}
	if err := d.checkKind(withDefaults(env.GroupVersionKind(), d.GVK)); err != nil {
		return nil, err
	}
	obj := d.New()
	if err := checkMessage(env.Raw, obj); err != nil {
		return nil, d.cannotHandle(d.GVK, err)
	}
	if err := DecodeProto(env.Raw, obj); err != nil {
		return nil, d.cannotHandle(d.GVK, err)
	}
	return obj, nil
}

// otherKind returns the error for a document of a kind that cannot be converted to this one.
func (d Decoder) otherKind(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", gvk.Version, gvk.Kind, d.Internal)
}

// checkKind returns an error unless the kind in the body fits the kind in the URL.
func (d Decoder) checkKind(gvk schema.GroupVersionKind) error {
	if gvk == d.GVK || slices.Contains(d.Also, gvk) {
		return nil
	}
	if gvk.Version == "" && gvk.Group != d.GVK.Group {
		return d.cannotHandle(gvk, fmt.Errorf("Object 'apiVersion' is missing"))
	}
	if !Known(gvk) {
		return d.cannotHandle(gvk, NotRegistered(gvk))
	}
	if gvk.Kind != d.GVK.Kind {
		return d.cannotHandle(gvk, d.otherKind(gvk))
	}
	return kerrors.NewBadRequest(
		fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
			gvk.GroupVersion(), d.GVK.GroupVersion()))
}

// NotRegistered returns kube-apiserver's error for an unknown kind.
func NotRegistered(gvk schema.GroupVersionKind) error {
	const schemeName = "pkg/runtime/scheme.go:111"
	if gvk.Kind == "" || (gvk.Version == "" && gvk.Group == "") {
		return fmt.Errorf("no version %q has been registered in scheme %q", gvk.GroupVersion(), schemeName)
	}
	return fmt.Errorf("no kind %q is registered for version %q in scheme %q", gvk.Kind, gvk.GroupVersion(), schemeName)
}

// CannotHandle returns kube-apiserver's error for a body of kind gvk that cannot be decoded.
func (d Decoder) CannotHandle(gvk schema.GroupVersionKind, err error) error {
	return d.cannotHandle(gvk, err)
}

func (d Decoder) cannotHandle(gvk schema.GroupVersionKind, err error) error {
	return kerrors.NewBadRequest(
		fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, d.GVK.Kind, err))
}

func (d Decoder) unrecognized(body []byte, err error) error {
	return kerrors.NewBadRequest(
		fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", d.GVK.Kind, err, summary(body)))
}

// summary returns the beginning of a body that could not be decoded.
func summary(body []byte) string {
	const most = 30
	more := ""
	if len(body) > most {
		more = " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body[:min(most, len(body))]) + more
	}
	return hex.EncodeToString(body[:min(most, len(body))]) + more
}

// scanKind returns apiVersion and kind without parsing the whole document. It returns false if
// the document is not valid JSON, if one of the two is missing, or if one contains escaped
// characters.
func scanKind(doc []byte) (schema.GroupVersionKind, bool) {
	version, kind, err := wire.KindOf(doc)
	if err != nil || version == nil || kind == nil {
		return schema.GroupVersionKind{}, false
	}
	gv, err := schema.ParseGroupVersion(string(version))
	return gv.WithKind(string(kind)), err == nil
}

// documentKind returns apiVersion and kind of a JSON document.
func documentKind(doc []byte) (schema.GroupVersionKind, error) {
	// The type is anonymous because kube-apiserver's message contains its name.
	var kind struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(doc, &kind); err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("couldn't get version/kind; json parse error: %v", err)
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gv.WithKind(kind.Kind), nil
}

// DocumentKind returns apiVersion and kind of a JSON document.
func DocumentKind(doc []byte) (schema.GroupVersionKind, error) { return documentKind(doc) }

func withDefaults(gvk, def schema.GroupVersionKind) schema.GroupVersionKind {
	if gvk.Kind == "" {
		gvk.Kind = def.Kind
	}
	if gvk.Version == "" && gvk.Group == "" {
		gvk.Group, gvk.Version = def.Group, def.Version
	}
	if gvk.Version == "" && gvk.Group == def.Group {
		gvk.Version = def.Version
	}
	return gvk
}

// StrictError returns the error for a request with fieldValidation=Strict whose body, of kind
// gvk, has strict errors.
func (d Decoder) StrictError(gvk schema.GroupVersionKind, errs []error) error {
	if d.Tree {
		// The object was decoded, so the message contains the kind in the body.
		d.GVK.Kind = gvk.Kind
	}
	return d.cannotHandle(gvk, errors.New(StrictMessage(errs)))
}

// StrictMessage returns kube-apiserver's message for strict errors.
func StrictMessage(errs []error) string {
	parts := make([]string, len(errs))
	for i, err := range errs {
		parts[i] = err.Error()
	}
	return "strict decoding error: " + strings.Join(parts, ", ")
}
