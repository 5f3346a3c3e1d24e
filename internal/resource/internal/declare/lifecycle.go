package declare

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// ForRelease sets what a release has of the kinds: which versions are served by default, which are deprecated, and in which
// version objects are stored.
func ForRelease(kinds []*registry.Kind, r release.Release) {
	for _, k := range kinds {
		for i := range k.Versions {
			setLifecycle(k, &k.Versions[i], r)
		}
		chooseStored(k, r)
	}
}

// lifecycle is what the Go types of the API say of a version: when it was introduced, deprecated and removed.
type lifecycle interface {
	APILifecycleIntroduced() (major, minor int)
}

type deprecation interface {
	APILifecycleDeprecated() (major, minor int)
	APILifecycleRemoved() (major, minor int)
}

// setLifecycle sets whether a release has a version of a kind, and the warning if it is deprecated there.
// For example, a version that was introduced in 1.37 is disabled in a server that emulates 1.36, and one whose
// removal was planned for 1.36 is gone there. Beta versions, like alpha versions, are disabled by default
// (KEP-3136).
func setLifecycle(k *registry.Kind, v *registry.Version, r release.Release) {
	v.Disabled = !registry.ServedByDefault(v.Name)
	obj := v.New()
	if t, ok := obj.(lifecycle); ok {
		if _, minor := t.APILifecycleIntroduced(); minor > r.Minor() {
			v.Introduced, v.Disabled = minor, true
		}
	}
	t, ok := obj.(deprecation)
	if !ok {
		return
	}
	_, removed := t.APILifecycleRemoved()
	if removed != 0 && removed <= r.Minor() {
		v.Gone, v.Disabled = true, true
	}
	_, since := t.APILifecycleDeprecated()
	if v.Warning != "" || since == 0 || since > r.Minor() {
		return
	}
	v.Removed = fmt.Sprintf("1.%d", removed)
	v.Warning = fmt.Sprintf("%s %s is deprecated in v1.%d+, unavailable in v%s+", k.GroupVersion(v), k.Name, since, v.Removed)
	if r, ok := obj.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		replacement := r.APILifecycleReplacement()
		v.Warning += fmt.Sprintf("; use %s %s", replacement.GroupVersion(), replacement.Kind)
	}
}

// chooseStored sets the version that objects of a kind are stored in: the declared one or, if servers that this one has to be
// compatible with do not know it, the first that they know. The messages of these versions are the same. Versions without a
// lifecycle are alpha versions, in which nothing is stored instead of a beta version. A kind that declares the version by
// Storage.GroupVersion is stored in that version by all releases.
func chooseStored(k *registry.Kind, r release.Release) {
	known := func(v *registry.Version) bool {
		t, ok := v.New().(lifecycle)
		if !ok {
			return true
		}
		_, minor := t.APILifecycleIntroduced()
		return minor <= r.MinCompatible()
	}
	if v := k.Version(k.Storage.Version); k.Storage.GroupVersion != "" || v == nil || known(v) {
		return
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		if _, ok := v.New().(lifecycle); ok && known(v) {
			k.Storage.GroupVersion = k.GroupVersion(v).String()
			return
		}
	}
}
