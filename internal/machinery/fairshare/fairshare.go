// Package fairshare divides a limited resource, such as the seats for requests in flight,
// between users. It is a simple substitute for API priority and fairness.
//
// A user can take units as long as the user holds less than FreeMultiple (7) times the units
// that are free. For example, of 800 seats one user alone can take 700; two users can take 373
// each; and a further user always finds some free. There is no queue: a request is admitted or
// refused at once.
package fairshare

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	// FreeMultiple limits a user: a user that holds this many times the free units gets no more units.
	FreeMultiple = 7
	// slots is the number of counters for users. Users whose names have the same hash share one.
	slots = 4096
)

// Pool is a number of units that users share. Counting takes no lock and no memory for each
// user.
type Pool struct {
	limit   int64 // units for each class of users; 0 means no limit
	seed    maphash.Seed
	classes [classes]class
}

// The classes of users. Members of system:masters are exempt: they are counted but never
// refused. Nodes and components of the control plane have a limit of their own, so that other
// users cannot keep them out.
const (
	exempt = iota
	system
	others
	classes
)

type class struct {
	taken atomic.Int64
	// users is nil until the first unit is taken, because a program may run many servers that have no requests.
	users atomic.Pointer[[slots]atomic.Int64]
}

// byUser returns the counter that the users of a slot share.
func (c *class) byUser(slot uint32) *atomic.Int64 {
	users := c.users.Load()
	if users == nil {
		c.users.CompareAndSwap(nil, new([slots]atomic.Int64))
		users = c.users.Load()
	}
	return &users[slot]
}

// NewPool returns a pool of limit units. 0 means no limit.
func NewPool(limit int64) *Pool { return &Pool{limit: limit, seed: maphash.MakeSeed()} }

// Taken returns how many units are in use.
func (p *Pool) Taken() int64 {
	var sum int64
	for i := range p.classes {
		sum += p.classes[i].taken.Load()
	}
	return sum
}

// AccountFor returns a new account of a user. The user must not be nil. An account may be used
// by one goroutine at a time.
func (p *Pool) AccountFor(user *request.User) Account {
	a := Account{pool: p, slot: uint32(maphash.String(p.seed, user.Name) % slots)}
	switch {
	case user.InGroup(request.GroupMasters):
		a.class = exempt
	case isSystem(user):
		a.class = system
	default:
		a.class = others
	}
	return a
}

// InPool returns a new account of the same user in another pool. The new account holds nothing.
func (a *Account) InPool(pool *Pool) Account {
	return Account{pool: pool, class: a.class, slot: a.slot}
}

// Account counts the units that one request holds. The zero Account counts nothing and is
// never refused.
type Account struct {
	pool   *Pool
	class  uint8 // exempt, system or others
	slot   uint32
	held   int64
	paused int64 // units that Pause gave back
	extra  int64 // units beyond the user's share, which only count for this user
}

// Take takes n units and returns true, or takes nothing and returns false if that is more than
// the user may hold.
func (a *Account) Take(n int64) bool {
	if a.pool == nil {
		return true
	}
	c := &a.pool.classes[a.class]
	taken, mine := c.taken.Add(n), c.byUser(a.slot).Add(n)
	if limit := a.pool.limit; limit > 0 && a.class != exempt {
		if free := limit - (taken - n); n > free || mine-n >= FreeMultiple*free {
			a.give(n)
			return false
		}
	}
	a.held += n
	return true
}

func (a *Account) give(n int64) {
	c := &a.pool.classes[a.class]
	c.taken.Add(-n)
	c.byUser(a.slot).Add(-n)
}

// Charge takes n units in any case. If that is more than the user may hold, they count only
// for this user, who can take nothing more until they are released; other users lose nothing.
func (a *Account) Charge(n int64) {
	if !a.Take(n) {
		a.pool.classes[a.class].byUser(a.slot).Add(n)
		a.extra += n
	}
}

// Release gives back all units of the account.
func (a *Account) Release() {
	if a.held > 0 {
		a.give(a.held)
	}
	if a.extra > 0 {
		a.pool.classes[a.class].byUser(a.slot).Add(-a.extra)
	}
	a.held, a.paused, a.extra = 0, 0, 0
}

// Pause gives back the units of the account until Resume.
func (a *Account) Pause() {
	if a.held > 0 {
		a.give(a.held)
		a.held, a.paused = 0, a.held
	}
}

// Resume takes the units again that Pause gave back, even above the limit, so that a request
// that has begun can end.
func (a *Account) Resume() {
	if a.paused > 0 {
		a.give(-a.paused)
		a.held, a.paused = a.paused, 0
	}
}

// Read gives the units back while read waits for the client, and then takes them again. It
// returns false if that is more than the user may hold.
func (a *Account) Read(read func()) bool {
	a.Pause()
	read()
	n := a.paused
	a.paused = 0
	return n == 0 || a.Take(n)
}

// The groups of nodes and of components, and the prefix of the other components' user names.
const (
	groupNodes      = "system:nodes"
	groupKubeSystem = "system:serviceaccounts:kube-system"
	componentPrefix = "system:kube-"
)

func components() []string { return []string{"controller-manager", "scheduler", "proxy"} }

func isSystem(user *request.User) bool {
	if user.InGroup(groupNodes) || user.InGroup(groupKubeSystem) {
		return true
	}
	name, ok := strings.CutPrefix(user.Name, componentPrefix)
	return ok && slices.Contains(components(), name)
}
