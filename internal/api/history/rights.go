package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// ReadHistory is the verb that a user needs for the past, besides get or list.
const ReadHistory = "readhistory"

// AsOf is the parameter that is a time (RFC 3339), a duration before now (1h30m) or a resourceVersion.
const AsOf = "asOf"

// Rights decides what the user of a request may read of the past.
type Rights struct {
	Authorizer authz.Authorizer // nil allows everything
	Registry   *registry.Registry
}

// May returns an error if the user may not use a verb on the object or resource that info names, in the given
// namespace. The namespace "" means all namespaces.
func (ri Rights) May(ctx context.Context, verb string, info *request.Info, namespace string) error {
	if ri.Authorizer == nil {
		return nil
	}
	asked := *info
	asked.Verb, asked.Namespace, asked.Subresource = verb, namespace, ""
	return authz.Check(ctx, ri.Authorizer, authz.Attributes{User: request.UserFrom(ctx), Info: &asked})
}

// Since returns the first revision at which the user may read a resource in the namespace of info: the creation of the
// namespace, or 0 for a user who may read the history of all namespaces.
//
// If the revisions of the resource and of namespaces cannot be compared, no other user may read the past. It may be the
// past of an earlier namespace with the same name.
func (ri Rights) Since(ctx context.Context, r *registry.Resource, info *request.Info) (int64, error) {
	if info.Namespace == "" {
		return 0, nil
	}
	everywhere := ri.May(ctx, ReadHistory, info, "")
	if everywhere == nil || !ri.Registry.HasRevisionsOfNamespaces(r) {
		return 0, everywhere
	}
	since, err := ri.Registry.NamespaceSince(ctx, info.Namespace)
	if err == nil && since == 0 {
		return 0, everywhere // the namespace is gone
	}
	return since, err
}

// RevisionOf returns the revision that asOf means for an object, or with the name "" for a resource in a namespace.
func RevisionOf(ctx context.Context, s *registry.Served, namespace, name, asOf string, now time.Time) (int64, error) {
	if revision, err := strconv.ParseUint(asOf, 10, 63); err == nil && revision > 0 {
		return int64(revision), nil
	}
	at, err := ParseTime(AsOf, asOf, now)
	if err != nil {
		return 0, err
	}
	if !at.Before(now) {
		return s.Resource.Reader.CurrentRevision(ctx)
	}
	revision, err := s.Resource.Past.RevisionAt(ctx, namespace, name, at)
	if errors.Is(err, registry.ErrNoHistory) {
		return 0, kerrors.NewBadRequest("asOf has to be a resourceVersion: " + err.Error())
	}
	return revision, NotKept(err)
}

// NotKept returns the error for a revision that is not kept any more, and other errors as they are.
func NotKept(err error) error {
	if compacted := (*storage.CompactedError)(nil); errors.As(err, &compacted) {
		return kerrors.NewResourceExpired(fmt.Sprintf(
			"the history goes back to resourceVersion %d; what was before is not kept any more", compacted.Compacted,
		))
	}
	return err
}
