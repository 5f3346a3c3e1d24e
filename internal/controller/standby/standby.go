// Package standby runs controllers of this server only while no kube-controller-manager runs.
//
// A kube-controller-manager that is active holds the Lease kube-controller-manager in the namespace kube-system. As
// soon as the Lease is held, the controllers of this server are stopped; when it has not been renewed within its
// duration, or when it is released or deleted, they are started again. So the work is never done twice.
package standby

import (
	"context"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// The Lease of kube-controller-manager.
const (
	leaseNamespace = "kube-system"
	leaseName      = "kube-controller-manager"
)

// defaultDuration is the time for which a Lease without a duration is valid after a change.
const defaultDuration = 15 * time.Second

// Gate follows the Lease. Its methods may be called concurrently.
type Gate struct {
	leases *registry.Resource
	log    *slog.Logger
	clock  *clock.Clock

	mu sync.Mutex // guards what follows
	// open means that controllers may run; it is false until the Lease was read.
	open bool
	// changed is closed when open changes, and replaced by a new channel.
	changed chan struct{}
	// known means that the Lease was read.
	known bool
	// parts are the activities of the controllers that Track was called with.
	parts []*activity.Part
}

// New returns a Gate on the resource leases. The caller must call Run afterwards.
func New(leases *registry.Resource, log *slog.Logger, clock *clock.Clock) *Gate {
	return &Gate{leases: leases, log: log, clock: clock, changed: make(chan struct{})}
}

// While runs a controller whenever no kube-controller-manager is active, until ctx ends. When the controller has
// to pause, its context ends, and While waits until it has returned. While returns the error of the controller.
func (g *Gate) While(ctx context.Context, run func(context.Context) error) error {
	for {
		open, changed := g.state()
		if !open {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			continue
		}
		if err := g.runUntil(ctx, changed, run); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-changed:
		default:
			return nil // the controller has ended by itself
		}
	}
}

// runUntil runs a controller until stop is closed or ctx ends. It does not return an error that the controller
// returns after that.
func (g *Gate) runUntil(ctx context.Context, stop <-chan struct{}, run func(context.Context) error) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-running.Done():
		}
	})
	err := run(running)
	if running.Err() != nil {
		return nil
	}
	return err
}

// Track registers the activity of a controller. The activity is starting until the Lease was read and the
// controller has started, and stopped while the controller has to pause. Track has to be called before Run.
func (g *Gate) Track(p *activity.Part) {
	p.Starting()
	g.parts = append(g.parts, p)
}

func (g *Gate) state() (open bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.changed
}

func (g *Gate) set(open bool, holder string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == open && g.known {
		return
	}
	g.known = true
	for _, p := range g.parts {
		if open {
			p.Starting()
		} else {
			p.Stopped()
		}
	}
	if !open && !g.open {
		return
	}
	if open {
		g.log.Debug("no kube-controller-manager is active; the controllers of this server run")
	} else {
		g.log.Info("a kube-controller-manager is active; the controllers of this server pause", "holder", holder)
	}
	g.open = open
	close(g.changed)
	g.changed = make(chan struct{})
}

// Run follows the Lease until ctx ends or the store is closed.
func (g *Gate) Run(ctx context.Context) {
	workers.Restart(ctx, g.log, "cannot follow the lease of kube-controller-manager; will try again", nil, g.follow)
}

// follow reads the Lease and its changes until there is an error.
func (g *Gate) follow(ctx context.Context) error {
	revision, err := g.leases.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	cursor, err := g.leases.Reader.Watch(ctx, revision, cache.Interest{Namespace: leaseNamespace, Name: leaseName})
	if err != nil {
		return err
	}
	defer cursor.Close()
	for {
		until, holder, err := g.read(ctx)
		if err != nil {
			return err
		}
		left := until.Sub(g.clock.Now())
		g.set(left <= 0, holder)
		var expired <-chan time.Time
		if left > 0 {
			expired = g.clock.After(left)
		}
		// A renewal is an event. If the time expires without an event, the Lease was not renewed.
		events, _, err := cursor.NextOr(ctx, expired)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			g.set(true, "")
			if _, _, err := cursor.Next(ctx); err != nil {
				return err
			}
		}
	}
}

// read returns the time until which the Lease is held if it is not renewed before, or the zero time if it is not
// held.
func (g *Gate) read(ctx context.Context) (until time.Time, holder string, err error) {
	o, err := g.leases.Reader.Latest(ctx, leaseNamespace, leaseName)
	if err != nil || o == nil {
		return time.Time{}, "", err
	}
	if o, err = g.leases.Reader.Readable(ctx, o); err != nil {
		return time.Time{}, "", err
	}
	obj, err := g.leases.Decoder.Decode(ctx, o)
	if err != nil {
		return time.Time{}, "", err
	}
	until, holder = heldUntil(&obj.(*coordinationv1.Lease).Spec, g.clock.Now())
	return until, holder, nil
}

// heldUntil returns the time at which a Lease expires, and its holder. As in client-go's leader election, the
// duration begins when this server reads the change of the Lease, because the clock of the holder may differ from
// its own.
func heldUntil(spec *coordinationv1.LeaseSpec, read time.Time) (until time.Time, holder string) {
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil {
		return time.Time{}, ""
	}
	duration := defaultDuration
	if spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	return read.Add(duration), *spec.HolderIdentity
}
