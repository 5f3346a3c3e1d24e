package staticauthorizer

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestAlwaysAllowPaths(t *testing.T) {
	p, err := NewAlwaysAllowPaths([]string{"/healthz", "/livez/*", "/"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/healthz": true, "/healthz/etcd": false, "/livez/ping": true, "/livez": false, "/": true, "": true,
		"/metrics": false,
	} {
		decision, _, err := p.Authorize(t.Context(), authz.Attributes{Info: &request.Info{Verb: "get", Path: path}})
		if err != nil || (decision == authz.Allow) != want {
			t.Errorf("%q: %v %v", path, decision, err)
		}
	}
	info := &request.Info{Verb: "get", Path: "/healthz", Resource: "pods"}
	decision, _, _ := p.Authorize(t.Context(), authz.Attributes{Info: info})
	if decision == authz.Allow {
		t.Error("a resource request is allowed because of its path")
	}
	if _, err := NewAlwaysAllowPaths([]string{"/a*b"}); err == nil {
		t.Error("a * in the middle of a path is accepted")
	}
	if p, err := NewAlwaysAllowPaths(nil); p != nil || err != nil {
		t.Errorf("empty list: %v %v", p, err)
	}
}
