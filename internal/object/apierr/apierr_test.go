package apierr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestStatus compares the answers to errors, each of them also inside another error.
func TestStatus(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err                    error
		code                   int32
		reason, message, retry string
	}{
		{errors.New("broken"), 500, "InternalError", "Internal error occurred: broken", ""},
		{NotFound(pods, "a"), 404, "NotFound", `pods "a" not found`, ""},
		{kerrors.NewTooManyRequests("wait", 7), 429, "TooManyRequests", "wait", "7"},
		{&storage.CompactedError{Revision: 3, Compacted: 9}, 410, "Expired", "too old resource version: 3 (9)", ""},
		{
			&storage.FutureRevisionError{Revision: 9, Current: 3}, 504, "Timeout",
			"Timeout: Too large resource version: 9, current: 3", "1",
		},
		{
			storage.ErrNoSpace, 507, "InsufficientStorage", "the server has no space left for writes; reads and watches go on", "",
		},
		{storage.ErrTooLarge, 413, "RequestEntityTooLarge", "Request entity too large: object is larger than the store takes", ""},
		{storage.ErrClosed, 503, "ServiceUnavailable", storage.ErrClosed.Error(), ""},
		{storage.ErrFailed, 503, "ServiceUnavailable", storage.ErrFailed.Error(), ""},
		{
			context.DeadlineExceeded, 504, "Timeout", "Timeout: request did not complete within the allotted timeout", "",
		},
		{context.Canceled, 504, "Timeout", "Timeout: request did not complete within the allotted timeout", ""},
		{NotAcceptable("only JSON"), 406, "NotAcceptable", "only JSON", ""},
		{
			UnsupportedMediaType([]string{"a", "b"}), 415, "UnsupportedMediaType",
			"the body of the request was in an unknown format - accepted media types include: a, b", "",
		},
		{PathNotFound(), 404, "NotFound", "the server could not find the requested resource", ""},
		{PathMethodNotAllowed(), 405, "MethodNotAllowed", "the server does not allow this method on the requested resource", ""},
	} {
		s := Status(test.err)
		if s.Code != test.code || string(s.Reason) != test.reason || s.Message != test.message || s.Kind != "Status" ||
			s.APIVersion != "v1" || s.Status != "Failure" || RetryAfterSeconds(s) != test.retry {
			t.Errorf("%v: %+v, Retry-After %q", test.err, s, RetryAfterSeconds(s))
		}
		if inside := Status(fmt.Errorf("reading: %w", test.err)); test.code != 500 && test.code != 503 &&
			(inside.Code != s.Code || inside.Message != s.Message) {
			t.Errorf("%v inside another error: %+v", test.err, inside)
		}
	}
	if d := Status(PathNotFound()).Details; d == nil || d.Kind != "" {
		t.Errorf("the details of a path that is not served: %+v", d)
	}
	if c := Status(TooLargeVersion(9, 3)).Details.Causes; len(c) != 1 || c[0].Type != "ResourceVersionTooLarge" {
		t.Errorf("the causes of a version that is too large: %+v", c)
	}
}
