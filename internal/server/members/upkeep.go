package members

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/member"
)

const (
	// upkeepEvery is the time between two looks of the leader at learners, sizeEvery that between two looks at the sizes of the databases,
	// and renewEvery that between two looks at the certificate of this member.
	upkeepEvery, sizeEvery, renewEvery = 5 * time.Second, time.Minute, time.Hour
	// A database is written anew if that frees leastFree bytes, and one part in freePart of it.
	leastFree, freePart = 64 << 20, 3
)

// Run keeps the membership in order until ctx ends: each server its certificate, and the leader all other things.
func (c *Cluster) Run(ctx context.Context) {
	seen := map[uint64]bool{}
	var sized, renewed time.Time
	every := time.NewTicker(upkeepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.shrink:
			c.defragmentOwn()
		case now := <-every.C:
			if now.Sub(renewed) >= renewEvery {
				renewed = now
				if _, err := c.renew(); err != nil {
					c.Log.Error("the certificate for other members cannot be renewed; the one before stays in use", "error", err)
				}
			}
			m := c.member.Load()
			if m.Leader() != m.ID() {
				clear(seen)
				continue
			}
			if err := c.lead(ctx, seen, now.Sub(sized) >= sizeEvery); err != nil && ctx.Err() == nil {
				c.Log.Warn("the membership was not put in order; will try again", "error", err)
			} else if now.Sub(sized) >= sizeEvery {
				sized = now
			}
		}
	}
}

// lead does what the leader does for all members.
func (c *Cluster) lead(ctx context.Context, seen map[uint64]bool, sizes bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTime)
	defer cancel()
	list, err := c.member.Load().List(ctx)
	if err != nil {
		return err
	}
	if err := c.forgetLearners(ctx, list, seen); err != nil || !sizes {
		return err
	}
	return c.defragment(ctx)
}

// defragment makes the database of one member smaller, if much is free in it: those of the others first, and that of this member, which
// leads, when another one does. It does nothing unless all members answer, because one that writes its database anew answers nothing.
func (c *Cluster) defragment(ctx context.Context) error {
	list, err := c.members(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(m Member) bool { return m.Error != "" || m.Role == "learner" || m.Shrinking }) {
		return nil
	}
	m := c.member.Load()
	if slices.ContainsFunc(list, func(o Member) bool { return slices.Contains(o.Alarms, "NOSPACE") }) &&
		!slices.ContainsFunc(list, func(o Member) bool { return o.Bytes > member.Quota/2 }) {
		if err := m.ClearAlarm(ctx); err != nil {
			return err
		}
		c.Log.Warn("the databases of all members have space again, so that writes are accepted")
	}
	slices.SortStableFunc(list, func(a, b Member) int { return cmp.Compare(a.Role, b.Role) }) // followers before the leader
	for _, o := range list {
		if free := o.Bytes - o.UsedBytes; free < leastFree || free < o.Bytes/freePart {
			continue
		}
		if o.Role == "leader" && len(list) > 1 {
			return m.MoveLeader(ctx, 0) // the next leader does it
		}
		return call(ctx, c.client, http.MethodPost, o.Address+defragmentPath, "", struct{}{}, &struct{}{})
	}
	return nil
}

// beginDefragment makes Run write the database of this member anew, unless that is being done.
func (c *Cluster) beginDefragment() {
	if c.shrinking.CompareAndSwap(false, true) {
		c.shrink <- struct{}{}
	}
}

// defragmentOwn writes the database of this member anew.
func (c *Cluster) defragmentOwn() {
	defer c.shrinking.Store(false)
	began := time.Now()
	if err := c.member.Load().Defragment(); err != nil {
		c.Log.Error("the database of this member cannot be made smaller", "error", err)
		return
	}
	c.Log.Info("the database of this member was made smaller", "took", time.Since(began))
}
