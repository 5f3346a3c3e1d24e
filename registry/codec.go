package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// Forms of an object that are kept beside its stored bytes. Those of a version
// follow FormVersions, formsOfVersion for each: JSON, protobuf (both but of the
// stored version, whose forms have names), and a table row without its object.
const (
	FormJSON          cache.FormID = iota // item JSON of the storage version
	FormMetadata                          // JSON value of its metadata member
	FormMetadataProto                     // message of a PartialObjectMetadata
	FormVersions

	formsOfVersion = 3
)

// codec reads and makes the encoded forms of one kind. The stored form that the
// cache keeps (cache.Object.Data) is the bare protobuf message, or the item JSON
// for kinds stored as JSON (the whole document where Kind.Storage.StoredJSON converts it),
// with its resourceVersion.
type codec struct {
	kind    *Kind
	storage *Version
	indexes []*Field
	// envelope surrounds stored protobuf values.
	envelope wire.EnvelopeHead
	jsonHead []byte
	// transformer changes values on their way to the store and back; nil: it does
	// not.
	transformer Transformer
	// decodes counts the objects decoded from stored bytes.
	decodes atomic.Int64
}

func newCodec(k *Kind) (*codec, error) {
	c := &codec{kind: k, storage: k.Version(k.Storage.Version)}
	if c.storage == nil {
		return nil, fmt.Errorf("kind %s: storage version %q is not served", k.GroupKind(), k.Storage.Version)
	}
	for i := range k.Selection.Fields {
		if k.Selection.Fields[i].Index {
			c.indexes = append(c.indexes, &k.Selection.Fields[i])
		}
	}
	gv := schema.GroupVersion{Group: k.Group, Version: k.Storage.Version}
	c.envelope = wire.NewEnvelopeHead(k.StoredVersion(), k.Name)
	c.jsonHead = scheme.JSONHead(gv.WithKind(k.Name))
	return c, nil
}

// indexNames are the names of the indexed fields.
func (c *codec) indexNames() []string {
	names := make([]string, len(c.indexes))
	for i, f := range c.indexes {
		names[i] = f.Name
	}
	return names
}

// Read implements cache.Codec.
func (c *codec) Read(key string, value []byte, revision int64) (cache.Header, error) {
	plain, err := c.fromStore(context.Background(), key, value)
	if err != nil {
		return cache.Header{}, err
	}
	h, err := c.read(plain, revision)
	if err != nil {
		return cache.Header{}, fmt.Errorf("unable to read key %q: %w", key, err)
	}
	return h, nil
}

// read reads a plain value.
func (c *codec) read(value []byte, revision int64) (cache.Header, error) {
	if c.kind.Storage.JSON {
		return c.readJSON(value, revision)
	}
	var h cache.Header
	raw, err := c.plain(value)
	if err != nil {
		return h, err
	}
	if h.Data, err = wire.Stamp(raw, revision); err != nil {
		return h, err
	}
	meta, err := wire.Metadata(h.Data)
	if err != nil {
		return h, err
	}
	err = wire.EachLabel(meta, func(k, v []byte) {
		h.Labels = append(h.Labels, cache.Label{Key: intern(k), Value: intern(v)})
	})
	for _, f := range c.indexes {
		h.Fields = append(h.Fields, intern([]byte(fieldText(f, h.Data))))
	}
	return h, err
}

func (c *codec) readJSON(value []byte, revision int64) (cache.Header, error) {
	var h cache.Header
	var item []byte
	var labels map[string]string
	var err error
	if c.kind.Unstructured() {
		// Valid JSON: it was decoded, or this server made it.
		if item, err = c.normal(value, revision); err == nil {
			labels, err = treeLabels(item)
		}
	} else {
		if labels, err = documentLabels(value); err == nil {
			item, err = c.plain(value)
		}
	}
	if err != nil {
		return h, err
	}
	for k, v := range labels {
		h.Labels = append(h.Labels, cache.Label{Key: k, Value: v})
	}
	sortLabels(h.Labels)
	h.Data, err = c.stampJSON(item, revision)
	return h, err
}

// documentLabels reads the labels of a stored document, all of which it checks.
func documentLabels(doc []byte) (map[string]string, error) {
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(doc, &head)
	return head.Metadata.Labels, err
}

