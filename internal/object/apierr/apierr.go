// Package apierr makes the errors that the registry and the verbs return. They become a Status (API conventions,
// "Response Status Kind") for the client only in the HTTP layer, by the function Status.
package apierr

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

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/storage"
)

// Status returns the Status that a client gets for err. Errors of this package, of
// k8s.io/apimachinery/pkg/api/errors and of storage have their own Status; any other error
// becomes an InternalError with its text.
func Status(err error) *metav1.Status {
	var s kerrors.APIStatus
	if errors.As(err, &s) {
		status := s.Status()
		status.APIVersion, status.Kind = "v1", "Status"
		return &status
	}
	var compacted *storage.CompactedError
	var future *storage.FutureRevisionError
	var noPast *storage.NoPastError
	switch {
	case errors.As(err, &noPast): // its cause may be another one of these errors
		return Status(kerrors.NewServiceUnavailable(err.Error()))
	case errors.As(err, &compacted):
		return Status(Expired(compacted))
	case errors.As(err, &future):
		return Status(TooLargeVersion(future.Revision, future.Current))
	case errors.Is(err, storage.ErrNoSpace):
		return statusOf(
			http.StatusInsufficientStorage, metav1.StatusReason("InsufficientStorage"),
			"the server has no space left for writes; reads and watches go on",
		)
	case errors.Is(err, storage.ErrTooLarge):
		return Status(kerrors.NewRequestEntityTooLargeError("object is larger than the store takes"))
	case errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrFailed), errors.Is(err, storage.ErrReadOnly):
		return Status(kerrors.NewServiceUnavailable(err.Error()))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Status(kerrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
	}
	return Status(kerrors.NewInternalError(err))
}

func statusOf(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// New returns an error whose Status has these fields.
func New(code int32, reason metav1.StatusReason, message string) error {
	return &kerrors.StatusError{ErrStatus: *statusOf(code, reason, message)}
}

// Expired returns the error for a resourceVersion whose history is gone.
func Expired(e *storage.CompactedError) error {
	return kerrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", e.Revision, e.Compacted))
}

// TooLargeVersion returns the error for a resourceVersion that has not been reached yet.
func TooLargeVersion(asked, current int64) error {
	const retrySeconds = 1
	err := kerrors.NewTimeoutError(
		fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), retrySeconds,
	)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// PathNotFound returns the error for a path that no resource serves.
func PathNotFound() error {
	return WithEmptyDetails(
		New(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"),
	)
}

// PathMethodNotAllowed returns the error for a method that is not allowed on a path.
func PathMethodNotAllowed() error {
	return WithEmptyDetails(
		New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource"),
	)
}

// NotAcceptable returns the error for an Accept header that the server cannot satisfy.
func NotAcceptable(message string) error {
	return New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// UnsupportedMediaType returns the error for a body of an unknown media type.
func UnsupportedMediaType(accepted []string) error {
	return New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

// NotFound returns the error for a missing object.
func NotFound(r schema.GroupResource, name string) error { return kerrors.NewNotFound(r, name) }

// TooManyUnread returns the 429 of a user whose responses take too much memory because they are not read.
func TooManyUnread() error {
	const seconds = 1
	return kerrors.NewTooManyRequests("Too many requests, please try again later.", seconds)
}

// Selector returns the error about a selector that was not parsed: 429 if its user has no memory left for it, 400 otherwise.
func Selector(err error) error {
	if errors.Is(err, request.ErrSelectorMemory) {
		return TooManyUnread()
	}
	return kerrors.NewBadRequest(err.Error())
}

// RetryAfterSeconds returns the Retry-After header's value for a status, "" for none.
func RetryAfterSeconds(s *metav1.Status) string {
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		return strconv.Itoa(int(s.Details.RetryAfterSeconds))
	}
	return ""
}

// WithEmptyDetails adds an empty member details to the Status of err, and returns err.
// kube-apiserver sends it with errors of its router.
func WithEmptyDetails(err error) error {
	var s *kerrors.StatusError
	if errors.As(err, &s) {
		s.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}
