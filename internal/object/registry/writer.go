package registry

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Commit contains the options of a write to the store.
type Commit struct {
	// DryRun stores nothing: the result shows what would be stored.
	DryRun bool
	// SideWrites are written in the same transaction.
	SideWrites SideWrites
	// Manager is the field manager, for the history.
	Manager string
	// Unconverted stores an object without converting it to the version of the request first: a deletion must not depend
	// on a conversion webhook.
	Unconverted bool
}

// A Conflict is the error of a write if the object, or a side write, was changed by another write. Nothing was
// stored.
type Conflict struct {
	// Found is the current object, nil if there is none. Err is set if it cannot be read.
	Found *cache.Object
	Err   error
	// SideWrite is set if a condition of the side writes failed.
	SideWrite *storage.ConflictError
}

// Error implements error.
func (c *Conflict) Error() string { return "registry: another write came first" }

// Writer changes the stored objects of a resource, each change in one transaction. The steps of a write before
// that are in package write.
type Writer struct {
	*bound
	reader   *Reader
	renderer *Renderer
	// allocator allocates the values that no two objects may have; nil for most resources.
	allocator Allocator
	// keepsAuthors means that the store keeps who made a change.
	keepsAuthors bool
}

// Result is the result of a write.
type Result struct {
	// Object is the object as it is stored, or for a dry run as it would be stored. After
	// a deletion it is the last stored state.
	Object *cache.Object
	// Created means that an update created the object, Deleted that the object is gone.
	Created, Deleted bool
	// item is the JSON in the storage version, if the write has made it.
	item []byte
}

// SetAllocator makes a the resource's allocator. It is called before anything is
// served. The keys of its side writes must be in the resource's own store.
func (w *Writer) SetAllocator(a Allocator) { w.allocator = a }

// Allocator returns what SetAllocator set; nil for most resources.
func (w *Writer) Allocator() Allocator { return w.allocator }

// PutOp returns the operation that stores obj without any steps of a write. obj must be complete.
func (w *Writer) PutOp(ctx context.Context, obj Object) (storage.Op, error) {
	value, err := w.codec.value(ctx, obj)
	if err != nil {
		return storage.Op{}, err
	}
	return w.put(ctx, w.key(obj.GetNamespace(), obj.GetName()), value)
}

// conflict returns a *Conflict for an error of the store that is a *storage.ConflictError, and otherwise err.
func (w *Writer) conflict(ctx context.Context, key string, err error) error {
	met := (*storage.ConflictError)(nil)
	if !errors.As(err, &met) {
		return err
	}
	if met.Condition.Key != w.prefix+key {
		return &Conflict{SideWrite: met}
	}
	c := &Conflict{}
	if met.Current.ModRevision != 0 {
		c.Found, c.Err = w.objectOf(ctx, key, met.Current.Value, met.Current.ModRevision)
	}
	return c
}

// Insert stores a new object, which is complete and of the storage version. It fails with a
// *Conflict if there is one of that name.
func (w *Writer) Insert(ctx context.Context, obj Object, c Commit) (Result, error) {
	key := w.key(obj.GetNamespace(), obj.GetName())
	if c.DryRun {
		found, err := w.reader.current(ctx, key)
		if err != nil {
			return Result{}, err
		}
		if found != nil {
			return Result{}, &Conflict{Found: found}
		}
		return w.dryResult(ctx, key, obj)
	}
	value, err := w.codec.value(ctx, obj)
	if err != nil {
		return Result{}, err
	}
	buffer := previews.Get().(*[]byte)
	defer previews.Put(buffer)
	item, err := w.codec.preview(ctx, (*buffer)[:0], obj, value)
	if err != nil {
		return Result{}, err
	}
	keepPreview(buffer, item)
	return w.commitPut(ctx, key, 0, value, item, c)
}

// Insertion is a new object, which is complete and of the storage version of its resource.
type Insertion struct {
	Resource *Resource
	Object   Object
}

// InsertTogether stores new objects in one transaction, without the steps of a write. Their resources must be in the
// same store. It fails with a *storage.ConflictError, and stores nothing, if one of the objects exists.
func InsertTogether(ctx context.Context, list []Insertion) error {
	if len(list) == 0 {
		return nil
	}
	txn := storage.Txn{
		Conditions: make([]storage.Condition, 0, len(list)), Ops: make([]storage.Op, 0, len(list)),
	}
	for _, n := range list {
		r := n.Resource
		value, err := r.codec.value(ctx, n.Object)
		if err != nil {
			return err
		}
		op, err := r.Writer.put(ctx, r.Key(n.Object.GetNamespace(), n.Object.GetName()), value)
		if err != nil {
			return err
		}
		op.TTL = r.Kind.Storage.TTLSeconds
		txn.Conditions = append(txn.Conditions, storage.Condition{Key: op.Key})
		txn.Ops = append(txn.Ops, op)
	}
	revision, err := list[0].Resource.Writer.commit(ctx, txn, Commit{})
	if err != nil {
		return err
	}
	for _, n := range list[1:] {
		n.Resource.Writer.noteWrite(revision)
	}
	return nil
}

