package serviceaccount

import (
	"context"
	"encoding/json"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func account(name string, token *bool, secrets ...corev1.LocalObjectReference) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{AutomountServiceAccountToken: token, ImagePullSecrets: secrets}
	a.Namespace, a.Name = "n", name
	return a
}

func objects() admissiontest.Objects {
	return admissiontest.Objects{accounts: {
		account("default", nil), account("quiet", ptr.To(false), corev1.LocalObjectReference{Name: "reg"}),
	}}
}

var suffix = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

const volume = `{"name":"kube-api-access-?",` +
	`"projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
	`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},` +
	`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],` +
	`"defaultMode":420}}`

func TestServiceAccount(t *testing.T) {
	const mount = `"volumeMounts":[{"name":"kube-api-access-?","readOnly":true,` +
		`"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]`
	const accountDefault = `"serviceAccountName":"default","serviceAccount":"default"`
	for name, c := range map[string]struct{ sent, want, err string }{
		"default": {
			sent: `{"containers":[{"name":"c"}]}`,
			want: `{"volumes":[` + volume + `],"containers":[{"name":"c","resources":{},` + mount + `}],` + accountDefault + `}`,
		},
		"init container, own mount": {
			sent: `{"volumes":[{"name":"v"}],"initContainers":[{"name":"i"}],"containers":[{"name":"c",` +
				`"volumeMounts":[{"name":"v","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`,
			want: `{"volumes":[{"name":"v"},` + volume + `],"initContainers":[{"name":"i","resources":{},` + mount +
				`}],"containers":[{"name":"c","resources":{},"volumeMounts":[{"name":"v",` +
				`"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],` + accountDefault + `}`,
		},
		"all mounted": {
			sent: `{"containers":[{"name":"c","volumeMounts":[{"name":"v",` +
				`"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`,
			want: `{"containers":[{"name":"c","resources":{},"volumeMounts":[{"name":"v",` +
				`"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],` + accountDefault + `}`,
		},
		"own volume": {
			sent: `{"volumes":[{"name":"kube-api-access-abcde","emptyDir":{}}],"containers":[{"name":"c"}]}`,
			want: `{"volumes":[{"name":"kube-api-access-?","emptyDir":{}}],"containers":[{"name":"c","resources":{},` + mount +
				`}],` + accountDefault + `}`,
		},
		"pod wants none": {
			sent: `{"containers":[{"name":"c"}],"automountServiceAccountToken":false}`,
			want: `{"containers":[{"name":"c","resources":{}}],` + accountDefault + `,"automountServiceAccountToken":false}`,
		},
		"account wants none": {
			sent: `{"containers":[{"name":"c"}],"serviceAccountName":"quiet"}`,
			want: `{"containers":[{"name":"c","resources":{}}],"serviceAccountName":"quiet","serviceAccount":"quiet",` +
				`"imagePullSecrets":[{"name":"reg"}]}`,
		},
		"pod wants one": {
			sent: `{"containers":[{"name":"c"}],"serviceAccountName":"quiet","automountServiceAccountToken":true,` +
				`"imagePullSecrets":[{"name":"own"}]}`,
			want: `{"volumes":[` + volume + `],"containers":[{"name":"c","resources":{},` + mount +
				`}],"serviceAccountName":"quiet","serviceAccount":"quiet","automountServiceAccountToken":true,` +
				`"imagePullSecrets":[{"name":"own"}]}`,
		},
		"missing": {
			sent: `{"containers":[{"name":"c"}],"serviceAccountName":"none"}`,
			err:  `pods "p" is forbidden: error looking up service account n/none: serviceaccount "none" not found`,
		},
	} {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "n", "p"
		if err := json.Unmarshal([]byte(c.sent), &pod.Spec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := Plugin(objects()).Mutate(t.Context(), admissiontest.Creation(pods, pod))
		if message(err) != c.err {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if err != nil {
			continue
		}
		got, err := json.Marshal(pod.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := suffix.ReplaceAllString(string(got), "kube-api-access-?"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestMirrorPods(t *testing.T) {
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		err  string
	}{
		"plain": {corev1.PodSpec{}, ""},
		"account": {
			corev1.PodSpec{ServiceAccountName: "default"},
			`pods "p" is forbidden: a mirror pod may not reference service accounts`,
		},
		"token": {
			corev1.PodSpec{Volumes: []corev1.Volume{{Name: "t", VolumeSource: tokenSource()}}},
			`pods "p" is forbidden: a mirror pod may not use ServiceAccountToken volume projections`,
		},
	} {
		pod := &corev1.Pod{Spec: c.spec}
		pod.Namespace, pod.Name = "n", "p"
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		if err := Plugin(objects()).Mutate(t.Context(), admissiontest.Creation(pods, pod)); message(err) != c.err {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if name == "plain" && pod.Spec.ServiceAccountName != "" {
			t.Error("a mirror pod was given an account")
		}
	}
}

// late is a source of objects that appear only after some time.
type late struct {
	admissiontest.Objects
	from time.Time
}

func (l late) Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	if time.Now().Before(l.from) {
		return nil, nil
	}
	return l.Objects.Lookup(ctx, r, namespace, name)
}

func TestDefaultAccountIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		err   string
	}{
		"soon": {pause * attempts / 2, ""},
		"too late": {
			pause * attempts * 2,
			`pods "p" is forbidden: error looking up service account n/default: serviceaccount "default" not found`,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name = "n", "p"
			in := late{objects(), time.Now().Add(c.after)}
			if err := Plugin(in).Mutate(t.Context(), admissiontest.Creation(pods, pod)); message(err) != c.err {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
