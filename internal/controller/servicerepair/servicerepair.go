// Package servicerepair repairs the allocation of cluster IPs and node ports: it allocates those of Services that
// are not allocated, and releases those that no Service has.
package servicerepair

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/storage"
)

// Interval is the time between two rounds.
const Interval = 3 * time.Minute

// Controller repairs the allocations of Services periodically.
type Controller struct {
	Services *serviceallocator.Services
	Log      *slog.Logger

	portLeaks serviceallocator.PortLeaks
}

// Run repairs allocations until ctx is done or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	c.portLeaks = serviceallocator.PortLeaks{}
	for more := true; more; more = workers.Pause(ctx, Interval) {
		for i, round := range []func(context.Context) ([]string, error){c.ports, c.Services.RepairAddresses} {
			changes, err := round(ctx)
			for _, change := range changes {
				c.Log.Warn("repaired an allocation of a service", "change", change)
			}
			if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
				return
			}
			if err != nil {
				c.Services.Metrics.RepairFailed(i == 1)
				c.Log.Warn("cannot repair the allocations of services; will try again", "error", err)
			}
		}
	}
}

func (c *Controller) ports(ctx context.Context) ([]string, error) {
	return c.Services.RepairPorts(ctx, c.portLeaks)
}
