package rest

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// delete begins or completes an object's deletion.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	options, err := h.requests.deleteOptions(r)
	if err != nil {
		return err
	}
	if ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return h.deleteUnreadable(w, r, info, s, accepted, len(options.DryRun) > 0)
	}
	s.warnOfOrphans(r, options)
	result, err := h.o.Writes.Delete(r.Context(), s.Served, info.Namespace, info.Name, options)
	if err != nil {
		return h.unreadable.explainDelete(r.Context(), s, info, err)
	}
	if result.Deleted && !s.Requests().ReturnDeleted {
		return writeDeleted(w, r, s, accepted, result.Object)
	}
	// 202 would be right whenever the object stays. kube-apiserver answers it only for the deprecated
	// orphanDependents=false, because older clients expect 200.
	code := http.StatusOK
	if o := options.OrphanDependents; !result.Deleted && o != nil && !*o { //nolint:staticcheck // deprecated, still served
		code = http.StatusAccepted
	}
	err = h.answers.result(w, r, s, code, accepted, result.Result)
	return shownOrDone(w, r, s, accepted, err, info.Name)
}

// shownOrDone is called with the error of the answer to a deletion that was carried out. If the deleted objects
// cannot be converted to the version of the request, it answers a Status with a warning: an error would say that
// nothing was deleted. It returns other errors.
func shownOrDone(
	w http.ResponseWriter, r *http.Request, s *served, accepted negotiate.Accepted, err error, name string,
) error {
	if !isConversionError(err) {
		return err
	}
	request.Warn(r.Context(),
		"the deletion was carried out, but its objects cannot be shown in version "+s.Version.Name+": "+err.Error())
	details := &metav1.StatusDetails{Name: name, Group: s.gr.Group, Kind: s.gr.Resource}
	return writeSuccess(w, r, http.StatusOK, accepted, &metav1.Status{Details: details})
}

// warnOfOrphans warns a client that did not choose a propagation policy if the default of the kind is to orphan
// dependents.
func (s *served) warnOfOrphans(r *http.Request, o *metav1.DeleteOptions) {
	//nolint:staticcheck // deprecated, still served
	if s.Kind.Requests.OrphanWarning != "" && o.PropagationPolicy == nil && o.OrphanDependents == nil {
		request.Warn(r.Context(), s.Kind.Requests.OrphanWarning)
	}
}

// writeDeleted responds with the Status of a completed deletion. It decodes the stored version: the UID is the
// same in all versions, and no conversion webhook is needed.
func writeDeleted(
	w http.ResponseWriter, r *http.Request, s *served, accepted negotiate.Accepted, o *cache.Object,
) error {
	obj, err := s.Resource.Decoder.DecodeStored(o)
	if err != nil {
		return err
	}
	return writeSuccess(w, r, http.StatusOK, accepted, &metav1.Status{Details: &metav1.StatusDetails{
		Name: o.Name, Group: s.gr.Group, Kind: s.gr.Resource, UID: obj.GetUID(),
	}})
}

// deleteOptions reads DeleteOptions from the body or, without one, the query.
func (q requests) deleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	// A DELETE without a body may have any Content-Type.
	media, err := q.formats.Body(r)
	if err != nil && r.ContentLength != 0 {
		return nil, err
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		if err := decodeDeleteOptions(media, body, options); err != nil {
			return nil, kerrors.NewBadRequest(err.Error())
		}
		noteDeleteOptions(r, options)
	} else if r.URL.RawQuery != "" {
		// The options come either from the body or from the query. If there is a body, the query is ignored.
		values, _ := url.ParseQuery(r.URL.RawQuery)
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&values, options, nil); err != nil {
			return nil, kerrors.NewBadRequest(err.Error())
		}
	}
	// Without the gate the option does not exist, and unknown fields of DeleteOptions are ignored.
	if !q.unsafeDeletes {
		options.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	}
	if errs := metavalidation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	return options, nil
}

// checkOptionsKind returns an error for a body that is not a DeleteOptions. The kind may be missing. A
// DeleteOptions of any group and version is accepted.
func checkOptionsKind(gvk schema.GroupVersionKind) error {
	if gvk.Kind == "" || gvk.Kind == "DeleteOptions" {
		return nil
	}
	if gvk.Version == "" && gvk.Group == "" {
		gvk.Group, gvk.Version = metav1.GroupName, "v1"
	}
	if gvk.Kind == "Status" && gvk.Version == "v1" && (gvk.Group == "" || gvk.Group == metav1.GroupName) {
		// kube-apiserver knows a Status in this place, but cannot convert it; other kinds are unknown to it. So
		// the errors differ.
		return errors.New("converting (v1.Status) to (v1.DeleteOptions): unknown conversion")
	}
	return scheme.NotRegistered(gvk)
}

// decodeDeleteOptions decodes the body of a DELETE. It checks the kind first, so that an object that was sent by
// mistake deletes nothing. Unknown fields are ignored: a DELETE has no fieldValidation.
func decodeDeleteOptions(media scheme.Media, body []byte, into *metav1.DeleteOptions) error {
	if media == scheme.Protobuf {
		envelope, err := scheme.OpenBody(body)
		if err != nil {
			return err
		}
		if err := checkOptionsKind(envelope.GroupVersionKind()); err != nil {
			return err
		}
		return into.Unmarshal(envelope.Raw)
	}
	var err error
	switch media {
	case scheme.YAML:
		body, err = scheme.YAMLToJSON(body)
	case scheme.CBOR:
		body, err = scheme.CBORToJSON(body)
	}
	if err != nil {
		return err
	}
	gvk, err := scheme.DocumentKind(body)
	if err != nil {
		return err
	}
	if err := checkOptionsKind(gvk); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(body, into)
}

// deleteCollection deletes the matching objects of a collection and responds with the list of them. It deletes
// DeleteCollectionWorkers objects concurrently.
func (h *Handler) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, &request.Info{Name: "collection"}, s)
	if err != nil {
		return err
	}
	list, err := parseListOptions(r)
	if err != nil {
		return err
	}
	sel, err := selectionFor(r.Context(), s, info.Namespace, "", &list, false)
	if err != nil {
		return err
	}
	options, err := h.requests.deleteOptions(r)
	if err != nil {
		return err
	}
	if ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return refuseUnsafeCollection()
	}
	// The state of exactly that version says which objects are deleted. They are then deleted by name: an object that
	// has replaced one of them under the same name is deleted too.
	if list.ResourceVersion != "" && list.ResourceVersion != "0" && list.ResourceVersionMatch == "" {
		list.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	s.warnOfOrphans(r, options)
	p, err := s.page(r, sel, &list)
	if err != nil {
		return err
	}
	workers, ctx := errgroup.WithContext(r.Context())
	workers.SetLimit(max(h.o.DeleteCollectionWorkers, 1))
	err = p.each(ctx, func(o *cache.Object) error {
		// The goroutine must not refer to the object, which a streamed page does not keep.
		namespace, name := o.Namespace, o.Name
		workers.Go(func() error {
			deletion := write.Deletion(s.Served, namespace, name, options.DeepCopy())
			deletion.Options.Collection = true
			_, err := h.o.Writes.Do(ctx, deletion)
			// Another request was faster. The object is gone, which is what the client asked for.
			if kerrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		return ctx.Err() // a deletion failed
	})
	if err := cmp.Or(workers.Wait(), err); err != nil {
		return err
	}
	err = h.answers.list(w, r, s, accepted, p)
	return shownOrDone(w, r, s, accepted, err, "")
}
