// Package imagepolicy asks a webhook whether the images of a pod may be used (ImagePolicyWebhook). It sends an
// ImageReview of imagepolicy.k8s.io/v1alpha1.
package imagepolicy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

var pods = corev1.Resource("pods")

const (
	// ephemeralContainers is the subresource that adds containers to a pod.
	ephemeralContainers = "ephemeralcontainers"
	// auditPrefix is the prefix of the keys of audit annotations.
	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// failedOpen is the audit annotation of pods that are allowed because the webhook failed.
	failedOpen = auditPrefix + "failed-open"
	// reviewed is a part of the keys of those annotations of a pod that are sent to the webhook.
	reviewed = ".image-policy.k8s.io/"

	// cacheSize is the largest number of cached answers.
	cacheSize = 1024
	// maxCachedBytes is the largest size of a cached answer, and maxAnswer the largest size of an answer that is
	// read.
	maxCachedBytes, maxAnswer = 16 << 10, 1 << 20
)

// Plugin returns the plug-in, for a configuration of DecodeConfig. It returns an error if the webhook is not configured
// right. read reads files, as os.ReadFile does.
func Plugin(
	c Config, read func(path string) ([]byte, error), o webhook.Options, log *slog.Logger,
) (admission.Plugin, error) {
	client, err := webhook.FromKubeconfig(c.KubeConfigFile, read, o)
	if err != nil {
		return admission.Plugin{}, err
	}
	backoff := webhook.DefaultBackoff()
	backoff.First = c.RetryBackoff
	p := plugin{
		config: c, client: client, backoff: backoff, answers: cache.NewLRUExpireCache(cacheSize), log: log,
	}
	return admission.Plugin{Name: "ImagePolicyWebhook", Validate: p.validate}, nil
}

type plugin struct {
	config  Config
	client  *webhook.Client
	backoff webhook.Backoff
	// answers has ImageReviewStatuses by the hash of the spec of their review.
	answers *cache.LRUExpireCache
	log     *slog.Logger
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Resource != pods || a.Operation != admission.Create && a.Operation != admission.Update ||
		a.Subresource != "" && a.Subresource != ephemeralContainers {
		return nil
	}
	spec := specOf(a, a.Object.(*corev1.Pod))
	status, err := p.review(ctx, spec)
	if err != nil {
		if p.config.DefaultAllow {
			p.log.Warn("a pod is allowed because the webhook of ImagePolicyWebhook failed",
				"namespace", a.Namespace, "pod", a.Name, "error", err)
			audit.Annotate(ctx, failedOpen, "true")
			return nil
		}
		return p.refuse(a, err)
	}
	for key, value := range status.AuditAnnotations {
		if key = auditPrefix + key; strings.Count(key, "/") == 1 && len(names.IsLabelKey(key)) == 0 {
			audit.Annotate(ctx, key, value)
		}
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return p.refuse(a, fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason))
	}
	return p.refuse(a, errors.New("one or more images rejected by webhook backend"))
}

// refuse returns the refusal of a pod. If the webhook itself answered Forbidden, its error is returned unchanged.
func (p *plugin) refuse(a *admission.Attributes, err error) error {
	if kerrors.IsForbidden(err) {
		return err
	}
	return a.Forbidden(err)
}

// specOf returns the spec of the review: it has the images of the pod or, for the subresource ephemeralcontainers, the
// images of the ephemeral containers.
func specOf(a *admission.Attributes, pod *corev1.Pod) *imagepolicyv1alpha1.ImageReviewSpec {
	spec := &imagepolicyv1alpha1.ImageReviewSpec{Namespace: a.Namespace}
	add := func(image string) {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if a.Subresource == ephemeralContainers {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	} else {
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				add(containers[i].Image)
			}
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, reviewed) {
			if spec.Annotations == nil {
				spec.Annotations = map[string]string{}
			}
			spec.Annotations[key] = value
		}
	}
	return spec
}

// review returns the answer of the webhook, or a cached answer to the same review.
func (p *plugin) review(
	ctx context.Context, spec *imagepolicyv1alpha1.ImageReviewSpec,
) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	review := imagepolicyv1alpha1.ImageReview{Spec: *spec}
	review.APIVersion, review.Kind = imagepolicyv1alpha1.SchemeGroupVersion.String(), "ImageReview"
	body, err := json.Marshal(&review)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(body)
	if known, ok := p.answers.Get(key); ok {
		return known.(*imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	var answer []byte
	err = webhook.Retry(ctx, p.backoff, webhook.IsTransient, func(ctx context.Context) (err error) {
		answer, err = p.client.Post(ctx, webhook.Call{Body: body, MaxResponse: maxAnswer})
		return err
	})
	if err != nil {
		return nil, err
	}
	status, err := statusOf(answer)
	if err != nil {
		return nil, err
	}
	if ttl := p.ttl(status); ttl > 0 && len(answer) <= maxCachedBytes {
		p.answers.Add(key, status, ttl)
	}
	return status, nil
}

func (p *plugin) ttl(status *imagepolicyv1alpha1.ImageReviewStatus) time.Duration {
	if status.Allowed {
		return p.config.AllowTTL
	}
	return p.config.DenyTTL
}

// statusOf returns the status in an answer of the webhook. The answer may leave out its kind.
func statusOf(answer []byte) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("the answer of the webhook is not an ImageReview: %w", err)
	}
	version := imagepolicyv1alpha1.SchemeGroupVersion.String()
	if review.Kind != "" && review.Kind != "ImageReview" || review.APIVersion != "" && review.APIVersion != version {
		return nil, fmt.Errorf("the answer of the webhook has apiVersion %q, kind %q; expected an ImageReview of %s",
			review.APIVersion, review.Kind, version)
	}
	return &review.Status, nil
}
