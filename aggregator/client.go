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

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

const (
	// clientPage is how many objects a Client reads at a time, and maxAnswer the largest response that it reads, in bytes.
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
	gv := r.Resource.GroupVersion()
	remote := c.a.table.Load().remotes[gv]
	if remote == nil {
		return kerrors.NewNotFound(r.Resource.GroupResource(), r.Name)
	}
	if !remote.available.Load() {
		return kerrors.NewServiceUnavailable(
			fmt.Sprintf("the extension API server of %v is not available: %s", gv, remote.reason()))
	}
	target, err := remote.target(ctx, r.path(), r.query.Encode())
	if err != nil {
		return err
	}
	var body []byte
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target.URL.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, identity(c.user))
	req.Header.Set("Accept", r.accept)
	if r.body != nil {
		req.Header.Set("Content-Type", r.contentType)
	}
	response, err := remote.transport.RoundTripTo(req, target.Addresses[0])
	if err != nil {
		remote.suspect()
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	return readAnswer(response, r, into)
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

// ListMetadata calls yield with the metadata of each object, until it returns false. The revision that it returns is the
// resourceVersion of the list, 0 if that is not a number.
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

// Patch patches an object.
func (c *Client) Patch(ctx context.Context, r client.PatchRequest) (registry.Object, error) {
	object := &metav1.PartialObjectMetadata{}
	return object, c.do(ctx, call{
		Ref: r.Ref, method: http.MethodPatch, accept: metadataType, contentType: string(r.Type), body: json.RawMessage(r.Patch),
	}, object)
}
