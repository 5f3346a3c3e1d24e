package server

import (
	"log/slog"

	"github.com/keelson-dev/keelson/activity"
	"github.com/keelson-dev/keelson/controller/apiservice"
	"github.com/keelson-dev/keelson/discovery"
)

// apiServices returns the controller of the APIServices of built-in groups and of custom resources.
func (a *api) apiServices(log *slog.Logger, work *activity.Part) *apiservice.Controller {
	return &apiservice.Controller{
		Registry: a.registry, Client: a.client, Resources: a.resources,
		Ready: a.custom.Ready, Priority: discovery.Priority, Log: log, Activity: work,
	}
}
