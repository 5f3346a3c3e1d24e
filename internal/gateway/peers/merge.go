package peers

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// mergeGroups returns the groups that any of the servers has, with all their versions, resources, verbs and
// subresources. Every server that knows the same peers gets the same result, because servers are taken in the order of
// their names: where two of them differ about a resource, for instance about its kind, the first one counts.
func mergeGroups(servers map[string][]apidiscovery.APIGroupDiscovery) []apidiscovery.APIGroupDiscovery {
	var lists [][]apidiscovery.APIGroupDiscovery
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		lists = append(lists, servers[name])
	}
	return mergeLists(lists, func(g *apidiscovery.APIGroupDiscovery) string { return g.Name }, mergeGroup)
}

func mergeGroup(a, b apidiscovery.APIGroupDiscovery) apidiscovery.APIGroupDiscovery {
	a.Versions = mergeLists([][]apidiscovery.APIVersionDiscovery{a.Versions, b.Versions},
		func(v *apidiscovery.APIVersionDiscovery) string { return v.Version }, mergeVersion)
	return a
}

func mergeVersion(a, b apidiscovery.APIVersionDiscovery) apidiscovery.APIVersionDiscovery {
	a.Resources = mergeLists([][]apidiscovery.APIResourceDiscovery{a.Resources, b.Resources},
		func(r *apidiscovery.APIResourceDiscovery) string { return r.Resource }, mergeResource)
	return a
}

// mergeResource unites verbs and subresources. They are sorted, unless the two resources are equal.
func mergeResource(a, b apidiscovery.APIResourceDiscovery) apidiscovery.APIResourceDiscovery {
	if reflect.DeepEqual(a, b) {
		return a
	}
	a.Verbs = slices.Concat(a.Verbs, b.Verbs)
	slices.Sort(a.Verbs)
	a.Verbs = slices.Compact(a.Verbs)
	subresources := map[string]apidiscovery.APISubresourceDiscovery{}
	for _, s := range slices.Concat(a.Subresources, b.Subresources) {
		subresources[s.Subresource] = s
	}
	a.Subresources = slices.SortedFunc(maps.Values(subresources), func(x, y apidiscovery.APISubresourceDiscovery) int {
		return cmp.Compare(x.Subresource, y.Subresource)
	})
	return a
}

// mergeLists returns the elements of several lists. Elements of the same name are merged in the order of the lists. The
// order of the result is the one of mergeOrder.
func mergeLists[T any](lists [][]T, name func(*T) string, merge func(a, b T) T) []T {
	merged := map[string]T{}
	orders := make([][]string, 0, len(lists))
	for _, list := range lists {
		order := make([]string, 0, len(list))
		for i := range list {
			n := name(&list[i])
			order = append(order, n)
			if before, ok := merged[n]; ok {
				merged[n] = merge(before, list[i])
			} else {
				merged[n] = list[i]
			}
		}
		orders = append(orders, order)
	}
	out := make([]T, 0, len(merged))
	for _, n := range mergeOrder(orders) {
		out = append(out, merged[n])
	}
	return out
}

// mergeOrder returns the names of all lists, each once. If one list has all of them, the result is the first such
// list. Otherwise two names that follow each other in a list have the same order in the result. If several names
// may come next, the smallest comes first: [a c] and [b c] give [a b c]. Lists that contradict each other are
// sorted by name.
func mergeOrder(lists [][]string) []string {
	after := map[string]map[string]bool{} // names that come after a name
	before := map[string]int{}            // how many names have to come before
	for _, list := range lists {
		for i, name := range list {
			if after[name] == nil {
				after[name] = map[string]bool{}
			}
			if i > 0 && !after[list[i-1]][name] {
				after[list[i-1]][name] = true
				before[name]++
			}
		}
	}
	all := slices.Sorted(maps.Keys(after))
	for _, list := range lists {
		if len(list) == len(all) && slices.Equal(slices.Sorted(slices.Values(list)), all) {
			return list
		}
	}
	out, left := make([]string, 0, len(all)), slices.Clone(all)
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(name string) bool { return before[name] == 0 })
		if i < 0 {
			return all
		}
		name := left[i]
		out, left = append(out, name), slices.Delete(left, i, i+1)
		for next := range after[name] {
			before[next]--
		}
	}
	return out
}
