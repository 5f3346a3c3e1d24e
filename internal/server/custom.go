package server

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/internal/api/crd"
	"github.com/keelson-dev/keelson/internal/api/crd/convert"
	crdopenapi "github.com/keelson-dev/keelson/internal/api/crd/openapi"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/storage"
)

// maxWebhooks is the largest number of webhook clients that stay open with their connections.
const maxWebhooks = 512

// custom serves custom resources.
type custom struct {
	*crd.Server
	documents *crdopenapi.Source
	webhooks  *webhook.Pool // of conversion
}

// Run runs the server of custom resources until ctx ends, and then closes the connections to webhooks.
func (c *custom) Run(ctx context.Context) {
	defer c.webhooks.Close()
	c.Server.Run(ctx)
}

func newCustom(o *apiOptions, a *api) (*custom, error) {
	builtin, err := openapi.Builtin()
	if err != nil {
		return nil, err
	}
	conversions := convert.NewMetrics()
	o.metrics.Register(conversions)
	c := &custom{
		documents: crdopenapi.New(builtin),
		webhooks:  webhook.NewPool(a.calls, maxWebhooks),
	}
	options := convert.Options{Webhooks: c.webhooks, Metrics: conversions}
	c.Server = crd.New(crd.Options{
		Registry: o.registry, Rest: a.handler, Client: a.client, Writes: a.writes, Resources: a.resources,
		Exclusive: storage.IsExclusive(o.store), ReadOnly: o.config.onlyReads(), Documents: c.documents, Log: o.log,
		Forget: conversions.Forget, Rules: crd.NewRuleMetrics(o.metrics), Now: o.config.Testing.Clock.Now,
		Activity: o.work.Activity.Part("the controller of custom resources"),
		Converters: func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (convert.Converter, error) {
			return convert.New(options, name, spec)
		},
	})
	return c, nil
}
