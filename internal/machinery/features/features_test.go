package features

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/release"
)

func TestParse(t *testing.T) {
	g, err := Parse([]string{"CBORServingAndStorage=true, kube:OpenAPIEnums=false", "OpenAPIEnums=true"}, release.Release{})
	if err != nil {
		t.Fatal(err)
	}
	if !g.Enabled(CBORServingAndStorage) || !g.Enabled("OpenAPIEnums") || g.Enabled(CompositePodGroup) {
		t.Error("gates are not as set, or not by default")
	}
	if got := g.WithoutEffect(); len(got) != 1 || got[0] != "OpenAPIEnums" {
		t.Errorf("without effect: %q", got)
	}
	if g, err = Parse([]string{"AllBeta=false,OpenAPIEnums=true"}, release.Release{}); err != nil {
		t.Fatal(err)
	}
	if g.Enabled(CBORServingAndStorage) || !g.Enabled("OpenAPIEnums") || g.Enabled("StorageVersionHash") {
		t.Error("AllBeta does not hold for what is not set")
	}
	if g, err = Parse([]string{"AllAlpha=true,GenericWorkload=true"}, release.Release{}); err != nil || !g.Enabled(CBORServingAndStorage) {
		t.Errorf("AllAlpha does not hold for what is not set: %v", err)
	}
	for value, want := range map[string]string{
		"NoSuch=true":                     "unrecognized feature gate: NoSuch",
		"OpenAPIEnums":                    "missing bool value for OpenAPIEnums",
		"CBORServingAndStorage=many":      `invalid value of CBORServingAndStorage=many, err: strconv.ParseBool: parsing "many": invalid syntax`,
		"DynamicResourceAllocation=false": "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
		"CompositePodGroup=true":          "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]",
	} {
		if _, err := Parse([]string{value}, release.Release{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// TestReleases checks gates that differ between minors.
func TestReleases(t *testing.T) {
	old, err := Parse([]string{"EnvFiles=false"}, release.Of(35))
	if err != nil {
		t.Fatal(err)
	}
	if old.Enabled("AtomicFIFO") || !(Gates{}).Enabled("AtomicFIFO") {
		t.Error("a gate has the default of another minor")
	}
	_, err = Parse([]string{"AtomicFIFO=true"}, release.Of(35))
	want := "cannot set feature gate AtomicFIFO to true, feature is PreAlpha at emulated version 1.35, min compatibility version 1.34"
	if err == nil || err.Error() != want {
		t.Errorf("a gate that the release does not have: %v", err)
	}
}
