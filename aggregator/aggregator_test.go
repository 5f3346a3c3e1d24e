package aggregator

import (
	"net/http"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/request"
)

func TestIdentity(t *testing.T) {
	user := &request.User{
		Name: "ann", UID: "1", Groups: []string{"a", "b"},
		Extra: map[string][]string{"example.com/key": {"x", "y"}, "100% ü": {"z"}},
	}
	want := http.Header{
		"X-Remote-User": {"ann"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"a", "b"},
		"X-Remote-Extra-Example.com%2fkey": {"x", "y"}, "X-Remote-Extra-100%25%20%c3%bc": {"z"},
	}
	if got := identity(user); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := identity(&request.User{Name: "ann"}); !reflect.DeepEqual(got, http.Header{"X-Remote-User": {"ann"}}) {
		t.Errorf("%v", got)
	}
}

// TestPart checks that only the paths of the version are taken from the OpenAPI v2 document of a server.
func TestPart(t *testing.T) {
	r := &remote{version: schema.GroupVersion{Group: "example.com", Version: "v1"}}
	got, err := r.part([]byte(`{"swagger":"2.0","paths":{"/apis/example.com/v1/a":{},"/apis/example.com/v1beta1/a":{},
		"/apis/example.com/":{},"/version/":{}},"definitions":{"A":{"type":"object"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"paths":{"/apis/example.com/v1/a":{}},"definitions":{"A":{"type":"object"}}}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := r.part([]byte(`[]`)); err == nil {
		t.Error("a list is no error")
	}
}

func TestLeavesPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/apis/x.io/v1": false, "/apis/x.io/v1/a..b/.c/d...": false, "/apis/x.io/v1/../../api/v1/secrets": true,
		"/apis/x.io/v1/a/.": true, "/apis/./v1": true, "/..": true,
	} {
		if got := leavesPath(path); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}

func TestUpgradesHTTP(t *testing.T) {
	for protocol, want := range map[string]bool{
		"": false, "websocket": false, "SPDY/3.1": false, "h2c": true, "websocket, H2C": true, "HTTP/2.0": true, "TLS/1.2": true,
	} {
		if got := upgradesHTTP(http.Header{"Upgrade": {protocol}}); got != want {
			t.Errorf("%q: %t", protocol, got)
		}
	}
}
