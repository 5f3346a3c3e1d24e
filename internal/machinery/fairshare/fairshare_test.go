package fairshare

import (
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// fill takes units for a user, one by one, until one is refused or the user has most units. It returns an account
// for each unit.
func fill(p *Pool, user *request.User, most int) []Account {
	var out []Account
	for len(out) < most {
		a := p.AccountFor(user)
		if !a.Take(1) {
			return out
		}
		out = append(out, a)
	}
	return out
}

func TestOneUserCannotTakeAllUnits(t *testing.T) {
	p := NewPool(400)
	eve, joe := &request.User{Name: "eve"}, &request.User{Name: "joe"}
	node := &request.User{Name: "system:node:n", Groups: []string{"system:nodes"}}
	admin := &request.User{Name: "admin", Groups: []string{request.GroupMasters}}
	held := fill(p, eve, 1000)
	if len(held) != 350 {
		t.Errorf("a user alone holds %d of 400", len(held))
	}
	others := fill(p, joe, 1000)
	if len(others) < 40 {
		t.Errorf("another user holds %d of 400", len(others))
	}
	if n := len(fill(p, node, 300)); n != 300 {
		t.Errorf("a node holds %d of 300", n)
	}
	if n := len(fill(p, admin, 1000)); n != 1000 {
		t.Errorf("system:masters hold %d of 1000", n)
	}
	for i := range held {
		held[i].Release()
	}
	if n := len(fill(p, joe, 1000)); n < 250 {
		t.Errorf("when others have given back what they had: %d more", n)
	}
}

func TestSmallAndUnlimited(t *testing.T) {
	eve := &request.User{Name: "eve"}
	for limit, want := range map[int64]int{0: 5000, 1: 1, 2: 2, 8: 7} {
		if n := len(fill(NewPool(limit), eve, 5000)); n != want {
			t.Errorf("of %d: %d", limit, n)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	p := NewPool(1)
	one, two := p.AccountFor(&request.User{Name: "a"}), p.AccountFor(&request.User{Name: "b"})
	if !one.Take(1) || two.Take(1) {
		t.Fatal("not one of one")
	}
	one.Pause()
	one.Pause()
	if !two.Take(1) || p.Taken() != 1 {
		t.Error("what was left is not free")
	}
	if one.Read(func() {}) {
		t.Error("a second of one")
	}
	one.Release()
	two.Pause()
	two.Resume()
	two.Resume()
	if p.Taken() != 1 {
		t.Errorf("%d taken", p.Taken())
	}
	two.Release()
	if p.Taken() != 0 {
		t.Errorf("%d taken at the end", p.Taken())
	}
	var none Account
	if !none.Take(1) || !none.Read(func() {}) {
		t.Error("an account of nothing refuses")
	}
	none.Pause()
	none.Resume()
	none.Release()
}

// TestCharge checks that units above a user's share block only this user.
func TestCharge(t *testing.T) {
	p := NewPool(100)
	eve, joe := &request.User{Name: "eve"}, &request.User{Name: "joe"}
	charged := p.AccountFor(eve)
	charged.Charge(60)
	charged.Charge(1000)
	if p.Taken() != 60 {
		t.Errorf("%d are taken from all", p.Taken())
	}
	if again := p.AccountFor(eve); again.Take(0) {
		t.Error("a user above its share gets more")
	}
	other := p.AccountFor(joe)
	if !other.Take(20) {
		t.Error("another user gets nothing")
	}
	other.Release()
	charged.Release()
	if again := p.AccountFor(eve); !again.Take(80) {
		t.Error("what was charged is not given back")
	}
	seat := p.AccountFor(eve)
	if same := seat.InPool(NewPool(10)); !same.Take(8) || same.slot != seat.slot {
		t.Error("no account of the same user in another pool")
	}
}

// TestAllUnitsAreReturned takes and returns units from many goroutines: at the end none is taken, and at no time are
// more taken than exist.
func TestAllUnitsAreReturned(t *testing.T) {
	const limit = 10
	p := NewPool(limit)
	var running sync.WaitGroup
	for g := range 8 {
		running.Go(func() {
			for range 2000 {
				a := p.AccountFor(&request.User{Name: string(rune('a' + g))})
				if a.Take(1) {
					a.Pause()
					a.Read(func() {})
				}
				a.Release()
			}
		})
	}
	running.Wait()
	if p.Taken() != 0 {
		t.Errorf("%d taken", p.Taken())
	}
	for i := range uint32(slots) {
		if n := p.classes[others].byUser(i).Load(); n != 0 {
			t.Errorf("slot %d: %d", i, n)
		}
	}
}

func TestComponents(t *testing.T) {
	for _, u := range []request.User{
		{Name: "system:kube-scheduler"}, {Name: "system:kube-controller-manager"},
		{Name: "system:serviceaccount:kube-system:x", Groups: []string{"system:serviceaccounts:kube-system"}},
	} {
		if !isSystem(&u) {
			t.Errorf("%s is no component", u.Name)
		}
	}
	for _, name := range []string{"system:kube-", "system:anonymous", "kube-scheduler"} {
		if isSystem(&request.User{Name: name}) {
			t.Errorf("%s is a component", name)
		}
	}
}