// Replace stores obj instead of found, unless nothing would change. It fails with a *Conflict if found is not the
// current state.
func (w *Writer) Replace(ctx context.Context, found *cache.Object, obj Object, c Commit) (Result, error) {
	if c.DryRun {
		return w.Unstored(ctx, found, obj)
	}
	value, err := w.codec.value(ctx, obj)
	if err != nil {
		return Result{}, err
	}
	same, err := w.codec.read(value, found.Revision)
	if err != nil {
		return Result{}, err
	}
	if bytes.Equal(same.Data, found.Data) {
		if stale, err := w.stale(ctx, found, value); err != nil || !stale {
			return Result{Object: found}, err
		}
	}
	if c.Unconverted && w.renderer.IsPrepared() {
		return w.commitPut(ctx, found.Key, found.Revision, value, nil, c)
	}
	buffer := previews.Get().(*[]byte)
	defer previews.Put(buffer)
	item, err := w.codec.preview(ctx, (*buffer)[:0], obj, value)
	keepPreview(buffer, item)
	if err != nil {
		// An object that could not be encoded before the write may be stored again, so that it can be deleted.
		if _, before := w.renderer.encode(ctx, found, w.codec.storage); before == nil {
			return Result{}, err
		}
		if item, err = w.renderer.encodeItem(ctx, found, w.codec.storage); err != nil {
			return Result{}, err
		}
	}
	return w.commitPut(ctx, found.Key, found.Revision, value, item, c)
}

// stale reports whether an object must be written although nothing has changed, because it would be stored differently: with
// another key, or in another version.
func (w *Writer) stale(ctx context.Context, found *cache.Object, value []byte) (bool, error) {
	head := w.codec.versionHead()
	custom, compares := w.codec.encoding.(*unstructuredEncoding)
	compares = compares && !custom.documents.IsNormal(found.Revision)
	if w.codec.transformer == nil && head == nil && !compares {
		return false, nil
	}
	key := w.prefix + found.Key
	start := time.Now()
	e, _, err := w.store.Get(ctx, key, 0)
	w.metrics.Request(cache.GetOperation, start, err)
	if err != nil || e.ModRevision != found.Revision {
		// If the object has changed, the write fails with a Conflict.
		return true, err
	}
	plain, stale := e.Value, false
	if w.codec.transformer != nil {
		err = storage.RetryPending(ctx, func() (err error) {
			plain, stale, err = w.codec.transformer.FromStore(ctx, key, e.Value)
			return err
		})
	}
	if err == nil && compares && !stale {
		// What is stored may lack defaults, or have fields that the schema does not have any more.
		same, err := sameDocument(plain, value)
		return !same, err
	}
	return stale || err == nil && !bytes.HasPrefix(plain, head), err
}

// previews are buffers for the JSON of objects that are about to be stored. They are reused when the write has its
// response.
var previews = sync.Pool{New: func() any { return new([]byte) }}

// keepPreview keeps the memory of an item in its buffer, unless it is large.
func keepPreview(buffer *[]byte, item []byte) {
	const most = 256 << 10
	if cap(item) <= most {
		*buffer = item
	}
}

// commitPut stores a plain value instead of the value at a revision; 0 means that there is none. item is its JSON from
// preview.
func (w *Writer) commitPut(
	ctx context.Context, key string, revision int64, value, item []byte, c Commit,
) (Result, error) {
	op, err := w.put(ctx, key, value)
	if err != nil {
		return Result{}, err
	}
	op.TTL = w.kind.Storage.TTLSeconds
	revision, err = w.commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: op.Key, ModRevision: revision}},
		Ops:        []storage.Op{op},
	}, c)
	if err != nil {
		return Result{}, w.conflict(ctx, key, err)
	}
	return w.written(key, value, item, revision)
}

// commit commits a transaction that changes an object of the resource, together with the side writes of c and the
// author. It raises the result of LastWrite to the revision.
func (w *Writer) commit(ctx context.Context, txn storage.Txn, c Commit) (int64, error) {
	start := time.Now()
	txn = c.SideWrites.with(txn)
	if w.keepsAuthors {
		author := authorOf(ctx, verbs[operationOf(&txn)], c.Manager)
		txn.By = author.Encode(nil)
	}
	ctx, span := tracing.Start(ctx, "Commit")
	defer span.End()
	revision, err := w.store.Commit(ctx, txn)
	if conflict := (*storage.ConflictError)(nil); errors.As(err, &conflict) {
		w.metrics.Request(operationOf(&txn), start, nil)
	} else {
		w.metrics.Request(operationOf(&txn), start, err)
	}
	if err == nil {
		w.noteWrite(revision)
	}
	if span.Recording() {
		span.Set(attribute.Int("operations", len(txn.Ops)), attribute.Int("conditions", len(txn.Conditions)),
			attribute.Int64("revision", revision))
		span.Fail(err)
	}
	return revision, err
}

