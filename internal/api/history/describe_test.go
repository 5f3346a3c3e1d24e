package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestManagers: if the author of a change was not kept, the time and the manager come from managedFields, unless
// these are ambiguous.
func TestManagers(t *testing.T) {
	entry := func(manager, subresource, second string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":"Update","apiVersion":"v1","subresource":%q,"time":"2026-01-02T03:04:%sZ",
			"fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}`, manager, subresource, second)
	}
	object := func(entries string) Object {
		return Object{JSON: []byte(`{"metadata":{"name":"a","managedFields":[` + entries + `]},"data":{}}`)}
	}
	first, second, third := entry("kubectl", "", "05"), entry("kubelet", "status", "06"), entry("kubectl", "", "07")
	kept := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after, before Object
		kept          time.Time // the time of the change, if the store keeps it
		want          string
	}{
		"another manager":  {object(first + "," + second), object(first), time.Time{}, "06 kubelet status"},
		"renewed":          {object(second + "," + third), object(first + "," + second), time.Time{}, "07 kubectl "},
		"two at a time":    {object(second + "," + entry("other", "", "06")), object(first), time.Time{}, "06  "},
		"labels removed":   {object(first), object(first + "," + second), time.Time{}, "none  "},
		"no managedFields": {object(""), object(""), time.Time{}, "none  "},
		"no times":         {object(`{"manager":"kubectl"}`), Object{}, time.Time{}, "none  "},
		"damaged":          {object(`7`), Object{}, time.Time{}, "none  "},
		"deleted":          {Object{}, object(first), time.Time{}, "none  "},
		"kept by a store":  {object(first + "," + second), object(first), kept, "00  "},
	} {
		got := Describe(&registry.PastChange{Revision: 7, Deleted: c.after.JSON == nil, Time: c.kept}, c.after, c.before)
		if text := madeBy(got); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
	if text := madeBy(Describe(&registry.PastChange{Revision: 7, CreateRevision: 7}, object(first), Object{})); text != "05 kubectl " {
		t.Errorf("created: %q", text)
	}
	// In the oldest version that is kept, the newest entry may come from an earlier change.
	if text := madeBy(Describe(&registry.PastChange{Revision: 7, CreateRevision: 3}, object(first), Object{})); text != "none  " {
		t.Errorf("the oldest version: %q", text)
	}
}

// madeBy returns the second, the manager and the subresource of a change.
func madeBy(c Change) string {
	at := "none"
	if c.Time != nil {
		at = c.Time.Format("05")
	}
	return fmt.Sprint(at, " ", c.FieldManager, " ", c.Subresource)
}
