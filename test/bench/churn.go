package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// churnObjects objects are listed page by page by churnReaders clients at the same time, while churnRate of them
	// are updated each second. All pages of a list have the revision of its first page, so a longer list reads older
	// revisions.
	churnObjects = 200_000
	churnReaders = 6
	churnRate    = 700
	// churnLists is the number of lists that each reader reads; churnLimit limits the time of all of them.
	churnLists = 2
	churnLimit = 10 * time.Minute
)

// pagesUnderChurn measures the pages of lists of a large resource that changes all the time, first with one reader,
// then with all readers, which keep a small machine busy. A list that cannot be continued (410) is a failure.
func (b *bench) pagesUnderChurn() error {
	if err := b.fresh(); err != nil {
		return err
	}
	ns, err := b.namespace("churn")
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	if err := b.createMany(path, churnObjects, scaleObject); err != nil {
		return err
	}
	time.Sleep(settleTime)
	quiet, err := readList(b.server, path, churnObjects)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	var written int
	var writeErr error
	writer.Go(func() { written, writeErr = churn(b.server, path, stop) })
	begin := time.Now()
	alone, aloneErr := readList(b.server, path, churnObjects)
	before, beginAll := treeUsage(b.server.pid), time.Now()
	pages, err := readLists(b.server, path)
	tookAll, took := time.Since(beginAll), time.Since(begin)
	cpu := treeUsage(b.server.pid).cpu - before.cpu
	close(stop)
	writer.Wait()
	if err := errors.Join(aloneErr, err, writeErr); err != nil {
		return err
	}
	mean := func(all []time.Duration) (sum time.Duration) {
		for _, d := range all {
			sum += d
		}
		return sum / time.Duration(len(all))
	}
	slices.Sort(pages)
	slices.Sort(quiet)
	slices.Sort(alone)
	b.add(figure{Row: "pages-churn", Value: ms(pages[len(pages)-1]), Floor: ms(quiet[len(quiet)-1]), Detail: details(
		fmt.Sprintf(
			"mean %s, p99 %s of %d pages of %d", short(mean(pages)), short(pages[len(pages)*99/100]), len(pages), pageLimit,
		),
		fmt.Sprintf("%d lists ended, %.0f writes/s", churnReaders*churnLists, float64(written)/took.Seconds()),
		fmt.Sprintf("server %s of %s", short(cpu), short(tookAll)),
		fmt.Sprintf("one reader mean %s, slowest %s", short(mean(alone)), short(alone[len(alone)-1])),
		"without writes mean "+short(mean(quiet)))})
	return nil
}

// createMany creates objects and returns an error unless all were created.
func (b *bench) createMany(path string, count int, body func(i int) []byte) error {
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: count, limit: scaleLimit,
		prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: body(i)}
		}}.run(b.server)
	if err == nil && o.done < count {
		err = fmt.Errorf("%d of %d objects were created; %s", o.done, count, failures(o))
	}
	return err
}

// readLists lets all readers read their lists, and returns the durations of the pages.
func readLists(t *target, path string) ([]time.Duration, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	var pages []time.Duration
	var errs []error
	for range churnReaders {
		wg.Go(func() {
			for range churnLists {
				p, err := readList(t, path, churnObjects)
				mu.Lock()
				pages, errs = append(pages, p...), append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return pages, errors.Join(errs...)
}

// readList reads a list page by page, checks the number of its objects, and returns the duration of each page.
func readList(t *target, path string, objects int) ([]time.Duration, error) {
	c, err := dial(t)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var pages []time.Duration
	seen, token := 0, ""
	for end := time.Now().Add(churnLimit); ; {
		if time.Now().After(end) {
			return nil, fmt.Errorf("a list did not end within %v", churnLimit)
		}
		begin := time.Now()
		a, err := c.do(&request{
			method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d%s", path, pageLimit, token), accept: jsonType,
		}, requestTime)
		if err != nil {
			return nil, err
		}
		if a.status != http.StatusOK {
			return nil, fmt.Errorf("after %d objects: %d %s", seen, a.status, a.body[:min(len(a.body), longestFailure)])
		}
		pages = append(pages, time.Since(begin))
		seen += bytes.Count(a.body, []byte(`{"metadata":{"name":`))
		next := continueOf(a.body)
		if next == "" {
			break
		}
		token = "&continue=" + next
	}
	if seen != objects {
		return nil, fmt.Errorf("a list had %d objects, not %d", seen, objects)
	}
	return pages, nil
}

// continueOf returns the continue token of a list, "" at its end.
func continueOf(list []byte) string {
	_, after, ok := bytes.Cut(list, []byte(`"continue":"`))
	if !ok {
		return ""
	}
	token, _, _ := bytes.Cut(after, []byte{'"'})
	return string(token)
}

// churn updates objects at churnRate until stop is closed, and returns how many it has updated.
func churn(t *target, path string, stop <-chan struct{}) (int, error) {
	update := updates(path, func(i int) string { return scaleName(i * stride % churnObjects) })
	const slice = 50 * time.Millisecond
	const each = churnRate / int(time.Second/slice)
	ticker := time.NewTicker(slice)
	defer ticker.Stop()
	for done := 0; ; {
		select {
		case <-stop:
			return done, nil
		case <-ticker.C:
		}
		o, err := plan{inFlight: each, connections: 1, count: each, limit: requestTime, prepare: func(i int, r *request) {
			update(done+i, r)
		}}.run(t)
		if err != nil {
			return done, err
		}
		if o.failed > 0 {
			return done, fmt.Errorf("a write failed: %s", o.failure)
		}
		done += each
	}
}

// manyEvents is the number of Events with which the heap is measured.
const manyEvents = 500_000

// heapOfEvents measures the server's heap after a garbage collection, with many Events that nobody reads. The floor is
// the heap before they were created.
func (b *bench) heapOfEvents() error {
	if err := b.fresh(); err != nil {
		return err
	}
	ns, err := b.namespace("events")
	if err != nil {
		return err
	}
	before, err := b.heap()
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + ns + "/events"
	if err := b.createMany(path, manyEvents, func(i int) []byte { return eventObject(ns, i) }); err != nil {
		return err
	}
	time.Sleep(2 * settleTime)
	after, err := b.heap()
	if err != nil {
		return err
	}
	b.add(figure{Row: "events-heap", Value: after / megabyte, Floor: before / megabyte,
		Detail: fmt.Sprintf("%.1f MB of anonymous memory", float64(treeUsage(b.server.pid).anonymous)/megabyte)})
	return nil
}

// eventObject returns an Event like those of the kubelet.
func eventObject(namespace string, i int) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":"event-%06d"},"involvedObject":{"kind":"Pod","namespace":%q,`+
			`"name":"pod-%06d","uid":"00000000-0000-4000-8000-%012d","apiVersion":"v1","fieldPath":"spec.containers{main}"},`+
			`"reason":"Started","message":"Started container main","source":{"component":"kubelet","host":"node-%03d"},`+
			`"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z","count":1,"type":"Normal"}`,
		i, namespace, i%10_000, i%10_000, i%100)
}

// heap makes the server collect its garbage, and returns the bytes of its heap that are in use.
func (b *bench) heap() (float64, error) {
	if _, err := b.call(&request{method: http.MethodGet, path: "/debug/pprof/heap?gc=1", accept: "*/*"}); err != nil {
		return 0, err
	}
	values, err := b.metrics("go_memstats_heap_alloc_bytes ")
	if err != nil {
		return 0, err
	}
	return values[0], nil
}
