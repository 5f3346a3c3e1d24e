package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// compatibilityFlags are flags of kube-apiserver that have no effect in Keelson. A value that describes the
// behaviour of Keelson is accepted. Any other value is an error if clients would notice the difference, and
// otherwise a warning when the server starts.
type compatibilityFlags struct {
	storageBackend, storageMediaType              string
	watchCache                                    bool
	watchCacheSizes                               []string
	countPollPeriod, initializationTimeout, flush time.Duration
	leaseDuration, renewDeadline, retryPeriod     time.Duration
	textSplit, jsonSplit                          bool
	textBuffer, jsonBuffer                        string
	serverCount                                   int
}

const protobufMediaType = "application/vnd.kubernetes.protobuf"

func (c *compatibilityFlags) add(f *pflag.FlagSet) {
	f.StringVar(&c.storageBackend, "storage-backend", "", "etcd3 or nothing: see --storage for what Keelson has beside it")
	f.StringVar(
		&c.storageMediaType, "storage-media-type", protobufMediaType,
		"only "+protobufMediaType+": what built-in kinds are stored as",
	)
	f.BoolVar(&c.watchCache, "watch-cache", true, "has no effect: Keelson always serves from its cache")
	f.StringSliceVar(&c.watchCacheSizes, "watch-cache-sizes", nil, "has no effect: the sizes of the cache follow the use")
	f.DurationVar(
		&c.countPollPeriod, "etcd-count-metric-poll-period", time.Minute,
		"has no effect: objects are counted when metrics are read",
	)
	f.DurationVar(
		&c.initializationTimeout, "storage-initialization-timeout", time.Minute,
		"has no effect: the server is ready as soon as its store is",
	)
	const noElection = "has no effect: Keelson has no coordinated leader election"
	f.DurationVar(&c.leaseDuration, "coordinated-leadership-lease-duration", 15*time.Second, noElection)
	f.DurationVar(&c.renewDeadline, "coordinated-leadership-renew-deadline", 10*time.Second, noElection)
	f.DurationVar(&c.retryPeriod, "coordinated-leadership-retry-period", 2*time.Second, noElection)
	f.DurationVar(&c.flush, "log-flush-frequency", 5*time.Second, "has no effect: the log is not buffered")
	const oneStream = "has no effect: the log is one stream"
	f.BoolVar(&c.textSplit, "log-text-split-stream", false, oneStream)
	f.BoolVar(&c.jsonSplit, "log-json-split-stream", false, oneStream)
	f.StringVar(&c.textBuffer, "log-text-info-buffer-size", "0", oneStream)
	f.StringVar(&c.jsonBuffer, "log-json-info-buffer-size", "0", oneStream)
	f.IntVar(&c.serverCount, "apiserver-count", 1, "has no effect: servers that share a store find each other by their leases")
	const readOnlyPort = 10255
	f.Uint("kubelet-read-only-port", readOnlyPort, "has no effect: kubelets are reached at their port with TLS")
	const watchCacheSize = 100
	f.Int("default-watch-cache-size", watchCacheSize, "has no effect: the sizes of the cache follow the use")
	markDeprecated(f, "default-watch-cache-size",
		"Watch caches are sized automatically. This flag is no-op and it will be removed in a future version.")
	markDeprecated(f, "apiserver-count", "apiserver-count is deprecated and will be removed in a future version.")
	markDeprecated(f, "kubelet-read-only-port", "kubelet-read-only-port is deprecated and will be removed.")
}

// validate returns an error for values that would need something that Keelson does not have.
func (c *compatibilityFlags) validate() error {
	var errs []error
	if c.storageBackend != "" && c.storageBackend != "etcd3" {
		errs = append(errs,
			errors.New("--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3'"))
	}
	if c.storageMediaType != protobufMediaType {
		errs = append(errs, fmt.Errorf("--storage-media-type must be %s, not %q", protobufMediaType, c.storageMediaType))
	}
	if c.serverCount <= 0 {
		errs = append(errs, fmt.Errorf("--apiserver-count should be a positive number, but value '%d' provided", c.serverCount))
	}
	return errors.Join(errs...)
}

// withoutEffect returns a line for each flag that was given and has no effect, with the reason.
func withoutEffect(f *pflag.FlagSet) (out []string) {
	f.Visit(func(flag *pflag.Flag) {
		if why, found := strings.CutPrefix(flag.Usage, "has no effect: "); found && flag.Value.String() != flag.DefValue {
			out = append(out, "--"+flag.Name+" has no effect: "+why)
		}
	})
	slices.Sort(out)
	return out
}
