package structuralschema

import "k8s.io/apimachinery/pkg/runtime"

// SetDefaults sets, in place, the default of each missing field and of each null that is not allowed, also in the
// defaults that it adds. It is called after Decode, on write and on read.
func (s *Schema) SetDefaults(tree any) {
	if s == nil || s.below&hasDefaults == 0 {
		return
	}
	switch x := tree.(type) {
	case map[string]any:
		for _, name := range s.defaulted {
			property := s.Properties[name]
			if v, found := x[name]; !found || v == nil && !property.Nullable {
				x[name] = runtime.DeepCopyJSONValue(property.Default)
			}
		}
		for name, v := range x {
			_, sub := s.property(name)
			if sub == nil {
				continue
			}
			if sub.replaces(v) {
				v = runtime.DeepCopyJSONValue(sub.Default)
				x[name] = v
			}
			sub.SetDefaults(v)
		}
	case []any:
		if s.Items == nil {
			return
		}
		for i, v := range x {
			if s.Items.replaces(v) {
				v = runtime.DeepCopyJSONValue(s.Items.Default)
				x[i] = v
			}
			s.Items.SetDefaults(v)
		}
	}
}

// SetsDefaults reports whether the schema has any defaults.
func (s *Schema) SetsDefaults() bool { return s != nil && s.below&hasDefaults != 0 }

// replaces reports whether the default replaces the value v.
func (s *Schema) replaces(v any) bool {
	return v == nil && !s.Nullable && s.HasDefault
}
