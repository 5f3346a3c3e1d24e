package stores

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
)

// etcdRoot returns the prefix of keys in etcd, as a path without a final slash.
func etcdRoot(c *config.Etcd) string { return path.Join("/", c.Prefix) }

// override has the servers of an etcd cluster and the resources that it stores.
type override struct {
	servers   []string
	resources []schema.GroupResource
}

var errOverride = config.Errorf("{Storage.Etcd.Overrides} invalid, must be of format: group/resource#servers, " +
	"where servers are URLs, semicolon separated")

// ParseOverrides returns one override for each set of servers.
func ParseOverrides(values []string) ([]override, error) {
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
