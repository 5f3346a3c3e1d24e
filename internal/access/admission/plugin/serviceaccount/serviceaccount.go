// Package serviceaccount sets the service account of pods, and mounts its token (ServiceAccount). Pods of an account with
// the annotation kubernetes.io/enforce-mountable-secrets may only use the Secrets that the account names (mountable.go).
package serviceaccount

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/node"
)

const (
	// defaultName is the account of pods that name none.
	defaultName = "default"
	// mountPath is the directory in which containers find the token, the certificate of the cluster's authority, and
	// the namespace.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// volumePrefix is the prefix of the name of the volume; a random suffix follows.
	volumePrefix, suffixLength = "kube-api-access-", 5
	// tokenSeconds is the lifetime of the token: a little more than an hour, so that kubelets refresh it every hour.
	tokenSeconds = 3607
	// rootCA is the ConfigMap with the certificate of the cluster's authority, which every namespace has.
	rootCA = "kube-root-ca.crt"
)

// A controller makes the default account of a new namespace. The creation of a pod looks for the account at most
// attempts times, with a pause in between.
const (
	attempts = 10
	pause    = 100 * time.Millisecond
)

var (
	pods     = corev1.Resource("pods")
	accounts = corev1.Resource("serviceaccounts")
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{objects: in, pause: pause}
	return admission.Plugin{Name: "ServiceAccount", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct {
	objects admission.Objects
	pause   time.Duration
}

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return checkMirror(a, pod)
	}
	pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, defaultName)
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.account(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return a.Forbiddenf("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err)
	}
	if shouldMountToken(account, pod) {
		mountToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

// account returns a service account. Its error is part of the response.
func (p *plugin) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	tries := 1
	if name == defaultName {
		tries = attempts
	}
	for {
		obj, err := p.objects.Lookup(ctx, accounts, namespace, name)
		if err != nil {
			return nil, err
		}
		if obj != nil {
			return obj.(*corev1.ServiceAccount), nil
		}
		if tries--; tries == 0 {
			return nil, kerrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		}
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// checkMirror checks a mirror pod, which represents a pod that a kubelet runs from a file. Such a pod must not use
// service accounts.
func checkMirror(a *admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return a.Forbiddenf("a mirror pod may not reference service accounts")
	}
	if node.RefersToSecrets(pod) {
		return a.Forbiddenf("a mirror pod may not reference secrets")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				return a.Forbiddenf("a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

// shouldMountToken reports whether the token is mounted. The field of the pod decides. If it is nil, the field of
// the account decides; the default is true.
func shouldMountToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if own := pod.Spec.AutomountServiceAccountToken; own != nil {
		return *own
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts the token in every container that has no other mount at mountPath. It adds the volume if the pod
// has none.
func mountToken(spec *corev1.PodSpec) {
	name, own := tokenVolume(spec.Volumes)
	mounted := false
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if c := &containers[i]; !hasMount(c) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath})
				mounted = true
			}
		}
	}
	if mounted && !own {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: tokenSource()})
	}
}

// tokenVolume returns the name of the volume to mount, and whether the pod already has it.
func tokenVolume(volumes []corev1.Volume) (name string, own bool) {
	for _, v := range volumes {
		if strings.HasPrefix(v.Name, volumePrefix) {
			return v.Name, true
		}
	}
	return volumePrefix + utilrand.String(suffixLength), false
}

func hasMount(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath })
}

// tokenSource returns the source of the volume, with the defaults of a projected volume.
func tokenSource() corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: corev1.ServiceAccountTokenKey, ExpirationSeconds: ptr.To[int64](tokenSeconds),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCA},
				Items: []corev1.KeyToPath{
					{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey},
				},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     corev1.ServiceAccountNamespaceKey,
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata." + corev1.ServiceAccountNamespaceKey},
			}}}},
		},
	}}
}
