// Package standby finds out whether a kube-controller-manager runs, while which the controllers of this server pause.
//
// A kube-controller-manager that is active holds the Lease kube-controller-manager in the namespace kube-system. It is not active any more
// when the Lease has not been renewed within its duration, or was released or deleted.
package standby

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/controller/workers"
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

// Follower follows the Lease.
type Follower struct {
	Leases *registry.Resource
	Log    *slog.Logger
	Clock  *clock.Clock
	// Free is called with true when no kube-controller-manager is active, and with false when one is.
	Free func(bool)

	holder *string // of the last call of Free; nil before the first
}

// found reports who holds the Lease, "" if nobody does.
func (f *Follower) found(holder string) {
	switch before := f.holder; {
	case holder == "" && before != nil && *before != "":
		f.Log.Debug("no kube-controller-manager is active; the controllers of this server run")
	case holder != "" && (before == nil || *before == ""):
		f.Log.Info("a kube-controller-manager is active; the controllers of this server pause", "holder", holder)
	}
	f.holder = &holder
	f.Free(holder == "")
}

// Run follows the Lease until ctx ends or the store is closed.
func (f *Follower) Run(ctx context.Context) {
	workers.Restart(ctx, f.Log, "cannot follow the lease of kube-controller-manager; will try again", nil, f.follow)
}

// follow reads the Lease and its changes until there is an error.
func (f *Follower) follow(ctx context.Context) error {
	revision, err := f.Leases.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	cursor, err := f.Leases.Reader.Watch(ctx, revision, cache.Interest{Namespace: leaseNamespace, Name: leaseName})
	if err != nil {
		return err
	}
	defer cursor.Close()
	for {
		until, holder, err := f.read(ctx)
		if err != nil {
			return err
		}
		left := until.Sub(f.Clock.Now())
		var expired <-chan time.Time
		if left > 0 {
			f.found(holder)
			expired = f.Clock.After(left)
		} else {
			f.found("")
		}
		// A renewal is an event. If the time expires without an event, the Lease was not renewed.
		events, _, err := cursor.NextOr(ctx, expired)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			f.found("")
			if _, _, err := cursor.Next(ctx); err != nil {
				return err
			}
		}
	}
}

// read returns the time until which the Lease is held if it is not renewed before, or the zero time if it is not
// held.
func (f *Follower) read(ctx context.Context) (until time.Time, holder string, err error) {
	o, err := f.Leases.Reader.Latest(ctx, leaseNamespace, leaseName)
	if err != nil || o == nil {
		return time.Time{}, "", err
	}
	if o, err = f.Leases.Reader.Readable(ctx, o); err != nil {
		return time.Time{}, "", err
	}
	obj, err := f.Leases.Decoder.Decode(ctx, o)
	if err != nil {
		return time.Time{}, "", err
	}
	until, holder = heldUntil(&obj.(*coordinationv1.Lease).Spec, f.Clock.Now())
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
