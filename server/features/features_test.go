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
	if g, err = Parse([]string{"AllAlpha=true,AllBeta=false,OpenAPIEnums=true"}); err != nil {
		t.Fatal(err)
	}
	if !g.Enabled(CBORServingAndStorage) || !g.Enabled("OpenAPIEnums") || g.Enabled("StorageVersionHash") {
		t.Error("AllAlpha and AllBeta do not hold for what is not set")
	}
	for value, want := range map[string]string{
		"NoSuch=true":                "unrecognized feature gate: NoSuch",
		"OpenAPIEnums":               "missing bool value for feature gate OpenAPIEnums",
		"CBORServingAndStorage=many": "invalid value of feature gate CBORServingAndStorage=many: want true or false",
	} {
		if _, err := Parse([]string{value}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
}
