package structural

import "k8s.io/apimachinery/pkg/runtime"

// SetDefaults sets the defaults of fields that are missing, and of values that are
// null where null is not allowed, in tree and in what defaults add to it. Decode goes
// before it, on write and on read alike.
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

// SetsDefaults says whether there are any defaults.
func (s *Schema) SetsDefaults() bool { return s != nil && s.below&hasDefaults != 0 }

// replaces says whether the default takes the place of a value.
func (s *Schema) replaces(v any) bool {
	return v == nil && !s.Nullable && s.HasDefault
}
