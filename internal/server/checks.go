package server

import (
	"context"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/fairness"
	"github.com/keelson-dev/keelson/internal/server/health"
)

// Names of the background runners that health checks use.
const (
	customRunner       = "custom resource definitions"
	controlPlaneRunner = "objects of the control plane"
	apiServicesRunner  = "APIServices"
	extensionsRunner   = "extension API servers"
	peerRecordRunner   = "address for peers"
	peersRunner        = "peers"
	servicesRunner     = "addresses and ports of services"
	proxyClientRunner  = "changes of --proxy-client-cert-file"
	admissionRunners   = "admission" // the prefix of the names of several runners
)

// checks returns the checks of /livez and /readyz in the order of their output. In kube-apiserver some checks
// report whether a controller has started. Here nothing is served before that, and they report whether the
// controller runs.
func (s *starting) checks() []health.Check {
	always := func(context.Context) error { return nil }
	definitions := running(s.work, customRunner, s.api.custom.Ready)
	kept := running(s.work, controlPlaneRunner, always)
	var list []health.Check
	add := func(name string, on health.Endpoint, probe func(context.Context) error) {
		list = append(list, health.Check{Name: name, On: on, Probe: probe})
	}
	hook := func(name string, probe func(context.Context) error) {
		add("poststarthook/"+name, health.Everywhere, probe)
	}
	add("ping", health.Everywhere, always)
	add("log", health.Everywhere, s.logWatch.Probe)
	add("loopback-serving-certificate", health.Livez|health.Healthz, s.identity.NotExpired)
	list = append(list, s.stores.Checks()...)
	if valid := s.directories.copy.Valid(); valid != nil {
		add("backup-lock", health.Readyz, func(context.Context) error {
			if !valid() {
				return errors.New("the lock of the copy was not renewed in time, so another server may have taken over")
			}
			return nil
		})
	}
	add("informer-sync", health.Readyz, s.stores.Cached)
	if f := s.config.Following; f != nil {
		add("standby", health.Readyz, func(context.Context) error { return errors.New(f.Remark()) })
		add("shutdown", health.Readyz, s.ending.notStopping)
		return list // the others are about what the server writes
	}
	hook("start-apiserver-admission-initializer", func(context.Context) error {
		return s.work.AllHealthy(admissionRunners)
	})
	// The caches of Keelson correspond to the informers of kube-apiserver. They are open before anything is
	// served.
	hook("generic-apiserver-start-informers", always)
	if s.fairness != nil {
		hook("priority-and-fairness-config-consumer", running(s.work, fairness.Config, always))
		hook("priority-and-fairness-filter", running(s.work, fairness.Seats, always))
		// This runner also counts the objects, at intervals.
		hook("storage-object-count-tracker-hook", running(s.work, fairness.Config, always))
	}
	extensions, services := running(s.work, extensionsRunner, always), running(s.work, apiServicesRunner, always)
	hook("start-apiextensions-informers", definitions)
	hook("start-apiextensions-controllers", definitions)
	hook("crd-informer-synced", definitions)
	hook("start-system-namespaces-controller", always)
	if s.controlPlane != nil && s.controlPlane.record != nil {
		hook("peer-endpoint-reconciler-controller", running(s.work, peerRecordRunner, always))
	}
	if s.api.peers != nil {
		workers := running(s.work, peersRunner, always)
		hook("mixed-version-proxy-handler", running(s.work, peersRunner, s.api.peers.Ready))
		hook("local-discovery-cache-sync", workers)
		hook("peer-discovery-workers", workers)
	}
	hook("start-cluster-authentication-info-controller", kept)
	hook("start-kube-apiserver-identity-lease-controller", kept)
	hook("start-kube-apiserver-identity-lease-garbage-collector", kept)
	if s.gates.Enabled(features.WatchCacheInitializationPostStartHook) {
		hook("storage-readiness", always)
	}
	hook("start-legacy-token-tracking-controller", running(s.work, authentication.LegacyRunner, always))
	hook("start-service-ip-repair-controllers", running(s.work, servicesRunner, always))
	hook("rbac/bootstrap-roles", always)
	hook("scheduling/bootstrap-system-priority-classes", kept)
	hook("priority-and-fairness-config-producer", kept)
	hook("bootstrap-controller", kept)
	hook("start-kubernetes-service-cidr-controller", kept)
	if s.config.Network.Aggregation.ProxyClientCertFile != "" {
		hook("aggregator-reload-proxy-client-cert", running(s.work, proxyClientRunner, always))
	}
	hook("start-kube-aggregator-informers", extensions)
	hook("apiservice-status-local-available-controller", extensions)
	hook("apiservice-status-remote-available-controller", extensions)
	hook("apiservice-registration-controller", extensions)
	hook("apiservice-discovery-controller", extensions)
	hook("kube-apiserver-autoregistration", services)
	add("autoregister-completion", health.Everywhere, services)
	hook("apiservice-openapi-controller", extensions)
	hook("apiservice-openapiv3-controller", extensions)
	add("shutdown", health.Readyz, s.ending.notStopping)
	if e := s.stores.Encryption; e != nil && e.HasPlugins() {
		add("kms-providers", health.Everywhere, e.Healthy)
	}
	return list
}

// running returns a probe that fails while a runner waits for its next start after a failure. Otherwise it returns
// the result of another probe.
func running(work *background.Group, name string, next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := work.Healthy(name); err != nil {
			return err
		}
		return next(ctx)
	}
}

func (s *starting) newHealth() *health.Handler {
	h := health.New(s.checks(), s.log, health.NewMetrics(s.metrics))
	if grace := s.config.Serving.LivezGracePeriod; grace > 0 {
		end := time.Now().Add(grace)
		h.LivezPasses = func() bool { return time.Now().Before(end) }
	}
	h.Warnings = []func() string{s.stores.Warning, s.directories.copy.Warning}
	h.Remarks = []func() string{s.controlPlane.remark, s.directories.copy.Remark}
	if f := s.config.Following; f != nil {
		h.Remarks = []func() string{f.Remark}
	}
	return h
}
