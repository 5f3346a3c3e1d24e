package convert

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/webhook"
)

// What one call asks at most. A list is one call unless it is so long that a webhook
// that takes the customary 4 ms for an object could not do it in its time; then
// it is several, some of them at once.
const (
	objectsPerCall = 1000
	bytesPerCall   = 8 << 20
	callsAtOnce    = 4
)

// An answer may be some times as long as what was asked, and this much in any case.
const (
	answerFactor = 8
	answerMin    = 16 << 20
)

// remote asks a webhook.
type remote struct {
	name    string // of the definition
	review  string // version of ConversionReview
	client  func() (*webhook.Client, error)
	metrics *Metrics
	timeout time.Duration
}

func (r *remote) Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	var wanted []int // indexes of those that must be sent
	version := to.String()
	for i, obj := range objs {
		switch {
		case isBare(obj):
			obj.SetAPIVersion(version)
			out[i] = obj
		case obj.GetAPIVersion() == version:
			out[i] = obj
		default:
			wanted = append(wanted, i)
		}
	}
	if len(wanted) == 0 {
		return out, nil
	}
	if r.review == "" {
		return nil, errNoReviewVersion
	}
	calls, err := r.split(objs, wanted, to)
	if err != nil {
		return nil, err
	}
	return out, r.all(ctx, calls, out)
}

// isBare tells that there is nothing to an object but what kind it is.
func isBare(obj *unstructured.Unstructured) bool {
	_, version := obj.Object["apiVersion"]
	_, kind := obj.Object["kind"]
	return version && kind && len(obj.Object) == 2
}

// A call is one question and where the answers go.
type call struct {
	objs    []*unstructured.Unstructured
	indexes []int
	to      schema.GroupVersion
	uid     string
	body    []byte
}

// gvk is the kind that errors of the whole call speak of.
func (c *call) gvk() schema.GroupVersionKind { return c.objs[0].GroupVersionKind() }

func (r *remote) split(objs []*unstructured.Unstructured, wanted []int, to schema.GroupVersion) ([]*call, error) {
	var calls []*call
	var current *call
	for _, i := range wanted {
		if current == nil || len(current.objs) == objectsPerCall || len(current.body) >= bytesPerCall {
			if current != nil {
				current.body = endReview(current.body)
			}
			current = &call{to: to}
			current.uid, current.body = beginReview(r.review, to)
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

// all makes the calls and puts what they answer into out. The first error ends the
// others.
func (r *remote) all(ctx context.Context, calls []*call, out []*unstructured.Unstructured) error {
	if len(calls) == 1 {
		return r.observed(ctx, calls[0], out)
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
			if err := r.observed(ctx, c, out); err != nil {
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

// observed makes one call and counts it.
func (r *remote) observed(ctx context.Context, c *call, out []*unstructured.Unstructured) error {
	start := time.Now()
	failure, err := r.ask(ctx, c, out)
	took := time.Since(start)
	r.metrics.called(took, failure)
	r.metrics.converted(r.name, c.gvk().Version, c.to.Version, took, strconv.FormatBool(err == nil))
	return err
}

// ask makes one call. With an error it tells of what type that is in metrics.
func (r *remote) ask(ctx context.Context, c *call, out []*unstructured.Unstructured) (failure string, err error) {
	failed := func(err error) error { return fmt.Errorf("conversion webhook for %v failed: %w", c.gvk(), err) }
	client, err := r.client()
	if err != nil {
		return callFailure, failed(fmt.Errorf("failed calling webhook %q: %w", "conversion_webhook_for_"+r.name, err))
	}
	text, err := client.Post(ctx, webhook.Call{
		Body: c.body, Timeout: r.timeout, MaxAnswer: max(answerMin, answerFactor*int64(len(c.body))),
	})
	if err != nil {
		return callFailure, failed(err)
	}
	answer, err := readReview(text)
	if err != nil {
		return callFailure, failed(err)
	}
	if err := answer.check(r.review, c.uid); err != nil {
		return malformedFailure, failed(err)
	}
	converted := answer.Response.ConvertedObjects
	if len(converted) != len(c.objs) {
		return partialFailure, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", c.gvk(), len(converted), len(c.objs))
	}
	for i, text := range converted {
		obj, err := take(c.objs[i], text, c.to, place(i, len(converted)))
		if err != nil {
			return invalidFailure, fmt.Errorf("conversion webhook for %v %w", c.gvk(), err)
		}
		out[c.indexes[i]] = obj
	}
	return "", nil
}
