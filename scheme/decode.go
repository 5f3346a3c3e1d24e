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

	"github.com/keelson-dev/keelson/scheme/structjson"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// Media is an encoding of request and response bodies.
type Media int

const (
	JSON Media = iota
	YAML
	Protobuf
	CBOR
)

// Media types as they are written on the wire.
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

// Decoder reads request bodies of one kind.
type Decoder struct {
	// GVK is the kind that the URL stands for; a body may leave it out.
	GVK schema.GroupVersionKind
	// Internal names kube-apiserver's internal type for messages ("core.Pod").
	Internal string
	// New makes an empty object.
	New func() runtime.Object
	// Also are other kinds that a body may say it is, with the same fields.
	Also []schema.GroupVersionKind
	// Tree says that New makes an *unstructured.Unstructured: the objects are custom
	// resources.
	Tree bool
}

// Decode reads body. The second result are the strict errors: unknown and
// duplicate fields, looked for only if strict is set; the object is there all the
// same. The error is a Status with kube-apiserver's words.
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
		// documentKind is content with a name in another case.
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

// decodePlain reads a JSON document about which there is nothing to say, as most are: of the right kind, with
// known members alone. It returns nil for any other.
func (d Decoder) decodePlain(doc []byte) runtime.Object {
	if d.Tree {
		return nil
	}
	obj := d.New()
	if checkDocument(doc, obj) != nil || !structjson.Decode(doc, obj) {
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

// unmarshal reads a JSON document of the right kind.
func (d Decoder) unmarshal(doc []byte, strict bool) (runtime.Object, []error, error) {
	obj := d.New()
	if tree, ok := obj.(*unstructured.Unstructured); ok {
		errs, err := d.unmarshalTree(doc, tree, strict)
		return obj, errs, err
	}
	if err := checkDocument(doc, obj); err != nil {
		return nil, nil, err
	}
	errs, err := unmarshalTyped(doc, obj, strict)
	return obj, errs, err
}

// unmarshalTyped reads a JSON document into an empty object of a Go type. Documents about which there is
// nothing to say are read by the type's plan.
func unmarshalTyped(doc []byte, obj runtime.Object, strict bool) ([]error, error) {
	value := reflect.ValueOf(obj).Elem()
	read := reflect.New(value.Type())
	if structjson.Decode(doc, read.Interface()) {
		value.Set(read.Elem())
		return nil, nil
	}
	if strict {
		return kjson.UnmarshalStrict(doc, obj)
	}
	return nil, kjson.UnmarshalCaseSensitivePreserveInts(doc, obj)
}

// DecodePatched reads a patched JSON document into the object that New returns. The
// error is the plain one: the patch words it.
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
	obj := d.New()
	if err := checkDocument(doc, obj); err != nil {
		return nil, err
	}
	return unmarshalTyped(doc, obj, strict)
}

// yamlErrors are the duplicate keys of a YAML document.
func yamlErrors(body []byte) []error {
	if _, err := yaml.YAMLToJSONStrict(body); err != nil {
		return []error{err}
	}
	return nil
}

// OpenBody takes the envelope off a protobuf body that a client sent. It refuses an envelope that is
// malformed anywhere, with kube-apiserver's words; wire.OpenEnvelope, which reads what was stored, takes
// some of those.
func OpenBody(body []byte) (runtime.Unknown, error) {
	var envelope runtime.Unknown
	message, found := bytes.CutPrefix(body, []byte(wire.EnvelopePrefix))
	switch {
	case len(body) == 0:
		return envelope, errors.New("empty data")
	case !found:
		return envelope, fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", []byte(wire.EnvelopePrefix))
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

// otherKind says that a document is of a kind that cannot be made this one.
func (d Decoder) otherKind(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", gvk.Version, gvk.Kind, d.Internal)
}

// checkKind holds what the body says it is against what the URL stands for.
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
	return kerrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
		gvk.GroupVersion(), d.GVK.GroupVersion()))
}

// NotRegistered words an unknown kind as kube-apiserver does.
func NotRegistered(gvk schema.GroupVersionKind) error {
	const schemeName = "pkg/runtime/scheme.go:111"
	if gvk.Kind == "" || (gvk.Version == "" && gvk.Group == "") {
		return fmt.Errorf("no version %q has been registered in scheme %q", gvk.GroupVersion(), schemeName)
	}
	return fmt.Errorf("no kind %q is registered for version %q in scheme %q", gvk.Kind, gvk.GroupVersion(), schemeName)
}

// CannotHandle words what is wrong with a body that says that it is of a kind.
func (d Decoder) CannotHandle(gvk schema.GroupVersionKind, err error) error {
	return d.cannotHandle(gvk, err)
}

func (d Decoder) cannotHandle(gvk schema.GroupVersionKind, err error) error {
	return kerrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, d.GVK.Kind, err))
}

func (d Decoder) unrecognized(body []byte, err error) error {
	return kerrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", d.GVK.Kind, err, summary(body)))
}

// summary shows the beginning of a body that could not be read.
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

// scanKind finds apiVersion and kind without parsing the whole document. It is not
// sure of one that is not valid JSON, escapes characters in them or lacks one.
func scanKind(doc []byte) (schema.GroupVersionKind, bool) {
	version, kind, err := wire.KindOf(doc)
	if err != nil || version == nil || kind == nil {
		return schema.GroupVersionKind{}, false
	}
	gv, err := schema.ParseGroupVersion(string(version))
	return gv.WithKind(string(kind)), err == nil
}

// documentKind reads apiVersion and kind of a JSON document.
func documentKind(doc []byte) (schema.GroupVersionKind, error) {
	// The anonymous type stands in kube-apiserver's message.
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

// DocumentKind reads apiVersion and kind of a JSON document.
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

// StrictError joins strict errors to the answer to a request with
// fieldValidation=Strict whose body says that it is of a kind.
func (d Decoder) StrictError(gvk schema.GroupVersionKind, errs []error) error {
	if d.Tree {
		// The object is there, and is named as what it says it is.
		d.GVK.Kind = gvk.Kind
	}
	return d.cannotHandle(gvk, errors.New(StrictMessage(errs)))
}

// StrictMessage words strict errors as kube-apiserver does.
func StrictMessage(errs []error) string {
	parts := make([]string, len(errs))
	for i, err := range errs {
		parts[i] = err.Error()
	}
	return "strict decoding error: " + strings.Join(parts, ", ")
}
