package structuralschema

import "k8s.io/apimachinery/pkg/util/validation/field"

// Coerce decodes the metadata of the embedded resources in tree as ObjectMeta, in place. path is the path of tree,
// for errors. It returns an error if apiVersion, kind or metadata has a wrong type.
func (s *Schema) Coerce(path *field.Path, tree any) *field.Error {
	if s == nil || s.below&hasEmbedded == 0 {
		return nil
	}
	return (&metadataDecoder{}).value(tree, s, s.EmbeddedResource, path)
}
