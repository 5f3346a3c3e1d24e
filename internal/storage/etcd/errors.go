package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Error is the error of a request that the cluster did not answer. After a Commit with this error it is unknown
// whether the transaction took effect.
type Error struct {
	Op string
	// Timeout is true if the cluster accepted the request and did not complete it within etcd's own time limit,
	// for example because it has no quorum. Otherwise the cluster could not be reached, or its answer was invalid.
	Timeout bool
	Cause   error
}

func (e *Error) Error() string { return fmt.Sprintf("etcd: %s: %v", e.Op, e.Cause) }

func (e *Error) Unwrap() error { return e.Cause }

// Status returns the response for a client. Its code is 504 after a timeout, and otherwise 503.
func (e *Error) Status() metav1.Status {
	s := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: e.Error(),
	}
	if e.Timeout {
		s.Code, s.Reason = http.StatusGatewayTimeout, metav1.StatusReasonTimeout
	}
	return s
}

// convertError converts an error of the etcd client. Errors about compacted and future revisions are converted by the
// caller. op names the operation in the error text.
func (s *Store) convertError(ctx context.Context, op string, err error) error {
	if s.lifetime.ctx.Err() != nil {
		return storage.ErrClosed
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	timeout := false
	switch {
	case strings.Contains(err.Error(), "unsupported operations in txn request"): // kine's words
		err = fmt.Errorf("this is kine, which does not have all transactions of etcd; Keelson needs etcd or its own store: %w", err)
	case errors.Is(err, storage.ErrFailed):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return storage.ErrNoSpace
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), tooLargeMessage(err):
		return storage.ErrTooLarge
	case errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail),
		errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost), errors.Is(err, rpctypes.ErrTimeoutWaitAppliedIndex),
		errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		timeout = true
	}
	return &Error{Op: op, Timeout: timeout, Cause: err}
}

// transient reports whether another attempt may succeed: no member was reached, or the member has no leader at the
// moment.
func transient(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// tooLargeMessage reports whether gRPC itself rejected a request for its size, before it was sent to etcd.
func tooLargeMessage(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
