package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/auth/requestheader"
	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/controller/garbagecollector"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

const (
	// clientPage is how many objects a Client reads at a time, and maxAnswer the largest response that it reads, in
	// bytes.
	clientPage, maxAnswer = 500, 64 << 20

	metadataType     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	metadataListType = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Client is how the controllers of this server use the resources of extension API servers. It has the methods of
// client.Client for metadata and deletions, with the same errors.
type Client struct {
	a    *Aggregator
	user *request.User
}

// Client returns a client that sends requests in the name of a user.
func (a *Aggregator) Client(user *request.User) *Client { return &Client{a, user} }

// call is one request of a Client.
type call struct {
	client.Ref
	method, accept, contentType string
	query                       url.Values
	body                        any
}

// do sends a request and decodes the response into an object, unless that is nil.
func (c *Client) do(ctx context.Context, r call, into any) error {
	response, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	return readAnswer(response, r, into)
}

// open sends a request and returns the response, whatever its status is.
func (c *Client) open(ctx context.Context, r call) (*http.Response, error) {
	gv := r.Resource.GroupVersion()
	remote := c.a.table.Load().remotes[gv]
	if remote == nil {
		return nil, kerrors.NewServiceUnavailable(fmt.Sprintf("no extension API server serves %v", gv))
	}
	if !remote.available.Load() {
		return nil, kerrors.NewServiceUnavailable(
			fmt.Sprintf("the extension API server of %v is not available: %s", gv, remote.reason()))
	}
	target, err := remote.target(ctx, r.path(), r.query.Encode())
	if err != nil {
		return nil, err
	}
	var body []byte
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, requestheader.Headers(c.user))
	req.Header.Set("Accept", r.accept)
	if r.body != nil {
		req.Header.Set("Content-Type", r.contentType)
	}
	response, err := remote.transport.RoundTripTo(req, target.Addresses[0])
	if err != nil {
		remote.suspect()
	}
	return response, err
}

// path returns the path of an object, or of a collection if the name is empty.
func (r *call) path() string {
	path := "/apis/" + r.Resource.GroupVersion().String()
	if r.Namespace != "" {
		path += "/namespaces/" + r.Namespace
	}
	path += "/" + r.Resource.Resource
	if r.Name != "" {
		path += "/" + r.Name
	}
	return path
}

// readAnswer decodes a response. The error is the Status that an error response contains, or else one made of its code.
func readAnswer(response *http.Response, r call, into any) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("the response of %v has more than %d bytes", r.Resource, maxAnswer)
	}
	if response.StatusCode < http.StatusBadRequest {
		if into == nil {
			return nil
		}
		return json.Unmarshal(text, into)
	}
	status := metav1.Status{}
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" {
		return &kerrors.StatusError{ErrStatus: status}
	}
	return kerrors.NewGenericServerResponse(
		response.StatusCode, r.method, r.Resource.GroupResource(), r.Name, string(text[:min(len(text), 256)]), 0, false)
}

// metadataOf returns what controllers need of an object's metadata.
func metadataOf(m *metav1.ObjectMeta) client.Metadata {
	revision, _ := strconv.ParseInt(m.ResourceVersion, 10, 64) // 0 if it is not a number
	return client.Metadata{
		Namespace: m.Namespace, Name: m.Name, Revision: revision,
		Lifecycle: registry.Lifecycle{
			UID: m.UID, Deleting: m.DeletionTimestamp != nil, Finalizers: m.Finalizers, Owners: m.OwnerReferences,
		},
	}
}

// GetMetadata returns the metadata of an object.
func (c *Client) GetMetadata(ctx context.Context, ref client.Ref) (client.Metadata, error) {
	var object metav1.PartialObjectMetadata
	err := c.do(ctx, call{Ref: ref, method: http.MethodGet, accept: metadataType}, &object)
	return metadataOf(&object.ObjectMeta), err
}

