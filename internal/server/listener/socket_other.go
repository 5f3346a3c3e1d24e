//go:build !linux

package listener

import (
	"syscall"

	"github.com/keelson-dev/keelson/config"
)

// socketControl returns a function that sets the options of the listening socket; nil if there are none.
func socketControl(c *config.Serving) func(network, address string, conn syscall.RawConn) error {
	if !c.PermitAddressSharing && !c.PermitPortSharing {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return config.Errorf("{Serving.PermitAddressSharing} and {Serving.PermitPortSharing} work on Linux only")
	}
}
