package patch_test

import (
	"net/http"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
)

// TestRefusedStrategicPatches has invalid patches whose errors the library does not name (see strategicError). The
// answer must still be 4xx, because the client is at fault.
func TestRefusedStrategicPatches(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Finalizers: []string{"a/b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: pod.ObjectMeta,
		Spec:       certificatesv1.CertificateSigningRequestSpec{Extra: map[string]certificatesv1.ExtraValue{"x": {"a"}}},
	}
	for _, c := range []struct {
		original, into runtime.Object
		body           string
	}{
		{pod, &corev1.Pod{}, `{"metadata":{"labels":{"$patch":null}}}`},
		{pod, &corev1.Pod{}, `{"metadata":{"labels":{"$patch":1}}}`},
		{pod, &corev1.Pod{}, `{"metadata":{"finalizers":[1]}}`},
		{pod, &corev1.Pod{}, `{"metadata":{"finalizers":["a/b",1]}}`},
		{pod, &corev1.Pod{}, `{"spec":{"containers":[{"name":"a"},"b"]}}`},
		{request, &certificatesv1.CertificateSigningRequest{}, `{"metadata":{"finalizers":[{}]}}`},
		{request, &certificatesv1.CertificateSigningRequest{}, `{"spec":{"extra":{"x":[1]}}}`},
		{request, &certificatesv1.CertificateSigningRequest{}, `{"spec":{"extra":{"x":["a",{}]}}}`},
	} {
		_, err := patch.Strategic(c.original, c.into, []byte(c.body), patch.Warn)
		status, ok := err.(kerrors.APIStatus)
		if !ok || status.Status().Code >= http.StatusInternalServerError || status.Status().Reason == "" {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}
