// Package webhookauthorizer asks a webhook whether a user may do something, by a
// SubjectAccessReview.
package webhookauthorizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/webhook"
)

const (
	// remembered bounds the answers that are kept.
	remembered = 8192
	// mostKept is the size in bytes of what a client may choose of a question whose
	// answer is kept: long ones would fill the memory.
	mostKept = 10000

	kind = "SubjectAccessReview"
)

// Observer is told of calls and of match conditions.
type Observer interface {
	// AuthorizationWebhook is told of each call: success, error, timeout or
	// canceled.
	AuthorizationWebhook(name, result string, took time.Duration)
	// AuthorizationWebhookFailOpen is told of a failure that left the decision to
	// others.
	AuthorizationWebhookFailOpen(name, result string)
	// AuthorizationMatch is told how match conditions were evaluated.
	AuthorizationMatch(name string, took time.Duration, failed, excluded bool)
}

// Options describe one webhook.
type Options struct {
	// Name is that of the authorizer, for metrics.
	Name   string
	Client *webhook.Client
	// Version of SubjectAccessReview that the webhook speaks: v1 or v1beta1.
	Version string
	// Timeout bounds one call; 0 is 30 s.
	Timeout time.Duration
	Backoff webhook.Backoff
	// AllowedTTL and RefusedTTL are how long answers are kept; 0 keeps none.
	AllowedTTL, RefusedTTL time.Duration
	// OnError is what a failure decides: authz.NoOpinion or authz.Deny.
	OnError authz.Decision
	// Conditions must all be met for the webhook to be asked; nil always asks.
	Conditions *Conditions
	Observe    Observer
}

// Authorizer implements authz.Authorizer.
type Authorizer struct {
	o     Options
	known *cache.LRUExpireCache
}

// New returns an Authorizer.
func New(o Options) (*Authorizer, error) {
	if o.Version != "v1" && o.Version != "v1beta1" {
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", o.Version, "v1", "v1beta1")
	}
	return &Authorizer{o, cache.NewLRUExpireCache(remembered)}, nil
}

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, at authz.Attributes) (authz.Decision, string, error) {
	spec := specOf(at)
	asks, err := a.matches(ctx, &spec)
	switch {
	case err != nil:
		return a.o.OnError, "", err
	case !asks:
		return authz.NoOpinion, "", nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return a.o.OnError, "", err
	}
	key := string(text)
	if known, ok := a.known.Get(key); ok {
		return decisionOf(known.(authorizationv1.SubjectAccessReviewStatus))
	}
	status, err := a.ask(ctx, &spec)
	if err != nil {
		return a.o.OnError, "", err
	}
	a.keep(key, at.Info, *status)
	return decisionOf(*status)
}

// RulesFor implements authz.RuleResolver: a webhook cannot tell.
func (a *Authorizer) RulesFor(context.Context, *request.User, string) (authz.Rules, error) {
	return authz.Rules{Incomplete: true}, errors.New("webhook authorizer does not support user rule resolution")
}

func (a *Authorizer) matches(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	if a.o.Conditions == nil {
		return true, nil
	}
	start := time.Now()
	matches, err := a.o.Conditions.Match(ctx, spec)
	a.o.Observe.AuthorizationMatch(a.o.Name, time.Since(start), err != nil, err == nil && !matches)
	return matches, err
}

func (a *Authorizer) keep(key string, i *request.Info, status authorizationv1.SubjectAccessReviewStatus) {
	ttl := a.o.RefusedTTL
	if status.Allowed {
		ttl = a.o.AllowedTTL
	}
	size := len(i.Namespace) + len(i.Verb) + len(i.Group) + len(i.Version) + len(i.Resource) + len(i.Subresource) + len(i.Name) + len(i.Path)
	if ttl > 0 && size < mostKept {
		a.known.Add(key, status, ttl)
	}
}

