package table

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

func TestCells(t *testing.T) {
	at := time.Unix(1, 0)
	app := metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	wrong := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}
	for i, c := range []struct{ got, want any }{
		{AgeOf(metav1.Time{}), "<unknown>"},
		{AgeOf(metav1.NewTime(at)), registry.Elapsed{Since: at}},
		{MicroAgeOf(metav1.NewMicroTime(at)), registry.Elapsed{Since: at}},
		{Duration(75 * time.Hour), "3d3h"},
		{OrNone(""), "<none>"},
		{OrNone("a"), "a"},
		{OrUnset(""), "<unset>"},
		{Labels(nil), "<none>"},
		{Labels(app.MatchLabels), "app=a"},
		{Selector(&app), "app=a"},
		{Selector(&wrong), "<invalid>"},
		{FirstOf([]string{"a", "b"}, 2, ","), "a,b"},
		{FirstOf([]string{"a", "b", "c", "d"}, 2, ","), "a,b + 2 more..."},
		{Column("A", "string", "d").Priority, int32(0)},
		{Wide("A", "string", "d"), metav1.TableColumnDefinition{Name: "A", Type: "string", Description: "d", Priority: 1}},
	} {
		if c.got != c.want {
			t.Errorf("%d: %v, want %v", i, c.got, c.want)
		}
	}
}
