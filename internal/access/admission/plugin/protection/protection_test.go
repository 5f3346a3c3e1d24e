package protection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
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

func TestGroups(t *testing.T) {
	groups, group := schedulingv1.Resource("podgroups"), &schedulingv1beta1.PodGroup{}
	if err := Groups().Mutate(t.Context(), admissiontest.Change(groups, group, group)); err != nil || group.Finalizers != nil {
		t.Errorf("an update set %q, %v", group.Finalizers, err)
	}
	group.Finalizers = []string{"x/y"}
	for range 2 { // the second time it is there
		if err := Groups().Mutate(t.Context(), admissiontest.Creation(groups, group)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"x/y", "scheduling.k8s.io/podgroup-protection"}; !slices.Equal(group.Finalizers, want) {
		t.Errorf("got %q, want %q", group.Finalizers, want)
	}
	workload := &schedulingv1beta1.Workload{}
	creation := admissiontest.Creation(schedulingv1.Resource("workloads"), workload)
	if err := Groups().Mutate(t.Context(), creation); err != nil || workload.Finalizers != nil {
		t.Errorf("a workload got %q, %v", workload.Finalizers, err)
	}
}
