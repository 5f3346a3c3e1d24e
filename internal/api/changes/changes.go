// Package changes serves the feed of what changed: in a namespace, or in all, since a time, by whom. It reads the log of the store, and
// shows names and the paths of fields, no values. docs/history.md describes it for users.
package changes

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// defaultSince is how far a feed without since goes back.
	defaultSince = time.Hour

	defaultLimit, maxLimit = 200, 1000
	// examine bounds the revisions that a request reads. A response with fewer changes than the limit may have continue.
	examine = 20_000
)

// Handler serves the resource changes of history.keelson.dev.
type Handler struct {
	Resources  *directory.Directory
	Registry   *registry.Registry
	Store      storage.History
	Authorizer authz.Authorizer
	Now        func() time.Time
}

// Serves reports whether a request is for the feed.
func Serves(i *request.Info) bool {
	return i.Group+"/"+i.Version == history.APIVersion && i.Resource == "changes"
}

// ServeHTTP implements http.Handler. The request was authorized to list changes in the namespace.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	var list *history.ChangeList
	err := error(apierr.PathMethodNotAllowed())
	switch {
	case info.Name != "" || info.Subresource != "":
		err = apierr.PathNotFound()
	case info.Verb == "list":
		list, err = h.list(r, info)
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(list)
	}
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	info.Tracker.Serve(nil)
	if apiresponse.WantsPretty(r) {
		body = apiresponse.Indent(body)
	}
	w.Header().Set("Content-Type", apiresponse.JSON)
	_, _ = w.Write(append(body, '\n'))
}

func (h *Handler) list(r *http.Request, info *request.Info) (*history.ChangeList, error) {
	ctx := r.Context()
	asked, limit, err := h.parse(r)
	if err != nil {
		return nil, err
	}
	first, err := h.firstRevision(ctx, info)
	if err != nil {
		return nil, err
	}
	asked.After = max(asked.After, first-1)
	list := &history.ChangeList{
		TypeMeta: metav1.TypeMeta{Kind: "ChangeList", APIVersion: history.APIVersion}, Items: []history.ObjectChange{},
	}
	resources := h.index()
	for {
		found, err := h.Store.Changes(ctx, asked)
		if err != nil {
			return nil, err
		}
		for i := range found.Changes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c, ok, err := h.change(ctx, &found.Changes[i], resources, info.Namespace)
			if err != nil {
				return nil, err
			}
			if ok {
				list.Items = append(list.Items, c)
			}
		}
		asked.After = found.Through
		asked.Examine -= found.Examined
		if !found.More || len(list.Items) >= limit || asked.Examine <= 0 {
			list.ResourceVersion = strconv.FormatInt(found.Through, 10)
			if found.More {
				list.Continue = list.ResourceVersion
			}
			return list, nil
		}
	}
}

// parse returns what a request asks for, and how many changes it wants at most, by and large: all changes of a revision are in one
// response.
func (h *Handler) parse(r *http.Request) (asked storage.ChangesRequest, limit int, err error) {
	query := r.URL.Query()
	limit = defaultLimit
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return asked, 0, kerrors.NewBadRequest("invalid limit " + strconv.Quote(text))
		}
		limit = min(limit, maxLimit)
	}
	asked = storage.ChangesRequest{Prefix: registry.Root, Limit: limit, KeysOnly: true, Examine: examine}
	if next := query.Get("continue"); next != "" {
		if asked.After, err = strconv.ParseInt(next, 10, 64); err != nil || asked.After < 1 {
			return asked, 0, kerrors.NewBadRequest("invalid continue token")
		}
		return asked, limit, nil
	}
	since := query.Get("since")
	if since == "" {
		since = defaultSince.String()
	}
	if revision, e := strconv.ParseUint(since, 10, 63); e == nil {
		asked.After = int64(revision)
		return asked, limit, nil
	}
	asked.Since, err = history.ParseTime("since", since, h.Now())
	return asked, limit, err
}

// firstRevision returns the first revision that the user may see: the creation of the namespace, or 0 for a user who may list the changes
// of all.
func (h *Handler) firstRevision(ctx context.Context, info *request.Info) (int64, error) {
	if info.Namespace == "" || h.Authorizer == nil {
		return 0, nil
	}
	everywhere := *info
	everywhere.Namespace = ""
	err := authz.Check(ctx, h.Authorizer, authz.Attributes{User: request.UserFrom(ctx), Info: &everywhere})
	if err == nil {
		return 0, nil
	}
	since, notRead := h.Registry.NamespaceSince(ctx, info.Namespace)
	if notRead != nil || since > 0 {
		return since, notRead
	}
	return 0, err // the namespace is gone
}

// index returns the resources that are served by their names, each in its preferred version.
func (h *Handler) index() map[schema.GroupResource]*directory.Resource {
	index := map[schema.GroupResource]*directory.Resource{}
	for _, gv := range h.Resources.GroupVersions() {
		for _, r := range h.Resources.Resources(gv) {
			before := index[r.GVR.GroupResource()]
			if before == nil || apiversion.CompareKubeAwareVersionStrings(r.GVR.Version, before.GVR.Version) > 0 {
				index[r.GVR.GroupResource()] = r
			}
		}
	}
	return index
}

// change returns a change as it is answered. ok is false if it is not in the namespace, or of nothing that is served.
func (h *Handler) change(
	ctx context.Context, c *storage.Change, resources map[schema.GroupResource]*directory.Resource, namespace string,
) (out history.ObjectChange, ok bool, err error) {
	gr, in, name := h.Registry.ParseKey(c.Entry.Key)
	found := resources[gr]
	if found == nil || name == "" || namespace != "" && in != namespace {
		return out, false, nil
	}
	served, done, err := found.Open(ctx)
	if kerrors.IsNotFound(err) {
		return out, false, nil // its definition has just gone
	}
	if err != nil {
		return out, false, err
	}
	defer done()
	// The change and the one before it, which tells what has changed.
	versions, _, err := served.Changes(ctx, in, name, c.Entry.ModRevision+1, 2)
	if err != nil || len(versions) == 0 || versions[0].Revision != c.Entry.ModRevision {
		return out, false, err // without an error, it has just been given up
	}
	before := history.Version{}
	if len(versions) == 2 {
		before = history.Decode(ctx, served, &versions[1])
	}
	out = history.ObjectChange{
		Group: found.GVR.Group, Version: found.GVR.Version, Resource: found.GVR.Resource, Namespace: in, Name: name,
		Change: history.Describe(&versions[0], history.Decode(ctx, served, &versions[0]), before),
	}
	return out, true, nil
}
