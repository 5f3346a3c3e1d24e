// Package servicerepair mends what Services have and nobody gave them: cluster IPs and
// node ports that are not taken, or taken by nobody.
package servicerepair

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keelson-dev/keelson/serviceallocator"
	"github.com/keelson-dev/keelson/storage"
)

// Interval is the time from one round to the next.
const Interval = 3 * time.Minute

// Controller mends the claims of Services from time to time.
type Controller struct {
	Services *serviceallocator.Services
	Log      *slog.Logger

	leaks serviceallocator.Leaks
}

// Run mends until ctx ends or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	c.leaks = serviceallocator.Leaks{}
	for {
		for _, round := range []func(context.Context) ([]string, error){c.ports, c.Services.RepairAddresses} {
			changes, err := round(ctx)
			for _, change := range changes {
				c.Log.Warn("claims of services were mended", "what", change)
			}
			if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
				return
			}
			if err != nil {
				c.Log.Warn("claims of services cannot be mended: trying again later", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(Interval):
		}
	}
}

func (c *Controller) ports(ctx context.Context) ([]string, error) {
	return c.Services.RepairPorts(ctx, c.leaks)
}
