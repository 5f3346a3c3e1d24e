//go:build unix

package takeover

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/test/rig"
)

// fault is a kind of fault. run makes it, and ends it before it returns, unless it says so. It returns what it did.
type fault struct {
	weight int
	run    func(ctx context.Context, s *side) string
}

// random returns a random time.
func (p *Pair) random(most time.Duration) time.Duration {
	return time.Duration(p.rng.Int64N(int64(most)))
}

// target returns the server of a fault: mostly the one that answers.
func (p *Pair) target() *side {
	i := p.last.Load()
	if p.rng.IntN(4) == 0 {
		i = 1 - i
	}
	return p.sides[i]
}

// pause returns how long a process is paused.
func (p *Pair) pause() time.Duration {
	if rig.Rounds(0, 1) == 1 && p.rng.IntN(20) == 0 {
		return time.Second + p.random(119*time.Second)
	}
	return p.random(3 * lockDuration)
}

// faults returns the faults that can be made here.
func (p *Pair) faults() []fault {
	list := []fault{
		{3, func(ctx context.Context, s *side) string {
			s.hold()
			defer s.release()
			at := p.rec.Now()
			s.kill()
			sleep(ctx, p.random(3*lockDuration))
			return fmt.Sprintf("killed %d at %s", s.index, at.Round(time.Millisecond))
		}},
		{1, func(ctx context.Context, s *side) string {
			s.signal(syscall.SIGTERM)
			sleep(ctx, p.random(lockDuration))
			return fmt.Sprint("ended ", s.index)
		}},
		{4, func(ctx context.Context, s *side) string {
			d := p.pause()
			s.signal(syscall.SIGSTOP)
			sleep(ctx, d)
			s.signal(syscall.SIGCONT)
			return fmt.Sprintf("paused %d for %s", s.index, d.Round(time.Millisecond))
		}},
	}
	if p.place.Proxies[0] != nil {
		list = append(list, p.bucketFaults()...)
	}
	if p.sides[0].disk != nil {
		list = append(list, fault{2, func(ctx context.Context, s *side) string {
			p.note(s.disk.fill())
			sleep(ctx, p.random(3*lockDuration))
			s.disk.free()
			return fmt.Sprint("full disk of ", s.index)
		}})
	}
	if p.clocks {
		list = append(list, fault{4, func(ctx context.Context, s *side) string {
			d := time.Duration(p.rng.IntN(3)-1) * time.Hour
			p.note(setClock(s.clock, d))
			sleep(ctx, p.random(lockDuration))
			return fmt.Sprintf("clock of %d at %v", s.index, d)
		}})
	}
	return list
}

// note reports an error of the test itself.
func (p *Pair) note(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Error(err)
	}
}

// bucketFaults returns the faults of the way to the bucket. The way of one side is worse for longer, or that of both.
func (p *Pair) bucketFaults() []fault {
	during := func(begin func() *mode, both int, meanwhile func(context.Context, *side) string) func(context.Context, *side) string {
		return func(ctx context.Context, s *side) string {
			sides := []*side{s}
			if p.rng.IntN(100) < both {
				sides = p.sides[:]
			}
			what := "bucket"
			for _, s := range sides {
				m := begin()
				p.place.Proxies[s.index].set(m)
				what += fmt.Sprintf(" %s for %d", m.name, s.index)
			}
			what += meanwhile(ctx, s)
			for _, s := range sides {
				p.place.Proxies[s.index].Heal()
			}
			return what
		}
	}
	wait := func(ctx context.Context, _ *side) string {
		d := p.random(4 * lockDuration)
		sleep(ctx, d)
		return fmt.Sprintf(" %s", d.Round(time.Millisecond))
	}
	// The lock of a server ends while its last segment is on the way.
	outlasting := func(ctx context.Context, _ *side) string {
		d := 2*lockDuration + p.random(2*lockDuration)
		sleep(ctx, d)
		return fmt.Sprintf(" %s", d.Round(time.Millisecond))
	}
	// A paused server that goes on finds out late that another one has taken over, because it cannot reach the bucket.
	paused := func(ctx context.Context, s *side) string {
		s.signal(syscall.SIGSTOP)
		d := lockDuration + p.random(2*lockDuration)
		sleep(ctx, d)
		s.signal(syscall.SIGCONT)
		sleep(ctx, p.random(lockDuration))
		return fmt.Sprintf(" paused meanwhile %s", d.Round(time.Millisecond))
	}
	killed := func(ctx context.Context, s *side) string {
		sleep(ctx, p.random(lockDuration))
		s.hold()
		defer s.release()
		s.kill()
		sleep(ctx, p.random(2*lockDuration))
		return " killed meanwhile"
	}
	return []fault{
		{2, during(refused, 30, wait)}, {2, during(hanging, 30, wait)}, {2, during(slow, 30, wait)}, {2, during(failing, 30, wait)},
		{3, during(hanging, 0, outlasting)}, {1, during(hanging, 0, paused)}, {1, during(slow, 0, paused)}, {1, during(failing, 0, paused)},
		{1, during(hanging, 10, killed)}, {1, during(failing, 10, killed)},
	}
}

// choose returns a fault.
func (p *Pair) choose(list []fault) fault {
	sum := 0
	for _, f := range list {
		sum += f.weight
	}
	n := p.rng.IntN(sum)
	for _, f := range list {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("not reached")
}
