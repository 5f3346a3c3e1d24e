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
)

const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

// check holds the preconditions of the request against the current object.
func (a *attempt) check(ctx context.Context) error {
	switch {
	case a.found == nil:
		return nil // an update that makes a missing object
	case a.verb == Delete:
		return a.checkDeletion(ctx)
	}
	return a.checkVersion()
}

// identify refuses a write that names another UID than the current object has: the client means an object that was
// deleted. Admission comes later and is not asked about such a write. Validation finds a UID that admission changes.
func (a *attempt) identify(context.Context) error {
	uid := a.obj.GetUID()
	switch {
	case uid == "":
		return nil
	case a.found == nil && a.verb == Apply:
		return kerrors.NewConflict(a.Target.GroupResource(), a.Name, fmt.Errorf(
			"uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	case !a.CheckUID || a.found != nil && uid == a.old().GetUID():
		return nil
	}
	return a.uidMismatch(uid)
}

// checkVersion holds the resourceVersion that a client sent against the current one.
func (a *attempt) checkVersion() error {
	gr, current := a.Target.GroupResource(), a.found.Revision
	rv := a.obj.GetResourceVersion()
	version, err := strconv.ParseUint(rv, 10, 63)
	switch {
	case rv == "" || err == nil && version == 0:
		if a.Target.Requests().UnconditionalUpdate {
			a.obj.SetResourceVersion(strconv.FormatInt(current, 10))
			return nil
		}
		return kerrors.NewInvalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, a.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update"),
		})
	case err != nil:
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	case int64(version) != current:
		return kerrors.NewConflict(gr, a.Name, errors.New(optimisticLock))
	}
	return nil
}

// uidMismatch words a failed precondition as kube-apiserver's storage layer does: the key that it names has the prefix of
// the store, unless the request is a dry run.
func (a *attempt) uidMismatch(want types.UID) error {
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
		check := a.checkDeletePreconditions
		if a.Target.Kind.Deletion.Started != nil {
			check = a.checkPreconditionsFirst
		}
		if err := check(p); err != nil {
			return err
		}
	}
	if before := a.Target.Kind.Deletion.Before; before != nil {
		return before(a.old())
	}
	return nil
}

func (a *attempt) checkDeletePreconditions(p *metav1.Preconditions) error {
	// kube-apiserver names the kind where a resource belongs.
	kind := schema.GroupResource{Group: a.Target.Kind.Group, Resource: a.Target.Kind.Name}
	name, uid, version := a.found.Name, a.old().GetUID(), strconv.FormatInt(a.found.Revision, 10)
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

// checkPreconditionsFirst is checkDeletePreconditions for the kinds with rules of their own for the begin of a deletion
// (namespaces, definitions), with the messages of these rules.
func (a *attempt) checkPreconditionsFirst(p *metav1.Preconditions) error {
	words := "precondition failed"
	if a.Target.Kind.Group == "" { // of namespaces
		words = "Precondition failed"
	}
	failed := func(what, want, have string) error {
		return kerrors.NewConflict(a.Target.Kind.GroupResource(), a.found.Name, fmt.Errorf(
			"%[1]s: %[2]s in precondition: %[3]s, %[2]s in object meta: %[4]s", words, what, want, have))
	}
	if p.UID != nil && *p.UID != a.old().GetUID() {
		return failed("UID", string(*p.UID), string(a.old().GetUID()))
	}
	if have := strconv.FormatInt(a.found.Revision, 10); p.ResourceVersion != nil && *p.ResourceVersion != have {
		return failed("ResourceVersion", *p.ResourceVersion, have)
	}
	return nil
}
