package registry

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestAuthor(t *testing.T) {
	long := strings.Repeat("x", 2*maxAuthorField)
	for _, a := range []Author{
		{},
		{User: "jane", Impersonator: "admin", Verb: "patch", Subresource: "status", Manager: "m", UserAgent: "kubectl/v1.37",
			AuditID: "6c9f2a50-2f0a-4c7b-8c5b-1d2f6b6f0a11", Reason: "owner gone"},
		{AuditID: "6C9F2A50-2f0a-4c7b-8c5b-1d2f6b6f0a11"}, // not a UUID in lower case
		{AuditID: "mine"},
		{UserAgent: long},
	} {
		b := a.Encode(nil)
		got, err := DecodeAuthor(b)
		if want := a; err == nil {
			want.UserAgent = want.UserAgent[:min(len(want.UserAgent), maxAuthorField)]
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		} else {
			t.Error(err)
		}
		for i := range b {
			if _, err := DecodeAuthor(b[:i]); err != nil && err != errAuthor {
				t.Error(err)
			}
		}
	}
	if n := len((&Author{AuditID: "6c9f2a50-2f0a-4c7b-8c5b-1d2f6b6f0a11"}).Encode(nil)); n != 24 {
		t.Errorf("a UUID is stored in %d bytes", n)
	}
}

// TestAuthorOfTheServer checks the Author of a write that a part of the server makes without a request.
func TestAuthorOfTheServer(t *testing.T) {
	ctx := request.WithReason(request.WithVerb(t.Context(), "delete", "status"), "why")
	want := Author{User: request.Server, Verb: "delete", Subresource: "status", Manager: "m", Reason: "why"}
	if got := authorOf(ctx, "update", "m"); got != want {
		t.Errorf("%+v", got)
	}
	ctx = request.WithInfo(ctx, &request.Info{Verb: "patch", UserAgent: "kubectl"})
	want = Author{User: request.Server, Verb: "patch", UserAgent: "kubectl", Manager: "m", Reason: "why"}
	if got := authorOf(ctx, "update", "m"); got != want {
		t.Errorf("%+v", got)
	}
}
