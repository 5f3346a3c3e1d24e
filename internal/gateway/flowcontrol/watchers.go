package flowcontrol

import (
	"net/url"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// watchers counts the running watches by their watchKey.
type watchers struct {
	mu     sync.RWMutex // guards counts
	counts map[watchKey]int
}

// watchKey is the scope of a watch: one object, the objects of a namespace, or all of a resource. byField means a field
// selector for another field than the name. Few of these watches receive a change, such as the watches of kubelets for
// the pods of their nodes, so all of them count as one.
type watchKey struct {
	group, resource, namespace, name string
	byField                          bool
}

// add counts a watch until the returned function is called.
func (w *watchers) add(info *request.Info, rawQuery string) (end func()) {
	key := watchKey{group: info.Group, resource: info.Resource, namespace: info.Namespace, name: info.Name}
	if strings.Contains(rawQuery, "fieldSelector") {
		key.selectFields(rawQuery)
	}
	w.change(key, 1)
	return func() { w.change(key, -1) }
}

// maxSelector is the largest length of a query whose field selector is parsed.
const maxSelector = 4 << 10

// selectFields narrows the key down by the field selector of a query.
func (k *watchKey) selectFields(rawQuery string) {
	if len(rawQuery) > maxSelector {
		return
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return
	}
	selector, err := request.FieldsBeforeAuthorization(query.Get("fieldSelector"))
	if err != nil {
		return
	}
	if name, ok := selector.RequiresExactMatch("metadata.name"); ok {
		k.name = name
		return
	}
	for _, r := range selector.Requirements() {
		if _, ok := selector.RequiresExactMatch(r.Field); ok {
			k.byField = true
			return
		}
	}
}

func (w *watchers) change(key watchKey, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[key] += by; w.counts[key] == 0 {
		delete(w.counts, key)
	}
}

// interested returns how many watches a write of an object probably notifies.
func (w *watchers) interested(info *request.Info) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if len(w.counts) == 0 {
		return 0
	}
	key := watchKey{group: info.Group, resource: info.Resource}
	n := w.matching(key)
	if info.Namespace != "" {
		key.namespace = info.Namespace
		n += w.matching(key)
	}
	if info.Name != "" {
		key.name = info.Name
		n += w.counts[key]
		if key.namespace != "" {
			key.namespace = ""
			n += w.counts[key]
		}
	}
	return n
}

// matching returns the number of watches of a key. The watches with a selected field count as one.
func (w *watchers) matching(key watchKey) int {
	n := w.counts[key]
	key.byField = true
	return n + min(w.counts[key], 1)
}
