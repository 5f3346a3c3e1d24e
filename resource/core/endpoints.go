package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
)

func endpoints() *registry.Kind {
	versions := onlyV1(func() *corev1.Endpoints { return &corev1.Endpoints{} }, func(e *corev1.Endpoints) {
		for i := range e.Subsets {
			for j := range e.Subsets[i].Ports {
				setDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
			}
		}
	})
	versions[0].Warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
	return &registry.Kind{
		Package: "core", Resource: "endpoints", Singular: "endpoints", Name: "Endpoints", ListName: "EndpointsList",
		MetaOnUpdate: registry.MetaWhole,
		ShortNames:   []string{"ep"}, Namespaced: true,
		Versions: versions, Storage: "v1", StoragePath: "services/endpoints",
		CreateOnUpdate: true, UnconditionalUpdate: true,
		Columns: []metav1.TableColumnDefinition{
			NameColumn,
			column("Endpoints", "string", corev1.Endpoints{}.SwaggerDoc()["subsets"]),
			AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*corev1.Endpoints]{
			Cells: func(e *corev1.Endpoints) ([]any, []metav1.TableRowCondition) {
				return []any{e.Name, formatEndpoints(e.Subsets), Age(e.CreationTimestamp)}, nil
			},
		}),
	}
}

// formatEndpoints names the first three ready endpoints.
func formatEndpoints(subsets []corev1.EndpointSubset) string {
	const most = 3
	var all []string
	for _, s := range subsets {
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	if len(all) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], ","), len(all)-most)
	}
	return OrNone(strings.Join(all, ","))
}
