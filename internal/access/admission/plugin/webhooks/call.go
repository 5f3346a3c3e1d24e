package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	kubejson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// callError is the error of a call without a decision. The failure policy determines its effect.
type callError struct {
	webhook string
	reason  error
	// status is the error response of the webhook; nil for other failures.
	status *kerrors.StatusError
}

// Error implements error.
func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.reason }

// code returns the code by which metrics count the failure.
func (e *callError) code() int {
	if e.status == nil {
		return http.StatusServiceUnavailable
	}
	return int(e.status.ErrStatus.Code)
}

// refusalError is the refusal of a write by a webhook.
type refusalError struct{ status *kerrors.StatusError }

// Error implements error.
func (e *refusalError) Error() string { return e.status.Error() }

// review is the request to a webhook.
type review struct {
	uid      types.UID
	version  string // of AdmissionReview
	document []byte // the request as JSON
}

// errSkipped means that a webhook was not called because its budget is used up.
var errSkipped = errors.New("the webhook is skipped")

// call sends a write with the document object to a webhook. The error is a *callError if the webhook did not decide, a
// *refusalError if it refused the write, and errSkipped if it was not called.
func (p *Plugins) call(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names, object []byte, mutating bool,
) (*admissionv1.AdmissionResponse, error) {
	if a.Options.DryRun && !h.dryRun {
		return nil, kerrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
	}
	begin := p.o.Now()
	turn := h.budget.begin(begin)
	if turn == skip {
		return nil, errSkipped
	}
	response, err := p.ask(ctx, h, a, names, object, mutating)
	end, result := p.o.Now(), succeeded
	if _, failure := err.(*callError); failure { //nolint:errorlint // ask does not wrap it
		if result = failed; errors.Is(ctx.Err(), context.Canceled) {
			result = canceled
		}
	}
	switch skipped, resumed := h.budget.end(turn, result, end, end.Sub(begin)); {
	case skipped:
		p.o.Log.Warn("a webhook is skipped, because its failing calls took longer than --admission-webhook-budget",
			"webhook", h.name, "configuration", h.configuration, "tried again after", skipTime, "error", err)
	case resumed:
		p.o.Log.Warn("a webhook that was skipped is called again", "webhook", h.name, "configuration", h.configuration)
	}
	return response, err
}

// ask sends a write to a webhook. The error is a *callError if the webhook did not decide, and a *refusalError if it
// refused the write.
func (p *Plugins) ask(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names, object []byte, mutating bool,
) (*admissionv1.AdmissionResponse, error) {
	r, err := p.review(ctx, h, a, names, object)
	if err != nil {
		return nil, &callError{webhook: h.name, reason: err}
	}
	client, err := h.clients.Client(h.target)
	if err != nil {
		return nil, &callError{webhook: h.name, reason: fmt.Errorf("could not get REST client: %w", err)}
	}
	body, err := client.Post(ctx, webhook.Call{Body: r.document, Timeout: h.timeout, NeedsBody: true})
	if err != nil {
		status, _ := err.(*kerrors.StatusError) //nolint:errorlint // an error of the webhook is not wrapped
		return nil, &callError{h.name, fmt.Errorf("failed to call webhook: %w", err), status}
	}
	got, err := decodeReview(body)
	if err != nil {
		return nil, &callError{webhook: h.name, reason: fmt.Errorf("failed to call webhook: %w", err)}
	}
	response, err := r.response(got, mutating)
	if err != nil {
		return nil, &callError{webhook: h.name, reason: fmt.Errorf("received invalid webhook response: %w", err)}
	}
	for key, value := range response.AuditAnnotations {
		audit.Annotate(ctx, h.name+"/"+key, value)
	}
	for _, text := range response.Warnings {
		request.Warn(ctx, text)
	}
	if !response.Allowed {
		return nil, &refusalError{refusal(h.name, response.Result)}
	}
	return response, nil
}

// review makes the AdmissionReview of a write.
func (p *Plugins) review(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names, object []byte,
) (*review, error) {
	old, err := p.o.Versions.Document(ctx, a, a.Old, names)
	if err != nil {
		return nil, err
	}
	r := &review{uid: uuid.NewUUID()}
	for _, version := range h.versions {
		if version == "v1" || version == "v1beta1" {
			r.version = version
			break
		}
	}
	if r.version == "" {
		return nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	}
	asked := a.Request(names)
	asked.UID, asked.Object.Raw, asked.OldObject.Raw = r.uid, object, old
	r.document, err = json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + r.version, Kind: "AdmissionReview"}, Request: asked,
	})
	return r, err
}

