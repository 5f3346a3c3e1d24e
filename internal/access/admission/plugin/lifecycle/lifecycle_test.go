package lifecycle

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

type states map[string]registry.NamespaceState

func (s states) NamespaceState(_ context.Context, name string) (registry.NamespaceState, error) {
	if state, ok := s[name]; ok {
		return state, nil
	}
	return registry.NamespaceMissing, nil
}

func TestLifecycle(t *testing.T) {
	p := Plugin(states{"ok": registry.NamespaceActive, "going": registry.NamespaceTerminating})
	configMap := &corev1.ConfigMap{}
	configMap.GenerateName = "a-"
	configMaps := corev1.Resource("configmaps")
	const gone = `configmaps "a-" is forbidden: unable to create new content in namespace going because it is being ` +
		`terminated`
	for name, c := range map[string]struct {
		a    admission.Attributes
		want string
	}{
		"active":      {admission.Attributes{Resource: configMaps, Namespace: "ok"}, ""},
		"missing":     {admission.Attributes{Resource: configMaps, Namespace: "none"}, `namespaces "none" not found`},
		"terminating": {admission.Attributes{Resource: configMaps, Namespace: "going"}, gone},
		"subresource": {
			admission.Attributes{Resource: corev1.Resource("pods"), Subresource: "binding", Namespace: "none"},
			`namespaces "none" not found`,
		},
		"update": {admission.Attributes{Resource: configMaps, Namespace: "going", Operation: admission.Update}, ""},
		"update, missing": {
			admission.Attributes{Resource: configMaps, Namespace: "none", Operation: admission.Update}, "",
		},
		"cluster":   {admission.Attributes{Resource: corev1.Resource("nodes")}, ""},
		"namespace": {admission.Attributes{Resource: namespaces, Namespace: "none"}, ""},
		"review":    {admission.Attributes{Resource: reviews, Namespace: "going"}, ""},
	} {
		c.a.Object = configMap
		err := p.Mutate(t.Context(), &c.a)
		if got := message(err); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if name == "terminating" && !kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Errorf("%s: no cause in %v", name, err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
