package structural

import "k8s.io/apimachinery/pkg/util/validation/field"

// Coerce gives the metadata of the embedded resources in tree, which is at path, the
// fields and types of ObjectMeta. An error tells of what has no such type.
func (s *Schema) Coerce(path *field.Path, tree any) *field.Error {
	if s == nil || s.below&hasEmbedded == 0 {
		return nil
	}
	return (&decoding{}).value(tree, s, s.EmbeddedResource, path)
}
