package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/crd"
	"github.com/keelson-dev/keelson/crd/convert"
	crdopenapi "github.com/keelson-dev/keelson/crd/openapi"
	"github.com/keelson-dev/keelson/discovery/openapi"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/server/egress"
	"github.com/keelson-dev/keelson/webhook"
)

// maxWebhooks is how many clients of webhooks are kept with their connections.
const maxWebhooks = 512

// custom is what serves custom resources.
type custom struct {
	*crd.Server
	documents *crdopenapi.Source
	// calls and conversions count calls of webhooks.
	calls       *webhook.Metrics
	conversions *convert.Metrics
}

func (s *Server) buildCustom(g *registry.Registry, verbs *rest.Handler) (*custom, error) {
	builtin, err := openapi.Builtin()
	if err != nil {
		return nil, err
	}
	c := &custom{documents: crdopenapi.New(builtin), calls: webhook.NewMetrics(), conversions: convert.NewMetrics()}
	options := convert.Options{
		Webhooks: webhook.NewPool(webhook.Options{
			Resolve: serviceAddresses(g), Metrics: c.calls,
			Dial: s.egress.Dialer(egress.ControlPlane), DialService: s.egress.Dialer(egress.Cluster),
		}, maxWebhooks),
		Metrics: c.conversions,
	}
	c.Server = crd.New(crd.Options{
		Registry: g, Rest: verbs, Exclusive: s.config.Storage != StorageEtcd, Documents: c.documents, Log: s.log,
		Converters: func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error) {
			return convert.New(options, name, spec)
		},
	})
	return c, nil
}

// collectors are the metrics of conversions.
func (c *custom) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.calls, c.conversions}
}

// serviceAddresses finds the Services that webhooks are behind.
func serviceAddresses(g *registry.Registry) webhook.Resolver {
	return webhook.ResolveByClusterIP(func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		obj, err := g.Lookup(ctx, corev1.Resource("services"), namespace, name)
		if obj == nil || err != nil {
			return nil, err
		}
		return obj.(*corev1.Service), nil
	})
}
