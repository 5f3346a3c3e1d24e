// Package webhookauthorizer is the authorization mode Webhook: it sends a SubjectAccessReview
// to a webhook.
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

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

const (
	// cacheSize is the largest number of cached responses.
	cacheSize = 8192
	// maxCachedBytes limits the attributes of a request that a client can choose, in bytes.
	// The response for a request with more is not cached, to limit the memory of the cache.
	maxCachedBytes = 10000
	// maxAnswer is the largest answer that is read, in bytes. Answers are cached.
	maxAnswer = 1 << 20

	kind = "SubjectAccessReview"
)

// Observer is called for each call of a webhook and each evaluation of match conditions.
type Observer interface {
	// AuthorizationWebhook is called after each call. result is success, error, timeout or
	// canceled.
	AuthorizationWebhook(name, result string, took time.Duration)
	// AuthorizationWebhookFailOpen is called after a failure that left the decision to the
	// next authorizer.
	AuthorizationWebhookFailOpen(name, result string)
	// AuthorizationMatch is called after the match conditions were evaluated.
	AuthorizationMatch(name string, took time.Duration, failed, excluded bool)
}

// Options configure one webhook.
type Options struct {
	// Name is the name of the authorizer in metrics.
	Name   string
	Client *webhook.Client
	// Version is the version of SubjectAccessReview that the webhook supports: v1 or v1beta1.
	Version string
	// Timeout limits one call; 0 stands for 30 s.
	Timeout time.Duration
	Backoff webhook.Backoff
	// AllowedTTL and RefusedTTL are the times for which responses are cached; 0 means that they are not cached.
	AllowedTTL, RefusedTTL time.Duration
	// OnError is the decision if the webhook fails: authz.NoOpinion or authz.Deny.
	OnError authz.Decision
	// Conditions must all be true for the webhook to be called. If nil, it is always called.
	Conditions *Conditions
	Observe    Observer
}

// Authorizer implements authz.Authorizer.
type Authorizer struct {
	o     Options
	cache *cache.LRUExpireCache
}

// New returns an Authorizer.
func New(o Options) (*Authorizer, error) {
	if o.Version != "v1" && o.Version != "v1beta1" {
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", o.Version, "v1",
			"v1beta1")
	}
	return &Authorizer{o, cache.NewLRUExpireCache(cacheSize)}, nil
}

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, at authz.Attributes) (authz.Decision, string, error) {
	spec := reviewSpec(at)
	matches, err := a.matches(ctx, &spec)
	switch {
	case err != nil:
		return a.o.OnError, "", err
	case !matches:
		return authz.NoOpinion, "", nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return a.o.OnError, "", err
	}
	key := string(text)
	if known, ok := a.cache.Get(key); ok {
		return decisionOf(known.(authorizationv1.SubjectAccessReviewStatus))
	}
	status, err := a.callWebhook(ctx, &spec)
	if err != nil {
		return a.o.OnError, "", err
	}
	a.remember(key, at.Info, *status)
	return decisionOf(*status)
}

// RulesFor implements authz.RuleResolver. A webhook cannot list permissions.
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

func (a *Authorizer) remember(key string, i *request.Info, status authorizationv1.SubjectAccessReviewStatus) {
	ttl := a.o.RefusedTTL
	if status.Allowed {
		ttl = a.o.AllowedTTL
	}
	size := len(i.Namespace) + len(i.Verb) + len(i.Group) + len(i.Version) + len(i.Resource) + len(i.Subresource) +
		len(i.Name) + len(i.Path)
	if ttl > 0 && size < maxCachedBytes {
		a.cache.Add(key, status, ttl)
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

// callWebhook calls the webhook, and again after an error that may be temporary.
func (a *Authorizer) callWebhook(
	ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec,
) (*authorizationv1.SubjectAccessReviewStatus, error) {
	body, err := a.encodeReview(spec)
	if err != nil {
		return nil, err
	}
	var status *authorizationv1.SubjectAccessReviewStatus
	result := ""
	err = webhook.Retry(ctx, a.o.Backoff, webhook.IsTransient, func(ctx context.Context) error {
		start := time.Now()
		response, err := a.o.Client.Post(ctx, webhook.Call{Body: body, Timeout: a.o.Timeout, MaxResponse: maxAnswer})
		if err == nil {
			status, err = a.decodeReview(response)
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

func (a *Authorizer) encodeReview(spec *authorizationv1.SubjectAccessReviewSpec) ([]byte, error) {
	meta := metav1.TypeMeta{APIVersion: authorizationv1.GroupName + "/" + a.o.Version, Kind: kind}
	if a.o.Version == "v1" {
		return json.Marshal(&authorizationv1.SubjectAccessReview{TypeMeta: meta, Spec: *spec})
	}
	return json.Marshal(&authorizationv1beta1.SubjectAccessReview{TypeMeta: meta, Spec: v1beta1Spec(spec)})
}

// v1beta1Spec converts the spec to v1beta1, where the groups have another field name.
func v1beta1Spec(spec *authorizationv1.SubjectAccessReviewSpec) authorizationv1beta1.SubjectAccessReviewSpec {
	out := authorizationv1beta1.SubjectAccessReviewSpec{
		User: spec.User, Groups: spec.Groups, UID: spec.UID,
		Extra: request.ConvertExtra[authorizationv1beta1.ExtraValue](spec.Extra),
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

// decodeReview returns the status in the response of the webhook. The status has the same
// fields in both versions.
func (a *Authorizer) decodeReview(response []byte) (*authorizationv1.SubjectAccessReviewStatus, error) {
	var review struct {
		metav1.TypeMeta
		Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}
	if err := json.Unmarshal(response, &review); err != nil {
		return nil, errors.New("the response of the webhook is not a SubjectAccessReview")
	}
	if want := authorizationv1.GroupName + "/" + a.o.Version; review.APIVersion != want || review.Kind != kind {
		return nil, fmt.Errorf("the response of the webhook has apiVersion %q, kind %q; expected a %s of %s",
			review.APIVersion, review.Kind, kind, want)
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
