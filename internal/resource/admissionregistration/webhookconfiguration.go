package admissionregistration

import (
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// webhookConfiguration returns the kind of a configuration of webhooks. hooks returns the webhooks of a configuration, and
// list the field that has them. With excludes, rules of resources that webhooks are not called for are reported.
func webhookConfiguration[T any, P interface {
	*T
	registry.Object
}](names registry.Names, hooks func(P) []hook, list func(P) any, excludes bool) *registry.Kind {
	return &registry.Kind{
		Names: names,
		Versions: []registry.Version{declare.Version("v1", func(c P) {
			for _, h := range hooks(c) {
				h.setDefaults()
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: names.Resource},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[P]{
			// The rules stay valid, so that a manifest works with servers that do call webhooks for these
			// resources.
			Warn: func(c, _ P) []string {
				if excludes {
					return warnExcluded(hooks(c))
				}
				return nil
			},
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf:   func(c P) any { return declare.ExactText(list(c)) },
			ValidateCreate: func(c P) field.ErrorList { return validateWebhooks(hooks(c), nil) },
			ValidateUpdate: func(c, old P) field.ErrorList { return validateWebhooks(hooks(c), hooks(old)) },
		}.Untyped(),
		Table: registry.Table[P]{
			Columns: webhookColumns(),
			Cells: func(c P) []any {
				return []any{c.GetName(), int64(len(hooks(c))), table.AgeOf(c.GetCreationTimestamp())}
			},
		}.Untyped(),
	}
}
