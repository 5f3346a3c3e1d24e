package networking

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestResourceBackends has references of an Ingress to other objects, whose parts must fit into a path.
func TestResourceBackends(t *testing.T) {
	for _, c := range []struct{ kind, name, want string }{
		{"Bucket", "static", "[]"},
		{"", "", "[resource.kind: Required value, resource.name: Required value]"},
		{"a/b", "50%", "[resource.kind: Invalid value: \"a/b\": may not contain '/', resource.name: Invalid " +
			"value: \"50%\": may not contain '%']"},
		{"..", "a", "[resource.kind: Invalid value: \"..\": may not be '..']"},
	} {
		errs := rules{}.validateBackend(
			&networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: c.kind, Name: c.name}}, nil)
		if got := text(errs); got != c.want {
			t.Errorf("%s/%s: %s, want %s", c.kind, c.name, got, c.want)
		}
	}
}

func text(errs field.ErrorList) string {
	out := "["
	for i, err := range errs {
		if i > 0 {
			out += ", "
		}
		out += err.Error()
	}
	return out + "]"
}
