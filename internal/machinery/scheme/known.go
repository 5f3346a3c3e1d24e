package scheme

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run ../../gen/known

//go:embed known.txt
var knownKinds string

// known is parsed when it is first needed, which is for a body of the wrong kind.
var known = sync.OnceValue(func() map[schema.GroupVersionKind]bool {
	kinds := map[schema.GroupVersionKind]bool{}
	for line := range strings.Lines(knownKinds) {
		words := strings.Fields(line)
		for _, kind := range words[1:] {
			kinds[schema.FromAPIVersionAndKind(words[0], kind)] = true
		}
	}
	return kinds
})

// KnownVersions returns the versions of the published API modules, served or not, in no order.
func KnownVersions() []schema.GroupVersion {
	versions := map[schema.GroupVersion]bool{}
	for gvk := range known() {
		versions[gvk.GroupVersion()] = true
	}
	return slices.Collect(maps.Keys(versions))
}

// Known reports whether the published API modules contain the kind, served or not.
func Known(gvk schema.GroupVersionKind) bool { return known()[gvk] }
