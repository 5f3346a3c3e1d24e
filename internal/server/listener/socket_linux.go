package listener

import (
	"errors"
	"syscall"

	"github.com/keelson-dev/keelson/config"
)

// soReusePort is SO_REUSEPORT of socket(7), which package syscall does not have on all architectures.
const soReusePort = 15

// socketControl returns a function that sets the options of the listening socket; nil if there are none.
func socketControl(c *config.Serving) func(network, address string, conn syscall.RawConn) error {
	var options []int
	if c.PermitAddressSharing {
		options = append(options, syscall.SO_REUSEADDR)
	}
	if c.PermitPortSharing {
		options = append(options, soReusePort)
	}
	if len(options) == 0 {
		return nil
	}
	return func(_, _ string, conn syscall.RawConn) error {
		var set error
		err := conn.Control(func(fd uintptr) {
			for _, option := range options {
				set = errors.Join(set, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, 1))
			}
		})
		return errors.Join(err, set)
	}
}
