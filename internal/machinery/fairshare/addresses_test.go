package fairshare

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	a := NewAddresses(5, 2)
	one := netip.MustParseAddr("192.0.2.1")
	for i, want := range []bool{true, true, false} {
		if got := a.Take(one); got != want {
			t.Errorf("place %d of an address: %v", i+1, got)
		}
	}
	other := netip.MustParseAddr("192.0.2.10")
	for range 3 {
		if !a.Take(other) {
			t.Errorf("%s has no place", other)
		}
		other = other.Next()
	}
	if a.Take(other) || a.Taken() != 5 {
		t.Errorf("%d places of 5 are taken", a.Taken())
	}
	a.Free(one)
	if !a.Take(other) {
		t.Error("a place that was given back is not free")
	}
	a.Free(one)
	if _, kept := a.taken[one]; kept || a.Taken() != 4 {
		t.Errorf("%v", a.taken)
	}
}

func TestClientAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::",
		"[fe80::1:2:3%eth0]:1": "fe80::", "": "invalid IP", "@": "invalid IP",
	} {
		if got := ClientAddress(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
