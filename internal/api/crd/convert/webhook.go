package convert

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// The limits of one call. A list is converted in one call up to these limits; a longer one is split into several
// calls, callsAtOnce of them at a time. 1000 objects at the usual 4 ms per object fit the timeout of a call.
const (
	objectsPerCall = 1000
	bytesPerCall   = 8 << 20
	callsAtOnce    = 4
)

// The longest accepted response has answerFactor times the bytes of the request, or answerMin if that is more. The
// limit for the number of its JSON values is answerFactor times the values of the request, or valuesMin if that is
// more (see webhook.Values).
const (
	answerFactor = 8
	answerMin    = 16 << 20
	valuesMin    = 1 << 17
)

// webhookConverter converts objects by calling a webhook.
type webhookConverter struct {
	name    string // name of the definition
	review  string // version of ConversionReview
	client  func() (*webhook.Client, error)
	metrics *Metrics
	timeout time.Duration
}

func (w *webhookConverter) Convert(
	ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion,
) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	var toSend []int // indexes of the objects to send
	version := to.String()
	for i, obj := range objs {
		switch {
		case isEmptyObject(obj):
			obj.SetAPIVersion(version)
			out[i] = obj
		case obj.GetAPIVersion() == version:
			out[i] = obj
		default:
			toSend = append(toSend, i)
		}
	}
	if len(toSend) == 0 {
		return out, nil
	}
	if w.review == "" {
		return nil, errNoReviewVersion
	}
	calls, err := w.split(objs, toSend, to)
	if err != nil {
		return nil, err
	}
	return out, w.sendAll(ctx, calls, out)
}

// isEmptyObject reports whether an object has no fields except apiVersion and kind.
func isEmptyObject(obj *unstructured.Unstructured) bool {
	_, version := obj.Object["apiVersion"]
	_, kind := obj.Object["kind"]
	return version && kind && len(obj.Object) == 2
}

// call is one request to the webhook, and the indexes of its objects in the result.
type call struct {
	objs    []*unstructured.Unstructured
	indexes []int
	to      schema.GroupVersion
	uid     string
	body    []byte
}

// gvk returns the kind for error messages about the whole call: the kind of the first object.
func (c *call) gvk() schema.GroupVersionKind { return c.objs[0].GroupVersionKind() }

func (w *webhookConverter) split(
	objs []*unstructured.Unstructured, toSend []int, to schema.GroupVersion,
) ([]*call, error) {
	var calls []*call
	var current *call
	for _, i := range toSend {
		if current == nil || len(current.objs) == objectsPerCall || len(current.body) >= bytesPerCall {
			if current != nil {
				current.body = endReview(current.body)
			}
			current = &call{to: to}
			current.uid, current.body = beginReview(w.review, to)
			calls = append(calls, current)
		}
		var err error
		if current.body, err = appendObject(current.body, len(current.objs), objs[i]); err != nil {
			return nil, err
		}
		current.objs, current.indexes = append(current.objs, objs[i]), append(current.indexes, i)
	}
	current.body = endReview(current.body)
	return calls, nil
}

// sendAll makes the calls and puts the converted objects into out. The first error cancels the other calls.
func (w *webhookConverter) sendAll(ctx context.Context, calls []*call, out []*unstructured.Unstructured) error {
	if len(calls) == 1 {
		return w.callMeasured(ctx, calls[0], out)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, callsAtOnce)
	var running sync.WaitGroup
	var once sync.Once
	var first error
	for _, c := range calls {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			if err := w.callMeasured(ctx, c, out); err != nil {
				once.Do(func() { first = err; cancel(err) })
			}
		})
	}
	running.Wait()
	if first == nil {
		return ctx.Err()
	}
	return first
}

// callMeasured makes one call and updates the metrics.
func (w *webhookConverter) callMeasured(ctx context.Context, c *call, out []*unstructured.Unstructured) error {
	start := time.Now()
	failure, err := w.send(ctx, c, out)
	took := time.Since(start)
	w.metrics.observeCall(took, failure)
	w.metrics.converted(w.name, c.gvk().Version, c.to.Version, took, strconv.FormatBool(err == nil))
	return err
}

// send makes one call. With an error it also returns the failure_type for the metrics.
func (w *webhookConverter) send(
	ctx context.Context, c *call, out []*unstructured.Unstructured,
) (failure string, err error) {
	failed := func(err error) error { return fmt.Errorf("conversion webhook for %v failed: %w", c.gvk(), err) }
	client, err := w.client()
	if err != nil {
		return callFailure, failed(fmt.Errorf("failed calling webhook %q: %w", "conversion_webhook_for_"+w.name, err))
	}
	text, err := client.Post(ctx, webhook.Call{
		Body: c.body, Timeout: w.timeout, MaxResponse: max(answerMin, answerFactor*int64(len(c.body))),
		MaxValues: max(valuesMin, answerFactor*webhook.Values(c.body)),
	})
	if err != nil {
		return callFailure, failed(err)
	}
	answer, err := readReview(text)
	if err != nil {
		return callFailure, failed(err)
	}
	if err := answer.check(w.review, c.uid); err != nil {
		return malformedFailure, failed(err)
	}
	converted := answer.Response.ConvertedObjects
	if len(converted) != len(c.objs) {
		return partialFailure, fmt.Errorf(
			"conversion webhook for %v returned %d objects, expected %d", c.gvk(), len(converted), len(c.objs),
		)
	}
	for i, text := range converted {
		obj, err := decodeConverted(c.objs[i], text, c.to, errorTextsOf(i, len(converted)))
		if err != nil {
			return invalidFailure, fmt.Errorf("conversion webhook for %v %w", c.gvk(), err)
		}
		out[c.indexes[i]] = obj
	}
	return "", nil
}