// ListMetadata calls yield with the metadata of each object, until it returns false. The revision that it returns is
// the resourceVersion of the list, 0 if that is not a number.
func (c *Client) ListMetadata(
	ctx context.Context, r client.ListRequest, yield func(client.Metadata) bool,
) (int64, error) {
	query := url.Values{"limit": {strconv.Itoa(clientPage)}}
	for {
		var list metav1.PartialObjectMetadataList
		if err := c.do(ctx, call{
			Ref:    client.Ref{Resource: r.Resource, Namespace: r.Namespace},
			method: http.MethodGet, accept: metadataListType, query: query,
		}, &list); err != nil {
			return 0, err
		}
		for i := range list.Items {
			if !yield(metadataOf(&list.Items[i].ObjectMeta)) {
				return 0, nil
			}
		}
		if list.Continue == "" {
			revision, _ := strconv.ParseInt(list.ResourceVersion, 10, 64)
			return revision, nil
		}
		query.Set("continue", list.Continue)
	}
}

// DeleteCollection deletes the objects of a resource in a namespace.
func (c *Client) DeleteCollection(ctx context.Context, r client.DeleteCollectionRequest) error {
	return c.delete(ctx, client.Ref{Resource: r.Resource, Namespace: r.Namespace}, r.Options)
}

// Delete deletes an object, or begins to. It cannot say whether the object is gone.
func (c *Client) Delete(ctx context.Context, r client.DeleteRequest) (gone bool, err error) {
	return false, c.delete(ctx, r.Ref, r.Options)
}

func (c *Client) delete(ctx context.Context, ref client.Ref, options *metav1.DeleteOptions) error {
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	return c.do(ctx, call{
		Ref: ref, method: http.MethodDelete, accept: "application/json", contentType: "application/json", body: options,
	}, nil)
}

// maxUpdates is how often Update tries again after a conflict.
const maxUpdates = 5

// Update changes the owner references and the finalizers of an object. Change is given the object's metadata alone.
func (c *Client) Update(ctx context.Context, r client.UpdateRequest) (registry.Object, error) {
	for try := 1; ; try++ {
		object := &metav1.PartialObjectMetadata{}
		err := c.do(ctx, call{Ref: r.Ref, method: http.MethodGet, accept: metadataType}, object)
		if err != nil {
			return nil, err
		}
		if err := r.Change(object); err != nil {
			return nil, err
		}
		err = c.do(ctx, call{
			Ref: r.Ref, method: http.MethodPatch, accept: metadataType, contentType: string(types.MergePatchType),
			body: map[string]any{"metadata": map[string]any{
				"uid": object.UID, "resourceVersion": object.ResourceVersion,
				"ownerReferences": object.OwnerReferences, "finalizers": object.Finalizers,
			}},
		}, object)
		if !kerrors.IsConflict(err) || try == maxUpdates {
			return object, err
		}
	}
}

// WatchMetadata watches the objects of a resource. The watch ends with ctx.
func (c *Client) WatchMetadata(ctx context.Context, r client.WatchRequest) (garbagecollector.Watch, error) {
	request := call{
		Ref: client.Ref{Resource: r.Resource, Namespace: r.Namespace}, method: http.MethodGet, accept: metadataType,
		query: url.Values{"watch": {"true"}, "resourceVersion": {strconv.FormatInt(r.From, 10)}},
	}
	response, err := c.open(ctx, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close() //nolint:errcheck // it was read
		return nil, readAnswer(response, request, nil)
	}
	return &metadataWatch{body: response.Body, decoder: json.NewDecoder(response.Body)}, nil
}

// metadataWatch is a watch of the objects of an extension API server.
type metadataWatch struct {
	body     io.Closer
	decoder  *json.Decoder
	revision int64
}

// NextMetadata waits for a change, until the context of the watch ends; it uses neither its own nor tick.
func (w *metadataWatch) NextMetadata(
	context.Context, <-chan time.Time,
) (changes []client.MetadataChange, revision int64, err error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := w.decoder.Decode(&event); err != nil {
		return nil, 0, err
	}
	if event.Type == watch.Error {
		status := metav1.Status{}
		if err := json.Unmarshal(event.Object, &status); err != nil {
			return nil, 0, err
		}
		return nil, 0, &kerrors.StatusError{ErrStatus: status}
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.Object, &object); err != nil {
		return nil, 0, err
	}
	m := metadataOf(&object.ObjectMeta)
	w.revision = max(w.revision, m.Revision)
	if event.Type == watch.Bookmark {
		return nil, w.revision, nil
	}
	return []client.MetadataChange{{Type: event.Type, Metadata: m}}, w.revision, nil
}

// Close ends the watch.
func (w *metadataWatch) Close() { _ = w.body.Close() } // nothing was written
