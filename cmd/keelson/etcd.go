package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// etcdFlags adds the flags of etcd, with the names, defaults and meanings of kube-apiserver.
func etcdFlags(f *pflag.FlagSet, c *config.Etcd) {
	f.StringSliceVar(
		&c.Servers, "etcd-servers", nil, "List of etcd servers to connect with (scheme://ip:port), comma separated.",
	)
	f.StringSliceVar(
		&c.Overrides, "etcd-servers-overrides", nil,
		"Per-resource etcd servers overrides, comma separated. The individual override format: group/resource#servers, where servers are URLs, semicolon separated. Note that this applies only to resources compiled into this server binary. e.g. \"/pods#http://etcd4:2379;http://etcd5:2379,/events#http://etcd6:2379\"",
	)
	f.StringVar(&c.Prefix, "etcd-prefix", c.Prefix, "The prefix to prepend to all resource paths in etcd.")
	f.StringVar(&c.CAFile, "etcd-cafile", "", "SSL Certificate Authority file used to secure etcd communication.")
	f.StringVar(&c.CertFile, "etcd-certfile", "", "SSL certification file used to secure etcd communication.")
	f.StringVar(&c.KeyFile, "etcd-keyfile", "", "SSL key file used to secure etcd communication.")
	f.DurationVar(
		&c.CompactionInterval, "etcd-compaction-interval", c.CompactionInterval,
		"The interval of compaction requests. If 0, the compaction request from apiserver is disabled.",
	)
	f.DurationVar(
		&c.DBMetricPollInterval, "etcd-db-metric-poll-interval", c.DBMetricPollInterval,
		"The interval of requests to poll etcd and update metric. 0 disables the metric collection",
	)
	f.DurationVar(
		&c.HealthcheckTimeout, "etcd-healthcheck-timeout", c.HealthcheckTimeout,
		"The timeout to use when checking etcd health.",
	)
	f.DurationVar(
		&c.ReadycheckTimeout, "etcd-readycheck-timeout", c.ReadycheckTimeout,
		"The timeout to use when checking etcd readiness",
	)
	secondsVar(
		f, &c.LeaseReuse, "lease-reuse-duration-seconds",
		"The time in seconds that each lease is reused. A lower value could avoid large number of objects reusing the same lease. Notice that a too small value may cause performance problems at storage layer.",
	)
}

// applyEtcd chooses the store. A flag that only etcd has selects etcd as the store.
func applyEtcd(f *pflag.FlagSet, c *config.Config) {
	if f.Changed("storage") {
		return
	}
	f.Visit(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "etcd-") {
			c.Storage.Backend = config.StorageEtcd
		}
	})
}
