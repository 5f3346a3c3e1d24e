package listener

import (
	"net"
	"testing"
)

func TestReaches(t *testing.T) {
	for _, c := range []struct {
		bound, address string
		want           bool
	}{
		{"0.0.0.0", "10.0.0.1", true}, {"0.0.0.0", "fd00::1", false}, {"::", "10.0.0.1", true}, {"::", "fd00::1", true},
		{"127.0.0.1", "10.0.0.1", false}, {"10.0.0.1", "10.0.0.1", true},
	} {
		if got := reaches(net.ParseIP(c.bound), net.ParseIP(c.address)); got != c.want {
			t.Errorf("bound to %s, %s: %v", c.bound, c.address, got)
		}
	}
}