// treeLabels reads the labels of a valid document, and no more of it.
func treeLabels(doc []byte) (map[string]string, error) {
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

func (c *codec) stampJSON(doc []byte, revision int64) ([]byte, error) {
	if c.kind.Unstructured() {
		return wire.StampTree(doc, revision)
	}
	return wire.StampJSON(doc, revision)
}

// lacksDefaults says whether a stored message must get defaults.
func (c *codec) lacksDefaults(raw []byte) bool {
	for _, path := range c.kind.Storage.DefaultOnRead {
		if v, err := wire.Find(raw, path); err == nil && len(v.Bytes) == 0 {
			return true
		}
	}
	return false
}

func (c *codec) withDefaults(raw []byte) ([]byte, error) {
	obj, err := c.decode(context.Background(), raw) // a typed kind: no conversion
	if err != nil {
		return nil, err
	}
	c.storage.Default(obj)
	return scheme.EncodeProto(obj)
}

// Restamp implements cache.Codec.
func (c *codec) Restamp(data []byte, revision int64) ([]byte, error) {
	if c.kind.Storage.JSON {
		return c.stampJSON(data, revision)
	}
	return wire.Stamp(data, revision)
}

// decode makes the object of data, in the storage version.
func (c *codec) decode(ctx context.Context, data []byte) (Object, error) {
	c.decodes.Add(1)
	switch {
	case c.kind.Unstructured():
		return c.decodeDocument(ctx, data)
	case c.kind.Storage.StoredJSON != nil:
		return c.kind.Storage.StoredJSON.Decode(data)
	}
	obj := c.storage.New()
	if c.kind.Storage.JSON {
		return obj, json.Unmarshal(data, obj)
	}
	err := scheme.DecodeProto(data, obj)
	if err == nil && c.kind.Storage.AfterDecode != nil {
		c.kind.Storage.AfterDecode(obj)
	}
	return obj, err
}

// metadataAlone makes the JSON of the metadata of a message.
func (c *codec) metadataAlone(raw []byte) ([]byte, error) {
	message, err := wire.Metadata(raw)
	if err != nil {
		return nil, err
	}
	c.decodes.Add(1)
	var meta metav1.ObjectMeta
	if err := meta.Unmarshal(message); err != nil {
		return nil, err
	}
	return scheme.Marshal(&meta)
}

// readsAsWritten says that decoding a message gives the object that it was made of, but for what protobuf
// cannot tell apart.
func (c *codec) readsAsWritten(raw []byte) bool {
	return !c.kind.Storage.JSON && c.kind.Storage.AfterDecode == nil && !c.lacksDefaults(raw)
}

// storedAsServed says that Data is the storage version's item JSON.
func (c *codec) storedAsServed() bool { return c.kind.Storage.JSON && c.kind.Storage.StoredJSON == nil }

// encode makes the value to store of an object in the storage version, and the
// data that Read would make of it with an empty resourceVersion.
func (c *codec) encode(ctx context.Context, obj Object) (value []byte, err error) {
	obj.SetResourceVersion("")
	return c.encodeWhole(ctx, obj)
}

// encodeWhole makes a value with the object's resourceVersion in it.
func (c *codec) encodeWhole(ctx context.Context, obj Object) (value []byte, err error) {
	if c.kind.Unstructured() {
		document, err := c.kind.Storage.Documents.Encode(ctx, obj)
		if err != nil {
			return nil, err
		}
		return append(document, '\n'), nil
	}
	if c.kind.Storage.StoredJSON != nil {
		document, err := c.kind.Storage.StoredJSON.Encode(obj)
		if err != nil {
			return nil, err
		}
		return append(document, '\n'), nil
	}
	if c.kind.Storage.JSON {
		item, err := scheme.EncodeItem(obj)
		if err != nil {
			return nil, err
		}
		return scheme.JSONObject(c.jsonHead, item), nil
	}
	return scheme.EncodeEnvelope(c.envelope, obj)
}

// fieldText reads a field from a stored message.
func fieldText(f *Field, raw []byte) string {
	v, err := wire.Find(raw, f.Path)
	if err != nil || !v.Found {
		return f.absent()
	}
	switch f.Type {
	case Bool:
		return strconv.FormatBool(v.Number != 0)
	case Int:
		return strconv.FormatInt(int64(v.Number), 10)
	}
	return string(v.Bytes)
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

func sortLabels(labels []cache.Label) {
	for i := 1; i < len(labels); i++ {
		for j := i; j > 0 && labels[j].Key < labels[j-1].Key; j-- {
			labels[j], labels[j-1] = labels[j-1], labels[j]
		}
	}
}

// intern shares the text of label keys and values and of indexed fields, which
// repeat between objects.
func intern(b []byte) string { return internText(string(b)) }

func internText(s string) string { return unique.Make(s).Value() }

// plain returns the data of a plain value, without a resourceVersion.
func (c *codec) plain(value []byte) ([]byte, error) {
	data, err := c.open(value)
	if err == nil && c.lacksDefaults(data) {
		return c.withDefaults(data)
	}
	return data, err
}

// open takes off a plain value what is around its data.
func (c *codec) open(value []byte) ([]byte, error) {
	if !c.kind.Storage.JSON {
		return wire.Raw(value)
	}
	value = bytes.TrimSpace(value)
	if rest, ok := bytes.CutPrefix(value, c.jsonHead); ok && c.kind.Storage.StoredJSON == nil && !c.kind.Unstructured() {
		return append([]byte{'{'}, rest...), nil
	}
	return value, nil
}
