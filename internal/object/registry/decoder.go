package registry

import (
	"context"
	"fmt"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Decoder makes objects in memory of stored bytes, and converts them between the versions of the kind.
type Decoder struct{ *bound }

// Decode makes the object of o, in the storage version. The caller owns it.
func (d *Decoder) Decode(ctx context.Context, o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	if batch, ok := d.codec.encoding.(batchEncoding); ok {
		if item, ok := cachedItem(o, batch.jsonID(d.codec.storage)); ok {
			return batch.decodeAsWritten(item)
		}
	}
	return d.codec.decode(ctx, o.Data)
}

// DecodeForWrite is Decode of an object that is about to be written again. It never uses a conversion that the cache
// has: if that lacks a field, because a webhook was wrong at the time, the write would delete the field in the store.
func (d *Decoder) DecodeForWrite(ctx context.Context, o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return d.codec.decode(ctx, o.Data)
}

// DecodeStored makes the object of o in the version that it was written in, without a conversion: deleting an object,
// and its metadata, must not depend on a webhook. The caller owns it.
func (d *Decoder) DecodeStored(o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return d.codec.decodeAsWritten(o.Data)
}

// DecodeAs makes the object of o in version v. The caller owns it.
func (d *Decoder) DecodeAs(ctx context.Context, o *cache.Object, v *Version) (Object, error) {
	obj, err := d.Decode(ctx, o)
	if err != nil {
		return nil, err
	}
	return v.fromStorage(ctx, obj)
}

// DecodeEntry makes the object of an entry of the store, in the storage version.
func (d *Decoder) DecodeEntry(ctx context.Context, e storage.Entry) (Object, error) {
	o, err := d.objectOf(ctx, strings.TrimPrefix(e.Key, d.prefix), e.Value, e.ModRevision)
	if err != nil {
		return nil, err
	}
	return d.Decode(ctx, o)
}

// ToVersion converts an object from the storage version.
func (d *Decoder) ToVersion(ctx context.Context, obj Object, v *Version) (Object, error) {
	return v.fromStorage(ctx, obj)
}

// ToStorage converts an object to the storage version.
func (d *Decoder) ToStorage(ctx context.Context, obj Object, v *Version) (Object, error) {
	if v.Check != nil {
		if err := v.Check(obj); err != nil {
			return nil, kerrors.NewBadRequest(
				fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", d.kind.Name, v.Name, d.kind.Name, err),
			)
		}
	}
	if v.ToStorage == nil {
		return obj, nil
	}
	return v.ToStorage(ctx, obj)
}

// Decodes is the number of objects decoded from stored bytes so far.
func (d *Decoder) Decodes() int64 { return d.codec.decodes.Load() }
