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

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/write"
)

// A deleted definition stays until its objects are gone: its finalizer is removed
// after them.

// objectsWait is how long the objects of a deleted definition may take to go before
// the definition says that they do not.
const objectsWait = time.Minute

// finish deletes the objects of a definition in the background, once at a time.
func (s *Server) finish(ctx context.Context, d *definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finishing[d.name] {
		return
	}
	s.finishing[d.name] = true
	s.tasks.Go(func() {
		err := s.deleteObjects(ctx, d)
		s.mu.Lock()
		delete(s.finishing, d.name)
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("the objects of a deleted definition stay for now", "name", d.name, "error", err)
			time.AfterFunc(retryAfter, func() { s.work.Add(d.name) })
		}
	})
}

// deleteObjects deletes all objects of a definition, waits for the last, and lets
// the definition go.
func (s *Server) deleteObjects(ctx context.Context, d *definition) error {
	outcome := condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse, Reason: "NeverEstablished", Message: "resource was never established"}
	if d.status.established() {
		began := condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress"}
		if err := s.setCondition(ctx, d.name, began, false); err != nil {
			return ignoreNotFound(err)
		}
		var err error
		if outcome, err = s.emptyNow(ctx, d); err != nil {
			return errors.Join(err, ignoreNotFound(s.setCondition(ctx, d.name, outcome, false)))
		}
	}
	return ignoreNotFound(s.setCondition(ctx, d.name, outcome, true))
}

// setCondition sets a condition; release also removes the finalizer.
func (s *Server) setCondition(ctx context.Context, name string, c condition, release bool) error {
	return s.writeStatus(ctx, name, func(obj *apiextensionsv1.CustomResourceDefinition) {
		st := status{conditions: slices.Clone(obj.Status.Conditions)}
		st.set(c, s.o.Now())
		obj.Status.Conditions = st.conditions
		if release {
			obj.Finalizers = slices.DeleteFunc(slices.Clone(obj.Finalizers), func(f string) bool {
				return f == apiextensionsv1.CustomResourceCleanupFinalizer
			})
		}
	})
}

// emptyNow is empty by the definition as it is now: a change of it replaces the resource that its objects are
// found in.
func (s *Server) emptyNow(ctx context.Context, d *definition) (condition, error) {
	for try := 0; ; try++ {
		outcome, err := s.empty(ctx, d)
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

// empty deletes the objects and waits until there are none. The condition says
// what came of it.
func (s *Server) empty(ctx context.Context, d *definition) (condition, error) {
	failed := func(reason, what string, err error) (condition, error) {
		return condition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
			Reason: reason, Message: fmt.Sprintf("%s: %v", what, err),
		}, err
	}
	r, err := s.stored(d)
	if err != nil {
		return failed("InstanceDeletionFailed", "could not list instances", err)
	}
	view, err := r.Current(ctx)
	if err != nil {
		return failed("InstanceDeletionFailed", "could not list instances", err)
	}
	if err := s.deleteAll(ctx, r, view); err != nil {
		return failed("InstanceDeletionFailed", "could not issue all deletes", err)
	}
	if err := awaitEmpty(ctx, r); err != nil {
		return failed("InstanceDeletionCheck", "could not confirm zero CustomResources remaining", err)
	}
	return condition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse,
		Reason: "InstanceDeletionCompleted", Message: "removed all instances",
	}, nil
}

// errReplaced says that another state of a definition took the place of the one that is worked on.
var errReplaced = errors.New("the definition changed meanwhile")

// stored returns the resource of a definition in the version that is stored. It fails for a definition
// that was replaced before its kinds were compiled: those are closed without a resource.
func (s *Server) stored(d *definition) (*registry.Resource, error) {
	if _, err := s.bound(d, ""); err != nil {
		return nil, err
	}
	d.kinds.mu.Lock()
	defer d.kinds.mu.Unlock()
	if d.kinds.resource == nil {
		return nil, errReplaced
	}
	return d.kinds.resource, nil
}

// deletePage is how many objects are read at a time of those to delete.
const deletePage = 500

// deleteAll deletes the objects. Admission is not asked: it was, about the deletion of the definition.
func (s *Server) deleteAll(ctx context.Context, r *registry.Resource, view *cache.View) error {
	var errs []error
	served := registry.NewServed(r, r.Kind.Version(r.Kind.Storage.Version))
	err := view.Ascend(ctx, "", "", deletePage, func(o *cache.Object) bool {
		deletion := write.Deletion(served, o.Namespace, o.Name, &metav1.DeleteOptions{})
		deletion.Admitted = true
		_, err := s.o.Writes.Do(ctx, deletion)
		if err = ignoreNotFound(err); err != nil {
			errs = append(errs, err)
		}
		return ctx.Err() == nil
	})
	return errors.Join(append(errs, err)...)
}

// isEmpty says whether there is no object, and as of which revision.
func isEmpty(ctx context.Context, r *registry.Resource) (empty bool, revision int64, err error) {
	view, err := r.Current(ctx)
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

// awaitEmpty waits until the resource has no objects.
func awaitEmpty(ctx context.Context, r *registry.Resource) error {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	empty, revision, err := isEmpty(ctx, r)
	if err != nil || empty {
		return err
	}
	cursor, err := r.Watch(ctx, revision, cache.Interest{})
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
