package peers

import (
	"maps"
	"slices"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// document is the discovery document of one server. It is immutable.
type document struct {
	resources map[schema.GroupVersionResource]bool
	// groups are the named groups in the order of the server. The core group is not among them: its resources are
	// forwarded, but no other server shows them in discovery.
	groups []apidiscovery.APIGroupDiscovery
}

// newDocument returns the content of the aggregated discovery documents of /api and /apis.
func newDocument(lists ...*apidiscovery.APIGroupDiscoveryList) *document {
	d := &document{resources: map[schema.GroupVersionResource]bool{}}
	seen := map[string]bool{"": true}
	for _, list := range lists {
		for i := range list.Items {
			g := &list.Items[i]
			for _, v := range g.Versions {
				for j := range v.Resources {
					d.resources[schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: v.Resources[j].Resource}] = true
				}
			}
			if !seen[g.Name] {
				seen[g.Name] = true
				d.groups = append(d.groups, *g)
			}
		}
	}
	return d
}

// without returns a document without the given versions. It returns d itself if d has none of them.
func (d *document) without(versions map[schema.GroupVersion]bool) *document {
	out := &document{resources: map[schema.GroupVersionResource]bool{}}
	for gvr := range d.resources {
		if !versions[gvr.GroupVersion()] {
			out.resources[gvr] = true
		}
	}
	if len(out.resources) == len(d.resources) {
		return d
	}
	for i := range d.groups {
		g := d.groups[i]
		g.Versions = slices.DeleteFunc(slices.Clone(g.Versions), func(v apidiscovery.APIVersionDiscovery) bool {
			return versions[schema.GroupVersion{Group: g.Name, Version: v.Version}]
		})
		if len(g.Versions) > 0 {
			out.groups = append(out.groups, g)
		}
	}
	return out
}

// catalog finds the peers that serve a resource. It is immutable.
type catalog struct {
	documents map[string]*document // by the name of the peer, without the excluded versions
}

func newCatalog(documents map[string]*document, excluded map[schema.GroupVersion]bool) *catalog {
	c := &catalog{documents: make(map[string]*document, len(documents))}
	for name, d := range documents {
		c.documents[name] = d.without(excluded)
	}
	return c
}

// serving returns the names of the peers that serve a resource, sorted.
func (c *catalog) serving(gvr schema.GroupVersionResource) []string {
	var names []string
	for name, d := range c.documents {
		if d.resources[gvr] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// merge returns the groups of all servers. name is this server's, and local are its groups.
func (c *catalog) merge(name string, local []apidiscovery.APIGroupDiscovery) []apidiscovery.APIGroupDiscovery {
	if len(c.documents) == 0 {
		return local
	}
	all := map[string][]apidiscovery.APIGroupDiscovery{name: local}
	for peer, d := range c.documents {
		all[peer] = d.groups
	}
	return mergeGroups(all)
}

// grace is the time for which a version stays excluded after the store no longer declares it. By then all servers have
// noticed that it is gone.
const grace = 5 * time.Minute

// exclusions are the versions that objects in the shared store declare: definitions of custom resources, and APIServices
// with a Service. Every server serves those by itself, so a request for one of them is never forwarded to a peer. The
// document of a peer may be old: without exclusions it would bring back a definition that was deleted.
type exclusions struct {
	declared map[schema.GroupVersion]bool
	removed  map[schema.GroupVersion]time.Time // when it was removed
}

// declare sets the versions that the store declares now.
func (e *exclusions) declare(versions map[schema.GroupVersion]bool, now time.Time) {
	if e.removed == nil {
		e.removed = map[schema.GroupVersion]time.Time{}
	}
	for gv := range e.declared {
		if !versions[gv] {
			e.removed[gv] = now
		}
	}
	for gv := range versions {
		delete(e.removed, gv)
	}
	e.declared = maps.Clone(versions)
}

// expire ends the exclusion of the versions that were removed longer than grace ago, and returns them. The caller
// must remove them from all documents that were read before.
func (e *exclusions) expire(now time.Time) map[schema.GroupVersion]bool {
	expired := map[schema.GroupVersion]bool{}
	for gv, at := range e.removed {
		if now.Sub(at) > grace {
			expired[gv] = true
			delete(e.removed, gv)
		}
	}
	return expired
}

// all returns the excluded versions.
func (e *exclusions) all() map[schema.GroupVersion]bool {
	out := maps.Clone(e.declared)
	if out == nil {
		out = map[schema.GroupVersion]bool{}
	}
	for gv := range e.removed {
		out[gv] = true
	}
	return out
}