// decodeReview decodes a response. The names of its fields have to be exact: "Allowed" does not allow anything.
func decodeReview(body []byte) (*admissionv1.AdmissionReview, error) {
	// kube-apiserver looks for these first; the type is part of its messages.
	var kind struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	if _, err := schema.ParseGroupVersion(kind.APIVersion); err != nil {
		return nil, err
	}
	got := &admissionv1.AdmissionReview{} // v1beta1 has the same fields
	return got, kubejson.UnmarshalCaseSensitivePreserveInts(body, got)
}

// response checks the response to a review.
func (r *review) response(got *admissionv1.AdmissionReview, mutating bool) (*admissionv1.AdmissionResponse, error) {
	want := schema.GroupVersionKind{Group: admissionv1.GroupName, Version: r.version, Kind: "AdmissionReview"}
	if r.version == admissionv1beta1.SchemeGroupVersion.Version {
		return got.Response, checkBetaResponse(got, mutating)
	}
	response := got.Response
	switch {
	case response == nil:
		return nil, errors.New("webhook response was absent")
	case response.UID != r.uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", r.uid, response.UID)
	case got.GroupVersionKind() != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, got.GroupVersionKind())
	case !mutating && len(response.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && response.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(response.Patch) > 0 && response.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(response.Patch) == 0 && response.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case response.PatchType != nil && *response.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %q", *response.PatchType)
	}
	return response, nil
}

// checkBetaResponse checks a response of version v1beta1, which has no uid and no type of the patch.
func checkBetaResponse(got *admissionv1.AdmissionReview, mutating bool) error {
	if got.Response == nil {
		return errors.New("webhook response was absent")
	}
	got.Response.PatchType = nil
	if !mutating {
		got.Response.Patch = nil
	}
	if len(got.Response.Patch) > 0 {
		patchType := admissionv1.PatchTypeJSONPatch
		got.Response.PatchType = &patchType
	}
	return nil
}

// refusal returns the error of a write that a webhook refused.
func refusal(name string, result *metav1.Status) *kerrors.StatusError {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusBadRequest
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	denied := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case status.Message != "":
		status.Message = denied + ": " + status.Message
	case status.Reason != "":
		status.Message = denied + ": " + string(status.Reason)
	default:
		status.Message = denied + " without explanation"
	}
	return &kerrors.StatusError{ErrStatus: status}
}

// observe records a call, and returns the error of the write: nil if the failure is ignored. annotation is the key
// of the audit annotation for an ignored failure.
func (p *Plugins) observe(
	ctx context.Context, h *hook, a *admission.Attributes, kind, annotation string, begin time.Time, err error,
) error {
	if errors.Is(err, errSkipped) {
		p.skipped(ctx, h, kind, annotation)
		return nil
	}
	p.count(h, a, kind, time.Since(begin), err)
	h.health.note(ctx, p.o.Now(), err)
	switch failed := err.(type) { //nolint:errorlint // they are not wrapped
	case *refusalError:
		return failed.status
	default:
		return err
	case *callError:
		if !h.ignore {
			p.o.Log.Warn("a webhook failed; the write is refused", "webhook", h.name, "error", failed.reason)
			return kerrors.NewInternalError(failed)
		}
		p.o.Log.Warn("a webhook failed; the write goes on", "webhook", h.name, "error", failed.reason)
		if errors.Is(failed.reason, context.Canceled) { // the client went away
			return nil
		}
		audit.Annotate(ctx, annotation, h.name)
		p.o.Metrics.FailOpen(h.name, kind)
		return nil
	}
}

// count records a call in the metrics.
func (p *Plugins) count(h *hook, a *admission.Attributes, kind string, took time.Duration, err error) {
	rejected, code, failure := err != nil, 0, ""
	switch failed := err.(type) { //nolint:errorlint // they are not wrapped
	case nil:
		code = http.StatusOK
	case *refusalError:
		code, failure = int(failed.status.ErrStatus.Code), "no_error"
	case *callError:
		rejected, code = !h.ignore, failed.code()
		if rejected && !errors.Is(failed.reason, context.Canceled) {
			failure = "calling_webhook_error"
		}
	default:
		failure = "apiserver_internal_error"
	}
	p.o.Metrics.Webhook(h.name, kind, a.Operation.String(), rejected, code, failure, took)
}

// skipped records that a write does without a webhook.
func (p *Plugins) skipped(ctx context.Context, h *hook, kind, annotation string) {
	request.Warn(ctx, fmt.Sprintf("admission webhook %q was skipped, because its calls keep failing", h.name))
	audit.Annotate(ctx, annotation, h.name)
	p.o.Metrics.Skipped(h.name, kind)
}
