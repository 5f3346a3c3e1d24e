package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func resourceQuotas() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "resourcequotas", Name: "ResourceQuota", ShortNames: []string{"quota"},
			Namespaced: true,
		},
		Versions: onlyV1[corev1.ResourceQuota](func(q *corev1.ResourceQuota) {
			declare.RoundUp(q.Spec.Hard)
			declare.RoundUp(q.Status.Hard)
			declare.RoundUp(q.Status.Used)
		}),
		Storage:      registry.Storage{Version: "v1", Path: "resourcequotas"},
		Requests:     registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*corev1.ResourceQuota]{
			ValidateCreate:       validateResourceQuota,
			ValidateUpdate:       validateResourceQuotaUpdate,
			ValidateStatusUpdate: validateResourceQuotaStatus,
			Warn:                 quotaWarnings,
		}.Untyped(),
		Table: registry.Table[*corev1.ResourceQuota]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Request", "string", "Request represents a minimum amount of cpu/memory that a container may consume."),
				table.Column("Limit", "string",
					"Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."),
				table.Age,
			},
			Cells: resourceQuotaCells,
		}.Untyped(),
	}
}

// resourceQuotaCells shows used and hard values, such as requests.cpu: 1/4, sorted by name. Names that begin
// with limits have a column of their own; all others, such as pods, are in the column Request.
func resourceQuotaCells(q *corev1.ResourceQuota) []any {
	var names []string
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		hard, used := q.Status.Hard[corev1.ResourceName(name)], q.Status.Used[corev1.ResourceName(name)]
		part := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits") {
			limits = append(limits, part)
		} else {
			requests = append(requests, part)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), table.AgeOf(q.CreationTimestamp)}
}
