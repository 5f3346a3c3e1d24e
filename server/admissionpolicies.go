package server

import (
	"context"

	"github.com/keelson-dev/keelson/admission/plugin/policies"
	"github.com/keelson-dev/keelson/client/versions"
	"github.com/keelson-dev/keelson/server/background"
)

// newPolicies returns the plug-ins that evaluate admission policies.
func (a *api) newPolicies(o *apiOptions) *policies.Plugins {
	return policies.New(policies.Options{
		Registry: o.registry, Versions: versions.New(a.resources), Authorizer: o.authorization,
		Observer: o.metrics.Admission(), Log: o.log,
	})
}

// startPolicies loads the admission policies and follows them.
func (s *starting) startPolicies(ctx context.Context) error {
	return s.api.policies.Start(ctx, func(name string, run func(context.Context)) {
		s.work.Go(name, background.Forever(run))
	})
}
