package client

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// WatchRequest is a watch of all objects of a resource.
type WatchRequest struct {
	Resource schema.GroupVersionResource
	// From is the revision after which changes are wanted, as List returns it.
	From int64
}

// Change is one change of an object.
type Change struct {
	// Type is ADDED, MODIFIED or DELETED.
	Type watch.EventType
	// Object is the object after the change; after a deletion, the last stored state. The caller owns it.
	Object registry.Object
}

// A Watch delivers changes in their order. It is used by one goroutine.
type Watch struct {
	served *registry.Served
	cursor *cache.Cursor
}

// Watch watches a resource. The caller must close the result.
func (c *Client) Watch(ctx context.Context, r WatchRequest) (*Watch, error) {
	ctx, served, _, done, err := c.open(ctx, r.Resource, "")
	if err != nil {
		return nil, err
	}
	cursor, err := served.Resource.Reader.Watch(ctx, r.From, cache.Interest{})
	done() // a watch writes nothing, so nothing has to wait for it
	if err != nil {
		return nil, err
	}
	return &Watch{served: served, cursor: cursor}, nil
}

// Next waits for changes. It fails with *storage.CompactedError if the store no longer has the next changes. The
// caller then has to list again.
func (w *Watch) Next(ctx context.Context) ([]Change, error) {
	events, _, err := w.cursor.Next(ctx)
	if err != nil {
		return nil, err
	}
	changes := make([]Change, 0, len(events))
	for _, e := range events {
		change := Change{Type: watch.Modified}
		o := e.Object
		switch {
		case o == nil:
			change.Type = watch.Deleted
			if o, err = e.PrevAt(); err != nil {
				return nil, err
			}
		case e.Prev == nil:
			change.Type = watch.Added
		}
		if change.Object, err = decode(ctx, w.served, o); err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// Close ends the Watch.
func (w *Watch) Close() { w.cursor.Close() }
