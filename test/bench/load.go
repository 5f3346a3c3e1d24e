package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// drainTime limits the wait for the last responses.
const drainTime = time.Minute

// longestFailure is the number of bytes of a failure that are shown.
const longestFailure = 300

// plan is a closed loop: inFlight requests are in flight, and the next one is sent when one is answered.
type plan struct {
	inFlight, connections int
	count                 int           // number of requests; 0 means as many as the time allows
	limit                 time.Duration // no request is started after this time
	// prepare fills in request i. It is called by several goroutines, each with a request of its own, which still has
	// the values of the previous call.
	prepare func(i int, r *request)
	// received is called with each part of a response's body. It may be nil.
	received func(i int, part []byte)
}

// outcome is the result of a plan.
type outcome struct {
	done, failed int
	failure      string // the first one
	first, last  time.Time
	latencies    []time.Duration // sorted
	cpu          time.Duration   // of the server
}

func (o *outcome) rate() float64 {
	if d := o.last.Sub(o.first); d > 0 {
		return float64(o.done) / d.Seconds()
	}
	return 0
}

func (o *outcome) percentile(p int) time.Duration {
	if len(o.latencies) == 0 {
		return 0
	}
	return o.latencies[min(len(o.latencies)*p/100, len(o.latencies)-1)]
}

// cpuEach returns the server's processor time for one request, 0 if unknown.
func (o *outcome) cpuEach() time.Duration {
	if o.done == 0 {
		return 0
	}
	return o.cpu / time.Duration(o.done)
}

// run carries out a plan.
func (p plan) run(t *target) (*outcome, error) {
	connections := max(1, min(p.connections, p.inFlight))
	conns := make([]*connection, connections)
	for i := range conns {
		c, err := dial(t)
		if err != nil {
			return nil, err
		}
		defer c.close()
		conns[i] = c
	}
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		mu    sync.Mutex
		total outcome
		errs  []error
	)
	before := treeUsage(t.pid)
	total.first = time.Now()
	for i, c := range conns {
		share := p.inFlight / connections
		if i < p.inFlight%connections {
			share++
		}
		wg.Go(func() {
			o, err := p.drive(c, min(share, c.maxStreams), &next, total.first.Add(p.limit))
			mu.Lock()
			defer mu.Unlock()
			total.done += o.done
			total.failed += o.failed
			total.latencies = append(total.latencies, o.latencies...)
			if total.failure == "" {
				total.failure = o.failure
			}
			if o.last.After(total.last) {
				total.last = o.last
			}
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	total.cpu = treeUsage(t.pid).cpu - before.cpu
	slices.Sort(total.latencies)
	if len(errs) > 0 {
		return &total, fmt.Errorf("after %d requests: %w", total.done+total.failed, errs[0])
	}
	return &total, nil
}

// drive sends the requests of a plan that belong to one connection.
func (p plan) drive(c *connection, inFlight int, next *atomic.Int64, end time.Time) (*outcome, error) {
	o := &outcome{latencies: make([]time.Duration, 0, max(p.count, 1<<16))}
	var r request
	var failure []byte
	active := 0
	start := func(s *stream) {
		i := int(next.Add(1) - 1)
		if p.count > 0 && i >= p.count || time.Now().After(end) {
			return
		}
		s.number = i
		p.prepare(i, &r)
		c.send(s, &r)
		active++
	}
	onData := func(s *stream, b []byte) {
		if p.received != nil {
			p.received(s.number, b)
		}
		if s.status >= 300 && len(failure) < longestFailure {
			failure = append(failure, b[:min(len(b), longestFailure-len(failure))]...)
		}
	}
	onEnd := func(s *stream) {
		active--
		now := time.Now()
		o.last = now
		if s.status < 200 || s.status >= 300 {
			o.failed++
			if o.failure == "" {
				o.failure = fmt.Sprintf("%d %s", s.status, failure)
			}
		} else {
			o.done++
			o.latencies = append(o.latencies, now.Sub(s.sent))
		}
		start(s)
	}
	for range inFlight {
		start(&stream{onData: onData, onEnd: onEnd})
	}
	if active == 0 {
		return o, nil
	}
	return o, c.run(end.Add(drainTime), func() bool { return active == 0 })
}

// timing is the result of repeating one request.
type timing struct {
	times int
	wall  time.Duration // median
	best  time.Duration
	cpu   time.Duration // of the server, for one request
	size  int           // bytes as transferred
}

// repeat sends a request repeatedly on one connection, one at a time: at least three times, at most most times, and no
// longer than the limit.
func repeat(t *target, r *request, most int, limit time.Duration) (*timing, error) {
	c, err := dial(t)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var walls []time.Duration
	tm := &timing{}
	done := false
	s := &stream{onEnd: func(s *stream) { done = true; walls = append(walls, time.Since(s.sent)) }}
	const least = 3
	end := time.Now().Add(limit)
	before := treeUsage(t.pid)
	for len(walls) < least || len(walls) < most && time.Now().Before(end) {
		done = false
		c.send(s, r)
		if err := c.run(time.Now().Add(drainTime), func() bool { return done }); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		if s.status != 200 {
			return nil, fmt.Errorf("%s %s: %d", r.method, r.path, s.status)
		}
		tm.size = s.size
	}
	tm.cpu = (treeUsage(t.pid).cpu - before.cpu) / time.Duration(len(walls))
	slices.Sort(walls)
	tm.times, tm.wall, tm.best = len(walls), walls[len(walls)/2], walls[0]
	return tm, nil
}
