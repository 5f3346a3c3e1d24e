package declare

import "github.com/keelson-dev/keelson/internal/machinery/features"

// Gated is a part of an object of type T that has a feature gate.
type Gated[T any] struct {
	Gate string
	// Used reports whether an object has the part.
	Used func(T) bool
	// Drop removes the part.
	Drop func(T)
}

// Part returns a part of objects of type T with its gate.
func Part[T any](gate string, used func(T) bool, drop func(T)) Gated[T] {
	return Gated[T]{Gate: gate, Used: used, Drop: drop}
}

// Parts returns a part of what is in objects of type T, such as the containers of a pod, with its gate. each calls a
// function for all of these.
func Parts[T, E any](gate string, each func(T, func(E)), used func(E) bool, drop func(E)) Gated[T] {
	return Part(gate, func(obj T) bool {
		found := false
		each(obj, func(e E) { found = found || used(e) })
		return found
	}, func(obj T) { each(obj, drop) })
}

// Disabled are the parts whose gates are off. They are decided when a kind is made.
type Disabled[T any] []Gated[T]

// DisabledOf returns those of the parts whose gates are off.
func DisabledOf[T any](gates features.Gates, parts ...Gated[T]) Disabled[T] {
	var out Disabled[T]
	for _, p := range parts {
		if !gates.Enabled(p.Gate) {
			out = append(out, p)
		}
	}
	return out
}

// DropNew removes the parts from a new object.
// It reports neither an error nor a warning, not even with fieldValidation=Strict, unlike for an unknown field.
func (d Disabled[T]) DropNew(obj T) {
	for i := range d {
		d[i].Drop(obj)
	}
}

// Drop removes the parts from an object that replaces old, except those that old has.
// The exception is for objects that were written while the gate was on: an unrelated update must not change what
// they do. This is the rule of kube-apiserver for disabled fields.
func (d Disabled[T]) Drop(obj, old T) {
	for i := range d {
		if !d[i].Used(old) {
			d[i].Drop(obj)
		}
	}
}
