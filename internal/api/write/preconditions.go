package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// optimisticLock is the message of kube-apiserver (OptimisticLockErrorMsg in k8s.io/apiserver), word for word.
// Users know it from the logs of their controllers.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

// check compares the preconditions of the request with the current object: the resourceVersion of an update, or the
// preconditions of a deletion.
func (a *attempt) check(ctx context.Context) error {
	switch {
	case a.found == nil:
		return nil // an update that makes a missing object
	case a.verb == Delete:
		return a.checkDeletion(ctx)
	}
	return a.current.checkVersion(a.obj)
}

// identify refuses a write that names another UID than the current object has: the client means an object that was
// deleted. Admission comes later and is not asked about such a write. Validation finds a UID that admission changes.
func (a *attempt) identify(context.Context) error {
	uid := a.obj.GetUID()
	switch {
	case uid == "":
		return nil
	// A configuration that names a UID must not create an object: the client means one that existed before.
	case a.found == nil && a.verb == Apply:
		return kerrors.NewConflict(a.Target.GroupResource(), a.Name, fmt.Errorf(
			"uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	// Only a PUT is refused here. A patch begins with the UID of the current object; if the patch changes the
	// UID, validation refuses the write, because the field is immutable.
	case !a.CheckUID || a.found != nil && uid == a.old().GetUID():
		return nil
	}
	return a.uidMismatch(uid)
}

// checkVersion compares the resourceVersion that a client sent in obj with the current one. If the client sent none,
// obj gets the current one; for a kind without unconditional updates that is an error.
func (c *Current) checkVersion(obj registry.Object) error {
	gr, current := c.target.GroupResource(), c.Object.Revision
	rv := obj.GetResourceVersion()
	version, err := strconv.ParseUint(rv, 10, 63)
	switch {
	// kube-apiserver reads a missing resourceVersion as 0. So "0" and "00" are unconditional too. The object gets
	// the current version, because validation requires one in an update.
	case rv == "" || err == nil && version == 0:
		if c.target.Requests().UnconditionalUpdate {
			obj.SetResourceVersion(strconv.FormatInt(current, 10))
			return nil
		}
		// As in kube-apiserver, the error names the resource in place of the kind, and the invalid value is the
		// number 0.
		return kerrors.NewInvalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, c.Object.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update"),
		})
	case err != nil:
		// kube-apiserver answers 500 here, although the client is at fault: "abc" and "-1" are no versions.
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	case int64(version) != current:
		return kerrors.NewConflict(gr, c.Object.Name, errors.New(optimisticLock))
	}
	return nil
}

// uidMismatch returns the error for a wrong UID in the words of kube-apiserver's storage layer. The error contains
// the key of the object: with the prefix /registry, but in a dry run without it.
func (a *attempt) uidMismatch(want types.UID) error {
	// Code 4 in the message means an invalid object; see invalidObject in package rest.
	key, have := a.Target.Resource.StoreKey(a.Namespace, a.Name), types.UID("")
	if a.Options.DryRun {
		key = strings.TrimPrefix(key, "/registry")
	}
	if a.found != nil {
		have = a.old().GetUID()
	}
	return kerrors.NewConflict(a.Target.GroupResource(), a.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		key, want, have))
}

// checkDeletion compares the preconditions of DeleteOptions with the current object, and calls the check of the kind.
func (a *attempt) checkDeletion(ctx context.Context) error {
	if p := a.Options.Delete.Preconditions; p != nil {
		check := a.current.checkPreconditions
		if a.Target.Kind.Deletion.Started != nil {
			check = a.current.checkPreconditionsFirst
		}
		if err := check(p); err != nil {
			return err
		}
	}
	// A deletion with wrong preconditions gets their conflict, also if the kind would refuse every deletion of
	// the object (the namespace default).
	if before := a.Target.Kind.Deletion.Before; before != nil {
		return before(a.old())
	}
	return nil
}

// checkPreconditions compares the preconditions of a deletion with the object.
func (c *Current) checkPreconditions(p *metav1.Preconditions) error {
	// kube-apiserver uses the name of the kind here in place of the resource.
	kind := schema.GroupResource{Group: c.target.Kind.Group, Resource: c.target.Kind.Name}
	name, uid, version := c.Object.Name, c.old.GetUID(), strconv.FormatInt(c.Object.Revision, 10)
	if p.UID != nil && *p.UID != uid {
		return kerrors.NewConflict(kind, name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, uid))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return kerrors.NewConflict(kind, name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, version))
	}
	return nil
}

// checkPreconditionsFirst is checkPreconditions for namespaces and definitions. kube-apiserver checks the
// preconditions of these kinds before their deletion begins, with other messages.
func (c *Current) checkPreconditionsFirst(p *metav1.Preconditions) error {
	words := "precondition failed"
	if c.target.Kind.Group == "" { // of namespaces
		words = "Precondition failed"
	}
	failed := func(what, want, have string) error {
		return kerrors.NewConflict(c.target.Kind.GroupResource(), c.Object.Name, fmt.Errorf(
			"%[1]s: %[2]s in precondition: %[3]s, %[2]s in object meta: %[4]s", words, what, want, have))
	}
	if p.UID != nil && *p.UID != c.old.GetUID() {
		return failed("UID", string(*p.UID), string(c.old.GetUID()))
	}
	if have := strconv.FormatInt(c.Object.Revision, 10); p.ResourceVersion != nil && *p.ResourceVersion != have {
		return failed("ResourceVersion", *p.ResourceVersion, have)
	}
	return nil
}
