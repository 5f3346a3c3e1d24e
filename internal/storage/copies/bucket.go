package copies

import (
	"context"
	"errors"
	"io"
)

// ErrNotFound is the error of Bucket.Get if there is no object of that name.
var ErrNotFound = errors.New("there is no such object in the bucket")

// Bucket is where the objects of a copy are. Names have slashes between their parts. All methods may be called concurrently, and end
// with an error when ctx ends.
type Bucket interface {
	// Put makes an object of what write writes, and replaces one that is there. When it returns nil, the object is complete and
	// durable. After an error there may be the complete object, the one before, or none, but never a part of one.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object for reading. The caller closes it.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects in ascending order of their names.
	List(ctx context.Context) ([]Object, error)
	// Delete removes an object. It is no error if there is none.
	Delete(ctx context.Context, name string) error
}

// Object is an object in a bucket.
type Object struct {
	Name string
	Size int64 // in bytes
}
