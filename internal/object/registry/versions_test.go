package registry

import "testing"

func TestParseKey(t *testing.T) {
	g := &Registry{byPath: map[string]*Resource{}}
	for path, namespaced := range map[string]bool{"pods": true, "minions": false, "services/specs": true, "apiregistration.k8s.io/apiservices": false} {
		g.byPath[path] = &Resource{Kind: &Kind{Names: Names{Resource: path, Namespaced: namespaced}}}
	}
	for key, want := range map[string][3]string{
		"/registry/pods/a/x":                               {"pods", "a", "x"},
		"/registry/pods/a":                                 {"pods", "", ""},
		"/registry/minions/n":                              {"minions", "", "n"},
		"/registry/services/specs/a/s":                     {"services/specs", "a", "s"},
		"/registry/apiregistration.k8s.io/apiservices/v1.": {"apiregistration.k8s.io/apiservices", "", "v1."},
		"/registry/example.com/widgets/a/w":                {"widgets.example.com", "a", "w"},
		"/registry/example.com/widgets/w":                  {"widgets.example.com", "", "w"},
		"/registry/ranges/serviceips":                      {"", "", ""},
		"/registry/masterleases/1.2.3.4":                   {"", "", ""},
		"/other/pods/a/x":                                  {"", "", ""},
		"/registry/":                                       {"", "", ""},
	} {
		gr, namespace, name := g.ParseKey(key)
		if got := [3]string{gr.String(), namespace, name}; got != want && !(name == "" && want[2] == "") {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
