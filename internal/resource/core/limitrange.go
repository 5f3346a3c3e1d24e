package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func limitRanges() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "limitranges", Name: "LimitRange", ShortNames: []string{"limits"},
			Namespaced: true,
		},
		Versions: onlyV1[corev1.LimitRange](defaultLimitRange),
		Storage:  registry.Storage{Version: "v1", Path: "limitranges"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*corev1.LimitRange]{
			PrepareCreate: nameLimitRange,
			Validate:      validateLimitRange,
		}.Untyped(),
	}
}

// nameLimitRange sets a UUID as the name of a LimitRange without a name.
// kube-apiserver does so too. Most other kinds refuse an empty name.
func nameLimitRange(r *corev1.LimitRange) {
	if r.Name == "" {
		r.Name = string(uuid.NewUUID())
	}
}

// defaultLimitRange fills in the defaults that are missing in items of the type Container. The order matters:
// the default request takes the default limit before the minimum. For example, max cpu 2 alone gives a default
// limit and a default request of 2.
func defaultLimitRange(r *corev1.LimitRange) {
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest,
			item.MaxLimitRequestRatio} {
			declare.RoundUp(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		fillResources(&item.Default, item.Max)
		fillResources(&item.DefaultRequest, item.Default)
		fillResources(&item.DefaultRequest, item.Min)
	}
}

// fillResources adds the resources to list that are only in from.
func fillResources(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, q := range from {
		if _, ok := (*list)[name]; !ok {
			(*list)[name] = q.DeepCopy()
		}
	}
}
