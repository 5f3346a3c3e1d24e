// Package leader elects one of the servers on a store, for the work that only one of them does.
//
// The leader holds the Lease keelson in the namespace kube-system, as a kube-controller-manager holds its own. The election only saves
// work. For a moment two servers may both work, for instance while a write of the former leader is on its way, so all their writes need
// preconditions.
package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/gate"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// leaseName is the name of the Lease. It is also the field manager of its writes.
const leaseName = "keelson"

// timing are the times of an election. As in client-go, each server counts them from the moment when it has read a change, with its own
// clock, so the clocks of the machines may differ.
type timing struct {
	// lease is the time in whole seconds after the last renewal after which another server takes over.
	lease time.Duration
	// valid is the time after the last renewal after which the leader stops its work. It is shorter than lease.
	valid time.Duration
	// retry is the time between two attempts to renew or to take the Lease.
	retry time.Duration
	// attempt is the longest time of an attempt.
	attempt time.Duration
}

// defaultTiming lets another server take over at most 14 seconds after the last renewal, if writes take no time: it may see the renewal
// retry later, and the end of the lease retry later again.
var defaultTiming = timing{lease: 10 * time.Second, valid: 7 * time.Second, retry: 2 * time.Second, attempt: 5 * time.Second}

// releaseTime limits the wait of a stopping server for the release of the Lease.
const releaseTime = 2 * time.Second

// Leader takes part in the election. A server that is alone on its store has none, so Guard and Remark may be called on nil.
type Leader struct {
	client *client.Client
	id     string
	log    *slog.Logger
	timing timing
	seen   seen

	mu    sync.Mutex // guards what follows
	set   []func(bool)
	leads bool
	until time.Time   // when the leader stops, unless it renews the Lease before
	end   *time.Timer // stops the leader then
	other bool        // another server leads
}

// seen is a state of the Lease, and when it was seen first.
type seen struct {
	resourceVersion string
	at              time.Time
}

// New returns a Leader that calls itself by a host name and a UID. It takes part when Run is called.
func New(c *client.Client, host string, log *slog.Logger) *Leader {
	return &Leader{client: c.As(leaseName), id: host + "_" + string(uuid.NewUUID()), log: log, timing: defaultTiming}
}

// Guard makes it a condition of a gate that this server leads. A nil Leader adds none. Guard must be called before Run.
func (l *Leader) Guard(g *gate.Gate) {
	if l != nil {
		l.set = append(l.set, g.Condition())
	}
}

// Remark says whether this server leads, "" for a nil Leader.
func (l *Leader) Remark() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.leads:
		return "leader: this server does what only one of the servers on this store does, such as running the controllers"
	case l.other:
		return "leader: another server on this store (the lease " + leaseName + " in kube-system says which)"
	}
	return "leader: not known"
}

// Run takes part until ctx ends, and then releases the Lease.
func (l *Leader) Run(ctx context.Context) {
	l.elect(ctx)
	if l.stop("the server stops", false) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		l.release(ctx)
	}
}

// elect takes part until ctx ends.
func (l *Leader) elect(ctx context.Context) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := l.attempt(ctx)
		switch {
		case err == nil:
			l.renewed(begin)
		case errors.Is(err, errHeld):
			l.stop("another server leads", true)
		case ctx.Err() == nil:
			l.log.Warn("cannot renew the lease of the leader; will try again", "lease", leaseName, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.timing.retry):
		}
	}
}

// errHeld is returned by attempt if another server has the Lease.
var errHeld = errors.New("another server leads")

// attempt renews the Lease, or takes it if it is free.
func (l *Leader) attempt(ctx context.Context) error {
	err := l.update(ctx, l.take)
	if !kerrors.IsNotFound(err) {
		return err
	}
	first := &coordinationv1.Lease{}
	first.Namespace, first.Name = metav1.NamespaceSystem, leaseName
	if err := l.take(&first.Spec, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timing.attempt)
	defer cancel()
	_, err = l.client.Create(ctx, client.CreateRequest{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Object: first,
	})
	if kerrors.IsAlreadyExists(err) {
		return errHeld
	}
	return err
}

// update changes the Lease. change gets the newest one, with its resourceVersion.
func (l *Leader) update(ctx context.Context, change func(*coordinationv1.LeaseSpec, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.timing.attempt)
	defer cancel()
	_, err := l.client.Update(ctx, client.UpdateRequest{
		Ref: client.Ref{
			Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: metav1.NamespaceSystem, Name: leaseName,
		},
		Change: func(obj registry.Object) error {
			lease := obj.(*coordinationv1.Lease)
			return change(&lease.Spec, lease.ResourceVersion)
		},
	})
	return err
}

// take makes this server the holder, or fails with errHeld.
func (l *Leader) take(spec *coordinationv1.LeaseSpec, resourceVersion string) error {
	now, stamp := time.Now(), metav1.NowMicro()
	if resourceVersion != l.seen.resourceVersion {
		l.seen = seen{resourceVersion, now}
	}
	var holder string
	if spec.HolderIdentity != nil {
		holder = *spec.HolderIdentity
	}
	if holder != l.id {
		duration := l.timing.lease
		if spec.LeaseDurationSeconds != nil {
			duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
		}
		if holder != "" && now.Sub(l.seen.at) < duration {
			return errHeld
		}
		transitions := int32(0)
		if spec.LeaseTransitions != nil {
			transitions = *spec.LeaseTransitions + 1
		}
		spec.HolderIdentity, spec.AcquireTime, spec.LeaseTransitions = &l.id, &stamp, &transitions
	}
	seconds := int32(l.timing.lease / time.Second)
	spec.LeaseDurationSeconds, spec.RenewTime = &seconds, &stamp
	return nil
}

// release lets another server lead at once.
func (l *Leader) release(ctx context.Context) {
	err := l.update(ctx, func(spec *coordinationv1.LeaseSpec, _ string) error {
		if spec.HolderIdentity == nil || *spec.HolderIdentity != l.id {
			return errHeld
		}
		none, stamp, second := "", metav1.NowMicro(), int32(1)
		spec.HolderIdentity, spec.RenewTime, spec.LeaseDurationSeconds = &none, &stamp, &second
		return nil
	})
	if err != nil && !errors.Is(err, errHeld) {
		l.log.Warn("cannot release the lease of the leader; another server waits until it ends", "lease", leaseName, "error", err)
	}
}

// renewed lets this server lead for some time after the beginning of a successful attempt.
func (l *Leader) renewed(begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = false
	l.until = begin.Add(l.timing.valid)
	if l.end == nil {
		l.end = time.AfterFunc(time.Until(l.until), l.expire)
	} else {
		l.end.Reset(time.Until(l.until))
	}
	l.change(true, "")
}

// expire ends the leadership if the Lease was not renewed.
func (l *Leader) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		l.change(false, "the lease was not renewed in time")
	}
}

// stop ends the leadership. other says that another server leads. stop returns false if this server did not lead.
func (l *Leader) stop(reason string, other bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	led := l.leads
	l.other = other
	l.until = time.Time{}
	l.change(false, reason)
	return led
}

// change says whether this server leads to everything that depends on it. The caller holds mu.
func (l *Leader) change(leads bool, reason string) {
	if leads != l.leads && leads {
		l.log.Info("this server runs the controllers, as the leader of the servers on this store", "id", l.id)
	} else if leads != l.leads {
		l.log.Info("this server does not run the controllers any more", "reason", reason)
	}
	l.leads = leads
	for _, set := range l.set {
		set(leads)
	}
}
