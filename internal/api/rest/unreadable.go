package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// This file is about objects whose stored value cannot be read (KEP-3926): it cannot be decrypted, or it cannot be
// decoded as an object of the version that a client asked for. The errors of reads name such objects. Clients with
// a special permission can delete them.

// maxUnreadable is the largest number of unreadable objects that the error of one list names.
const maxUnreadable = 100

// storageError returns the text of an error about the value of a key.
func storageError(what string, code int, key, detail string) string {
	return fmt.Sprintf("StorageError: %s, Code: %d, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", what, code, key, detail)
}

// whyUnreadable returns why the value of an object cannot be read in the version that is served, "" if it can.
func (s *served) whyUnreadable(ctx context.Context, o *cache.Object) string {
	readable, err := s.Resource.Reader.Readable(ctx, o)
	if err != nil {
		var transform *registry.TransformError
		if errors.As(o.Err(), &transform) {
			return fmt.Sprintf("data from the storage is not transformable revision=0: %v", transform.Err)
		}
		return fmt.Sprintf("object not decodable revision=%d: %v", o.Revision, o.Err())
	}
	if _, err := s.Resource.Decoder.DecodeAs(ctx, readable, s.Version); err != nil {
		return fmt.Sprintf("object not decodable revision=%d: %v", o.Revision, err)
	}
	return ""
}

// unreadable explains errors about values that cannot be read.
type unreadable struct {
	named      bool             // Options.NameUnreadable
	authorizer authz.Authorizer // nil allows everything
}

// possible reports whether the error of a request may be about a value that cannot be read. It returns false if the
// request has ended: nobody waits for the reason, so it need not be found.
func (u unreadable) possible(ctx context.Context, err error) bool {
	var status kerrors.APIStatus
	return err != nil && ctx.Err() == nil && u.named && (!errors.As(err, &status) || kerrors.IsInternalError(err))
}

// explainDelete is explainRead for the deletion of the object that the path names.
func (u unreadable) explainDelete(ctx context.Context, s *served, info *request.Info, err error) error {
	if !u.possible(ctx, err) {
		return err
	}
	o, notFound := s.latest(ctx, info)
	if notFound != nil {
		return err
	}
	return u.explainRead(ctx, s, o, err)
}

// explainRead returns an error for a failed read of one object. If the value of the object cannot be read, the
// error says why; otherwise it is err.
func (u unreadable) explainRead(ctx context.Context, s *served, o *cache.Object, err error) error {
	if !u.possible(ctx, err) {
		return err
	}
	detail := s.whyUnreadable(ctx, o)
	if detail == "" {
		return err
	}
	key := "/" + s.Kind.Storage.Path + "/" + o.Key
	return kerrors.NewInternalError(errors.New(storageError("corrupt object", corruptObject, key, detail)))
}

// The codes of errors about values.
const (
	// The numbers are those of the storage errors of kube-apiserver, which clients see in the message.
	invalidObject = 4
	corruptObject = 7
)

// explainList is explainRead for the objects of a list in a namespace; "" means all namespaces. It reads the
// collection again. This happens only after an error, and only if the gate is on.
func (u unreadable) explainList(ctx context.Context, s *served, namespace string, err error) error {
	if !u.possible(ctx, err) {
		return err
	}
	var causes []metav1.StatusCause
	_ = s.Resource.Reader.All(ctx, namespace, func(o *cache.Object) bool {
		detail := s.whyUnreadable(ctx, o)
		if detail == "" || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		key := s.Resource.StoreKey(o.Namespace, o.Name)
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeUnexpectedServerResponse, Field: key,
			Message: storageError("corrupt object", corruptObject, key, detail),
		})
		if len(causes) < maxUnreadable {
			return true
		}
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated",
		})
		return false
	})
	if len(causes) == 0 {
		return err
	}
	message := fmt.Sprintf("failed to read one or more %s from the storage: %s", s.gr, causes[0].Message)
	if more := min(len(causes), maxUnreadable) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Details: &metav1.StatusDetails{Group: s.gr.Group, Kind: s.gr.Resource, Name: "list", Causes: causes},
		Message: message,
	}}
}

const (
	unsafeDeleteVerb       = "unsafe-delete-ignore-read-errors"
	unsafeDeleteAnnotation = "apiserver.k8s.io/unsafe-delete-ignore-read-error"
)

// deleteUnreadable deletes an object that cannot be read, without regard to finalizers, preconditions and admission. It
// refuses to delete one that can be read.
func (h *Handler) deleteUnreadable(
	w http.ResponseWriter, r *http.Request, info *request.Info, s *served, accepted negotiate.Accepted, dryRun bool,
) error {
	ctx := r.Context()
	// The annotation is set before the permission is checked, so that refused attempts can be found in the audit
	// log too.
	audit.Annotate(ctx, unsafeDeleteAnnotation, "")
	if err := h.unreadable.authorizeDelete(ctx, info, s); err != nil {
		return err
	}
	view, err := s.Resource.Reader.Current(ctx)
	if err != nil {
		return err
	}
	o, found, err := view.Get(ctx, s.Resource.Key(info.Namespace, info.Name))
	switch {
	case err != nil:
		return err
	case !found:
		return kerrors.NewNotFound(s.gr, info.Name)
	case s.whyUnreadable(ctx, o) == "":
		return kerrors.NewConflict(s.gr, info.Name, errors.New(storageError(
			"invalid object", invalidObject, s.Resource.StoreKey(o.Namespace, o.Name),
			"unsafe deletion is not allowed because the object is decodable from storage")))
	}
	if !dryRun {
		if err := s.Resource.Writer.RemoveUnreadable(ctx, o); err != nil {
			return err
		}
	}
	return writeSuccess(w, r, http.StatusOK, accepted, &metav1.Status{Details: &metav1.StatusDetails{
		Name: info.Name, Group: s.gr.Group, Kind: s.gr.Resource,
	}})
}

// authorizeDelete requires the permission to delete objects that cannot be read. The verb delete was checked
// before. The further verb keeps users who may delete objects from skipping finalizers and admission.
func (u unreadable) authorizeDelete(ctx context.Context, info *request.Info, s *served) error {
	if u.authorizer == nil {
		return nil
	}
	asked := *info
	asked.Verb = unsafeDeleteVerb
	decision, reason, err := authz.Further(ctx, u.authorizer, authz.Attributes{User: request.UserFrom(ctx), Info: &asked})
	switch {
	case err != nil:
		return kerrors.NewForbidden(s.gr, info.Name,
			fmt.Errorf("error while checking permission for %q, %w", unsafeDeleteVerb, err))
	case decision != authz.Allow:
		return kerrors.NewForbidden(s.gr, info.Name,
			fmt.Errorf("not permitted to do %q, reason: %s", unsafeDeleteVerb, reason))
	}
	return nil
}

// refuseUnsafeCollection returns the error for a deletecollection with the option to delete unreadable objects.
// Each such deletion may break the cluster, so every object has to be named.
func refuseUnsafeCollection() error {
	return invalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
		field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
		"is not allowed with DELETECOLLECTION, try again after removing the option")})
}
