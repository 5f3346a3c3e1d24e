package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/jsonpatch"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

const (
	mutatingKind = "admit"

	// Keys of audit annotations. The numbers of the pass and of the webhook follow.
	mutationAnnotation       = "mutation.webhook.admission.k8s.io/"
	patchAnnotation          = "patch.webhook.admission.k8s.io/"
	mutationFailedAnnotation = "failed.open.mutation.webhook.admission.k8s.io/"
)

// calls is the state that the plug-in keeps for the webhooks of one write between the two passes.
type calls struct {
	// asked are the webhooks that were called and ask to be called again after later changes (reinvocationPolicy
	// IfNeeded). due are those of them after which the object has changed. Both have the webhooks' ids.
	asked, due map[string]bool
	// left is the object at the end of the first pass of the plug-in.
	left []byte
}

// changed moves all webhooks from asked to due. It is called after a change of the object.
func (c *calls) changed() {
	for id := range c.asked {
		c.due[id] = true
	}
	clear(c.asked)
}

// callsOf returns the state of a write.
func callsOf(a *admission.Attributes) *calls {
	const name = "MutatingAdmissionWebhook"
	if c, ok := a.Notes[name].(*calls); ok {
		return c
	}
	if a.Notes == nil {
		a.Notes = map[string]any{}
	}
	c := &calls{asked: map[string]bool{}, due: map[string]bool{}}
	a.Notes[name] = c
	return c
}

// mutate lets the mutating webhooks change a write, one after the other.
func (p *Plugins) mutate(ctx context.Context, a *admission.Attributes) error {
	if p.o.ExcludeReviews && match.Reviews(a) {
		return nil
	}
	all, err := p.mutating.current(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	var memory *calls // made for the first webhook that is called
	if a.Reinvoked {
		memory = callsOf(a)
		now, err := p.o.Versions.Document(ctx, a, a.Object, a.Stored)
		if err != nil {
			return kerrors.NewInternalError(err)
		}
		if !bytes.Equal(now, memory.left) { // plug-ins of the server have changed it
			memory.changed()
		}
	}
	for i, h := range all {
		names, ok, err := p.concerns(ctx, h, a, mutatingKind)
		if err != nil {
			return err
		}
		// A webhook that was not called in the first pass is not called in the second one.
		if !ok || a.Reinvoked && !memory.due[h.id] {
			continue
		}
		memory = callsOf(a)
		changed, err := p.callMutating(ctx, h, a, names, i)
		if changed {
			memory.changed()
			a.Reinvoke = true
		}
		if h.reinvoke {
			memory.asked[h.id] = true
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return kerrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
	}
	if memory == nil || !a.Reinvoke || a.Reinvoked {
		return nil
	}
	if memory.left, err = p.o.Versions.Document(ctx, a, a.Object, a.Stored); err != nil {
		return kerrors.NewInternalError(err)
	}
	return nil
}

// callMutating calls one webhook, whose number among all is i, and applies its patch. It reports whether that has changed
// the object.
func (p *Plugins) callMutating(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names, i int,
) (changed bool, err error) {
	pass := 0
	if a.Reinvoked {
		pass = 1
	}
	place := fmt.Sprintf("round_%d_index_%d", pass, i)
	begin := time.Now()
	defer func() { request.TrackerFrom(ctx).AddOutside(time.Since(begin)) }()
	object, err := p.o.Versions.Document(ctx, a, a.Object, names)
	if err != nil {
		return false, kerrors.NewInternalError(err)
	}
	response, err := p.call(ctx, h, a, names, object, true)
	if err == nil {
		changed, err = p.applyPatch(ctx, h, a, names, object, response)
	}
	p.annotate(ctx, h, place, changed, response)
	return changed, p.observe(ctx, h, a, mutatingKind, mutationFailedAnnotation+place, begin, err)
}

// maxPatchValues limits the values in the patch of a response; decoding each takes more than fifty bytes.
const maxPatchValues = 1 << 20

// applyPatch applies the patch of a response to the object of a write.
func (p *Plugins) applyPatch(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names, object []byte,
	response *admissionv1.AdmissionResponse,
) (changed bool, err error) {
	if len(response.Patch) == 0 {
		return false, nil
	}
	if webhook.Values(response.Patch) > maxPatchValues {
		return false, &callError{
			webhook: h.name, reason: fmt.Errorf("the patch has more than %d values", maxPatchValues),
		}
	}
	operations, err := jsonpatch.Decode(response.Patch)
	if err != nil {
		return false, &callError{webhook: h.name, reason: fmt.Errorf("received undecodable patch in webhook response: %w", err)}
	}
	if operations.Len() == 0 {
		return false, nil
	}
	if object == nil {
		return false, kerrors.NewInternalError(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	}
	if *response.PatchType != admissionv1.PatchTypeJSONPatch {
		return false, &callError{
			webhook: h.name, reason: fmt.Errorf("unsupported patch type %q", *response.PatchType),
		}
	}
	patched, err := operations.Apply(object)
	if err != nil {
		return false, kerrors.NewInternalError(err)
	}
	before := a.Object
	if err := p.o.Versions.Replace(ctx, a, patched, names, false); kerrors.IsInvalid(err) {
		return false, err
	} else if err != nil {
		return false, kerrors.NewInternalError(err)
	}
	after, err := p.o.Versions.Document(ctx, a, a.Object, names)
	if err != nil {
		a.Object = before
		return false, kerrors.NewInternalError(err)
	}
	return !bytes.Equal(object, after), nil
}

// annotate records the change by a webhook in the audit event.
func (p *Plugins) annotate(
	ctx context.Context, h *hook, place string, changed bool, response *admissionv1.AdmissionResponse,
) {
	if audit.From(ctx) == nil {
		return
	}
	mutation := struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed}
	if text, err := json.Marshal(mutation); err == nil {
		audit.Annotate(ctx, mutationAnnotation+place, string(text))
	}
	if !changed || response == nil {
		return
	}
	patch := struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         json.RawMessage `json:"patch,omitempty"`
		PatchType     string          `json:"patchType,omitempty"`
	}{h.configuration, h.name, response.Patch, string(admissionv1.PatchTypeJSONPatch)}
	if text, err := json.Marshal(patch); err == nil {
		audit.AnnotateRequest(ctx, patchAnnotation+place, string(text))
	}
}
