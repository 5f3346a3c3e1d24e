package server

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/controller/apiservice"
	"github.com/keelson-dev/keelson/discovery"
)

// apiServices makes the APIServices of what is built in when it is started, and keeps
// those of custom resources while it runs.
func (a *api) apiServices(log *slog.Logger) *apiservice.Controller {
	c := &apiservice.Controller{Registry: a.registry, Client: a.client, Custom: a.custom, Log: log}
	for _, g := range discovery.FromKinds(a.kinds) {
		for i := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: g.Versions[i].Name}
			if gv.Group == aggregation {
				continue // the aggregator's own group has none
			}
			c.Builtin = append(c.Builtin, apiservice.Builtin{GroupVersion: gv, Priority: g.Priority})
		}
	}
	return c
}

// aggregation is the group of APIServices.
const aggregation = "apiregistration.k8s.io"