func decisionOf(status authorizationv1.SubjectAccessReviewStatus) (authz.Decision, string, error) {
	switch {
	case status.Denied && status.Allowed:
		return authz.Deny, status.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case status.Denied:
		return authz.Deny, status.Reason, nil
	case status.Allowed:
		return authz.Allow, status.Reason, nil
	}
	return authz.NoOpinion, status.Reason, nil
}

// ask asks the webhook, again where a failure may be of the moment.
func (a *Authorizer) ask(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (*authorizationv1.SubjectAccessReviewStatus, error) {
	body, err := a.question(spec)
	if err != nil {
		return nil, err
	}
	var status *authorizationv1.SubjectAccessReviewStatus
	result := ""
	err = webhook.Retry(ctx, a.o.Backoff, webhook.IsTransient, func(ctx context.Context) error {
		start := time.Now()
		said, err := a.o.Client.Post(ctx, webhook.Call{Body: body, Timeout: a.o.Timeout})
		if err == nil {
			status, err = a.answer(said)
		}
		result = resultOf(ctx, err)
		a.o.Observe.AuthorizationWebhook(a.o.Name, result, time.Since(start))
		return err
	})
	if err != nil && a.o.OnError == authz.NoOpinion && ctx.Err() == nil {
		a.o.Observe.AuthorizationWebhookFailOpen(a.o.Name, result)
	}
	return status, err
}

func (a *Authorizer) question(spec *authorizationv1.SubjectAccessReviewSpec) ([]byte, error) {
	meta := metav1.TypeMeta{APIVersion: authorizationv1.GroupName + "/" + a.o.Version, Kind: kind}
	if a.o.Version == "v1" {
		return json.Marshal(&authorizationv1.SubjectAccessReview{TypeMeta: meta, Spec: *spec})
	}
	return json.Marshal(&authorizationv1beta1.SubjectAccessReview{TypeMeta: meta, Spec: olderSpec(spec)})
}

// olderSpec is the spec as v1beta1 has it: the groups have another name there.
func olderSpec(spec *authorizationv1.SubjectAccessReviewSpec) authorizationv1beta1.SubjectAccessReviewSpec {
	out := authorizationv1beta1.SubjectAccessReviewSpec{User: spec.User, Groups: spec.Groups, UID: spec.UID}
	if spec.Extra != nil {
		out.Extra = make(map[string]authorizationv1beta1.ExtraValue, len(spec.Extra))
		for key, values := range spec.Extra {
			out.Extra[key] = authorizationv1beta1.ExtraValue(values)
		}
	}
	if r := spec.ResourceAttributes; r != nil {
		out.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource,
			Subresource: r.Subresource, Name: r.Name, FieldSelector: r.FieldSelector, LabelSelector: r.LabelSelector,
		}
	}
	if n := spec.NonResourceAttributes; n != nil {
		out.NonResourceAttributes = &authorizationv1beta1.NonResourceAttributes{Path: n.Path, Verb: n.Verb}
	}
	return out
}

// answer reads what the webhook said; the status has the same fields in both
// versions.
func (a *Authorizer) answer(said []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	var review struct {
		metav1.TypeMeta
		Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}
	if err := json.Unmarshal(said, &review); err != nil {
		return nil, errors.New("the webhook answered no SubjectAccessReview")
	}
	if want := authorizationv1.GroupName + "/" + a.o.Version; review.APIVersion != want || review.Kind != kind {
		return nil, fmt.Errorf("the webhook answered apiVersion %q, kind %q to a %s of %s", review.APIVersion, review.Kind, kind, want)
	}
	return &review.Status, nil
}

func resultOf(ctx context.Context, err error) string {
	var timeout net.Error
	var status kerrors.APIStatus
	switch {
	case err == nil:
		return "success"
	case ctx.Err() != nil:
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), kerrors.IsTimeout(err),
		errors.As(err, &status) && status.Status().Code == http.StatusGatewayTimeout:
		return "timeout"
	}
	return "error"
}
