package kubectlhistory

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// writeTable writes rows in columns, as kubectl does. Empty cells are shown as <none>.
func writeTable(out io.Writer, header []string, rows [][]string) error {
	t := table{out: out, header: header}
	return t.write(rows)
}

// table writes rows in columns. Rows may come in several parts. A later part can make a column wider, but not
// narrower.
type table struct {
	out    io.Writer
	header []string // is written with the first part
	// color returns the colour of a cell as the number of an escape sequence, "" for none. It may be nil.
	color func(column int, cell string) string

	begun  bool
	widths []int // of the columns with the spaces behind them
}

// fit makes the columns wide enough for rows, which may have fewer cells than the header.
func (t *table) fit(rows [][]string) {
	const minimum, padding = 6, 3
	if t.widths == nil {
		t.widths = make([]int, len(t.header))
		rows = append([][]string{t.header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row[:min(len(row), len(t.widths))] {
			t.widths[i] = max(t.widths[i], minimum, utf8.RuneCountInString(cellText(cell))+padding)
		}
	}
}

func (t *table) before(column int) (width int) {
	for _, w := range t.widths[:column] {
		width += w
	}
	return width
}

// write writes a part of the rows.
func (t *table) write(rows [][]string) error {
	t.fit(rows)
	if !t.begun {
		t.begun = true
		rows = append([][]string{t.header}, rows...)
	}
	var out strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			text := cellText(cell)
			spaces := 0
			if i < len(row)-1 {
				spaces = max(t.widths[i]-utf8.RuneCountInString(text), 0)
			}
			if t.color != nil {
				text = colored(t.color(i, cell), text)
			}
			out.WriteString(text + strings.Repeat(" ", spaces))
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(t.out, out.String())
	return err
}

// cellText returns the text that is written for a cell.
func cellText(cell string) string {
	if cell == "" {
		return "<none>"
	}
	return printable(cell)
}

// colored returns text with the escape sequence of a colour, which is a number; "" means none.
func colored(color, text string) string {
	if color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// printable replaces control characters in text, so that names and values from a server cannot control the
// terminal. It also replaces invisible characters that change how a line looks: Unicode's direction controls, line
// separators, and characters without width. It keeps joiners inside of words.
func printable(text string) string {
	const joiner, nonJoiner = '\u200d', '\u200c'
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) && r != joiner && r != nonJoiner {
			return '?'
		}
		return r
	}, text)
}

// shownError is an error whose text may come from a server.
type shownError struct{ error }

// Error implements error: each line of the text is printable.
func (e shownError) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the error.
func (e shownError) Unwrap() error { return e.error }

// shown returns err with a printable text; nil for nil.
func shown(err error) error {
	if err == nil {
		return nil
	}
	return shownError{err}
}

// without returns a copy of an object without the given fields of its metadata.
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

// masked returns copies of two versions of a Secret in which *** replaces the values of data and the annotation of
// kubectl apply. If both versions have a value and the two differ, *** is followed by (before) or (after), so that
// a diff shows the change. Objects of other kinds are returned as they are. before and after may be nil.
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
