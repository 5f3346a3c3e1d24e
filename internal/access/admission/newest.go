package admission

import "github.com/keelson-dev/keelson/internal/object/registry"

// Newest returns the newest of the objects for which is returns true, or nil if there is none. If several have the
// same time, it returns the first of them by name. It selects the default of several default classes.
func Newest(objs []registry.Object, is func(registry.Object) bool) registry.Object {
	var found registry.Object
	for _, o := range objs {
		if is(o) && (found == nil || younger(o, found)) {
			found = o
		}
	}
	return found
}

func younger(a, b registry.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Time.Equal(bt.Time) {
		return a.GetName() < b.GetName()
	}
	return at.After(bt.Time)
}
