package requestheader

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestHeaders(t *testing.T) {
	user := &request.User{
		Name: "ann", UID: "1", Groups: []string{"a", "b"},
		Extra: map[string][]string{"example.com/key": {"x", "y"}, "100% ü": {"z"}},
	}
	want := http.Header{
		"X-Remote-User": {"ann"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"a", "b"},
		"X-Remote-Extra-Example.com%2fkey": {"x", "y"}, "X-Remote-Extra-100%25%20%c3%bc": {"z"},
	}
	if got := Headers(user); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Headers(&request.User{Name: "ann"}); !reflect.DeepEqual(got, http.Header{"X-Remote-User": {"ann"}}) {
		t.Errorf("%v", got)
	}
}
