package declare

import "github.com/keelson-dev/keelson/internal/object/registry"

// message is a pointer to an API type with a protobuf encoding.
type message[T any] interface {
	*T
	registry.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// SameMessage returns a version of a kind with objects of type *T, which have the same protobuf message as the objects
// of the storage version, of type *S. Objects are converted through that message. set sets the defaults; it may be nil.
// No conversion functions are needed. Every field has to have the same number and the same wire type in both
// types.
func SameMessage[T, S any, PT message[T], PS message[S]](name string, set func(PS)) registry.Version {
	v := registry.Version{
		Name:        name,
		New:         func() registry.Object { return PT(new(T)) },
		ToStorage:   registry.Converter(func(o PT) (PS, error) { return Recode[S, PS](o) }),
		FromStorage: registry.Converter(func(o PS) (PT, error) { return Recode[T, PT](o) }),
	}
	if set != nil {
		v.Default = registry.Defaulter(func(o PT) { defaultThrough(o, set) })
	}
	return v
}

// defaultThrough sets the defaults of the storage version on an object of another version. An object that cannot be
// encoded stays as it is; its conversion to the storage version reports the error.
func defaultThrough[T, S any, PT message[T], PS message[S]](o PT, set func(PS)) {
	stored, err := Recode[S, PS](o)
	if err != nil {
		return
	}
	set(stored)
	out, err := Recode[T, PT](stored)
	if err != nil {
		return
	}
	// apiVersion and kind are not in the message, so they are lost on the way.
	out.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	*o = *out
}

// Recode returns an object of another type with the same protobuf message as o.
func Recode[T any, PT message[T]](o interface{ Marshal() ([]byte, error) }) (PT, error) {
	data, err := o.Marshal()
	if err != nil {
		return nil, err
	}
	out := PT(new(T))
	return out, out.Unmarshal(data)
}
