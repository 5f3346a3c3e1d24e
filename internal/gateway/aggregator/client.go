package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	// clientPage is the number of objects in a page of a list.
	clientPage = 500
	// maxAnswer is the largest page of a list that is read, in bytes. maxObject is the largest size of one object:
	// in a list, in an event of a watch, or as the whole response.
	maxAnswer, maxObject = 64 << 20, 4 << 20
	// maxIgnored is how many bytes are read of a response whose body is not used.
	maxIgnored = 64 << 10
	// maxList limits the bytes of all pages of one list, maxKept the bytes of the metadata in a list, which the garbage
	// collector keeps.
	maxList, maxKept = 1 << 30, 256 << 20
	// maxToken is the longest continue token, in bytes.
	maxToken = 64 << 10
	// maxEvents limits the number of events of one watch. The list that follows shows how many objects really
	// exist. watchTime limits the duration of a watch.
	maxEvents = 100_000
	watchTime = 30 * time.Minute

	metadataType     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	metadataListType = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Client is the access of this server's controllers to the resources of extension API servers. It has the methods of
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

// do sends a request and decodes the response, which is one object, into the value into. If into is nil, the
// response is not used.
func (c *Client) do(ctx context.Context, r call, into any) error {
	return c.exchange(ctx, r, func(response *http.Response) error {
		if into == nil && response.StatusCode < http.StatusBadRequest {
			// The response of a deletion may be a long list and is not used. The connection is used again if the body
			// is short.
			_, err := io.CopyN(io.Discard, response.Body, maxIgnored)
			return ignoreEOF(err)
		}
		text, err := readAnswer(response, r)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, into)
	})
}

// exchange sends a request and calls read with the response. Both have to end within callTime.
func (c *Client) exchange(ctx context.Context, r call, read func(*http.Response) error) error {
	remote, end, err := c.begin(ctx, &r)
	if err != nil {
		return err
	}
	defer end()
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	response, err := c.send(limited, remote, r)
	if err == nil {
		defer response.Body.Close() //nolint:errcheck // it was read
		err = read(response)
	}
	if err != nil && limited.Err() != nil {
		return remote.late(ctx)
	}
	return err
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// late returns the error of a call that was not answered in time, or was canceled with ctx.
func (r *remote) late(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.suspect()
	const seconds = 1
	return kerrors.NewTimeoutError(
		fmt.Sprintf("the extension API server of %v did not answer within %v", r.version, callTime), seconds)
}

// begin waits until a request may be sent, and returns its server. end has to be called when the response was
// read.
func (c *Client) begin(ctx context.Context, r *call) (server *remote, end func(), err error) {
	gv := r.Resource.GroupVersion()
	remote := c.a.table.Load().remotes[gv]
	if remote == nil {
		return nil, nil, kerrors.NewServiceUnavailable(fmt.Sprintf("no extension API server serves %v", gv))
	}
	if !remote.available.Load() {
		return nil, nil, kerrors.NewServiceUnavailable(
			fmt.Sprintf("the extension API server of %v is not available: %s", gv, remote.reason()))
	}
	end, err = remote.calls.lane(r).begin(ctx, remote.calls.service)
	return remote, end, err
}

// send sends a request and returns the response, whatever its status code.
func (c *Client) send(ctx context.Context, remote *remote, r call) (*http.Response, error) {
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
func (c *call) path() string {
	path := "/apis/" + c.Resource.GroupVersion().String()
	if c.Namespace != "" {
		path += "/namespaces/" + c.Namespace
	}
	path += "/" + c.Resource.Resource
	if c.Name != "" {
		path += "/" + c.Name
	}
	return path
}

// readAnswer reads a response that is one object. The error is the Status that an error response contains, or else one
// made of its code.
func readAnswer(response *http.Response, r call) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxObject+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxObject {
		return nil, fmt.Errorf("the response of %v has more than %d bytes", r.Resource, maxObject)
	}
	if response.StatusCode < http.StatusBadRequest {
		return text, nil
	}
	status := metav1.Status{}
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" {
		return nil, &kerrors.StatusError{ErrStatus: status}
	}
	return nil, kerrors.NewGenericServerResponse(
		response.StatusCode, r.method, r.Resource.GroupResource(), r.Name, string(text[:min(len(text), 256)]), 0, false)
}

// objectMeta is the metadata that controllers need.
type objectMeta struct {
	Metadata struct {
		Namespace         string                  `json:"namespace"`
		Name              string                  `json:"name"`
		ResourceVersion   string                  `json:"resourceVersion"`
		UID               types.UID               `json:"uid"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		Finalizers        []string                `json:"finalizers"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

// metadata returns the metadata in the type that controllers use.
func (o *objectMeta) metadata() client.Metadata {
	m := &o.Metadata
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
	var object objectMeta
	err := c.do(ctx, call{Ref: ref, method: http.MethodGet, accept: metadataType}, &object)
	return object.metadata(), err
}

// ListMetadata calls yield with the metadata of each object, until it returns false. The revision that it returns is
// the resourceVersion of the list, 0 if that is not a number. Objects may have been yielded before an error is found.
func (c *Client) ListMetadata(
	ctx context.Context, r client.ListRequest, yield func(client.Metadata) bool,
) (int64, error) {
	l := &list{resource: r.Resource, yield: yield, bytes: maxList, kept: maxKept, tokens: map[uint64]bool{}}
	query := url.Values{"limit": {strconv.Itoa(clientPage)}}
	for {
		if err := c.exchange(ctx, call{
			Ref:    client.Ref{Resource: r.Resource, Namespace: r.Namespace},
			method: http.MethodGet, accept: metadataListType, query: query,
		}, l.read); err != nil {
			return 0, err
		}
		if l.ended {
			return 0, nil
		}
		if l.next == "" {
			revision, _ := strconv.ParseInt(l.revision, 10, 64)
			return revision, nil
		}
		query.Set("continue", l.next)
	}
}

// DeleteCollection deletes the objects of a resource in a namespace.
func (c *Client) DeleteCollection(ctx context.Context, r client.DeleteCollectionRequest) error {
	return c.delete(ctx, client.Ref{Resource: r.Resource, Namespace: r.Namespace}, r.Options)
}

// Delete deletes an object, or starts its deletion. gone is always false, because the response does not show
// whether the object is gone.
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

// maxUpdates limits how often Update tries again after a conflict.
const maxUpdates = 5

// Update changes the owner references and the finalizers of an object. Change gets an object that has only
// metadata.
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
