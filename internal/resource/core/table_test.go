package core

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

type recordedRow struct {
	Name, Resource string
	Object         json.RawMessage
	Cells          []any
	Conditions     []metav1.TableRowCondition
}

// recordedAge is how an age reads, which recordings leave open.
var recordedAge = regexp.MustCompile(`^(\d+[smhdy])+$|\b(\d+[smhdy])+ ago\b`)

func TestTableRows(t *testing.T) {
	kinds := kindsByResource()
	for _, r := range readLines[recordedRow](t, "tables") {
		k := kinds[r.Resource]
		if k.Table.Cells == nil {
			continue
		}
		obj := k.Versions[0].New()
		if err := json.Unmarshal(r.Object, obj); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		cells := k.Table.Cells(obj)
		var conditions []metav1.TableRowCondition
		if k.Table.Conditions != nil {
			conditions = k.Table.Conditions(obj)
		}
		if len(cells) != len(k.Table.Columns) {
			t.Errorf("%s: %d cells in %d columns", r.Name, len(cells), len(k.Table.Columns))
		}
		got := blankAges(t, cells)
		if want := blankAges(t, r.Cells); got != want {
			t.Errorf("%s: %s\n got %s\nwant %s", r.Name, k.Name, got, want)
		}
		if got, want := fmt.Sprint(conditions), fmt.Sprint(r.Conditions); got != want {
			t.Errorf("%s: conditions %s, want %s", r.Name, got, want)
		}
	}
}

func blankAges(t *testing.T, cells []any) string {
	t.Helper()
	out := make([]any, len(cells))
	for i, c := range cells {
		if e, ok := c.(registry.Elapsed); ok {
			c = e.Text(time.Now())
		}
		if s, ok := c.(string); ok {
			c = recordedAge.ReplaceAllStringFunc(s, func(m string) string {
				if len(m) > 4 && m[len(m)-4:] == " ago" {
					return "<age> ago"
				}
				return "<age>"
			})
		}
		out[i] = c
	}
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTableColumns(t *testing.T) {
	type recorded struct {
		Resource string
		Columns  []metav1.TableColumnDefinition
	}
	kinds := kindsByResource()
	for _, r := range readLines[recorded](t, "columns") {
		k := kinds[r.Resource]
		if len(k.Table.Columns) == 0 {
			if len(r.Columns) != 2 || r.Columns[1].Name != "Created At" {
				t.Errorf("%s: no columns declared, recorded %v", r.Resource, r.Columns)
			}
			continue
		}
		if len(k.Table.Columns) != len(r.Columns) {
			t.Errorf("%s: %d columns, recorded %d", r.Resource, len(k.Table.Columns), len(r.Columns))
			continue
		}
		for i, c := range r.Columns {
			if k.Table.Columns[i] != c {
				t.Errorf("%s: column %d\n got %+v\nwant %+v", r.Resource, i, k.Table.Columns[i], c)
			}
		}
	}
}
