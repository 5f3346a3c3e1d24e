package client

import (
	"cmp"
	"context"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Metadata is the metadata that the garbage collector and the namespace controller need. It is read from stored bytes,
// without decoding objects or calling a conversion webhook.
type Metadata struct {
	Namespace, Name string
	// Revision is the object's resourceVersion.
	Revision int64
	// Bytes is the size of the stored value; 0 for an object of an extension API server.
	Bytes int
	registry.Lifecycle
}

// metadataOf reads the metadata of an object.
func metadataOf(ctx context.Context, served *registry.Served, o *cache.Object) (Metadata, error) {
	o, err := served.Resource.Reader.Readable(ctx, o)
	if err != nil {
		return Metadata{}, err
	}
	lifecycle, err := served.Resource.Decoder.Lifecycle(o)
	return Metadata{Namespace: o.Namespace, Name: o.Name, Revision: o.Revision, Bytes: len(o.Data), Lifecycle: lifecycle}, err
}

// GetMetadata returns the metadata of the latest state of an object; the error is NotFound if there is none.
func (c *Client) GetMetadata(ctx context.Context, ref Ref) (Metadata, error) {
	ctx, served, _, done, err := c.open(ctx, ref.Resource, "")
	if err != nil {
		return Metadata{}, err
	}
	defer done()
	if served.Resource.Virtual() {
		return Metadata{}, kerrors.NewMethodNotSupported(ref.Resource.GroupResource(), "get")
	}
	o, err := latest(ctx, served, ref)
	if err != nil {
		return Metadata{}, err
	}
	return metadataOf(ctx, served, o)
}

// ListMetadata is List with the metadata of objects instead of the objects.
func (c *Client) ListMetadata(ctx context.Context, r ListRequest, yield func(Metadata) bool) (int64, error) {
	return c.list(ctx, r, cache.StreamingAll, func(ctx context.Context, served *registry.Served, o *cache.Object) (bool, error) {
		m, err := metadataOf(ctx, served, o)
		return err == nil && yield(m), err
	})
}

// prefixOf returns the prefix of the keys of the objects in a namespace; "" means all namespaces.
func prefixOf(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + "/"
}

// MetadataChange is one change of an object.
type MetadataChange struct {
	// Type is ADDED, MODIFIED or DELETED.
	Type watch.EventType
	// Metadata is the metadata after the change; after a deletion, the last stored metadata.
	Metadata
}

// NextMetadata is Next with the metadata of objects instead of the objects. It also returns, perhaps without
// changes, when tick delivers a value. All changes up to revision have then been returned.
func (w *Watch) NextMetadata(
	ctx context.Context, tick <-chan time.Time,
) (changes []MetadataChange, revision int64, err error) {
	events, _, err := w.cursor.NextOr(ctx, tick)
	if err != nil {
		return nil, 0, err
	}
	changes = make([]MetadataChange, 0, len(events))
	for _, e := range events {
		change, o := MetadataChange{Type: watch.Modified}, e.Object
		switch {
		case o == nil:
			change.Type, o = watch.Deleted, e.Prev
		case e.Prev == nil:
			change.Type = watch.Added
		}
		if change.Metadata, err = metadataOf(ctx, w.served, o); err != nil {
			return nil, 0, err
		}
		changes = append(changes, change)
	}
	return changes, w.cursor.Revision(), nil
}

// DeleteCollectionRequest is the deletion of all objects of a resource in a namespace.
type DeleteCollectionRequest struct {
	Resource  schema.GroupVersionResource
	Namespace string
	// Options may be nil.
	Options *metav1.DeleteOptions
}

const (
	// deletePage is the number of objects in a page of a collection that is deleted.
	deletePage = 500
	// parallelDeletes is the number of objects of a collection that are deleted concurrently, so that the store commits
	// them together.
	parallelDeletes = 32
)

// DeleteCollection deletes the objects that exist when it is called, each by a write of its own. After an error it continues,
// and returns the first error at the end. An object that somebody else has deleted in the meantime is not an error.
func (c *Client) DeleteCollection(ctx context.Context, r DeleteCollectionRequest) error {
	ctx, served, _, done, err := c.open(ctx, r.Resource, "")
	if err != nil {
		return err
	}
	defer done()
	view, err := served.Resource.Reader.Current(ctx)
	if err != nil {
		return err
	}
	options := r.Options
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	var deletes errgroup.Group
	deletes.SetLimit(parallelDeletes)
	err = view.Ascend(ctx, "", prefixOf(r.Namespace), deletePage, func(o *cache.Object) bool {
		deletes.Go(func() error {
			deletion := write.Deletion(served, o.Namespace, o.Name, options.DeepCopy())
			deletion.Options.Collection = true
			if _, err := c.writes.Do(ctx, deletion); err != nil && !kerrors.IsNotFound(err) {
				return err
			}
			return nil
		})
		return ctx.Err() == nil
	})
	return cmp.Or(err, deletes.Wait())
}
