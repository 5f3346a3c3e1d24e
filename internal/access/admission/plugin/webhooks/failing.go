package webhooks

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// Failing is a webhook whose calls have failed since its last decision. Only the calls of this server count: it does not know
// those of other API servers on the same store.
type Failing struct {
	// Resource is mutatingwebhookconfigurations or validatingwebhookconfigurations, Configuration the name of the object.
	Resource, Configuration string
	// Name is the name of the webhook in its configuration.
	Name string
	// Ignore means that its failures do not refuse writes (failurePolicy Ignore).
	Ignore bool
	// Conditional means that matchConditions may exempt writes from it.
	Conditional bool
	// Since is the time of the first failure after the last decision. Last is the time of the last failure.
	Since, Last time.Time
	// Error is the last failure, at most maxFailureText bytes.
	Error string
}

const maxFailureText = 1 << 10

// failure is the state of a webhook that fails.
type failure struct {
	since, last time.Time
	text        string
}

// health records whether a webhook fails. While it does not fail, note costs one atomic load. A change of the
// configuration keeps the health, unless it changes the target or the timeout (see keepHealth).
type health struct{ failing atomic.Pointer[failure] }

// note records the result of a call. A refusal of the write counts as a success.
func (h *health) note(ctx context.Context, now time.Time, err error) {
	failed, refused := (*callError)(nil), (*refusalError)(nil)
	switch {
	case err == nil || errors.As(err, &refused):
		if h.failing.Load() != nil {
			h.failing.Store(nil)
		}
		return
	case errors.Is(ctx.Err(), context.Canceled): // the client went away, which tells nothing about the webhook
		return
	case errors.As(err, &failed):
		err = failed.reason
	case !kerrors.IsInternalError(err): // a patch that cannot be applied is an internal error
		return
	}
	next := &failure{since: now, last: now, text: err.Error()}
	if len(next.text) > maxFailureText {
		next.text = strings.ToValidUTF8(next.text[:maxFailureText], "") + "..."
	}
	before := h.failing.Load()
	if before != nil {
		next.since = before.since
	}
	// If another call ended at the same time, its result counts.
	h.failing.CompareAndSwap(before, next)
}

// keepHealth gives the webhooks of a changed configuration the health that they had before. It does so only for
// webhooks that are still called in the same way: at the same target, with the same timeout.
func keepHealth(old, next []*hook) {
	for _, n := range next {
		for _, o := range old {
			if o.id == n.id && o.timeout == n.timeout && reflect.DeepEqual(o.target, n.target) {
				n.health = o.health
			}
		}
	}
}

// Failing returns the webhooks that fail now and would be called for a write, in the order in which they are called.
func (p *Plugins) Failing(ctx context.Context, a *admission.Attributes) ([]Failing, error) {
	var out []Failing
	for _, of := range []struct {
		resource string
		c        *configurations
	}{{mutatingResource, &p.mutating}, {validatingResource, &p.validating}} {
		all := of.c.all.Load()
		if all == nil {
			continue
		}
		for _, h := range *all {
			f := h.health.failing.Load()
			if f == nil || h.broken != nil {
				continue
			}
			_, ok, err := p.matcher.Match(ctx, &h.criteria, a)
			if err != nil {
				return out, err
			}
			if ok {
				out = append(out, Failing{
					Resource: of.resource, Configuration: h.configuration, Name: h.name, Ignore: h.ignore,
					Conditional: len(h.conditions) > 0, Since: f.since, Last: f.last, Error: f.text,
				})
			}
		}
	}
	return out, nil
}
