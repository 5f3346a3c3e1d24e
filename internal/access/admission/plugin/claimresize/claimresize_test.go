package claimresize

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func class(name string, allow *bool) *storagev1.StorageClass {
	c := &storagev1.StorageClass{AllowVolumeExpansion: allow}
	c.Name = name
	return c
}

// claim returns a claim. A class with the prefix "beta:" is named by the old annotation.
func claim(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	c.Namespace, c.Name = "n", "c"
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	if class == "annotated" {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "elastic"}
	} else if class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

func TestClaimsGrowIfBoundAndTheClassAllowsIt(t *testing.T) {
	const (
		prefix  = `persistentvolumeclaims "c" is forbidden: `
		unbound = prefix + "Only bound persistent volume claims can be expanded"
		fixed   = prefix + "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc " +
			"must support resize"
	)
	in := admissiontest.Objects{classes: {
		class("elastic", ptr.To(true)), class("fixed", ptr.To(false)), class("silent", nil),
	}}
	for name, c := range map[string]struct {
		oldClass, oldSize string
		phase             corev1.PersistentVolumeClaimPhase
		newClass, newSize string
		want              string
	}{
		"grows":             {"elastic", "1Gi", corev1.ClaimBound, "elastic", "2Gi", ""},
		"annotated class":   {"annotated", "1Gi", corev1.ClaimBound, "annotated", "2Gi", ""},
		"same size":         {"fixed", "1Gi", corev1.ClaimPending, "fixed", "1024Mi", ""},
		"shrinks":           {"fixed", "2Gi", corev1.ClaimPending, "fixed", "1Gi", ""},
		"pending":           {"elastic", "1Gi", corev1.ClaimPending, "elastic", "2Gi", unbound},
		"lost":              {"elastic", "1Gi", corev1.ClaimLost, "elastic", "2Gi", unbound},
		"class forbids":     {"fixed", "1Gi", corev1.ClaimBound, "fixed", "2Gi", fixed},
		"class is silent":   {"silent", "1Gi", corev1.ClaimBound, "silent", "2Gi", fixed},
		"class is missing":  {"none", "1Gi", corev1.ClaimBound, "none", "2Gi", fixed},
		"without class":     {"", "1Gi", corev1.ClaimBound, "", "2Gi", fixed},
		"class was changed": {"fixed", "1Gi", corev1.ClaimBound, "elastic", "2Gi", fixed},
	} {
		a := admissiontest.Change(claims, claim(c.newClass, c.newSize, c.phase), claim(c.oldClass, c.oldSize, c.phase))
		err := Plugin(in).Validate(t.Context(), a)
		if got := text(err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
