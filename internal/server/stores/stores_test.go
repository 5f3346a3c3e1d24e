package stores

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource"
)

func TestParseOverrides(t *testing.T) {
	got, err := ParseOverrides(
		[]string{"/pods#http://a:1;http://b:1", "/events#http://c:1", "apps/deployments#http://a:1;http://b:1"},
	)
	if want := "[{[http://a:1 http://b:1] [{ pods} {apps deployments}]} {[http://c:1] [{ events}]}]"; err != nil ||
		fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	for _, bad := range []string{
		"", "pods", "pods#http://a", "/pods#", "/#http://a", "a/b/c#http://a", "/pods#http://a#http://b",
	} {
		if _, err := ParseOverrides([]string{bad}); !errors.Is(err, errOverride) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestOverridesNameAnyGroupOfAKind checks overrides of Events, which are one stored resource in two groups.
func TestOverridesNameAnyGroupOfAKind(t *testing.T) {
	for _, gr := range []schema.GroupResource{
		{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Resource: "pods"},
		{Group: "apps", Resource: "deployments"},
	} {
		var found []string
		for _, k := range resource.Kinds(features.Gates{}) {
			if isOf(k, gr) {
				found = append(found, k.Resource)
			}
		}
		if strings.Join(found, " ") != gr.Resource {
			t.Errorf("%v: %v", gr, found)
		}
	}
}
