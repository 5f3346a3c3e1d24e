package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/garbagecollector"
)

// WatchMetadata watches the objects of a resource. The watch ends with ctx, after watchTime or maxEvents events. Its
// response has to begin within callTime.
func (c *Client) WatchMetadata(ctx context.Context, r client.WatchRequest) (garbagecollector.Watch, error) {
	request := call{
		Ref: client.Ref{Resource: r.Resource}, method: http.MethodGet, accept: metadataType,
		query: url.Values{
			"watch": {"true"}, "resourceVersion": {strconv.FormatInt(r.From, 10)},
			"timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
		},
	}
	remote, end, err := c.begin(ctx, &request)
	if err != nil {
		return nil, err
	}
	defer end()
	lasting, cancel := context.WithTimeout(ctx, watchTime)
	begun := time.AfterFunc(callTime, cancel)
	response, err := c.send(lasting, remote, request)
	switch {
	case err == nil && response.StatusCode != http.StatusOK:
		_, err = readAnswer(response, request)
		if err == nil {
			err = fmt.Errorf("the watch of %v has status %d", r.Resource, response.StatusCode)
		}
		_ = response.Body.Close() // it was read
	case err == nil && !begun.Stop():
		_ = response.Body.Close() // it came too late
		err = context.Canceled
	}
	if err != nil {
		begun.Stop()
		tooLate := lasting.Err() != nil
		cancel()
		if tooLate {
			err = remote.late(ctx)
		}
		return nil, err
	}
	return newWatch(response.Body, cancel), nil
}

// metadataWatch is a watch of the objects of an extension API server.
type metadataWatch struct {
	body     io.Closer
	cancel   context.CancelFunc
	in       *pieces
	decoder  *json.Decoder
	revision int64
	events   int
}

func newWatch(body io.ReadCloser, cancel context.CancelFunc) *metadataWatch {
	in := &pieces{in: body}
	return &metadataWatch{body: body, cancel: cancel, in: in, decoder: json.NewDecoder(in)}
}

// usualEvent is a size in bytes. After a larger event, the memory of the decoder is given back (see shrink).
const usualEvent = 64 << 10

// errManyEvents ends a watch. Its objects are listed again then.
var errManyEvents = errors.New("the watch has had its number of events")

// NextMetadata waits for a change until the context of the watch ends. It ignores its parameters.
func (w *metadataWatch) NextMetadata(
	context.Context, <-chan time.Time,
) (changes []client.MetadataChange, revision int64, err error) {
	if w.events++; w.events > maxEvents {
		return nil, 0, errManyEvents
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	w.in.begin()
	if err := w.decoder.Decode(&event); err != nil {
		return nil, 0, err
	}
	if len(event.Object) > usualEvent {
		if err := w.shrink(); err != nil {
			return nil, 0, err
		}
	}
	if event.Type == watch.Error {
		status := metav1.Status{}
		if err := json.Unmarshal(event.Object, &status); err != nil {
			return nil, 0, err
		}
		return nil, 0, &kerrors.StatusError{ErrStatus: status}
	}
	var object objectMeta
	if err := json.Unmarshal(event.Object, &object); err != nil {
		return nil, 0, err
	}
	m := object.metadata()
	w.revision = max(w.revision, m.Revision)
	if event.Type == watch.Bookmark {
		return nil, w.revision, nil
	}
	return []client.MetadataChange{{Type: event.Type, Metadata: m}}, w.revision, nil
}

// shrink gives back the memory of the decoder, which keeps as much as the largest event had.
func (w *metadataWatch) shrink() error {
	rest, err := io.ReadAll(w.decoder.Buffered())
	if err != nil {
		return err
	}
	w.in.unread = append(rest, w.in.unread...)
	w.decoder = json.NewDecoder(w.in)
	return nil
}

// Close ends the watch.
func (w *metadataWatch) Close() {
	w.cancel()
	_ = w.body.Close() // nothing was written
}
