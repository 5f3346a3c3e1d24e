package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keelson-dev/keelson/server/health"
)

// Names of the background runners that health checks use.
const (
	customRunner       = "custom resource definitions"
	controlPlaneRunner = "objects of the control plane"
)

// checks returns the checks of /livez and /readyz in the order of their output. Where kube-apiserver reports
// whether a controller has started, the check here passes while the controller runs: nothing is served before its
// start.
func (s *starting) checks() []health.Check {
	always := func(context.Context) error { return nil }
	definitions := s.running(customRunner, s.api.custom.Ready)
	kept := s.running(controlPlaneRunner, always)
	hook := func(name string, probe func(context.Context) error) health.Check {
		return health.Check{Name: "poststarthook/" + name, On: health.Everywhere, Probe: probe}
	}
	list := []health.Check{
		{Name: "ping", On: health.Everywhere, Probe: always},
		{Name: "log", On: health.Everywhere, Probe: s.logWorks},
	}
	list = append(list, s.stores.checks()...)
	list = append(list,
		health.Check{Name: "informer-sync", On: health.Readyz, Probe: s.stores.cached},
		hook("start-apiextensions-informers", definitions),
		hook("crd-informer-synced", definitions),
		hook("start-system-namespaces-controller", always),
		hook("start-cluster-authentication-info-controller", kept),
		hook("start-kube-apiserver-identity-lease-controller", kept),
		hook("rbac/bootstrap-roles", always),
		hook("scheduling/bootstrap-system-priority-classes", kept),
		hook("priority-and-fairness-config-producer", kept),
		hook("bootstrap-controller", kept),
		hook("start-kubernetes-service-cidr-controller", kept),
		health.Check{Name: "shutdown", On: health.Readyz, Probe: s.ending.notStopping},
	)
	if e := s.stores.encryption; e != nil && e.HasPlugins() {
		list = append(list, health.Check{Name: "kms-providers", On: health.Everywhere, Probe: e.Healthy})
	}
	return list
}

// running returns a probe that fails while a runner waits for its next start after a failure. Otherwise it returns
// the result of another probe.
func (s *starting) running(name string, next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.work.Healthy(name); err != nil {
			return err
		}
		return next(ctx)
	}
}

func (s *starting) logWorks(ctx context.Context) error {
	if !s.log.Enabled(ctx, slog.LevelError) {
		return errors.New("the log takes no errors")
	}
	return nil
}

func (s *starting) newHealth() *health.Handler {
	h := health.New(s.checks(), s.log, s.metrics.Healthcheck)
	if grace := s.config.LivezGracePeriod; grace > 0 {
		end := time.Now().Add(grace)
		h.LivezPasses = func() bool { return time.Now().Before(end) }
	}
	return h
}
