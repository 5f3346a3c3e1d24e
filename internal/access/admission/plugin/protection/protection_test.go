package protection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func TestProtection(t *testing.T) {
	claims := corev1.Resource("persistentvolumeclaims")
	for _, c := range []struct {
		resource   schema.GroupResource
		obj        registry.Object
		sent, want []string
	}{
		{claims, &corev1.PersistentVolumeClaim{}, nil, []string{"kubernetes.io/pvc-protection"}},
		{
			claims, &corev1.PersistentVolumeClaim{}, []string{"kubernetes.io/pvc-protection", "x/y"},
			[]string{"kubernetes.io/pvc-protection", "x/y"},
		},
		{claims, &corev1.PersistentVolumeClaim{}, []string{"x/y"}, []string{"x/y", "kubernetes.io/pvc-protection"}},
		{corev1.Resource("persistentvolumes"), &corev1.PersistentVolume{}, nil, []string{"kubernetes.io/pv-protection"}},
		{
			storagev1.Resource("volumeattributesclasses"), &storagev1.VolumeAttributesClass{}, nil,
			[]string{"kubernetes.io/vac-protection"},
		},
		{corev1.Resource("configmaps"), &corev1.ConfigMap{}, nil, nil},
	} {
		c.obj.SetFinalizers(c.sent)
		if err := Plugin().Mutate(t.Context(), admissiontest.Creation(c.resource, c.obj)); err != nil {
			t.Fatal(err)
		}
		if got := c.obj.GetFinalizers(); !slices.Equal(got, c.want) {
			t.Errorf("%s with %q: got %q, want %q", c.resource, c.sent, got, c.want)
		}
	}
	released := &corev1.PersistentVolumeClaim{}
	if err := Plugin().Mutate(t.Context(), admissiontest.Change(claims, released, released)); err != nil ||
		released.Finalizers != nil {
		t.Errorf("an update set %q, %v", released.Finalizers, err)
	}
}
