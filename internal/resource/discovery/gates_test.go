package discovery

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// TestAmbiguousAddresses validates an address with a leading zero, which StrictIPCIDRValidation refuses since 1.36.
func TestAmbiguousAddresses(t *testing.T) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"010.1.1.1"}}}}
	for minor, want := range map[int]int{35: 0, 36: 1} {
		gates, err := features.Parse(nil, release.Of(minor))
		if err != nil {
			t.Fatal(err)
		}
		if errs := Kinds(gates)[0].Strategy.ValidateCreate(t.Context(), s, nil); len(errs) != want {
			t.Errorf("1.%d: %v", minor, errs)
		}
	}
}
