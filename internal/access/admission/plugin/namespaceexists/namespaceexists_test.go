package namespaceexists

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// states are the namespaces that exist.
type states map[string]registry.NamespaceState

func (s states) NamespaceState(_ context.Context, name string) (registry.NamespaceState, error) {
	if name == "broken" {
		return registry.NamespaceActive, errors.New("cannot read")
	}
	if state, ok := s[name]; ok {
		return state, nil
	}
	return registry.NamespaceMissing, nil
}

func TestWritesInMissingNamespacesAreRefused(t *testing.T) {
	p := Plugin(states{"there": registry.NamespaceActive, "going": registry.NamespaceTerminating})
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		for namespace, refused := range map[string]func(error) bool{
			"there": nil, "going": nil, "": nil, "missing": kerrors.IsNotFound, "broken": kerrors.IsInternalError,
		} {
			err := p.Validate(t.Context(), &admission.Attributes{
				Operation: operation, Resource: corev1.Resource("configmaps"), Namespace: namespace,
			})
			if refused == nil && err != nil || refused != nil && !refused(err) {
				t.Errorf("%v in %q: %v", operation, namespace, err)
			}
		}
	}
	for _, a := range []admission.Attributes{
		{Operation: admission.Update, Resource: namespaces, Namespace: "missing"},
		{Operation: admission.Connect, Resource: corev1.Resource("pods"), Namespace: "missing"},
	} {
		if err := p.Validate(t.Context(), &a); err != nil {
			t.Errorf("%v %v: %v", a.Operation, a.Resource, err)
		}
	}
}
