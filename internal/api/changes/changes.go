// Package changes serves the feed of changes of one namespace or of all: what was changed, when and by whom. It
// reads the log of the store, and shows names and the paths of fields, but no values. docs/history.md describes it
// for users.
package changes

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// maxWatches is the largest number of watches of a server. Its users share them fairly.
	maxWatches = 64
	// maxWorking is the largest number of watches that decode objects at the same time.
	maxWorking = 2
)

// Store is a store that keeps history.
type Store interface {
	storage.Store
	storage.History
}

// Options configure a Handler.
type Options struct {
	Resources  *directory.Directory
	Registry   *registry.Registry
	Store      Store
	Authorizer authz.Authorizer // nil: everything is allowed
	Now        func() time.Time
	// MinWatchTimeout is the shortest time after which a watch without timeoutSeconds ends; the longest is twice that.
	MinWatchTimeout time.Duration
}

// Handler serves the resource changes of history.keelson.dev.
type Handler struct {
	o       Options
	watches *fairshare.Pool
	working chan struct{} // has an element for each watch that decodes objects
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{o: o, watches: fairshare.NewPool(maxWatches), working: make(chan struct{}, maxWorking)}
}

// GVR is the resource that a Handler serves.
var GVR = schema.GroupVersionResource{Group: history.Group, Version: history.Version, Resource: request.ResourceChanges}

// ServeHTTP implements http.Handler. The request was authorized to list or watch changes in the namespace.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	var err error
	switch {
	case info.Name != "" || info.Subresource != "":
		err = apierr.PathNotFound()
	case info.Verb == "list":
		err = h.list(w, r, info)
	case info.Verb == "watch":
		err = h.watch(w, r, info)
	default:
		err = apierr.PathMethodNotAllowed()
	}
	if err != nil {
		apiresponse.Error(w, r, err)
	}
}

// list writes at most limit changes, or fewer if the budget is used up, and a continue token for the rest.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	f, err := h.open(r, info)
	if err != nil {
		return err
	}
	f.hold = func(n int) bool { return request.HoldMemory(r.Context(), n) }
	if f.held = registry.MemoryOfChanges; !f.hold(f.held) {
		return apierr.TooManyUnread()
	}
	list := history.ChangeList{
		TypeMeta: metav1.TypeMeta{Kind: "ChangeList", APIVersion: history.APIVersion}, Items: []history.ObjectChange{},
	}
	for more := true; more && len(list.Items) < f.limit && !f.budget.used(); {
		var part []history.ObjectChange
		if part, more, err = f.next(r.Context(), f.limit-len(list.Items)); err != nil {
			return err
		}
		list.Items = append(list.Items, part...)
		list.ResourceVersion, list.Continue = strconv.FormatInt(f.revision(), 10), ""
		if more {
			list.Continue = f.token()
		}
	}
	answer := any(&list)
	if wantsTable(r) {
		answer = tableOf(list.ListMeta, list.Items)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	info.Tracker.Serve(nil)
	if apiresponse.WantsPretty(r) {
		body = apiresponse.Indent(body)
	}
	request.ResponseFrom(r.Context()).ReleaseMemory() // it was counted for decoding, which has ended
	if !request.HoldMemory(r.Context(), len(body)) {
		return apierr.TooManyUnread()
	}
	w.Header().Set("Content-Type", apiresponse.JSON)
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// firstRevision returns the first revision that the user may see. That is the creation of the namespace, or 0 if
// the user may list the changes of all namespaces.
func (h *Handler) firstRevision(ctx context.Context, info *request.Info) (int64, error) {
	if info.Namespace == "" || h.o.Authorizer == nil {
		return 0, nil
	}
	everywhere := *info
	everywhere.Namespace = ""
	err := authz.Check(ctx, h.o.Authorizer, authz.Attributes{User: request.UserFrom(ctx), Info: &everywhere})
	if err == nil {
		return 0, nil
	}
	since, notRead := h.o.Registry.NamespaceSince(ctx, info.Namespace)
	if notRead != nil || since > 0 {
		return since, notRead
	}
	return 0, err // the namespace is gone
}
