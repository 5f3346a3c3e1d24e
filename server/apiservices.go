package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/controller/apiservice"
	"github.com/keelson-dev/keelson/discovery"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/server/background"
)

// startAPIServices makes the APIServices of what is built in, and keeps those of
// custom resources.
func (s *Server) startAPIServices(ctx context.Context, verbs *rest.Handler) error {
	c := &apiservice.Controller{Registry: s.api.registry, Writer: verbs, Custom: s.api.custom, Log: s.log}
	for _, g := range discovery.FromKinds(s.api.kinds) {
		for i := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: g.Versions[i].Name}
			if gv.Group == aggregation {
				continue // the aggregator's own group has none
			}
			c.Builtin = append(c.Builtin, apiservice.Builtin{GroupVersion: gv, Priority: g.Priority})
		}
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	s.work.Go("APIServices", background.Forever(c.Run))
	return nil
}

// aggregation is the group of APIServices.
const aggregation = "apiregistration.k8s.io"
