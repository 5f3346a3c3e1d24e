//go:build !linux

package server

import (
	"errors"
	"syscall"
)

// control returns what sets the options of the listening socket; nil if there are none.
func (c *ServingConfig) control() func(network, address string, conn syscall.RawConn) error {
	if !c.PermitAddressSharing && !c.PermitPortSharing {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return errors.New("--permit-address-sharing and --permit-port-sharing work on Linux only")
	}
}
