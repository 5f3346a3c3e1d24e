package kubectlhistory

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// writeTable writes rows in columns, as kubectl does. Empty cells are shown as <none>.
func writeTable(out io.Writer, header []string, rows [][]string) error {
	const minimum, tab, padding = 6, 4, 3
	w := tabwriter.NewWriter(out, minimum, tab, padding, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = printable(cell); cell == "" {
				cells[i] = "<none>"
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// printable returns text in which control characters are replaced, so that the names and values of others cannot control the
// terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, text)
}

// without returns a copy of an object without fields of its metadata.
func without(o *unstructured.Unstructured, metadata ...string) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range metadata {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// toYAML returns an object as YAML without managedFields, "" for nil.
func toYAML(o *unstructured.Unstructured) (string, error) {
	if o == nil {
		return "", nil
	}
	out, err := yaml.Marshal(without(o, "managedFields").Object)
	return string(out), err
}

// masked returns copies of two versions of a Secret in which the values are replaced, so that they are not shown but still
// differ where they did. Other objects are returned as they are. Each may be nil.
func masked(r resource, before, after *unstructured.Unstructured) (b, a *unstructured.Unstructured) {
	if r.Group != "" || r.Kind != "Secret" {
		return before, after
	}
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	mask := func(o, other *unstructured.Unstructured, mark string) *unstructured.Unstructured {
		if o == nil {
			return nil
		}
		out := o.DeepCopy()
		for _, path := range [][]string{{"data"}, {"metadata", "annotations"}} {
			values, found, _ := unstructured.NestedMap(out.Object, path...)
			if !found {
				continue
			}
			for key, value := range values {
				if path[0] == "metadata" && key != applied {
					continue
				}
				values[key] = "***"
				if other != nil {
					if was, found, _ := unstructured.NestedFieldNoCopy(other.Object, append(path, key)...); found && was != value {
						values[key] = "*** (" + mark + ")"
					}
				}
			}
			_ = unstructured.SetNestedMap(out.Object, values, path...) // it was a map
		}
		return out
	}
	return mask(before, after, "before"), mask(after, before, "after")
}
