package storageversionmigrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// parallelWrites is the number of objects of a migration that are written concurrently, so that the store commits them
// together.
const parallelWrites = 8

// result counts the objects of a resource that were migrated.
type result struct {
	// total is the number of objects, and left the number of objects that still have to be migrated.
	total, left int
	// err is the first error.
	err error
}

// text returns the message of the condition Running.
func (r result) text() string {
	switch {
	case r.total == 0:
		return runningText
	case r.left > 0:
		return fmt.Sprintf("%s, %d/%d objects not yet migrated", runningText, r.left, r.total)
	}
	return fmt.Sprintf("%s, %d objects verified migrated", runningText, r.total)
}

// rewriteAll writes each object again whose revision is not above checkpoint. It reads the objects page by page,
// so memory does not grow with their number. After an error it only counts the remaining objects.
func rewriteAll(ctx context.Context, api API, gvr schema.GroupVersionResource, checkpoint int64) result {
	var (
		r      result
		mu     sync.Mutex // guards r.left and r.err
		writes errgroup.Group
	)
	writes.SetLimit(parallelWrites)
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if r.err == nil {
			return false
		}
		r.left++
		return true
	}
	_, listing := api.ListMetadata(ctx, client.ListRequest{Resource: gvr}, func(o client.Metadata) bool {
		r.total++
		if o.Revision > checkpoint || stopped() {
			return ctx.Err() == nil
		}
		writes.Go(func() error {
			ref := client.Ref{Resource: gvr, Namespace: o.Namespace, Name: o.Name}
			if err := rewrite(ctx, api, ref, o.Revision); err != nil {
				mu.Lock()
				defer mu.Unlock()
				r.left++
				r.err = cmp.Or(r.err, err)
			}
			return nil
		})
		return ctx.Err() == nil
	})
	_ = writes.Wait() // the errors are in r
	r.err = cmp.Or(r.err, listing)
	return r
}

// errWritten is the error of a rewrite of an object that was written after the list was read.
var errWritten = errors.New("the object was written since")

// rewrite writes an object again, unchanged. It returns nil for an object that was written after the list or no
// longer exists, because such an object needs no migration.
func rewrite(ctx context.Context, api API, ref client.Ref, revision int64) error {
	version := strconv.FormatInt(revision, 10)
	_, err := api.Update(ctx, client.UpdateRequest{Ref: ref, Change: func(o registry.Object) error {
		if o.GetResourceVersion() != version {
			return errWritten
		}
		return nil
	}})
	if errors.Is(err, errWritten) || kerrors.IsNotFound(err) || kerrors.IsConflict(err) {
		return nil
	}
	return err
}

// transient reports whether the migration has to be tried again after an error: the server is overloaded or fails,
// or the store fails. Any other error is a refusal of the list or of an object, for example by validation or
// admission, and is expected to come again.
func transient(err error) bool {
	refused := kerrors.APIStatus(nil)
	return !errors.As(err, &refused) || kerrors.IsServerTimeout(err) || kerrors.IsTooManyRequests(err) ||
		kerrors.IsServiceUnavailable(err) || kerrors.IsInternalError(err) || kerrors.IsTimeout(err)
}
