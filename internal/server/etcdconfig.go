package server

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// EtcdConfig configures the etcd clusters that store the objects.
type EtcdConfig struct {
	// Servers are the client URLs of the members of the cluster.
	Servers []string
	// Overrides store resources in other clusters: group/resource#url;url.
	Overrides []string
	// CAFile, CertFile and KeyFile are PEM files for TLS to all clusters.
	CAFile, CertFile, KeyFile string
	// Prefix is the prefix of all keys.
	Prefix string
	// CompactionInterval is the time between compactions. 0 disables compaction by this server.
	CompactionInterval time.Duration
	// DBMetricPollInterval is the time between reads of the database size. 0 reads it once.
	DBMetricPollInterval time.Duration
	// LeaseReuse limits how long a lease is used for further objects.
	LeaseReuse time.Duration

	// HealthcheckTimeout and ReadycheckTimeout bound the health checks named etcd
	// and etcd-readiness, of every kind of store.
	HealthcheckTimeout, ReadycheckTimeout time.Duration
}

func defaultEtcd() EtcdConfig {
	return EtcdConfig{
		Prefix: etcd.DefaultPrefix, CompactionInterval: 5 * time.Minute, DBMetricPollInterval: 30 * time.Second,
		LeaseReuse: time.Minute, HealthcheckTimeout: 2 * time.Second, ReadycheckTimeout: 2 * time.Second,
	}
}

func (c EtcdConfig) validate() (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Servers) == 0 {
		add("--etcd-servers must be specified")
	}
	if _, err := parseOverrides(c.Overrides); err != nil {
		errs = append(errs, err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		add("--etcd-certfile and --etcd-keyfile must be given together")
	}
	if strings.Trim(c.Prefix, "/") == "" {
		add("--etcd-prefix must not be empty")
	}
	if c.CompactionInterval < 0 || c.DBMetricPollInterval < 0 || c.LeaseReuse < 0 {
		add("--etcd-compaction-interval, --etcd-db-metric-poll-interval and --lease-reuse-duration-seconds must not " +
			"be negative")
	}
	return errs
}

// root returns the prefix of keys in etcd, as a path without a final slash.
func (c EtcdConfig) root() string { return path.Join("/", c.Prefix) }

// override is a cluster and the resources that it stores.
type override struct {
	servers   []string
	resources []schema.GroupResource
}

var errOverride = errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, " +
	"where servers are URLs, semicolon separated")

// parseOverrides returns one override for each set of servers.
func parseOverrides(values []string) ([]override, error) {
	var out []override
	for _, v := range values {
		parts := strings.Split(v, "#")
		if len(parts) != 2 || parts[1] == "" {
			return nil, errOverride
		}
		group, name, ok := strings.Cut(parts[0], "/")
		if !ok || name == "" || strings.Contains(name, "/") {
			return nil, errOverride
		}
		servers := strings.Split(parts[1], ";")
		i := slices.IndexFunc(out, func(o override) bool { return sameSet(o.servers, servers) })
		if i < 0 {
			i, out = len(out), append(out, override{servers: servers})
		}
		out[i].resources = append(out[i].resources, schema.GroupResource{Group: group, Resource: name})
	}
	return out, nil
}

// sameSet reports whether two lists have the same elements.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
