package undelete

import (
	"net/http"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/changes"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// GVR is the resource that a Handler serves: plans for objects that were deleted since a time, or that existed at
// a time.
var GVR = schema.GroupVersionResource{Group: history.Group, Version: history.Version, Resource: request.ResourceUndelete}

// Handler responds with plans to bring back several objects together.
type Handler struct {
	Planner *Planner
	Changes *changes.Handler // nil: the store keeps no history, and only what there was as of a resourceVersion is answered
}

// Resource returns the entry in the directory.
func (h *Handler) Resource() *directory.Resource {
	return &directory.Resource{GVR: GVR, Source: directory.BuiltIn, Handler: h, Hidden: true}
}

// ServeHTTP implements http.Handler. The request was authorized to list undelete in the namespace.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	if err := h.serve(w, r, info); err != nil {
		apiresponse.Error(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	switch {
	case info.Name != "" || info.Subresource != "":
		return apierr.PathNotFound()
	case info.Verb != "list":
		return apierr.PathMethodNotAllowed()
	}
	info.Tracker.Serve(nil)
	o := OptionsOf(r)
	if o.AsOf != "" {
		names := strings.Split(r.URL.Query().Get("resources"), ",")
		selector, err := request.ServedLabels(r.Context(), r.URL.Query().Get("labelSelector"))
		if err != nil {
			return apierr.Selector(err)
		}
		a, err := h.Planner.Listed(r.Context(), info, names, selector, o)
		return a.serve(w, err)
	}
	if h.Changes == nil {
		return kerrors.NewBadRequest(
			"the store does not know what was deleted when: name the resources, and say as of which resourceVersion with asOf")
	}
	feed := *info
	feed.Resource = request.ResourceChanges
	if err := h.Planner.Rights.May(r.Context(), "list", &feed, info.Namespace); err != nil {
		return err
	}
	deletions, err := h.Changes.Deletions(r, &feed)
	if err != nil {
		return err
	}
	a, err := h.Planner.Deleted(r.Context(), info, deletions, o)
	return a.serve(w, err)
}

// OptionsOf returns the parameters of a request.
func OptionsOf(r *http.Request) Options {
	query := r.URL.Query()
	return Options{AsOf: query.Get(history.AsOf), Manager: query.Get("fieldManager"), Hold: func(bytes int) error {
		if !request.HoldMemory(r.Context(), bytes) {
			return apierr.TooManyUnread()
		}
		return nil
	}}
}

// serve writes an answer, unless there is an error.
func (a *Answer) serve(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	a.Serve(w)
	return nil
}

// Serve writes the answer and closes it.
func (a *Answer) Serve(w http.ResponseWriter) {
	defer a.Close()
	w.Header().Set("Content-Type", apiresponse.JSON)
	if a.Write(w) != nil {
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

var namespaces, volumes = schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Resource: "persistentvolumes"}
