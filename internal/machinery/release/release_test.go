package release

import "testing"

// TestParse compares with what kube-apiserver 1.37.2 says.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		emulated, minCompatible string
		want                    Release
		err                     string
	}{
		{want: Release{}},
		{emulated: "kube=1.36", want: Of(36)},
		{emulated: "v1.35", want: Release{35, 34}},
		{emulated: "1.36", minCompatible: "kube=1.34", want: Release{36, 34}},
		{emulated: "kube=1.33", err: "[emulation version 1.33 is not between [1.34, 1.37.0], " +
			"minCompatibilityVersion version 1.34 is not between [1.34, 1.33]]"},
		{emulated: "kube=1.38", err: "emulation version 1.38 is not between [1.34, 1.37.0]"},
		{emulated: "foo=1.36", err: "component not registered: foo"},
		{emulated: "kube=abc", err: `could not parse "abc" as version`},
		{emulated: "kube=", err: `could not parse "" as version`},
		{emulated: "kube=1.36.2", err: "patch version not allowed, got: kube=1.36.2"},
		{emulated: "kube=1.36,kube=1.35", err: "duplicate version flag, kube=1.36 and kube=1.35"},
		{
			emulated: "kube=1.36", minCompatible: "kube=1.37",
			err: "minCompatibilityVersion version 1.37 is not between [1.34, 1.36]",
		},
		{minCompatible: "kube=1.33", err: "minCompatibilityVersion version 1.33 is not between [1.34, 1.37]"},
	} {
		got, err := Parse(c.emulated, c.minCompatible)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%q %q: %v, want %s", c.emulated, c.minCompatible, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%q %q: %+v %v, want %+v", c.emulated, c.minCompatible, got, err, c.want)
		}
	}
	if r := (Release{}); r.Minor() != Newest || r.MinCompatible() != Newest-1 || r.Emulates() {
		t.Errorf("the zero value is %s, compatible with %s", r, r.MinCompatibleText())
	}
}
