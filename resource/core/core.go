package core

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

// Kinds are the kinds of the core group, in the order of discovery. Events are
// served under events.k8s.io too.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		bindings(),
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(),
		persistentVolumeClaims(),
		persistentVolumes(),
		pods(),
		podTemplates(),
		replicationControllers(),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(),
	}
}

var (
	statusVerbs = []string{"get", "patch", "update"}
	proxyVerbs  = []string{"create", "delete", "get", "patch", "update"}
	streamVerbs = []string{"create", "get"}
)

// statusSubresource is the ordinary status subresource.
func statusSubresource() registry.Subresource {
	return registry.Subresource{Name: "status", Verbs: statusVerbs, Status: true}
}

// onlyV1 returns the versions of a kind that has v1 alone, whose objects are of the type *T. defaults may be nil.
func onlyV1[T any, P interface {
	*T
	registry.Object
}](defaults func(P)) []registry.Version {
	return []registry.Version{declare.Version[T]("v1", defaults)}
}

// labelNotSupported is the answer of the kinds that have selectable fields to a
// label that is none.
func labelNotSupported(_, label string) error {
	return errors.NewBadRequest(fmt.Sprintf("field label not supported: %s", label))
}

// column makes a column that every table shows; wideColumn one for wide output.
func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

func wideColumn(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Priority: 1, Description: description}
}
