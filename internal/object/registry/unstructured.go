package registry

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Documents reads and makes the stored documents of a kind whose objects have no Go type (custom resources). A document
// is the complete JSON of an object in some version of the kind, including apiVersion and kind. Such a kind has one
// *Kind for each of its versions. They share the stored objects; the functions of each use objects of its version. All
// methods may be called concurrently.
type Documents interface {
	// Normal returns a stored document as it has to be read today: without the fields that the schema of its
	// version does not have, and with defaults. revision is that of the write. The result may be the argument.
	Normal(doc []byte, revision int64) ([]byte, error)
	// IsNormal reports whether Normal is known to change no document that was written at a revision.
	IsNormal(revision int64) bool
	// Is reports whether a document has this version.
	Is(doc []byte) bool
	// Convert converts documents of other versions to this one, in one step; an error concerns all of them.
	Convert(ctx context.Context, docs [][]byte) ([][]byte, error)
	// Decode makes the object of a document, in the document's version. The caller owns it.
	Decode(doc []byte) (Object, error)
	// Period returns the number of the current period of time. A conversion to this version may be used in the
	// period in which it was made and in the next one. Period returns 0 if conversions stay right as long as the
	// kind exists.
	Period() uint16
	// Encode makes the document to store, in the version that is stored, of an object of any version.
	Encode(ctx context.Context, obj Object) ([]byte, error)
}

// unstructuredEncoding stores custom resources. Data is the document in the version that it was written in; the item
// JSON is the document in the version of the kind.
type unstructuredEncoding struct {
	documents Documents
	id        cache.EncodingID // of the document in the version of the kind
	decodes   *atomic.Int64
}

func (e *unstructuredEncoding) read(value []byte, revision int64) (cache.Header, error) {
	var h cache.Header
	// The value is valid JSON: it was decoded, or this server made it.
	document, err := e.documents.Normal(bytes.TrimSpace(value), revision)
	if err != nil {
		return h, err
	}
	labels, err := documentLabels(document)
	if err != nil {
		return h, err
	}
	h.Labels = labelsOf(labels)
	h.Data, err = wire.StampTree(document, revision)
	return h, err
}

// documentLabels reads the labels of a valid document, and no more of it.
func documentLabels(doc []byte) (map[string]string, error) {
	meta, _, _, found, err := wire.Member(doc, "metadata")
	if err != nil || !found {
		return nil, err
	}
	text, _, _, found, err := wire.Member(meta, "labels")
	if err != nil || !found {
		return nil, err
	}
	var members map[string]any
	if err := scheme.UnmarshalTree(text, &members); err != nil || members == nil {
		return nil, err
	}
	labels := make(map[string]string, len(members))
	for k, v := range members {
		text, ok := v.(string)
		if !ok && v != nil {
			return nil, fmt.Errorf("label %q is no text", k)
		}
		labels[internText(k)] = internText(text)
	}
	return labels, nil
}

func (e *unstructuredEncoding) unstamped(value []byte) ([]byte, error) {
	return e.documents.Normal(bytes.TrimSpace(value), 0)
}

func (e *unstructuredEncoding) restamp(data []byte, revision int64) ([]byte, error) {
	return wire.StampTree(data, revision)
}

func (e *unstructuredEncoding) encode(ctx context.Context, obj Object) ([]byte, error) {
	document, err := e.documents.Encode(ctx, obj)
	if err != nil {
		return nil, err
	}
	return append(document, '\n'), nil
}

// preview converts the document to store back to the version of the request. So a failing webhook makes the write
// fail before anything is stored, and not only the response.
func (e *unstructuredEncoding) preview(ctx context.Context, b []byte, _ Object, value []byte) ([]byte, error) {
	if e.documents.Is(value) {
		return b, nil
	}
	document, err := e.unstamped(value)
	if err != nil {
		return b, err
	}
	item, err := e.item(ctx, document, nil)
	return append(b, item...), err
}

func (e *unstructuredEncoding) decode(ctx context.Context, data []byte) (Object, error) {
	document, err := e.item(ctx, data, nil)
	if err != nil {
		return nil, err
	}
	return e.decodeAsWritten(document)
}

func (e *unstructuredEncoding) decodeAsWritten(data []byte) (Object, error) {
	e.decodes.Add(1)
	return e.documents.Decode(data)
}

