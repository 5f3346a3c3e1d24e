package defaultclass

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func storageClass(name, annotation string, seconds int64) *storagev1.StorageClass {
	c := &storagev1.StorageClass{}
	c.Name, c.CreationTimestamp = name, metav1.NewTime(time.Unix(seconds, 0))
	c.Annotations = map[string]string{annotation: "true"}
	return c
}

func TestStorage(t *testing.T) {
	in := admissiontest.Objects{
		storageClasses: {storageClass("older", defaultStorageClass, 1), storageClass("newer", betaDefaultStorageClass, 2), storageClass("not", "x", 3)},
	}
	for name, c := range map[string]struct {
		in          admissiontest.Objects
		annotations map[string]string
		sent, want  *string
	}{
		"unset":      {in, nil, nil, ptr.To("newer")},
		"empty":      {in, nil, ptr.To(""), ptr.To("")},
		"annotated":  {in, map[string]string{corev1.BetaStorageClassAnnotation: ""}, nil, nil},
		"no default": {admissiontest.Objects{}, nil, nil, nil},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: c.sent}}
		claim.Annotations = c.annotations
		if err := Storage(c.in).Mutate(t.Context(), admissiontest.Creation(claims, claim)); err != nil {
			t.Fatal(err)
		}
		if got := claim.Spec.StorageClassName; !ptr.Equal(got, c.want) {
			t.Errorf("%s: got %q", name, ptr.Deref(got, "<none>"))
		}
	}
}
