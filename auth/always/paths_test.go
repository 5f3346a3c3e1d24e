package always

import (
	"testing"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

func TestPaths(t *testing.T) {
	p, err := NewPaths([]string{"/healthz", "/livez/*", "/"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/healthz": true, "/healthz/etcd": false, "/livez/ping": true, "/livez": false, "/": true, "": true, "/metrics": false,
	} {
		decision, _, err := p.Authorize(t.Context(), authz.Attributes{Info: &request.Info{Verb: "get", Path: path}})
		if err != nil || (decision == authz.Allow) != want {
			t.Errorf("%q: %v %v", path, decision, err)
		}
	}
	decision, _, _ := p.Authorize(t.Context(), authz.Attributes{Info: &request.Info{Verb: "get", Path: "/healthz", Resource: "pods"}})
	if decision == authz.Allow {
		t.Error("a resource at such a path is allowed")
	}
	if _, err := NewPaths([]string{"/a*b"}); err == nil {
		t.Error("a star in the middle is accepted")
	}
	if p, err := NewPaths(nil); p != nil || err != nil {
		t.Errorf("of none: %v %v", p, err)
	}
}
