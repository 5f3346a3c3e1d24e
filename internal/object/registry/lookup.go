package registry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Lookup returns an object, decoded, nil if there is none. The object has every change that this process has
// acknowledged. Changes of other servers on the same store may be missing if the object is in the cache.
func (re *Registry) Lookup(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error) {
	r := re.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	o, err := r.Reader.lookup(ctx, r.Key(namespace, name))
	if err != nil || o == nil {
		return nil, err
	}
	return r.Decoder.Decode(ctx, o)
}

// Stored returns the latest state of an object, decoded, nil if there is none. It reads from the store and does not
// load the resource into memory: use it for rare reads.
func (re *Registry) Stored(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error) {
	r := re.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	key := r.Key(namespace, name)
	start := time.Now()
	entry, _, err := r.store.Get(ctx, r.prefix+key, 0)
	r.metrics.Request(cache.GetOperation, start, err)
	if err != nil || entry.ModRevision == 0 {
		return nil, err
	}
	o, err := r.objectOf(ctx, key, entry.Value, entry.ModRevision)
	if err != nil {
		return nil, err
	}
	return r.Decoder.Decode(ctx, o)
}

// Life identifies one life of an object, to check whether it was deleted or replaced.
type Life struct {
	// UID is "" if the object does not exist.
	UID string
	// Deleted is metadata.deletionTimestamp, zero for an object that stays.
	Deleted time.Time
}

// uidPath is metadata.uid of an object's message.
var uidPath = []int32{1, 5}

// Life reads an object's UID and deletion from its stored bytes. It sees the same changes
// as Lookup. It is for kinds that are stored as protobuf.
func (re *Registry) Life(ctx context.Context, gr schema.GroupResource, namespace, name string) (Life, error) {
	r := re.resources[gr]
	if r == nil {
		return Life{}, apierr.PathNotFound()
	}
	o, err := r.Reader.lookup(ctx, r.Key(namespace, name))
	if err != nil || o == nil {
		return Life{}, err
	}
	if err := o.Err(); err != nil {
		return Life{}, err
	}
	uid, err := wire.Find(o.Data, uidPath)
	if err != nil {
		return Life{}, err
	}
	life := Life{UID: string(uid.Bytes)}
	deleting, err := wire.Find(o.Data, deletionTimestampPath)
	if err == nil && deleting.Found {
		life.Deleted, err = timeOf(deleting.Bytes)
	}
	return life, err
}

// timeOf reads the message of a time: seconds are its first field.
func timeOf(message []byte) (time.Time, error) {
	seconds, err := wire.Find(message, []int32{1})
	return time.Unix(int64(seconds.Number), 0), err
}
