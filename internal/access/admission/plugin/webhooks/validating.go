package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	validatingKind = "validating"

	validationFailedAnnotation = "failed.open.validation.webhook.admission.k8s.io/"
)

// invocation is one call of a validating webhook.
type invocation struct {
	hook  *hook
	names admission.Names
	// object is the object as the webhook sees it.
	object []byte
	err    error
}

// validate calls all validating webhooks for a write concurrently. The write is refused with the error of the first
// one, in order, that refuses it.
func (p *Plugins) validate(ctx context.Context, a *admission.Attributes) error {
	if p.o.ExcludeReviews && match.Reviews(a) {
		return nil
	}
	all, err := p.validating.current(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	var calls []*invocation
	documents := map[admission.Names][]byte{}
	for _, h := range all {
		names, ok, err := p.concerns(ctx, h, a, validatingKind)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		object, made := documents[names]
		if !made {
			if object, err = p.o.Versions.Document(ctx, a, a.Object, names); err != nil {
				return kerrors.NewInternalError(err)
			}
			documents[names] = object
		}
		calls = append(calls, &invocation{hook: h, names: names, object: object})
	}
	if len(calls) == 0 {
		return nil
	}
	began := time.Now()
	defer func() { request.TrackerFrom(ctx).AddOutside(time.Since(began)) }()
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			begin := time.Now()
			_, err := p.call(ctx, c.hook, a, c.names, c.object, false)
			annotation := fmt.Sprintf("%sround_0_index_%d", validationFailedAnnotation, i)
			c.err = p.observe(ctx, c.hook, a, validatingKind, annotation, begin, err)
		})
	}
	wg.Wait()
	for _, c := range calls {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
