package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// This file is about reads of the past: a get or list with the parameter asOf, and a list at an exact resourceVersion that the
// store has compacted but still keeps. Everything after the choice of the view is as in other reads.

// checkAsOf returns an error if the request has the parameter asOf and is not a read of objects. For example, a
// deletecollection with asOf is refused, because it is not clear what it would delete. A subresource that opens a
// connection, such as proxy, may have the parameter: it is for the program behind the connection.
func checkAsOf(r *http.Request, info *request.Info, s *served) error {
	// Nearly all requests end here, without parsing the query.
	if !strings.Contains(r.URL.RawQuery, history.AsOf) || queryValue(r, history.AsOf) == "" {
		return nil
	}
	hidden := request.FindHidden(info.Subresource)
	switch sub := s.Kind.Subresource(info.Subresource); {
	case sub != nil && sub.Connect != nil:
		return nil
	// A parameter that would be ignored is refused: the client would take the present for the past.
	case sub == nil && hidden != nil && !hidden.AsOf:
		return kerrors.NewBadRequest("asOf is for get and list, not for " + info.Subresource)
	}
	switch info.Verb {
	case "get", "list":
		return nil
	case "watch":
		return kerrors.NewBadRequest("a watch cannot begin in the past: asOf is for get and list")
	}
	return kerrors.NewBadRequest("asOf is only for reads")
}

// past reads the past for users who have the permission.
type past struct {
	rights history.Rights // what users may read of it
	now    func() time.Time
}

// view returns the view of the objects in the namespace of the request as of the parameter asOf. asked is false if the request
// has none.
func (p past) view(r *http.Request, s *served, info *request.Info) (v *cache.View, asked bool, err error) {
	if !strings.Contains(r.URL.RawQuery, history.AsOf) {
		return nil, false, nil
	}
	asOf := queryValue(r, history.AsOf)
	if asOf == "" {
		return nil, false, nil
	}
	if queryValue(r, "resourceVersion") != "" {
		return nil, true, kerrors.NewBadRequest("asOf and resourceVersion cannot be used together")
	}
	if err := p.mayRead(r.Context(), info, info.Namespace); err != nil {
		return nil, true, err
	}
	revision, err := p.revisionOf(r.Context(), s, info, asOf)
	if err != nil {
		return nil, true, err
	}
	v, err = p.at(r.Context(), s, info, revision)
	return v, true, err
}

// page reads the objects that the options ask for: the current ones, or those of the past.
func (h *Handler) page(
	r *http.Request, info *request.Info, s *served, sel *selection, o *listOptions,
) (*page, error) {
	ctx := r.Context()
	view, asked, err := h.past.view(r, s, info)
	if err != nil {
		return nil, err
	}
	if !asked {
		p, err := s.page(r, sel, o)
		compacted := (*storage.CompactedError)(nil)
		exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact && o.Continue == ""
		// A user without the permission gets the same error as from kube-apiserver, that the version is too old.
		if !exact || !errors.As(err, &compacted) || h.past.mayRead(ctx, info, info.Namespace) != nil {
			return p, err
		}
		if view, err = h.past.at(ctx, s, info, compacted.Revision); err != nil {
			return nil, err
		}
	}
	token := (*continueToken)(nil)
	if o.Continue != "" {
		next, err := parseContinue(o.Continue)
		if err != nil {
			return nil, err
		}
		if next.Revision <= 0 {
			return nil, kerrors.NewBadRequest("invalid continue token: the list that it continues is not one of the past")
		}
		if view, err = h.past.at(ctx, s, info, next.Revision); err != nil {
			return nil, err
		}
		token = &next
	}
	p, err := s.readPage(ctx, sel, view, token.from(sel), int(max(o.Limit, 0)))
	return p, history.NotKept(err)
}

// at returns the view at a revision, for a user who may read the history of the namespace of the request. A
// revision before the creation of that namespace is only for users who may read the history of all namespaces.
func (p past) at(
	ctx context.Context, s *served, info *request.Info, revision int64,
) (*cache.View, error) {
	since, err := p.since(ctx, s, info)
	if err == nil && revision < since {
		err = p.mayRead(ctx, info, "") // an error: since is 0 for users who may
	}
	if err != nil {
		return nil, err
	}
	v, err := s.Resource.Past.View(ctx, revision, info.Namespace)
	return v, history.NotKept(err)
}

// mayRead returns an error if the user may not read the history of the resource in a namespace. The namespace ""
// means all namespaces.
func (p past) mayRead(ctx context.Context, info *request.Info, namespace string) error {
	return p.may(ctx, history.ReadHistory, info, namespace)
}

// may returns an error if the user may not use a verb on the object or resource of the request itself, in the
// given namespace.
func (p past) may(ctx context.Context, verb string, info *request.Info, namespace string) error {
	return p.rights.May(ctx, verb, info, namespace)
}

// revisionOf returns the revision that asOf means.
func (p past) revisionOf(ctx context.Context, s *served, info *request.Info, asOf string) (int64, error) {
	return history.RevisionOf(ctx, s.Served, info.Namespace, info.Name, asOf, p.now())
}
