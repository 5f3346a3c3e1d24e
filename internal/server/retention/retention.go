// Package retention reads how long old versions of objects are kept.
package retention

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
)

// rule is one part of Storage.HistoryRetention: [RESOURCE[.GROUP]][/NAMESPACE]=TIME, or TIME for everything else.
type rule struct {
	resource  string // with its group; "" is every resource
	namespace string // "" is every namespace
	keep      time.Duration
}

// sameScope reports whether two rules are about the same objects.
func (r rule) sameScope(o rule) bool {
	return r.resource == o.resource && r.namespace == o.namespace
}

// shortLived has the resources without history unless a rule names them: they change all the time, and their old
// versions are of little use.
var shortLived = []string{"events", "leases.coordination.k8s.io"}

// parse returns the rules of Storage.HistoryRetention.
func parse(values []string) (rules []rule, err error) {
	for _, value := range values {
		var r rule
		scope, keep, named := strings.Cut(value, "=")
		if !named {
			scope, keep = "", value
		}
		r.resource, r.namespace, _ = strings.Cut(scope, "/")
		if r.resource == "*" {
			r.resource = ""
		}
		if r.keep, err = parseDays(keep); err != nil || r.keep < 0 || named && r.resource == "" && r.namespace == "" {
			return nil, config.Errorf("{Storage.HistoryRetention}: %q is not TIME, RESOURCE=TIME, RESOURCE/NAMESPACE=TIME or "+
				"*/NAMESPACE=TIME, with a time such as 7d, 24h or 0", value)
		}
		if slices.ContainsFunc(rules, r.sameScope) {
			return nil, config.Errorf("{Storage.HistoryRetention} has two values for %q", scope)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseDays parses a duration, which may also be in days, such as 7d.
func parseDays(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	if s == "0" {
		return 0, nil
	}
	return time.ParseDuration(s)
}

// defaultRetention is for a store in the data directory, unless HistoryRetention has a rule without a scope. It does not
// apply to the resources in shortLived.
const defaultRetention = 24 * time.Hour

// Parse returns how long the store keeps old versions, with the most specific rules first. It returns no rules if
// no history is kept, and an error if Storage.HistoryRetention is invalid.
func Parse(c *config.Storage) (storage.Retention, error) {
	rules, err := parse(c.HistoryRetention)
	if err != nil {
		return storage.Retention{}, err
	}
	onDisk := c.Backend == config.StorageEmbedded || c.HasLocalState()
	if all := (rule{keep: defaultRetention}); onDisk && !slices.ContainsFunc(rules, all.sameScope) {
		rules = append(rules, all)
	}
	if len(rules) == 0 {
		return storage.Retention{}, nil
	}
	for _, name := range shortLived {
		if r := (rule{resource: name}); !slices.ContainsFunc(rules, r.sameScope) {
			rules = append(rules, r)
		}
	}
	specific := func(r rule) int {
		n := 0
		if r.resource != "" {
			n += 2
		}
		if r.namespace != "" {
			n++
		}
		return n
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(specific(b), specific(a)) })
	kept := storage.Retention{Bytes: int64(c.HistoryBytes)}
	prefixes := storedPrefixes()
	for _, r := range rules {
		scope := storage.Scope{Namespace: r.namespace}
		if r.resource != "" {
			scope.Prefix = prefixes[r.resource]
			if name, group, custom := strings.Cut(r.resource, "."); scope.Prefix == "" && custom {
				scope.Prefix = registry.Root + group + "/" + name + "/"
			}
			if scope.Prefix == "" {
				return kept, config.Errorf("{Storage.HistoryRetention}: there is no resource %q", r.resource)
			}
		}
		kept.Rules = append(kept.Rules, storage.RetentionRule{Scope: scope, Keep: r.keep})
	}
	return kept, nil
}

// storedPrefixes maps the names of the built-in resources, with their groups, to their key prefixes.
func storedPrefixes() map[string]string {
	prefixes := map[string]string{}
	for _, k := range resource.Kinds(features.All()) {
		if k.Storage.Path != "" {
			prefixes[k.GroupResource().String()] = registry.Root + k.Storage.Path + "/"
		}
	}
	return prefixes
}
