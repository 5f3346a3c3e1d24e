// Package fairshare divides what is limited, such as the requests that are served at a
// time, between users, until there is priority and fairness.
//
// A user gets some as long as it holds less than ShareOfFree times what is free. So
// one user alone can have seven eighths of all, two can have seven fifteenths each, and
// a newcomer always finds a part that is free. Nobody waits: a request is admitted or
// it is not.
package fairshare

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/keelson-dev/keelson/request"
)

const (
	// ShareOfFree is how much a user may hold of what is free.
	ShareOfFree = 7
	// slots is how many users are told apart. Two of them share a slot by chance.
	slots = 4096
)

// Pool is what is divided. It counts without locks and without memory of its own for
// each user.
type Pool struct {
	limit   int64 // for each class of users; 0 is none
	seed    maphash.Seed
	classes [classes]class
}

// Classes of users. Members of system:masters are exempt: they are counted and never
// refused. Nodes and components of the control plane have a limit of their own: others
// cannot keep them out.
const (
	exempt = iota
	system
	others
	classes
)

type class struct {
	taken  atomic.Int64
	byUser [slots]atomic.Int64
}

// NewPool returns a pool of limit units; 0 is no limit.
func NewPool(limit int64) *Pool { return &Pool{limit: limit, seed: maphash.MakeSeed()} }

// Taken returns how many units are in use.
func (p *Pool) Taken() int64 {
	var sum int64
	for i := range p.classes {
		sum += p.classes[i].taken.Load()
	}
	return sum
}

// Of returns the account of a user, which nil is not. An account is used by one
// goroutine at a time.
func (p *Pool) Of(user *request.User) Account {
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

// In returns an account of the same user in another pool, with nothing taken.
func (a *Account) In(pool *Pool) Account { return Account{pool: pool, class: a.class, slot: a.slot} }

// Account takes units of a pool for one request. The zero Account takes none.
type Account struct {
	pool  *Pool
	class uint8 // exempt, system or others
	slot  uint32
	held  int64
	away  int64 // units that Leave gave back for a while
	extra int64 // units beyond what the user may have, counted for the user alone
}

// Take takes n units, unless that is more than the user may have.
func (a *Account) Take(n int64) bool {
	if a.pool == nil {
		return true
	}
	c := &a.pool.classes[a.class]
	taken, mine := c.taken.Add(n), c.byUser[a.slot].Add(n)
	if limit := a.pool.limit; limit > 0 && a.class != exempt {
		if free := limit - (taken - n); n > free || mine-n >= ShareOfFree*free {
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
	c.byUser[a.slot].Add(-n)
}

// Charge takes n units in any case. What is more than the user may have is counted for
// the user alone, who gets nothing more until it is given back; others lose nothing.
func (a *Account) Charge(n int64) {
	if !a.Take(n) {
		a.pool.classes[a.class].byUser[a.slot].Add(n)
		a.extra += n
	}
}

// Release gives back all that the account has.
func (a *Account) Release() {
	if a.held > 0 {
		a.give(a.held)
	}
	if a.extra > 0 {
		a.pool.classes[a.class].byUser[a.slot].Add(-a.extra)
	}
	a.held, a.away, a.extra = 0, 0, 0
}

// Leave gives back what the account has until Return.
func (a *Account) Leave() {
	if a.held > 0 {
		a.give(a.held)
		a.held, a.away = 0, a.held
	}
}

// Return takes what Leave gave back, even if that is more than the limit: what was
// begun is brought to an end.
func (a *Account) Return() {
	if a.away > 0 {
		a.give(-a.away)
		a.held, a.away = a.away, 0
	}
}

// TakeAgain takes what Leave gave back, unless that is more than the user may have.
func (a *Account) TakeAgain() bool {
	n := a.away
	a.away = 0
	return n == 0 || a.Take(n)
}

// Groups whose members are nodes and components, and the names of other components.
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
