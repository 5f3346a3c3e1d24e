package core

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// Kinds returns the kinds of the core group in the order of discovery. Events are also served
// in the group events.k8s.io.
func Kinds(gates features.Gates) []*registry.Kind {
	inPods := NewPodGates(gates)
	return []*registry.Kind{
		bindings(),
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(gates),
		persistentVolumeClaims(gates),
		persistentVolumes(),
		pods(inPods, newPodStatusGates(gates)),
		podTemplates(inPods),
		replicationControllers(inPods),
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

// statusSubresource returns a status subresource without special rules.
func statusSubresource() registry.Subresource {
	return registry.Subresource{Name: "status", Verbs: statusVerbs, Status: true}
}

// onlyV1 returns the versions of a kind that has only v1, with objects of type *T. defaults
// may be nil.
func onlyV1[T any, P interface {
	*T
	registry.Object
}](defaults func(P)) []registry.Version {
	return []registry.Version{declare.Version[T]("v1", defaults)}
}

// labelNotSupported returns the error for an unknown field label, for kinds with selectable
// fields.
func labelNotSupported(_, label string) error {
	return errors.NewBadRequest(fmt.Sprintf("field label not supported: %s", label))
}

// column returns a table column that is always shown.
func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// wideColumn returns a table column that is only shown in wide output.
func wideColumn(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Priority: 1, Description: description}
}
