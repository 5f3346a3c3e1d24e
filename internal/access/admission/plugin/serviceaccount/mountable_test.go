package serviceaccount

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

// limited returns an account that may use the Secret "good" and the Secret "pull" for images.
func limited(enforced string) *corev1.ServiceAccount {
	a := account("limited", nil, corev1.LocalObjectReference{Name: "pull"})
	a.Annotations = map[string]string{enforceAnnotation: enforced}
	a.Secrets = []corev1.ObjectReference{{Name: "good"}}
	return a
}

func env(secret string) corev1.Container {
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}
	return corev1.Container{
		Name: "c", Env: []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}},
	}
}

func envFrom(secret string) corev1.Container {
	ref := &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}
	return corev1.Container{Name: "c", EnvFrom: []corev1.EnvFromSource{{SecretRef: ref}}}
}

// TestMountableSecrets has the answers of kube-apiserver 1.36.
func TestMountableSecrets(t *testing.T) {
	const suffix = ` is not allowed because service account limited does not reference that `
	secretVolume := corev1.Volume{
		Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "bad"}},
	}
	ephemeral := func(c corev1.Container) []corev1.EphemeralContainer {
		return []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Env: c.Env, EnvFrom: c.EnvFrom}},
		}
	}
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"none":        {corev1.PodSpec{}, ""},
		"good env":    {corev1.PodSpec{Containers: []corev1.Container{env("good")}}, ""},
		"good from":   {corev1.PodSpec{Containers: []corev1.Container{envFrom("good")}}, ""},
		"good images": {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}, ""},
		"env": {
			corev1.PodSpec{Containers: []corev1.Container{env("bad")}},
			`container c with envVar E referencing secret.secretName="bad"` + suffix + "secret",
		},
		"from": {
			corev1.PodSpec{Containers: []corev1.Container{envFrom("bad")}},
			`container c with envFrom referencing secret.secretName="bad"` + suffix + "secret",
		},
		"from in an init container": {
			corev1.PodSpec{InitContainers: []corev1.Container{envFrom("bad")}},
			`init container c with envFrom referencing secret.secretName="bad"` + suffix + "secret",
		},
		"volume goes before": {
			corev1.PodSpec{Volumes: []corev1.Volume{secretVolume}, Containers: []corev1.Container{env("bad2")}},
			`volume with secret.secretName="bad"` + suffix + "secret",
		},
		"images": {
			corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}, {Name: "good"}}},
			`imagePullSecrets[1].name="good"` + suffix + "imagePullSecret",
		},
		"ephemeral env": {
			corev1.PodSpec{EphemeralContainers: ephemeral(env("bad"))},
			`ephemeral container c with envVar E referencing secret.secretName="bad"` + suffix + "secret",
		},
		"ephemeral from": {
			corev1.PodSpec{EphemeralContainers: ephemeral(envFrom("bad"))},
			`ephemeral container c with envFrom referencing secret.secretName="bad"` + suffix + "secret",
		},
		"good ephemeral": {corev1.PodSpec{EphemeralContainers: ephemeral(env("good"))}, ""},
	} {
		test.spec.ServiceAccountName = "limited"
		pod := &corev1.Pod{Spec: test.spec}
		a := &admission.Attributes{Operation: admission.Create, Resource: pods, Namespace: "n", Name: "p", Object: pod}
		want := test.want
		if strings.Contains(name, "ephemeral") {
			a.Operation, a.Subresource = admission.Update, "ephemeralcontainers"
		} else if want != "" {
			want = `pods "p" is forbidden: ` + want
		}
		for enforced, want := range map[string]string{"true": want, "1": want, "false": "", "x": "", "": ""} {
			p := Plugin(admissiontest.Objects{accounts: {limited(enforced)}})
			got := ""
			if err := p.Validate(t.Context(), a); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s, %q: %s, want %s", name, enforced, got, want)
			}
		}
	}
}
