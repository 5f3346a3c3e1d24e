package server

import (
	"log/slog"

	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/apiservice"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
)

// apiServices returns the controller of the APIServices of built-in groups and of custom resources.
func (a *api) apiServices(log *slog.Logger, work *activity.Part) *apiservice.Controller {
	return &apiservice.Controller{
		Registry: a.registry, Client: a.client, Resources: a.resources,
		Ready: a.custom.Ready, Priority: discovery.Priority, Log: log, Activity: work,
	}
}
