package serviceaccount

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// enforceAnnotation on a service account means that its pods may only use the Secrets in the account.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

// validate compares the Secrets that a pod uses with those that its account allows, if the account limits them. It
// checks new pods and new ephemeral containers after mutating webhooks.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Resource != pods {
		return nil
	}
	var used []use
	var pod *corev1.Pod
	switch {
	case a.Subresource == "" && a.Operation == admission.Create:
		pod = a.Object.(*corev1.Pod)
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			return nil
		}
		used = usesOf(&pod.Spec)
	case a.Subresource == "ephemeralcontainers" && a.Operation == admission.Update:
		pod = a.Object.(*corev1.Pod)
		used = usesOfEphemeral(&pod.Spec)
	}
	if len(used) == 0 {
		return nil
	}
	account, err := p.account(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		err = fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err)
	} else {
		err = limit(account, used)
	}
	switch {
	case err == nil:
		return nil
	case a.Subresource != "": // as kube-apiserver answers ephemeral containers
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	}
	return a.Forbidden(err)
}

// limit returns an error for the first Secret that an account may not use.
func limit(account *corev1.ServiceAccount, used []use) error {
	if enforced, err := strconv.ParseBool(account.Annotations[enforceAnnotation]); err != nil || !enforced {
		return nil
	}
	for _, u := range used {
		kind, allowed := "secret", slices.ContainsFunc(account.Secrets, func(s corev1.ObjectReference) bool {
			return s.Name == u.secret
		})
		if u.pull {
			kind, allowed = "imagePullSecret", slices.ContainsFunc(account.ImagePullSecrets,
				func(s corev1.LocalObjectReference) bool { return s.Name == u.secret })
		}
		if !allowed {
			return fmt.Errorf("%s is not allowed because service account %s does not reference that %s",
				u.text(), account.Name, kind)
		}
	}
	return nil
}

// use is one reference to a Secret in a pod.
type use struct {
	// pull means that the Secret is for pulling images.
	pull   bool
	secret string
	// text describes the location in a message.
	text func() string
}

// usesOf returns the uses of a new pod. Other volumes than those of type secret, such as projected ones, do not
// count.
func usesOf(spec *corev1.PodSpec) []use {
	var used []use
	for i := range spec.Volumes {
		if s := spec.Volumes[i].Secret; s != nil {
			used = append(used, use{secret: s.SecretName, text: func() string {
				return fmt.Sprintf("volume with secret.secretName=%q", s.SecretName)
			}})
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		used = appendUses(used, "init container", c.Name, c.Env, c.EnvFrom)
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		used = appendUses(used, "container", c.Name, c.Env, c.EnvFrom)
	}
	for i, s := range spec.ImagePullSecrets {
		used = append(used, use{pull: true, secret: s.Name, text: func() string {
			return fmt.Sprintf("imagePullSecrets[%d].name=%q", i, s.Name)
		}})
	}
	return used
}

// usesOfEphemeral returns the uses of ephemeral containers.
func usesOfEphemeral(spec *corev1.PodSpec) []use {
	var used []use
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		used = appendUses(used, "ephemeral container", c.Name, c.Env, c.EnvFrom)
	}
	return used
}

// appendUses appends the uses of one container.
func appendUses(used []use, kind, name string, env []corev1.EnvVar, from []corev1.EnvFromSource) []use {
	for i := range env {
		if source := env[i].ValueFrom; source != nil && source.SecretKeyRef != nil {
			secret := source.SecretKeyRef.Name
			used = append(used, use{secret: secret, text: func() string {
				return fmt.Sprintf("%s %s with envVar %s referencing secret.secretName=%q", kind, name, env[i].Name, secret)
			}})
		}
	}
	for i := range from {
		if ref := from[i].SecretRef; ref != nil {
			used = append(used, use{secret: ref.Name, text: func() string {
				return fmt.Sprintf("%s %s with envFrom referencing secret.secretName=%q", kind, name, ref.Name)
			}})
		}
	}
	return used
}
