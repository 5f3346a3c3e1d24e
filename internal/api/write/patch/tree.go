package patch

// MergeTree applies a merge patch to a tree, with the same result as Merge. It changes doc. doc shares parts with
// changes afterwards.
func MergeTree(doc, changes map[string]any) {
	for name, v := range changes {
		switch current := doc[name]; {
		case v == nil:
			delete(doc, name)
		case current == nil:
			doc[name] = withoutNulls(v)
		default:
			doc[name] = mergedValue(current, v)
		}
	}
}

// mergedValue returns the result of a patch v of a value. As in the library that Merge uses, a list that replaces
// an object keeps the nulls in it; a list that replaces another value loses the null members of its objects.
func mergedValue(current, v any) any {
	object, ok := current.(map[string]any)
	if !ok {
		return withoutNulls(v)
	}
	if changes, ok := v.(map[string]any); ok {
		MergeTree(object, changes)
		return object
	}
	return v
}

// withoutNulls drops the members of objects that are null; elements of lists stay.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			if below == nil {
				delete(v, name)
			} else {
				withoutNulls(below)
			}
		}
	case []any:
		for _, below := range v {
			withoutNulls(below)
		}
	}
	return v
}
