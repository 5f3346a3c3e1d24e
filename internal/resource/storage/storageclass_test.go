package storage

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEffectiveDefaultClass has several classes that are marked as the default.
func TestEffectiveDefaultClass(t *testing.T) {
	class := func(name string, created int64, annotation string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0)), Annotations: map[string]string{annotation: "true"},
		}}
	}
	for name, c := range map[string]struct {
		all  []*storagev1.StorageClass
		want string
	}{
		"none": {[]*storagev1.StorageClass{class("a", 1, "other")}, ""},
		"newest": {[]*storagev1.StorageClass{
			class("a", 1, defaultClassAnnotation), class("b", 2, betaDefaultClassAnnotation), class("c", 3, "other"),
		}, "b"},
		"same time": {[]*storagev1.StorageClass{
			class("b", 1, defaultClassAnnotation), class("a", 1, defaultClassAnnotation), class("c", 0, defaultClassAnnotation),
		}, "a"},
	} {
		got := ""
		if one := effectiveDefault(c.all); one != nil {
			got = one.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
