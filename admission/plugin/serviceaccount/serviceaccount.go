// Package serviceaccount gives every pod a service account and a token to act as
// it (ServiceAccount). Whether the account allows the Secrets that a pod names is
// not checked yet.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/auth/node"
)

const (
	// defaultName is the account of a pod that names none.
	defaultName = "default"
	// mountPath is where containers find the token, the cluster's authority and
	// their namespace.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// volumePrefix begins the name of the volume that holds them; a random
	// suffix follows.
	volumePrefix, suffixLength = "kube-api-access-", 5
	// tokenSeconds is how long the token is valid: an hour and a little more, so
	// that kubelets refresh it in time.
	tokenSeconds = 3607
	// rootCA is the ConfigMap with the cluster's authority that every namespace
	// has.
	rootCA = "kube-root-ca.crt"
)

// The default account of a new namespace is made by a controller: a pod that
// comes before it waits.
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
	return admission.Plugin{Name: "ServiceAccount", Mutate: p.mutate}
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
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultName
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.account(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return a.Forbidden(
			fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err),
		)
	}
	if wantsToken(account, pod) {
		mountToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

// account returns a service account. The error is worded for the client.
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

// checkMirror judges a mirror pod: it stands for a pod that a kubelet runs from a
// file, which has no part in the API's accounts.
func checkMirror(a *admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return a.Forbidden(errors.New("a mirror pod may not reference service accounts"))
	}
	if node.RefersToSecrets(pod) {
		return a.Forbidden(errors.New("a mirror pod may not reference secrets"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				return a.Forbidden(errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}

// wantsToken: the pod decides, then its account; without a word from either there
// is a token.
func wantsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if own := pod.Spec.AutomountServiceAccountToken; own != nil {
		return *own
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts the token in every container that has nothing at its place,
// from a volume that it adds where the pod brings none.
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

// tokenVolume names the volume to mount, and says whether the pod has it.
func tokenVolume(volumes []corev1.Volume) (name string, own bool) {
	for _, v := range volumes {
		if strings.HasPrefix(v.Name, volumePrefix) {
			return v.Name, true
		}
	}
	return volumePrefix + utilrand.String(suffixLength), false
}

func hasMount(c *corev1.Container) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == mountPath {
			return true
		}
	}
	return false
}

// tokenSource is what the volume holds, with the defaults of a projected volume.
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
