package server

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/connection"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/gateway/filter/cors"
	"github.com/keelson-dev/keelson/internal/gateway/filter/goaway"
	"github.com/keelson-dev/keelson/internal/gateway/filter/hsts"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/retention"
	"github.com/keelson-dev/keelson/internal/server/servingcert"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/server/stores"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// reloadEvery is the interval in which files are checked for changes.
const reloadEvery = 5 * time.Second

// Options are the options of a server that are not in its configuration. Each may be zero.
type Options struct {
	// FlagGiven reports whether a flag was given on the command line; name has no dashes. A given flag can exclude
	// a configuration file even if it has its default value. Nil means that no flags were given.
	FlagGiven func(name string) bool
	// AdjustEngine, unless it is nil, changes the options of the embedded engine before it is opened. Tests use it
	// for simulated disks that fail.
	AdjustEngine func(*embedded.Options)
	// OpenStore, unless it is nil, opens a store that replaces the embedded engine. It is for measurements of the code
	// around the store.
	OpenStore func(context.Context) (storage.Store, error)
	// Handover is where the server goes on that takes over from another one; nil if it does not.
	Handover *copies.Handover
	// Following, unless it is nil, makes the server answer reads of a store that follows another server (keelson standby --serve-stale).
	// Such a server writes nothing to the store, and its data directory is locked by the standby.
	Following *offsite.Following
	// Now is the clock of the budgets of webhooks; nil means time.Now. Tests advance it.
	Now func() time.Time

	// origin is the snapshot from which the server is started; nil if it is not started from one.
	origin *Snapshot
	// elsewhere is set for a server that only reads a copy (StartCopied).
	elsewhere undelete.Elsewhere

	// Only tests set the fields below.

	// fileReload is the interval in which files are checked for changes; 0 means the default.
	fileReload time.Duration
	// testPlugins are further admission plug-ins.
	testPlugins []admission.Plugin
	// lookup resolves the names of hosts; nil means the resolver of the system.
	lookup connection.Lookup
	// auditBudget and auditFlushTime are Budget and FlushTime of auditing.Options; 0 means the default.
	auditBudget, auditFlushTime time.Duration
}

// onlyReads reports whether the server never changes its store, because another server does, or none.
func (o *Options) onlyReads() bool { return o.Following != nil || o.elsewhere != nil }

// flagGiven reports whether a flag was given on the command line.
func (o *Options) flagGiven(flag string) bool { return o.FlagGiven != nil && o.FlagGiven(flag) }

// anyFlagGiven reports whether a flag was given for any field of the configuration whose path begins with prefix.
func (o *Options) anyFlagGiven(prefix string) bool {
	return o.FlagGiven != nil && slices.ContainsFunc(config.Fields(), func(f config.Field) bool {
		return strings.HasPrefix(f.Path, prefix) && slices.ContainsFunc(f.Flags, o.flagGiven)
	})
}

// settings are the configuration of a server, and values that exist while the server runs.
type settings struct {
	config.Config
	Options
	// files reloads the files that the configuration names. Start sets it.
	files *reload.Files
}

// reloadEvery returns the interval in which files are checked for changes.
func (s *settings) reloadEvery() time.Duration { return cmp.Or(s.fileReload, reloadEvery) }

// maxStreams returns the limit of concurrent requests of one HTTP/2 connection. The default is half of the smaller
// limit of requests in flight, between minStreams and the constant maxStreams. So one connection cannot use the
// whole limit.
func (s *settings) maxStreams() int {
	if s.Serving.HTTP2MaxStreams > 0 {
		return s.Serving.HTTP2MaxStreams
	}
	streams := maxStreams
	for _, limit := range []int{s.Requests.MaxInFlight, s.Requests.MaxMutatingInFlight} {
		if limit > 0 {
			streams = min(streams, max(limit/2, minStreams))
		}
	}
	return streams
}

// validate returns the errors in the values of the configuration.
func (s *settings) validate() error {
	errs := []error{s.Config.Validate(), s.validateGiven(), s.validateStorage(), servingcert.Validate(&s.Serving.TLS), s.validateFilters()}
	errs = append(errs, s.validateControllers()...)
	if file := s.Network.EgressConfigFile; file != "" {
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, config.Errorf("{Network.EgressConfigFile}: %s does not exist", file).
				OnCommandLine("egress-selector-config-file %s does not exist", file))
		}
	}
	if _, err := serviceallocator.ParsePortRange(s.Network.ServiceNodePortRange); err != nil {
		errs = append(errs, config.Errorf("{Network.ServiceNodePortRange}: %w", err))
	}
	return errors.Join(errs...)
}

// validateGiven returns an error for each given flag that a configuration file excludes, whatever its value is.
// config.Validate finds only those with a value other than the default.
func (s *settings) validateGiven() error {
	var errs []error
	if a := &s.Authentication; s.anyFlagGiven("Authentication.OIDC.") && a.OIDC.IsDefault() {
		if a.ConfigFile != "" {
			errs = append(errs, errors.New("authentication-config file and oidc-* flags are mutually exclusive"))
		} else {
			errs = append(errs, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags "+
				"are set"))
		}
	}
	if s.Authorization.ConfigFile != "" && (s.flagGiven("authorization-mode") || s.anyFlagGiven("Authorization.Webhook.")) {
		errs = append(errs, config.Errorf("{Authorization.ConfigFile} can not be specified when {Authorization.Modes} or "+
			"--authorization-webhook-* flags are defined"))
	}
	return errors.Join(errs...)
}

func (s *settings) validateStorage() error {
	_, err := snapshots.ParseRecipients(s.Storage.Snapshots.Recipients)
	if s.flagGiven("snapshot-recipient") && len(s.Storage.Snapshots.Recipients) == 0 {
		err = config.Errorf("{Storage.Snapshots.Recipients} is empty: snapshots would not be encrypted; name a public key of age, " +
			"or leave the flag out")
	}
	_, e := retention.Parse(&s.Storage)
	err = errors.Join(err, e)
	if s.Storage.Backend == config.StorageEtcd {
		_, e := stores.ParseOverrides(s.Storage.Etcd.Overrides)
		err = errors.Join(err, e)
	}
	return err
}

// validateFilters checks what the filters of requests parse.
func (s *settings) validateFilters() error {
	return errors.Join(cors.Validate(s.Requests.CORSAllowedOrigins), hsts.Validate(s.Requests.HSTSDirectives),
		goaway.Validate(s.Requests.GoawayChance))
}

// metricOptions returns the options of package metrics.
func metricOptions(c *config.Metrics) (metrics.Options, error) {
	previous := release.Of(release.Newest - 1).String()
	return metrics.Parse(c.Disabled, c.AllowedLabels, c.AllowedLabelsFile, c.ShowHiddenFor, previous)
}
