package rest

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestDistanceCell checks that a cached row stores the time of a registry.Distance and not its text. The time is
// first in the future.
func TestDistanceCell(t *testing.T) {
	at := time.Unix(1_800_000_000, 5)
	row, err := appendCell(nil, registry.Distance{To: at})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		later time.Duration
		want  string
	}{{-10 * time.Minute, `"in 10m"`}, {0, `"0s ago"`}, {time.Hour, `"60m ago"`}} {
		now := at.Add(c.later)
		if got := string((&ages{now: now}).append(nil, row)); got != c.want {
			t.Errorf("%s later: %s, want %s", c.later, got, c.want)
		}
		distance := registry.Distance{To: at}
		if got := distance.Text(now); `"`+got+`"` != c.want {
			t.Errorf("%s later: %s, want %s", c.later, got, c.want)
		}
	}
}