func (e *unstructuredEncoding) jsonID(*Version) cache.EncodingID {
	return e.id.In(e.documents.Period())
}

func (e *unstructuredEncoding) isJSON(data []byte, _ *Version) bool { return e.documents.Is(data) }

func (e *unstructuredEncoding) isProto(*Version) bool { return false }

// item returns the document in the version of the kind, which is the only version of the Kind.
func (e *unstructuredEncoding) item(ctx context.Context, data []byte, _ *Version) ([]byte, error) {
	if e.documents.Is(data) {
		return data, nil
	}
	converted, err := e.items(ctx, [][]byte{data})
	if err != nil {
		return nil, err
	}
	return converted[0], nil
}

// items implements batchEncoding. The error is a *ConversionError.
func (e *unstructuredEncoding) items(ctx context.Context, data [][]byte) ([][]byte, error) {
	items, err := e.documents.Convert(ctx, data)
	if err != nil {
		return nil, &ConversionError{err}
	}
	return items, nil
}

// A ConversionError is the error of a read of objects that could not be converted to the version of the request,
// because the conversion webhook failed.
type ConversionError struct{ cause error }

// Error implements error.
func (e *ConversionError) Error() string { return e.cause.Error() }

// Unwrap returns the error for the client.
func (e *ConversionError) Unwrap() error { return e.cause }

// periodBefore returns the period before the one of Documents.Period.
func periodBefore(period uint16) uint16 {
	if period == 1 {
		return math.MaxUint16
	}
	return period - 1
}

// PeriodAt returns the number of the period of this length at t. It is never 0.
func PeriodAt(t time.Time, length time.Duration) uint16 {
	return uint16(t.UnixNano()/int64(length)%math.MaxUint16) + 1
}

// cachedItem returns the item JSON that the cache has of an object. id is the one of codec.jsonID. A conversion of the
// period before is used, too. Otherwise a list that was converted in one call at the end of a period would be converted
// again, object by object.
func cachedItem(o *cache.Object, id cache.EncodingID) ([]byte, bool) {
	if item, ok := o.CachedEncoding(id); ok || id.Period() == 0 {
		return item, ok
	}
	return o.CachedEncoding(id.In(periodBefore(id.Period())))
}

// sameDocument reports whether two documents have the same content.
func sameDocument(a, b []byte) (bool, error) {
	var trees [2]map[string]any
	for i, doc := range [][]byte{a, b} {
		if err := scheme.UnmarshalTree(bytes.TrimSpace(doc), &trees[i]); err != nil {
			return false, err
		}
	}
	return reflect.DeepEqual(trees[0], trees[1]), nil
}

// metadata returns the metadata in the stored version: garbage collection and the deletion of namespaces only need
// metadata, and must not depend on a webhook.
func (e *unstructuredEncoding) metadata(data []byte) ([]byte, error) { return metadataOf(data) }

func (e *unstructuredEncoding) metadataProto([]byte) ([]byte, error) { return nil, nil }

// PartialMetadata makes the message of a PartialObjectMetadata with the metadata of an object that has no Go type.
func PartialMetadata(obj Object) ([]byte, error) {
	doc, err := scheme.MarshalTree(obj)
	if err != nil {
		return nil, err
	}
	meta, err := metadataOf(doc)
	if err != nil {
		return scheme.EncodeProto(&metav1.PartialObjectMetadata{})
	}
	return partialProto(meta)
}

// partialProto makes the message of a PartialObjectMetadata from the JSON of its metadata.
func partialProto(meta []byte) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{}
	if err := scheme.UnmarshalTree(meta, &partial.ObjectMeta); err != nil {
		return nil, err
	}
	return scheme.EncodeProto(partial)
}

// documentText returns the text of a simple value of a document, or "" if it is missing, null, an object or a list.
func documentText(doc []byte, path []string) (string, error) {
	value := doc
	for _, name := range path {
		member, _, _, found, err := wire.Member(value, name)
		if err != nil || !found || len(member) == 0 {
			return "", err
		}
		value = member
		if value[0] != '{' && name != path[len(path)-1] {
			return "", nil
		}
	}
	switch value[0] {
	case '"':
		var s string
		err := scheme.UnmarshalTree(value, &s)
		return s, err
	case '{', '[', 'n':
		return "", nil
	}
	return string(value), nil
}
