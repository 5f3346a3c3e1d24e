package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// run is a running load.
type run struct {
	o       *options
	server  *server
	kinds   []*kind
	byName  map[string]*kind
	figures *figures
	next    map[*kind]*atomic.Int64 // the slot whose object is replaced next
	touched atomic.Int64            // the number of changes of objects that are not replaced
	locks   []sync.Mutex            // each guards the generations of some slots, see lock
}

func newRun(o *options, s *server) *run {
	r := &run{o: o, server: s, kinds: kinds(o.scale), byName: map[string]*kind{}, figures: newFigures(),
		next: map[*kind]*atomic.Int64{}, locks: make([]sync.Mutex, 1024)}
	for _, k := range r.kinds {
		r.byName[k.name], r.next[k] = k, &atomic.Int64{}
	}
	return r
}

// live returns the number of objects that exist at any time.
func (r *run) live() int {
	sum := 0
	for _, k := range r.kinds {
		sum += k.slots
	}
	return sum
}

// lock locks a slot, so that nobody else replaces its object.
func (r *run) lock(slot int) *sync.Mutex {
	mu := &r.locks[slot%len(r.locks)]
	mu.Lock()
	return mu
}

func now() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// prepare creates the namespace, the custom resource and all objects.
func (r *run) prepare(ctx context.Context) error {
	c := newClient(r.server.url)
	defer c.end()
	ns := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace + `"}}`
	if _, err := c.send(ctx, http.MethodPost, "/api/v1/namespaces", jsonType, []byte(ns)); err != nil {
		return err
	}
	if _, err := c.send(
		ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType, []byte(definition),
	); err != nil {
		return err
	}
	err := errors.New("not tried")
	for end := time.Now().Add(requestLimit); err != nil; time.Sleep(100 * time.Millisecond) {
		if _, err = c.send(ctx, http.MethodGet, r.byName["widgets"].path, "", nil); err != nil && time.Now().After(end) {
			return fmt.Errorf("the custom resource is not served: %w", err)
		}
	}
	for _, k := range r.kinds {
		if err := r.fill(ctx, c, k); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// warmUp replaces objects of each kind until a number of bytes were written. The server keeps the recent changes of
// each resource up to a limit in bytes. Resources that are seldom written would reach it only after hours, and memory
// would grow until then. There have to be watchers meanwhile, because the stored form of a deletion grows when it is
// first sent.
func (r *run) warmUp(ctx context.Context) error {
	c := newClient(r.server.url)
	defer c.end()
	for _, k := range r.kinds {
		r.warm(ctx, c, k)
	}
	if _, failures := r.figures.takeCounts(); failures > 0 {
		return fmt.Errorf("while warming up: %s", r.figures.errorsSeen()[0])
	}
	for _, d := range []*durations{&r.figures.gets, &r.figures.pages, &r.figures.lags} {
		d.take()
	}
	return ctx.Err()
}

func (r *run) warm(ctx context.Context, c *client, k *kind) {
	var written atomic.Int64
	var wg sync.WaitGroup
	for range r.o.workers {
		wg.Go(func() {
			for written.Load() < int64(r.o.warm)<<20 && ctx.Err() == nil {
				written.Add(int64(r.replace(ctx, c, k)))
			}
		})
	}
	wg.Wait()
}

// fill creates the objects of a kind.
func (r *run) fill(ctx context.Context, c *client, k *kind) error {
	var slot atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, r.o.workers)
	for range r.o.workers {
		wg.Go(func() {
			for i := int(slot.Add(1) - 1); i < k.slots; i = int(slot.Add(1) - 1) {
				answer, err := c.send(ctx, http.MethodPost, k.path, jsonType, []byte(k.body(k.object(i), now())))
				if err != nil {
					errs <- err
					return
				}
				k.revision[i] = revisionOf(answer)
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// load warms up, runs all clients until the time is over, and returns the samples.
func (r *run) load(ctx context.Context, csv, progress io.Writer) ([]sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range r.o.watchers {
		wg.Go(func() { r.watch(ctx, r.kinds[i%len(r.kinds)]) })
	}
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "soak: %v of load\n", r.o.duration)
	began := time.Now()
	ctx, end := context.WithTimeout(ctx, r.o.duration)
	defer end()
	wg.Go(func() { r.write(ctx) })
	wg.Go(func() { r.get(ctx) })
	wg.Go(func() { r.page(ctx) })
	wg.Go(func() { r.comeAndGo(ctx) })
	return r.sampleUntil(ctx, began, csv, progress)
}

// write makes writes at the configured rate, evenly distributed. If all workers are waiting for the server, writes are
// left out; the reported rate shows this.
func (r *run) write(ctx context.Context) {
	work := make(chan struct{}, r.o.rate) // the writes of one second
	var wg sync.WaitGroup
	const connections = 4
	for i := range connections {
		c := newClient(r.server.url)
		defer c.end()
		for w := i; w < r.o.workers; w += connections {
			rng := rand.New(rand.NewPCG(r.o.seed, uint64(w)))
			wg.Go(func() {
				for range work {
					r.change(ctx, c, rng)
				}
			})
		}
	}
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began, sent := time.Now(), 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			// A replacement is two writes (see change), so there are fewer changes than writes.
			for due := int(time.Since(began).Seconds() * float64(r.o.rate) / writesPerChange); sent < due; sent++ {
				select {
				case work <- struct{}{}:
				default:
				}
			}
		}
	}
	close(work)
	wg.Wait()
}

// Four of ten changes replace an object, which takes two writes.
const (
	changes         = 10
	replacing       = 4
	writesPerChange = float64(changes+replacing) / changes
)

// change makes one change.
func (r *run) change(ctx context.Context, c *client, rng *rand.Rand) {
	switch n := rng.IntN(changes); n {
	case 0, 1, 2, 3:
		r.replace(ctx, c, r.pick(rng))
	case 4, 5:
		r.renew(ctx, c, r.byName["leases"], rng)
	case 6, 7:
		r.touch(
			ctx, c, r.byName["pods"], rng, "/status", strategicType,
			`,"status":{"conditions":[{"type":"Ready","status":"True","reason":%q}]}}`,
		)
	case 8:
		r.touch(ctx, c, r.byName["configmaps"], rng, "", mergeType, `,"data":{"counter":%q}}`)
	case 9:
		r.apply(ctx, c, r.byName["deployments"], rng)
	}
}

// done counts a write.
func (r *run) done(_ []byte, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	r.figures.wrote(err)
}

// pick returns a random kind, one of whose objects is to be replaced.
func (r *run) pick(rng *rand.Rand) *kind {
	sum := 0
	for _, k := range r.kinds {
		sum += k.weight
	}
	n := rng.IntN(sum)
	for _, k := range r.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("the weights are less than their sum")
}

// replace deletes the object of the slot that was replaced longest ago and creates a new one. It returns the size of
// the new object.
func (r *run) replace(ctx context.Context, c *client, k *kind) int {
	slot := int((r.next[k].Add(1) - 1) % int64(k.slots))
	defer r.lock(slot).Unlock()
	answer, err := c.send(ctx, http.MethodDelete, k.path+"/"+k.object(slot)+"?propagationPolicy=Background", "", nil)
	r.done(answer, err)
	if ctx.Err() != nil {
		return 0
	}
	k.generation[slot]++
	answer, err = c.send(ctx, http.MethodPost, k.path, jsonType, []byte(k.body(k.object(slot), now())))
	k.revision[slot] = revisionOf(answer)
	r.done(answer, err)
	return len(answer)
}

// renew updates a Lease, as a kubelet does.
func (r *run) renew(ctx context.Context, c *client, k *kind, rng *rand.Rand) {
	slot := rng.IntN(k.slots)
	defer r.lock(slot).Unlock()
	name := k.object(slot)
	answer, err := c.send(ctx, http.MethodPut, k.path+"/"+name, jsonType, []byte(leaseBody(name, now(), k.revision[slot])))
	if err == nil {
		k.revision[slot] = revisionOf(answer)
	}
	r.done(answer, err)
}

// revisionOf returns the resourceVersion of an object.
func revisionOf(object []byte) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(object, &o) // if it fails, the next update fails with a conflict
	return o.Metadata.ResourceVersion
}

// touch patches an object with a new annotation and with rest, a format in which a verb stands for a new value.
func (r *run) touch(ctx context.Context, c *client, k *kind, rng *rand.Rand, subresource, contentType, rest string) {
	slot := rng.IntN(k.slots)
	defer r.lock(slot).Unlock()
	body := fmt.Sprintf(
		`{"metadata":{"annotations":{%q:%q}}`+rest, timeAnnotation, now(), strconv.FormatInt(r.touched.Add(1), 10),
	)
	r.done(c.send(ctx, http.MethodPatch, k.path+"/"+k.object(slot)+subresource, contentType, []byte(body)))
}

// apply applies a field of a Deployment.
func (r *run) apply(ctx context.Context, c *client, k *kind, rng *rand.Rand) {
	slot := rng.IntN(k.slots)
	defer r.lock(slot).Unlock()
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"annotations":{%q:%q}},`+
		`"spec":{"revisionHistoryLimit":%d}}`,
		k.object(slot), timeAnnotation, now(), r.touched.Add(1)%1000)
	r.done(
		c.send(ctx, http.MethodPatch, k.path+"/"+k.object(slot)+"?fieldManager=soak&force=true", applyType, []byte(body)),
	)
}
