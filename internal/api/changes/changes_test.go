package changes

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestServes(t *testing.T) {
	for _, c := range []struct {
		info request.Info
		want bool
	}{
		{request.Info{Group: "history.keelson.dev", Version: "v1alpha1", Resource: "changes"}, true},
		{request.Info{Group: "history.keelson.dev", Version: "v1", Resource: "changes"}, false},
		{request.Info{Group: "history.keelson.dev", Version: "v1alpha1", Resource: "others"}, false},
		{request.Info{Version: "v1", Resource: "changes"}, false},
	} {
		if got := Serves(&c.info); got != c.want {
			t.Errorf("%+v: %v", c.info, got)
		}
	}
}
