package defaultclass

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func ingressClass(name, isDefault string, seconds int64) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{}
	c.Name, c.CreationTimestamp = name, metav1.NewTime(time.Unix(seconds, 0))
	c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}
	return c
}

func TestIngress(t *testing.T) {
	in := admissiontest.Objects{ingressClasses: {ingressClass("older", "true", 1), ingressClass("newer", "true", 2), ingressClass("not", "false", 3)}}
	annotated := map[string]string{annotatedIngressClass: "old"}
	for name, c := range map[string]struct {
		in          admissiontest.Objects
		annotations map[string]string
		sent, want  *string
	}{
		"unset":      {in, nil, nil, ptr.To("newer")},
		"named":      {in, nil, ptr.To("other"), ptr.To("other")},
		"annotated":  {in, annotated, nil, nil},
		"no default": {admissiontest.Objects{ingressClasses: {ingressClass("not", "false", 1)}}, nil, nil, nil},
	} {
		ingress := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: c.sent}}
		ingress.Annotations = c.annotations
		if err := Ingress(c.in).Mutate(t.Context(), admissiontest.Creation(ingresses, ingress)); err != nil {
			t.Fatal(err)
		}
		if got := ingress.Spec.IngressClassName; !ptr.Equal(got, c.want) {
			t.Errorf("%s: got %q", name, ptr.Deref(got, "<none>"))
		}
	}
}
