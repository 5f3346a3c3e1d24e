package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// mark is the text in front of the time of sending, in nanoseconds, in a watch event.
const (
	mark       = "@t="
	markDigits = 19
)

const (
	openTime     = 30 * time.Second // for the responses to all watch requests
	deliverTime  = 2 * time.Minute  // for all events
	sampleEvery  = 10               // the lag is measured at one of so many watchers
	settleMemory = 2 * time.Second
)

// fanOut is a measurement of several watchers of the same events.
type fanOut struct {
	watchers, perConnection, events int
	watch                           request
	watchOf                         func(i int) *request    // of watcher i, if the watches differ
	each                            int                     // the number of events that a watcher gets; 0 means all
	opened                          func() error            // called before the events are created; may be nil
	emit                            func(i int, r *request) // request i creates one event that contains mark and the time
	inFlight                        int                     // the number of events being created at a time
	pace                            float64                 // events created in a second; 0 is no limit
}

// delivered is the result of a fan-out.
type delivered struct {
	events        int
	wall          time.Duration
	cpu           time.Duration // of the server, for each delivered event
	bytes         int           // of an event
	lag           []time.Duration
	opened, after int64 // anonymous memory of the server for each watcher, when the watches were open and after the events
}

// expected returns the number of events that a watcher gets.
func (f *fanOut) expected() int {
	if f.each > 0 {
		return f.each
	}
	return f.events
}

// plan returns the requests that create the events.
func (f *fanOut) plan() plan {
	p := plan{inFlight: f.inFlight, connections: 1, count: f.events, limit: deliverTime, prepare: f.emit}
	if f.pace == 0 {
		return p
	}
	// Each event has a planned time, counted from the first request. Each connection waits for the time of its next
	// event, so a slow event does not delay the others.
	p.connections = f.inFlight
	begin := sync.OnceValue(time.Now)
	p.prepare = func(i int, r *request) {
		time.Sleep(time.Until(begin().Add(time.Duration(float64(i) / f.pace * float64(time.Second)))))
		f.emit(i, r)
	}
	return p
}

func (d *delivered) rate() float64 { return float64(d.events) / d.wall.Seconds() }

func (d *delivered) lagAt(p int) time.Duration {
	if len(d.lag) == 0 {
		return 0
	}
	return d.lag[min(len(d.lag)*p/100, len(d.lag)-1)]
}

// group is the watchers of one connection.
type group struct {
	c        *connection
	watchers int
	opened   int
	failure  error
	lines    int
	bytes    int
	last     time.Time
	lag      []time.Duration
}

func (g *group) open(f *fanOut, first int) {
	for i := range g.watchers {
		s := &stream{
			onStatus: func(s *stream) {
				g.opened++
				if s.status != 200 {
					g.failure = fmt.Errorf("a watch was answered %d", s.status)
				}
			},
			onEnd: func(s *stream) { g.failure = fmt.Errorf("a watch ended (status %d)", s.status) },
		}
		var sample sampler
		sampled := (first+i)%sampleEvery == 0
		s.onData = func(_ *stream, p []byte) {
			g.lines += bytes.Count(p, []byte{'\n'})
			g.bytes += len(p)
			if sampled {
				g.lag = sample.take(g.lag, p, time.Now())
			}
		}
		watch := &f.watch
		if f.watchOf != nil {
			watch = f.watchOf(first + i)
		}
		g.c.send(s, watch)
	}
}

// sampler finds the marked times in a stream of events.
type sampler struct{ rest []byte }

func (s *sampler) take(lag []time.Duration, p []byte, now time.Time) []time.Duration {
	if len(s.rest) > 0 {
		s.rest = append(s.rest, p...)
		p = s.rest
	}
	for {
		i := bytes.Index(p, []byte(mark))
		if i < 0 {
			p = p[max(0, len(p)-len(mark)+1):]
			break
		}
		p = p[i:]
		if len(p) < len(mark)+markDigits {
			break
		}
		nanos, err := strconv.ParseInt(string(p[len(mark):len(mark)+markDigits]), 10, 64)
		if err == nil {
			lag = append(lag, now.Sub(time.Unix(0, nanos)))
		}
		p = p[len(mark)+markDigits:]
	}
	s.rest = append(s.rest[:0], p...)
	return lag
}

// stamp writes the time behind the mark at offset.
func stamp(body []byte, offset int) {
	strconv.AppendInt(body[:offset+len(mark)], time.Now().UnixNano(), 10)
}

func (f *fanOut) run(t *target) (*delivered, error) {
	before := treeUsage(t.pid)
	groups, err := f.connect(t)
	defer func() {
		for _, g := range groups {
			g.c.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	opening := time.Now().Add(openTime)
	if err := each(groups, func(g *group) error {
		return g.c.run(opening, func() bool { return g.opened == g.watchers || g.failure != nil })
	}); err != nil {
		return nil, err
	}
	time.Sleep(settleMemory)
	d := &delivered{}
	opened := treeUsage(t.pid)
	d.opened = (opened.anonymous - before.anonymous) / int64(f.watchers)
	if f.opened != nil {
		if err := f.opened(); err != nil {
			return nil, err
		}
		opened = treeUsage(t.pid)
	}

	var made *outcome
	var madeErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		made, madeErr = f.plan().run(&target{address: t.address, bearer: t.bearer})
	})
	limit := time.Now().Add(deliverTime)
	err = each(groups, func(g *group) error {
		err := g.c.run(
			limit, func() bool { g.last = time.Now(); return g.lines >= g.watchers*f.expected() || g.failure != nil },
		)
		if err != nil {
			err = fmt.Errorf("%d of %d events came: %w", g.lines, g.watchers*f.expected(), err)
		}
		return err
	})
	wg.Wait()
	if err := errors.Join(err, madeErr); err != nil {
		return nil, err
	}
	if made.failed > 0 {
		return nil, fmt.Errorf("%d events could not be made: %s", made.failed, made.failure)
	}
	var last time.Time
	size := 0
	for _, g := range groups {
		d.events += g.lines
		size += g.bytes
		d.lag = append(d.lag, g.lag...)
		if g.last.After(last) {
			last = g.last
		}
	}
	slices.Sort(d.lag)
	used := treeUsage(t.pid)
	d.wall, d.bytes = last.Sub(made.first), size/max(1, d.events)
	d.cpu = (used.cpu - opened.cpu) / time.Duration(max(1, d.events))
	d.after = (used.anonymous - before.anonymous) / int64(f.watchers)
	return d, nil
}

// connect opens the connections and sends the watch requests.
func (f *fanOut) connect(t *target) ([]*group, error) {
	var groups []*group
	for first := 0; first < f.watchers; {
		c, err := dial(t)
		if err != nil {
			return groups, err
		}
		g := &group{c: c, watchers: min(f.perConnection, c.maxStreams, f.watchers-first)}
		g.open(f, first)
		first += g.watchers
		groups = append(groups, g)
	}
	return groups, nil
}

// each drives all groups at the same time.
func each(groups []*group, drive func(*group) error) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			if errs[i] = drive(g); errs[i] == nil {
				errs[i] = g.failure
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the errors of the others are the same
		}
	}
	return nil
}
