package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func priorityLevelConfiguration() *registry.Kind {
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "flowcontrol", Resource: "prioritylevelconfigurations",
			Name: "PriorityLevelConfiguration",
		},
		Versions: []registry.Version{
			declare.Version[flowcontrolv1.PriorityLevelConfiguration]("v1", defaultPriorityLevel)},
		Storage:      registry.Storage{Version: "v1", Path: "prioritylevelconfigurations"},
		Metadata:     registry.Metadata{OnUpdate: registry.MetaNew},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy:     strategy(validatePriorityLevel),
		Table: registry.Table[*flowcontrolv1.PriorityLevelConfiguration]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Type", "string", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
				table.Column("NominalConcurrencyShares", "string",
					flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
				table.Column("Queues", "string", queuing["queues"]),
				table.Column("HandSize", "string", queuing["handSize"]),
				table.Column("QueueLengthLimit", "string", queuing["queueLengthLimit"]),
				table.Age,
			},
			Cells: func(p *flowcontrolv1.PriorityLevelConfiguration) []any {
				var shares, queues, hand, length any = table.None, table.None, table.None, table.None
				if l := p.Spec.Limited; l != nil {
					if l.NominalConcurrencyShares != nil {
						shares = int64(*l.NominalConcurrencyShares)
					}
					if q := l.LimitResponse.Queuing; q != nil {
						queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
					}
				}
				return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, table.AgeOf(p.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// defaultPriorityLevel sets the defaults that the API documents. Shares are not a number of requests: the
// concurrency limit of the server is divided among the levels in proportion to them. In v1, 0 shares is a valid
// value, so that the field is a pointer. With 64 queues and hands of 8, one busy flow can fill only 8 queues.
func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if e := p.Spec.Exempt; e != nil {
		declare.Pointer(&e.NominalConcurrencyShares, 0)
		declare.Pointer(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	declare.Pointer(&l.NominalConcurrencyShares, 30)
	declare.Pointer(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		declare.Value(&q.Queues, 64)
		declare.Value(&q.HandSize, 8)
		declare.Value(&q.QueueLengthLimit, 50)
	}
}
