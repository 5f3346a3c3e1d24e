// Package table has what the tables of many built-in kinds have in common: columns, and the texts of cells.
package table

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Unknown, None and Unset are the texts of cells without a value.
const (
	Unknown = "<unknown>"
	None    = "<none>"
	Unset   = "<unset>"
)

// Name and Age are columns of many tables. Their descriptions are those of the fields, as in kube-apiserver.
var (
	Name = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	Age = Column("Age", "string", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
)

// Column returns a column. The description is usually that of the field in the column.
func Column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// Wide returns a column that is only shown in wide output.
func Wide(name, kind, description string) metav1.TableColumnDefinition {
	return OnlyWide(Column(name, kind, description))
}

// OnlyWide returns the column as one that is only shown in wide output.
// kubectl shows columns with a priority above 0 only with -o wide.
func OnlyWide(c metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	c.Priority = 1
	return c
}

// WithTemplate returns the columns of a workload: these, and those about its pod template and its selector, which are only
// shown in wide output. Without a description of the selector there is no column for it.
func WithTemplate(selector string, columns ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	columns = append(columns,
		Wide("Containers", "string", "Names of each container in the template."),
		Wide("Images", "string", "Images referenced by each container in the template."))
	if selector == "" {
		return columns
	}
	return append(columns, Wide("Selector", "string", selector))
}

// NameAndAge is a table of the name and the age of objects.
func NameAndAge() registry.Table[registry.Object] {
	return registry.Table[registry.Object]{
		Columns: []metav1.TableColumnDefinition{Name, Age},
		Cells:   func(o registry.Object) []any { return []any{o.GetName(), AgeOf(o.GetCreationTimestamp())} },
	}
}

// AgeOf returns a cell with the time since t.
// The time until now is computed when the table is written, so that cached rows stay right.
func AgeOf(t metav1.Time) any {
	if t.IsZero() {
		return Unknown
	}
	return registry.Elapsed{Since: t.Time}
}

// MicroAgeOf is AgeOf for a MicroTime.
func MicroAgeOf(t metav1.MicroTime) any { return AgeOf(metav1.Time(t)) }

// Duration returns a duration as text, for example "5m" or "3d2h".
func Duration(d time.Duration) string { return duration.HumanDuration(d) }

// OrNone returns s, or <none> if it is empty.
func OrNone(s string) string { return cmp.Or(s, None) }

// OrUnset returns s, or <unset> if it is empty.
func OrUnset(s string) string { return cmp.Or(s, Unset) }

// Labels returns labels as text, or <none> if there are none.
func Labels(labels map[string]string) string {
	return OrNone(metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}))
}

// Selector returns a label selector as text.
func Selector(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "<invalid>"
	}
	return selector.String()
}

// FirstOf joins the first words, at most most of them, and adds the number of the others.
// For example, a, b, c, d with most 2 is "a,b + 2 more...".
func FirstOf(words []string, most int, separator string) string {
	if len(words) <= most {
		return strings.Join(words, separator)
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(words[:most], separator), len(words)-most)
}
