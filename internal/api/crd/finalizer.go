package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A definition that is being deleted stays until its objects are deleted; then its finalizer is removed.

// objectsWait is the time that the server waits for the objects of a deleted definition to disappear before it reports
// a failure in the condition Terminating.
const objectsWait = time.Minute

// startDeletingObjects starts a goroutine that deletes the objects of a definition. It does nothing if one is
// running.
func (s *Server) startDeletingObjects(ctx context.Context, d *definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deletingObjects[d.uid] {
		return
	}
	s.deletingObjects[d.uid] = true
	s.o.Activity.Add(1)
	s.tasks.Go(func() {
		defer s.o.Activity.Add(-1)
		err := s.deleteObjects(ctx, d)
		s.mu.Lock()
		delete(s.deletingObjects, d.uid)
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn(
				"deleting the objects of a deleted definition failed; it will be tried again", "name", d.name, "error", err,
			)
			s.addLater(d.name)
		}
	})
}

// deleteObjects deletes all objects of a definition, waits until none is left, and removes the finalizer.
func (s *Server) deleteObjects(ctx context.Context, d *definition) error {
	outcome := newCondition(apiextensionsv1.Terminating, apiextensionsv1.ConditionFalse,
		"NeverEstablished", "resource was never established")
	if d.status.established() {
		began := newCondition(apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue,
			"InstanceDeletionInProgress", "CustomResource deletion is in progress")
		if err := s.setCondition(ctx, d, began, false); err != nil {
			return ignoreNotFound(err)
		}
		var err error
		if outcome, err = s.deleteObjectsOfCurrent(ctx, d); err != nil {
			return errors.Join(err, ignoreNotFound(s.setCondition(ctx, d, outcome, false)))
		}
	}
	return ignoreNotFound(s.setCondition(ctx, d, outcome, true))
}

// setCondition sets a condition. If release is true it also removes the finalizer. It returns a NotFound error if the
// definition is gone, and also if there is a new one of its name.
func (s *Server) setCondition(ctx context.Context, d *definition, c condition, release bool) error {
	return s.writeStatus(ctx, d.name, func(obj *apiextensionsv1.CustomResourceDefinition) error {
		if obj.UID != d.uid {
			return kerrors.NewNotFound(resource, d.name)
		}
		st := status{conditions: slices.Clone(obj.Status.Conditions)}
		st.set(c, s.o.Now())
		obj.Status.Conditions = st.conditions
		if release {
			obj.Finalizers = slices.DeleteFunc(slices.Clone(obj.Finalizers), func(f string) bool {
				return f == apiextensionsv1.CustomResourceCleanupFinalizer
			})
		}
		return nil
	})
}

// deleteObjectsOfCurrent calls deleteAndAwait. If the definition was replaced meanwhile, it calls deleteAndAwait
// again with the current state of the definition, because each state has a resource of its own.
func (s *Server) deleteObjectsOfCurrent(ctx context.Context, d *definition) (condition, error) {
	for try := 0; ; try++ {
		outcome, err := s.deleteAndAwait(ctx, d)
		if !errors.Is(err, cache.ErrRemoved) || try == maxChanges {
			return outcome, err
		}
		select {
		case <-time.After(time.Duration(try) * changePause):
		case <-ctx.Done():
			return outcome, ctx.Err()
		}
		s.mu.Lock()
		if now := s.byName[d.name]; now != nil && now.uid == d.uid {
			d = now
		}
		s.mu.Unlock()
	}
}

// deleteAndAwait deletes the objects of a definition and waits until none is left. New creates are refused. It
// first waits for creates that had begun to store their object. It returns the condition Terminating that
// describes the result, also with an error.
func (s *Server) deleteAndAwait(ctx context.Context, d *definition) (condition, error) {
	failed := func(reason, what string, err error) (condition, error) {
		return newCondition(apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue,
			reason, fmt.Sprintf("%s: %v", what, err)), err
	}
	r, err := s.storedResource(d)
	if err != nil {
		return failed("InstanceDeletionFailed", "could not list instances", err)
	}
	if err := drain(ctx, d.creates); err != nil {
		return failed("InstanceDeletionCheck", "could not wait for creates", err)
	}
	view, err := r.Reader.Current(ctx)
	if err != nil {
		return failed("InstanceDeletionFailed", "could not list instances", err)
	}
	if err := deleteAll(ctx, s.o.Writes, r, view); err != nil {
		return failed("InstanceDeletionFailed", "could not issue all deletes", err)
	}
	if err := awaitEmpty(ctx, r); err != nil {
		return failed("InstanceDeletionCheck", "could not confirm zero CustomResources remaining", err)
	}
	return newCondition(apiextensionsv1.Terminating, apiextensionsv1.ConditionFalse,
		"InstanceDeletionCompleted", "removed all instances"), nil
}

// drain waits until the creates that had begun are done. It fails after objectsWait.
func drain(ctx context.Context, creates *registry.Gate) error {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	return creates.Drain(ctx)
}

// errReplaced means that the definition has changed before the server could use its kinds.
var errReplaced = fmt.Errorf("the definition changed meanwhile: %w", cache.ErrRemoved)

// storedResource returns the resource of a definition in its storage version. It fails with errReplaced if the
// definition was replaced before its kinds were compiled.
func (s *Server) storedResource(d *definition) (*registry.Resource, error) {
	_, err := s.bound(d, "")
	switch {
	case errors.Is(err, cache.ErrRemoved):
		return nil, errReplaced
	case err != nil:
		return nil, err
	}
	d.kinds.mu.Lock()
	defer d.kinds.mu.Unlock()
	if d.kinds.resource == nil {
		return nil, errReplaced
	}
	return d.kinds.resource, nil
}

// deletePage is the number of objects that deleteAll reads at a time.
const deletePage = 500

// deleteAll deletes the objects in view, without admission: admission has already accepted the deletion of the
// definition.
func deleteAll(ctx context.Context, writes *write.Pipeline, r *registry.Resource, view *cache.View) error {
	var errs []error
	served := registry.NewServed(r, r.Kind.Version(r.Kind.Storage.Version))
	err := view.Ascend(ctx, "", "", deletePage, func(o *cache.Object) bool {
		deletion := write.Deletion(served, o.Namespace, o.Name, &metav1.DeleteOptions{})
		deletion.Admitted = true
		_, err := writes.Do(ctx, deletion)
		if err = ignoreNotFound(err); err != nil {
			errs = append(errs, err)
		}
		return ctx.Err() == nil
	})
	return errors.Join(append(errs, err)...)
}

// isEmpty reports whether the resource has no objects, and at which revision.
func isEmpty(ctx context.Context, r *registry.Resource) (empty bool, revision int64, err error) {
	view, err := r.Reader.Current(ctx)
	if err != nil {
		return false, 0, err
	}
	empty = true
	err = view.Ascend(ctx, "", "", 1, func(*cache.Object) bool {
		empty = false
		return false
	})
	return empty, view.Revision(), err
}

// awaitEmpty waits until the resource has no objects. It fails after objectsWait.
func awaitEmpty(ctx context.Context, r *registry.Resource) error {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	empty, revision, err := isEmpty(ctx, r)
	if err != nil || empty {
		return err
	}
	cursor, err := r.Reader.Watch(ctx, revision, cache.Interest{})
	if err != nil {
		return err
	}
	defer cursor.Close()
	for {
		if _, _, err := cursor.Next(ctx); err != nil {
			return err
		}
		if empty, _, err = isEmpty(ctx, r); err != nil || empty {
			return err
		}
	}
}

func ignoreNotFound(err error) error {
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}
