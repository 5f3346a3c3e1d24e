package encrypt

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// sourceType is the type of the encrypted key in an envelope.
type sourceType uint64

const (
	aesGCMKey  sourceType = 0 // an AES-GCM key (KMS v2 before Kubernetes 1.29)
	hkdfSource sourceType = 1 // a seed from which each value's AES-GCM key is derived
)

// envelope is the stored form of a value of KMS v2 (message EncryptedObject in k8s.io/kms): the encrypted data,
// and the key of this data. That key is itself encrypted with a key that never leaves the plug-in.
type envelope struct {
	data        []byte
	keyID       string
	source      []byte // the encrypted key or seed
	annotations map[string][]byte
	sourceType  sourceType
}

// Field numbers of the protobuf message.
const (
	envelopeData        = 1
	envelopeKeyID       = 2
	envelopeSource      = 3
	envelopeAnnotations = 4
	envelopeSourceType  = 5
)

// append appends the protobuf message of e to b.
func (e *envelope) append(b []byte) []byte {
	bytesField := func(b []byte, number protowire.Number, value []byte) []byte {
		if len(value) == 0 {
			return b
		}
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	b = bytesField(b, envelopeData, e.data)
	b = bytesField(b, envelopeKeyID, []byte(e.keyID))
	b = bytesField(b, envelopeSource, e.source)
	for _, name := range slices.Sorted(maps.Keys(e.annotations)) {
		var entry []byte
		entry = protowire.AppendBytes(protowire.AppendTag(entry, 1, protowire.BytesType), []byte(name))
		entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), e.annotations[name])
		b = bytesField(b, envelopeAnnotations, entry)
	}
	if e.sourceType != 0 {
		b = protowire.AppendTag(b, envelopeSourceType, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(e.sourceType))
	}
	return b
}

var errEnvelope = errors.New("malformed envelope of a KMS provider")

// parseEnvelope decodes and validates an envelope. Its fields share memory with b.
func parseEnvelope(b []byte) (*envelope, error) {
	e := &envelope{}
	for len(b) > 0 {
		number, kind, value, size, err := wire.NextField(b)
		if err != nil {
			return nil, errEnvelope
		}
		b = b[size:]
		switch {
		case number == envelopeSourceType && kind == protowire.VarintType:
			e.sourceType = sourceType(wire.Varint(value))
		case kind != protowire.BytesType:
		case number == envelopeData:
			e.data = value
		case number == envelopeKeyID:
			e.keyID = string(value)
		case number == envelopeSource:
			e.source = value
		case number == envelopeAnnotations:
			name, text, err := wire.Pair(value)
			if err != nil {
				return nil, errEnvelope
			}
			if e.annotations == nil {
				e.annotations = map[string][]byte{}
			}
			e.annotations[string(name)] = text
		}
	}
	if len(e.data) == 0 {
		return nil, errors.New("encrypted data is empty")
	}
	return e, e.checkKey()
}

// Limits of the answers of a plug-in, in bytes (KEP-3299).
const (
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// checkKey returns an error if the key ID, the encrypted key or the annotations are invalid.
func (e *envelope) checkKey() error {
	if err := checkKeyID(e.keyID); err != nil {
		return err
	}
	switch {
	case e.sourceType != aesGCMKey && e.sourceType != hkdfSource:
		return fmt.Errorf("unknown encryptedDEKSourceType %d", e.sourceType)
	case len(e.source) == 0:
		return errors.New("encrypted DEK source is empty")
	case len(e.source) > maxSource:
		return fmt.Errorf("encrypted DEK source is %d bytes, which exceeds the max size of %d", len(e.source), maxSource)
	}
	size := 0
	for name, value := range e.annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), name); len(errs) > 0 {
			return errs.ToAggregate()
		}
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations)
	}
	return nil
}

func checkKeyID(id string) error {
	switch {
	case id == "":
		return errors.New("keyID is empty")
	case len(id) > maxKeyID:
		return fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), maxKeyID)
	}
	return nil
}

// keyHash identifies the encrypted key of the envelope in the cache of decrypted keys.
func (e *envelope) keyHash() [sha256.Size]byte {
	key := envelope{keyID: e.keyID, source: e.source, annotations: e.annotations, sourceType: e.sourceType}
	return sha256.Sum256(key.append(nil))
}

// Sizes of the info and of the seed of derivedKeys, in bytes.
const (
	infoSize = 32
	seedSize = 32
)

// derivedKeys encrypts each value with an AES-GCM key of its own. The key is derived with the expand step of
// HKDF-SHA-256 from the seed and random bytes (info), with which the stored value begins; the nonce and the ciphertext
// of AES-GCM follow. (Random nonces of one key must not be used for too many values; with a new key for each value
// there is no such limit.)
type derivedKeys struct{ seed []byte }

func (k derivedKeys) transformerFor(info []byte) (Transformer, error) {
	key, err := hkdf.Expand(sha256.New, k.seed, string(info), seedSize)
	if err != nil {
		return nil, err
	}
	return newGCM(key)
}

func (k derivedKeys) ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error) {
	info := make([]byte, infoSize)
	if _, err := rand.Read(info); err != nil {
		return nil, err
	}
	once, err := k.transformerFor(info)
	if err != nil {
		return nil, err
	}
	out, err := once.ToStore(ctx, authenticated, plain)
	return append(info, out...), err
}

func (k derivedKeys) FromStore(ctx context.Context, authenticated, value []byte) ([]byte, bool, error) {
	if len(value) < infoSize {
		return nil, false, errTooShort
	}
	once, err := k.transformerFor(value[:infoSize])
	if err != nil {
		return nil, false, err
	}
	return once.FromStore(ctx, authenticated, value[infoSize:])
}

// open returns the transformer for the data of the envelope. key is the decrypted key or seed.
func (e *envelope) open(key []byte) (Transformer, error) {
	if len(key) < seedSize {
		return nil, fmt.Errorf("the decrypted DEK source has %d bytes, want %d", len(key), seedSize)
	}
	if e.sourceType == hkdfSource {
		return derivedKeys{key}, nil
	}
	return newGCM(key)
}
