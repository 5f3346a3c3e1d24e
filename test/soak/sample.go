package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// durations collects durations between two calls of take.
type durations struct {
	mu  sync.Mutex // guards all fields
	all []time.Duration
}

func (d *durations) add(t time.Duration) {
	d.mu.Lock()
	d.all = append(d.all, t)
	d.mu.Unlock()
}

// take returns the median and the 99th percentile in milliseconds, and removes all durations.
func (d *durations) take() (p50, p99 float64) {
	d.mu.Lock()
	all := d.all
	d.all = nil
	d.mu.Unlock()
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	at := func(percent int) float64 {
		return float64(all[min(len(all)-1, len(all)*percent/100)]) / float64(time.Millisecond)
	}
	return at(50), at(99)
}

// figures are the counts of the clients.
type figures struct {
	gets, pages, lags durations

	mu       sync.Mutex // guards the fields below
	writes   int
	failures int
	messages map[string]int // kinds of failures, over the whole run
}

func newFigures() *figures { return &figures{messages: map[string]int{}} }

// wrote counts a write.
func (f *figures) wrote(err error) {
	if err != nil {
		f.failed(err)
		return
	}
	f.mu.Lock()
	f.writes++
	f.mu.Unlock()
}

// failed counts a failure.
func (f *figures) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures++
	// Names and numbers of objects are removed, so that failures of one kind are counted together.
	message := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
	const most = 50
	if _, known := f.messages[message]; known || len(f.messages) < most {
		f.messages[message]++
	}
}

// takeCounts returns the counts since the last call.
func (f *figures) takeCounts() (writes, failures int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	writes, failures, f.writes, f.failures = f.writes, f.failures, 0, 0
	return writes, failures
}

// errorsSeen returns the kinds of failures and how often each occurred.
func (f *figures) errorsSeen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for message, times := range f.messages {
		out = append(out, fmt.Sprintf("%d times: %s", times, message))
	}
	slices.Sort(out)
	return out
}

// column describes one figure of a sample.
type column struct {
	name string // with the unit
	// floor is a change in the unit of the figure that does not matter: a figure that changes by less is flat.
	floor float64
	// judged means that the figure has to be flat.
	judged bool
}

// columns are the figures of a sample in their order.
func columns() []column {
	return []column{
		{name: "anonymous memory (MiB)", floor: 4, judged: true},
		{name: "heap in use (MiB)", floor: 4, judged: true},
		{name: "disk (MiB)", floor: 8, judged: true},
		{name: "goroutines", floor: 10, judged: true},
		{name: "descriptors", floor: 5, judged: true},
		{name: "GET p50 (ms)", floor: 0.5, judged: true},
		{name: "GET p99 (ms)", floor: 5, judged: true},
		{name: "page p50 (ms)", floor: 0.5, judged: true},
		{name: "page p99 (ms)", floor: 5, judged: true},
		{name: "watch lag p50 (ms)", floor: 1, judged: true},
		{name: "watch lag p99 (ms)", floor: 10, judged: true},
		{name: "writes/s"},
		{name: "server CPU (%)"},
		{name: "live objects", floor: 10, judged: true},
		{name: "errors"},
	}
}

// sample has the figures at one moment.
type sample struct {
	at     time.Duration // since the start of the load
	values []float64     // in the order of columns
}

// sampleUntil takes samples until ctx ends. It fails if the server ends before that.
func (r *run) sampleUntil(ctx context.Context, began time.Time, csv, progress io.Writer) ([]sample, error) {
	c := newClient(r.server.url)
	defer c.end()
	header := []string{"seconds"}
	for _, col := range columns() {
		header = append(header, col.name)
	}
	fmt.Fprintln(csv, strings.Join(header, ","))
	var out []sample
	ticker := time.NewTicker(r.o.sample)
	defer ticker.Stop()
	last, lastCPU := began, readProc(r.server.cmd.Process.Pid).cpu
	for {
		select {
		case <-ctx.Done():
			return out, nil
		case <-r.server.ended:
			return out, fmt.Errorf("the server ended: %v; its log is %s", r.server.err, r.server.log.Name())
		case <-ticker.C:
		}
		s, cpu := r.sample(ctx, c, began, time.Since(last), lastCPU)
		if ctx.Err() != nil {
			return out, nil
		}
		last, lastCPU = time.Now(), cpu
		out = append(out, s)
		line := []string{strconv.FormatFloat(s.at.Seconds(), 'f', 0, 64)}
		for _, v := range s.values {
			line = append(line, strconv.FormatFloat(v, 'f', 2, 64))
		}
		if _, err := fmt.Fprintln(csv, strings.Join(line, ",")); err != nil {
			return out, err
		}
		if len(out)%6 == 0 {
			fmt.Fprintf(progress, "soak: %s\n", strings.Join(line, ","))
		}
	}
}

const mebibyte = 1 << 20

func (r *run) sample(
	ctx context.Context, c *client, began time.Time, since, lastCPU time.Duration,
) (sample, time.Duration) {
	p := readProc(r.server.cmd.Process.Pid)
	goroutines, heap, err := scrape(ctx, c)
	if err != nil && ctx.Err() == nil {
		r.figures.failed(err)
	}
	objects, err := r.count(ctx, c)
	if err != nil && ctx.Err() == nil {
		r.figures.failed(err)
	}
	get50, get99 := r.figures.gets.take()
	page50, page99 := r.figures.pages.take()
	lag50, lag99 := r.figures.lags.take()
	writes, failures := r.figures.takeCounts()
	return sample{at: time.Since(began), values: []float64{
		float64(p.anonymous) / mebibyte, heap / mebibyte, float64(diskUsage(r.server.dataDir)) / mebibyte,
		goroutines, float64(p.descriptors), get50, get99, page50, page99, lag50, lag99,
		float64(writes) / since.Seconds(), 100 * float64(p.cpu-lastCPU) / float64(since), float64(objects), float64(failures),
	}}, p.cpu
}

// scrape reads the number of goroutines and the bytes of heap in use from the metrics of the server.
func scrape(ctx context.Context, c *client) (goroutines, heap float64, err error) {
	answer, err := c.send(ctx, http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return 0, 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(answer))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_goroutines":
			goroutines, err = strconv.ParseFloat(value, 64)
		case "go_memstats_heap_inuse_bytes":
			heap, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return goroutines, heap, lines.Err()
}
