package registry

import (
	"encoding/json"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Lifecycle is the metadata of an object that decides when it is deleted.
type Lifecycle struct {
	UID types.UID
	// Deleting means that the deletion of the object has begun: it has a deletionTimestamp.
	Deleting   bool
	Finalizers []string
	Owners     []metav1.OwnerReference
}

// Lifecycle reads the metadata of an object from its stored bytes. It decodes no object, and no other part of the
// metadata, unless the kind is stored in a form that has to be converted. The caller makes sure that o is readable (see
// Readable).
func (d *Decoder) Lifecycle(o *cache.Object) (Lifecycle, error) {
	if err := o.Err(); err != nil {
		return Lifecycle{}, kerrors.NewInternalError(err)
	}
	if _, ok := d.codec.encoding.(*protobufEncoding); ok {
		return protoLifecycle(o.Data)
	}
	text, err := d.codec.metadata(o.Data)
	if err != nil {
		return Lifecycle{}, err
	}
	return jsonLifecycle(text)
}

// Field numbers of ObjectMeta and OwnerReference.
const (
	metaUID, metaDeletionTimestamp, metaOwners, metaFinalizers              = 5, 9, 13, 14
	ownerKind, ownerName, ownerUID, ownerAPIVersion, ownerController, block = 1, 3, 4, 5, 6, 7
)

// protoLifecycle reads an object's message.
func protoLifecycle(message []byte) (l Lifecycle, err error) {
	meta, err := wire.Metadata(message)
	if err != nil {
		return l, err
	}
	for len(meta) > 0 {
		number, _, value, size, err := wire.NextField(meta)
		if err != nil {
			return l, err
		}
		switch number {
		case metaUID:
			l.UID = types.UID(value)
		case metaDeletionTimestamp:
			l.Deleting = true
		case metaFinalizers:
			l.Finalizers = append(l.Finalizers, string(value))
		case metaOwners:
			owner, err := protoOwner(value)
			if l.Owners = append(l.Owners, owner); err != nil {
				return l, err
			}
		}
		meta = meta[size:]
	}
	return l, nil
}

// protoOwner reads the message of an OwnerReference.
func protoOwner(message []byte) (o metav1.OwnerReference, err error) {
	for len(message) > 0 {
		number, _, value, size, err := wire.NextField(message)
		if err != nil {
			return o, err
		}
		switch number {
		case ownerKind:
			o.Kind = intern(value)
		case ownerName:
			o.Name = string(value)
		case ownerUID:
			o.UID = types.UID(value)
		case ownerAPIVersion:
			o.APIVersion = intern(value)
		case ownerController:
			o.Controller = new(wire.Varint(value) != 0)
		case block:
			o.BlockOwnerDeletion = new(wire.Varint(value) != 0)
		}
		message = message[size:]
	}
	return o, nil
}

// jsonLifecycle reads the JSON of an object's metadata.
func jsonLifecycle(text []byte) (Lifecycle, error) {
	var meta struct {
		UID               types.UID               `json:"uid"`
		DeletionTimestamp *json.RawMessage        `json:"deletionTimestamp"`
		Finalizers        []string                `json:"finalizers"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return Lifecycle{}, err
	}
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		owner.Kind, owner.APIVersion = internText(owner.Kind), internText(owner.APIVersion)
	}
	return Lifecycle{
		UID: meta.UID, Deleting: meta.DeletionTimestamp != nil,
		Finalizers: meta.Finalizers, Owners: meta.OwnerReferences,
	}, nil
}
