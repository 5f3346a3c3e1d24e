package admissionregistration

import (
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// TestStaticNames creates and updates objects whose names are reserved for files, with ManifestBasedAdmissionControlConfig off
// (1.36) and on.
func TestStaticNames(t *testing.T) {
	const problem = `names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be ` +
		`managed via the API`
	warned, refused := "metadata.name: "+problem, `metadata.name: Invalid value: "a.static.k8s.io": `+problem
	for _, c := range []struct {
		minor          int
		name           string
		warning, error string
		afterUpdate    string
	}{
		{36, "a", "", "", ""}, {36, "static.k8s.io", "", "", ""}, {36, "a.static.k8s.io", warned, "", warned},
		{37, "a", "", "", ""}, {37, "static.k8s.io", "", "", ""}, {37, "a.static.k8s.io", "", refused, warned},
	} {
		gates, err := features.Parse(nil, release.Of(c.minor))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range Kinds(gates) {
			obj := k.Versions[0].New()
			obj.SetName(c.name)
			has := func(what string, got []string, want string) {
				if slices.Contains(got, want) != (want != "") || want == "" && (slices.Contains(got, warned) || slices.Contains(got, refused)) {
					t.Errorf("1.%d, %s %s: %s: %q", c.minor, k.Names.Resource, c.name, what, got)
				}
			}
			var errs []string
			for _, err := range k.Strategy.ValidateCreate(t.Context(), obj, nil) {
				errs = append(errs, err.Error())
			}
			has("warning", k.Strategy.Warn(obj, nil), c.warning)
			has("error", errs, c.error)
			has("warning of an update", k.Strategy.Warn(obj, obj), c.afterUpdate)
		}
	}
}
