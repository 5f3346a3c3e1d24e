package autoprovision

import (
	"context"
	"errors"
	"slices"
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

func TestMissingNamespacesAreCreated(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	var created []string
	p := Plugin(
		states{"there": registry.NamespaceActive, "going": registry.NamespaceTerminating},
		func(_ context.Context, name string) error {
			created = append(created, name)
			switch name {
			case "raced":
				return kerrors.NewAlreadyExists(namespaces, name)
			case "refused":
				return errors.New("no")
			}
			return nil
		},
	)
	for name, c := range map[string]struct {
		a       admission.Attributes
		created []string
		refused bool
	}{
		"missing":        {admission.Attributes{Resource: configMaps, Namespace: "new"}, []string{"new"}, false},
		"raced":          {admission.Attributes{Resource: configMaps, Namespace: "raced"}, []string{"raced"}, false},
		"refused":        {admission.Attributes{Resource: configMaps, Namespace: "refused"}, []string{"refused"}, true},
		"there":          {admission.Attributes{Resource: configMaps, Namespace: "there"}, nil, false},
		"going":          {admission.Attributes{Resource: configMaps, Namespace: "going"}, nil, false},
		"unreadable":     {admission.Attributes{Resource: configMaps, Namespace: "broken"}, nil, true},
		"cluster-scoped": {admission.Attributes{Resource: corev1.Resource("nodes")}, nil, false},
		"namespace":      {admission.Attributes{Resource: namespaces, Namespace: "new"}, nil, false},
		"dry run": {admission.Attributes{
			Resource: configMaps, Namespace: "new", Options: admission.Options{DryRun: true},
		}, nil, false},
		"update": {admission.Attributes{
			Operation: admission.Update, Resource: configMaps, Namespace: "new",
		}, nil, false},
	} {
		created = nil
		err := p.Mutate(t.Context(), &c.a)
		if !slices.Equal(created, c.created) || c.refused != kerrors.IsForbidden(err) || !c.refused && err != nil {
			t.Errorf("%s: created %q, %v", name, created, err)
		}
	}
}
