package server

import (
	"context"
	"log/slog"
	"slices"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/policies"
	"github.com/keelson-dev/keelson/internal/api/client/versions"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
	"github.com/keelson-dev/keelson/internal/controller/policystatus"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/server/background"
)

// newPolicies returns the plug-ins that evaluate admission policies.
func (a *api) newPolicies(o *apiOptions, conditions *celvars.ConditionMetrics) *policies.Plugins {
	return policies.New(policies.Options{
		Registry: o.registry, Versions: versions.New(a.resources), Authorizer: o.authorization,
		Metrics: policies.NewMetrics(o.metrics, conditions), Log: o.log,
	})
}

// startPolicies loads the admission policies and starts the work that keeps them current.
func (s *starting) startPolicies(ctx context.Context) error {
	return s.api.policies.Start(ctx, func(name string, run func(context.Context)) {
		s.work.Go(name, background.Forever(run))
	})
}

// policyStatus returns the controller that checks the types in the expressions of policies.
func (a *api) policyStatus(log *slog.Logger, work *activity.Part) *policystatus.Controller {
	return &policystatus.Controller{
		Registry: a.registry, Resources: a.resources, Documents: a.openAPI, Client: a.client, Log: log,
		Activity: work,
	}
}

// openAPI returns the OpenAPI v3 document of a built-in group or of custom resources.
func (a *api) openAPI(ctx context.Context, path string) ([]byte, error) {
	builtin, err := openapi.Builtin()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(builtin.V3(), func(d archive.Info) bool { return d.Path == path }) {
		return builtin.ReadV3(path)
	}
	text, _, err := a.custom.documents.V3(ctx, path)
	return text, err
}
