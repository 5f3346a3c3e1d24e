package crd

import "sync"

// uses counts the requests that use something, and calls functions when the count is zero. The zero value has no uses.
type uses struct {
	mu    sync.Mutex // guards count and ended
	count int
	ended []func() // called when count is 0
}

// begin counts a use until the matching end.
func (u *uses) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
}

// end ends a use. The end of the last one calls the functions that wait for it.
func (u *uses) end() {
	u.mu.Lock()
	u.count--
	var ended []func()
	if u.count == 0 {
		ended, u.ended = u.ended, nil
	}
	u.mu.Unlock()
	for _, f := range ended {
		f()
	}
}

// whenNone calls f when the count is 0: at once, or when the last use ends.
func (u *uses) whenNone(f func()) {
	u.mu.Lock()
	waits := u.count > 0
	if waits {
		u.ended = append(u.ended, f)
	}
	u.mu.Unlock()
	if !waits {
		f()
	}
}