// verbs are the verbs of writes that are not part of a request.
var verbs = map[cache.Operation]string{
	cache.CreateOperation: "create", cache.UpdateOperation: "update", cache.DeleteOperation: "delete",
}

// operationOf returns the operation of a transaction on its object. The first operation and the first condition of
// the transaction are those of the object.
func operationOf(txn *storage.Txn) cache.Operation {
	switch {
	case len(txn.Ops) > 0 && txn.Ops[0].Delete:
		return cache.DeleteOperation
	case len(txn.Conditions) > 0 && txn.Conditions[0].ModRevision == 0:
		return cache.CreateOperation
	}
	return cache.UpdateOperation
}

// noteWrite raises the result of LastWrite to revision.
func (w *Writer) noteWrite(revision int64) {
	for {
		last := w.lastWrite.Load()
		if revision <= last || w.lastWrite.CompareAndSwap(last, revision) {
			return
		}
	}
}

// Remove deletes found. It fails with a *Conflict if found is not the current state.
func (w *Writer) Remove(ctx context.Context, found *cache.Object, c Commit) (Result, error) {
	if c.DryRun {
		return Result{Object: found, Deleted: true}, nil
	}
	revision, err := w.removeKey(ctx, found, c)
	if err != nil {
		return Result{}, err
	}
	data, err := w.codec.Restamp(found.Data, revision)
	if err != nil {
		return Result{}, err
	}
	gone := objectAt(found.Key, revision, cache.Header{Labels: found.Labels, Fields: found.Fields, Data: data})
	return Result{Object: gone, Deleted: true}, nil
}

// RemoveUnreadable is Remove for an object whose value cannot be read.
func (w *Writer) RemoveUnreadable(ctx context.Context, found *cache.Object) error {
	_, err := w.removeKey(ctx, found, Commit{})
	return err
}

// removeKey deletes the key of found and returns the revision of that.
func (w *Writer) removeKey(ctx context.Context, found *cache.Object, c Commit) (int64, error) {
	key := w.prefix + found.Key
	revision, err := w.commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: key, ModRevision: found.Revision}},
		Ops:        []storage.Op{storage.Delete(key)},
	}, c)
	if err != nil {
		return 0, w.conflict(ctx, found.Key, err)
	}
	return revision, nil
}

// put is the operation that stores a plain value.
func (w *Writer) put(ctx context.Context, key string, plain []byte) (storage.Op, error) {
	value, err := w.codec.toStore(ctx, w.prefix+key, plain)
	return storage.Put(w.prefix+key, value), err
}

// written returns the result of a committed plain value, and adds its JSON, which preview appended to item, to the
// cache, because the client has probably requested it.
func (w *Writer) written(key string, value, item []byte, revision int64) (Result, error) {
	o, err := w.plainObject(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	result := Result{Object: o}
	if batch, ok := w.codec.encoding.(batchEncoding); ok && len(item) > 0 {
		if result.item, err = batch.restamp(item, revision); err != nil {
			return Result{}, err
		}
		w.cache.AddEncoding(key, revision, batch.jsonID(w.codec.storage), result.item)
	} else if len(item) > 0 {
		if result.item, err = wire.StampItem(item, revision); err != nil {
			return Result{}, err
		}
		w.cache.AddEncoding(key, revision, EncodingJSON, result.item)
	}
	return result, nil
}

// Unstored returns the result of replacing found by obj, without storing anything.
func (w *Writer) Unstored(ctx context.Context, found *cache.Object, obj Object) (Result, error) {
	obj.SetResourceVersion(strconv.FormatInt(found.Revision, 10))
	return w.dryResult(ctx, found.Key, obj)
}

// dryResult returns the result of a write of obj without storing anything.
func (w *Writer) dryResult(ctx context.Context, key string, obj Object) (Result, error) {
	version := obj.GetResourceVersion()
	revision, _ := strconv.ParseInt(version, 10, 64)
	value, err := w.codec.value(ctx, obj)
	if err != nil {
		return Result{}, err
	}
	o, err := w.plainObject(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	if revision == 0 {
		// plainObject has set a resourceVersion, but this object was never stored. It gets
		// the one that the client sent, which need not be a number.
		if version != "" {
			obj.SetResourceVersion(version)
			if value, err = w.codec.encode(ctx, obj); err != nil {
				return Result{}, err
			}
		}
		if o.Data, err = w.codec.unstamped(value); err != nil {
			return Result{}, err
		}
	}
	item, err := w.renderer.encodeItem(ctx, o, w.codec.storage)
	return Result{Object: o, item: item}, err
}

// Computed makes a cache object from an object of a virtual kind, which is stored nowhere.
func (w *Writer) Computed(ctx context.Context, obj Object) (*cache.Object, error) {
	result, err := w.dryResult(ctx, w.key(obj.GetNamespace(), obj.GetName()), obj)
	return result.Object, err
}
