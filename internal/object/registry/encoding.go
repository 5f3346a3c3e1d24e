package registry

import (
	"context"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"unique"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// The encodings of an object that the cache keeps beside its data. From EncodingVersions on, each version of the
// kind has encodingsPerVersion identifiers: for JSON, for protobuf, and for the row of a table without its object.
// The stored version does not use the first two of them: its encodings have their own constants.
const (
	EncodingJSON          cache.EncodingID = iota // item JSON of the storage version
	EncodingMetadata                              // JSON value of the member "metadata"
	EncodingMetadataProto                         // message of a PartialObjectMetadata
	EncodingVersions

	encodingsPerVersion = 3
)

// encoding defines how the objects of one kind are stored, which data the cache keeps of them, and how responses
// are made from that data. A resource gets one of these three when it is bound to a store:
//
//   - protobufEncoding: Go types that are stored as protobuf messages, as most built-in kinds are;
//   - jsonEncoding: Go types that are stored as JSON (CustomResourceDefinitions, APIServices);
//   - unstructuredEncoding: custom resources, which have no Go type and are stored as JSON in one of the versions of
//     their definition.
//
// A "value" has the bytes in the store, but without encryption. "data" is what the cache keeps
// (cache.Object.Data): a protobuf message, or the JSON of an object, with its resourceVersion. "Item JSON" is the
// JSON of an object as it stands in a list: without apiVersion and kind for Go types, the whole document for
// custom resources.
//
// Methods may be called concurrently. Only those with a context may call a conversion webhook.
type encoding interface {
	// read returns what the cache keeps of a value that was written at a revision.
	read(value []byte, revision int64) (cache.Header, error)
	// unstamped returns the data that read returns, without the resourceVersion.
	unstamped(value []byte) ([]byte, error)
	// restamp returns data with the resourceVersion of another revision.
	restamp(data []byte, revision int64) ([]byte, error)
	// encode returns the value of an object in the storage version. The object must have no resourceVersion, because it
	// would be stored.
	encode(ctx context.Context, obj Object) ([]byte, error)
	// preview appends to b the item JSON, in the storage version and without resourceVersion, that an object will
	// have after it is stored as value. It fails if this JSON cannot be made. It appends nothing if data and item
	// JSON are the same.
	preview(ctx context.Context, b []byte, obj Object, value []byte) ([]byte, error)

	// decode makes the object of data, in the storage version. The caller owns it.
	decode(ctx context.Context, data []byte) (Object, error)
	// decodeAsWritten is decode without a conversion: a custom resource is in the version that it was written in.
	decodeAsWritten(data []byte) (Object, error)

	// jsonID identifies the item JSON in a version in the cache.
	jsonID(v *Version) cache.EncodingID
	// isJSON reports whether data is already the item JSON in a version.
	isJSON(data []byte, v *Version) bool
	// isProto reports whether data is the protobuf message in a version.
	isProto(v *Version) bool
	// item makes the item JSON in a version. The error is an *unshowableError if the object can be decoded and not
	// encoded.
	item(ctx context.Context, data []byte, v *Version) ([]byte, error)
	// metadata makes the JSON value of an object's "metadata" without the rest of the object.
	metadata(data []byte) ([]byte, error)
	// metadataProto returns the message of a PartialObjectMetadata if it is a part of data, and nil if it has to be made
	// from the metadata's JSON.
	metadataProto(data []byte) ([]byte, error)
}

// An appendingEncoding can append the item JSON of an object to a buffer without allocating a slice for it.
type appendingEncoding interface {
	encoding
	// appendItem appends the item JSON in a version. ok is false, and nothing is appended, if item has to make it.
	appendItem(b, data []byte, v *Version) (_ []byte, ok bool)
}

// A batchEncoding can make the item JSON of many objects at once, which costs less than one object after the
// other: it sends one request to a conversion webhook, not one for each object. decodeAsWritten accepts its item
// JSON as data.
type batchEncoding interface {
	encoding
	// items makes the item JSON of each data, in the storage version. An error concerns all of them.
	items(ctx context.Context, data [][]byte) ([][]byte, error)
}

// newEncoding returns the encoding of a kind. decodes counts the objects that it decodes.
func newEncoding(k *Kind, storage *Version, decodes *atomic.Int64) encoding {
	switch {
	case k.Storage.Documents != nil:
		return &unstructuredEncoding{documents: k.Storage.Documents, id: k.firstEncodingID(storage), decodes: decodes}
	case k.Storage.JSON:
		return newJSONEncoding(k, storage, decodes)
	}
	return newProtobufEncoding(k, storage, decodes)
}

// firstEncodingID returns the first of the encodingsPerVersion identifiers of a version.
func (k *Kind) firstEncodingID(v *Version) cache.EncodingID {
	for i := range k.Versions {
		if &k.Versions[i] == v {
			return EncodingVersions + cache.EncodingID(encodingsPerVersion*i)
		}
	}
	return EncodingVersions
}

// typed is common to the two encodings of Go types.
type typed struct {
	kind    *Kind
	storage *Version
	decodes *atomic.Int64
}

func (t *typed) jsonID(v *Version) cache.EncodingID {
	if v.isStored() {
		return EncodingJSON
	}
	return t.kind.firstEncodingID(v)
}

// itemOf makes the item JSON of an object of the storage version in version v.
func (t *typed) itemOf(ctx context.Context, obj Object, v *Version) ([]byte, error) {
	obj, err := v.fromStorage(ctx, obj)
	if err != nil {
		return nil, err
	}
	item, err := scheme.EncodeItem(obj)
	if err != nil {
		return nil, &unshowableError{obj, err}
	}
	return item, nil
}

// metadataOf returns the JSON value of the member "metadata" of an object.
func metadataOf(item []byte) ([]byte, error) {
	meta, _, _, found, err := wire.Member(item, "metadata")
	if err == nil && !found {
		err = wire.ErrMalformedJSON
	}
	return meta, err
}

// fieldText reads a field from a message. A field that is missing or cannot be read has its default. The text is shared.
func fieldText(f *Field, message []byte) string {
	v, err := wire.Find(message, f.Path)
	if err != nil || !v.Found {
		return f.absent()
	}
	switch f.Type {
	case Bool:
		return strconv.FormatBool(v.Number != 0)
	case Int:
		return strconv.FormatInt(int64(v.Number), 10)
	}
	return intern(v.Bytes)
}

func (f *Field) absent() string {
	switch {
	case f.Default != "":
		return f.Default
	case f.Type == Bool:
		return "false"
	case f.Type == Int:
		return "0"
	}
	return ""
}

// intern shares the text of label keys and values and of indexed fields, which are the same in many objects.
func intern(b []byte) string {
	slot := internSlot(maphash.Bytes(internSeed, b))
	if s := slot.Load(); s != nil && *s == string(b) {
		return *s
	}
	return slot.share(string(b))
}

func internText(text string) string {
	slot := internSlot(maphash.String(internSeed, text))
	if s := slot.Load(); s != nil && *s == text {
		return *s
	}
	return slot.share(text)
}

// sharedText is a slot of sharedTexts, with a text that was shared recently. Finding a text in a slot costs a
// fraction of unique.Make, and most texts are found there.
type sharedText struct{ atomic.Pointer[string] }

var (
	sharedTexts [4096]sharedText // by hash
	internSeed  = maphash.MakeSeed()
)

func internSlot(hash uint64) *sharedText { return &sharedTexts[hash%uint64(len(sharedTexts))] }

func (s *sharedText) share(text string) string {
	text = unique.Make(text).Value()
	s.Store(&text)
	return text
}

func sortLabels(labels []cache.Label) {
	for i := 1; i < len(labels); i++ {
		for j := i; j > 0 && labels[j].Key < labels[j-1].Key; j-- {
			labels[j], labels[j-1] = labels[j-1], labels[j]
		}
	}
}

// labelsOf returns labels in the order of their keys.
func labelsOf(labels map[string]string) []cache.Label {
	var out []cache.Label
	for k, v := range labels {
		out = append(out, cache.Label{Key: k, Value: v})
	}
	sortLabels(out)
	return out
}
