package rest

import (
	"context"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// get responds with one object.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	// Ignoring the parameter would be wrong: the client expects an object without the fields that the server
	// sets.
	if queryValue(r, "export") == "true" {
		return kerrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	found, err := h.read(r, info, s)
	if err != nil {
		return err
	}
	// The error of the answer is explained too: an object that can be decrypted may still not be convertible to
	// the version of the request.
	o, err := s.Resource.Reader.Readable(r.Context(), found)
	if err == nil {
		err = h.answers.object(w, r, s, http.StatusOK, accepted, view{o: o})
	}
	return h.unreadable.explainRead(r.Context(), s, found, err)
}

// read returns the object that the request names: a state that is as new as the parameter resourceVersion demands,
// or the state at asOf. Its value may be unreadable.
func (h *Handler) read(r *http.Request, info *request.Info, s *served) (*cache.Object, error) {
	past, asked, err := h.past.view(r, s, info)
	if err != nil {
		return nil, err
	}
	if asked {
		return s.find(r.Context(), past, info)
	}
	rv := queryValue(r, "resourceVersion")
	if rv == "" {
		return s.latest(r.Context(), info)
	}
	// For a version that is not empty, the two functions differ only in their error (its code and text): see
	// UncachedGet.
	parse := parseWatchVersion
	if s.Kind.Requests.UncachedGet {
		parse = parseVersion
	}
	revision, err := parse(rv)
	if err != nil {
		return nil, err
	}
	view, err := s.Resource.Reader.NotOlderThan(r.Context(), revision)
	if err != nil {
		return nil, err
	}
	return s.find(r.Context(), view, info)
}

// latest returns the latest state of the object in the path, whatever the query is.
func (s *served) latest(ctx context.Context, info *request.Info) (*cache.Object, error) {
	view, err := s.Resource.Reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	return s.find(ctx, view, info)
}

// find returns the object that the path names from a view, or a NotFound error.
func (s *served) find(ctx context.Context, view *cache.View, info *request.Info) (*cache.Object, error) {
	o, ok, err := view.Get(ctx, s.Resource.Key(info.Namespace, info.Name))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, kerrors.NewNotFound(s.gr, info.Name)
	}
	return o, nil
}

func queryValue(r *http.Request, name string) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return r.URL.Query().Get(name)
}
