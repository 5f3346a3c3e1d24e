package features

import "testing"

func TestParse(t *testing.T) {
	g, err := Parse([]string{"CBORServingAndStorage=true, kube:OpenAPIEnums=false", "OpenAPIEnums=true"})
	if err != nil {
		t.Fatal(err)
	}
	if !g.Enabled(CBORServingAndStorage) || !g.Enabled("OpenAPIEnums") || g.Enabled("HPAScaleToZero") {
		t.Error("gates are not as set, or not by default")
	}
	if got := g.WithoutEffect(); len(got) != 1 || got[0] != "OpenAPIEnums" {
		t.Errorf("without effect: %q", got)
	}
	if g, err = Parse([]string{"AllBeta=false,OpenAPIEnums=true"}); err != nil {
		t.Fatal(err)
	}
	if g.Enabled(CBORServingAndStorage) || !g.Enabled("OpenAPIEnums") || g.Enabled("StorageVersionHash") {
		t.Error("AllBeta does not hold for what is not set")
	}
	if g, err = Parse([]string{"AllAlpha=true"}); err != nil || !g.Enabled(CBORServingAndStorage) {
		t.Errorf("AllAlpha does not hold for what is not set: %v", err)
	}
	for value, want := range map[string]string{
		"NoSuch=true":                     "unrecognized feature gate: NoSuch",
		"OpenAPIEnums":                    "missing bool value for OpenAPIEnums",
		"CBORServingAndStorage=many":      `invalid value of CBORServingAndStorage=many, err: strconv.ParseBool: parsing "many": invalid syntax`,
		"DynamicResourceAllocation=false": "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
		"GangScheduling=true":             "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
	} {
		if _, err := Parse([]string{value}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
}
