package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The rows in this file show what grows with the number of objects or watchers, and what does not: each figure is
// printed beside the same figure at a smaller size, in the column of the floor.

const (
	// Every second ConfigMap is small, the others are large: the size of their data, in bytes. As returned they have about
	// 0.4 KB more.
	scaleSmall, scaleLarge = 100, 4600
	// tenth is the part of the full size that is measured first.
	tenth     = 10
	pageLimit = 500
	// scaleLimit limits the time of creating the objects.
	scaleLimit = 30 * time.Minute
)

// atSize has the figures at one number of objects.
type atSize struct {
	rate         float64       // objects created in a second
	cpu          time.Duration // of creating one object, with what the server does afterwards because of it
	memory       float64       // bytes for each object
	first        *timing       // a page at the beginning of the list
	middle       *timing       // a page after half of the objects
	get          *outcome      // of one object at a time
	authorized   *outcome      // the same by a user whom RBAC authorizes; nil if the population has no such user
	lag, highLag time.Duration // from a write to its event, median and 99th percentile
}

// scale measures a population at its two sizes, and a start with it.
func (b *bench) scale(p *population) error {
	if b.launcher == nil {
		return errors.New("give --start")
	}
	if err := b.fresh(); err != nil {
		return err
	}
	for _, o := range p.before {
		if _, err := b.call(post(o.collection, o.body)); err != nil {
			return err
		}
	}
	if _, err := b.call(&request{method: http.MethodGet, path: p.list + "?limit=1", accept: jsonType}); err != nil {
		return err
	}
	time.Sleep(settleTime)
	empty := treeUsage(b.server.pid).anonymous
	small, err := b.growTo(p, 0, p.small, empty)
	if err != nil {
		return err
	}
	full, err := b.growTo(p, p.small, p.size, empty)
	if err != nil {
		return err
	}
	b.add(figure{Row: p.row + "-create", Value: full.rate, Floor: small.rate,
		Detail: details(cpuDetail(full.cpu), fmt.Sprintf("with %d objects ", p.small)+cpuDetail(small.cpu))})
	b.add(figure{Row: p.row + "-memory", Value: full.memory / kilobyte, Floor: small.memory / kilobyte})
	b.add(figure{Row: p.row + "-page", Value: ms(full.first.wall), Floor: ms(small.first.wall),
		Detail: details(fmt.Sprintf("%.0f KB", float64(full.first.size)/kilobyte), cpuDetail(full.first.cpu),
			fmt.Sprintf("after half of the objects %s, %s", short(full.middle.wall), short(small.middle.wall)))})
	b.addGets(p.row+"-get", full.get, small.get)
	if full.authorized != nil {
		b.addGets(p.row+"-authorized", full.authorized, small.authorized)
	}
	b.add(figure{Row: p.row + "-lag", Value: ms(full.lag), Floor: ms(small.lag),
		Detail: fmt.Sprintf("p99 %s, %s", short(full.highLag), short(small.highLag))})
	return b.restartWith(p, empty)
}

func (b *bench) addGets(row string, full, small *outcome) {
	b.add(figure{Row: row, Value: ms(full.percentile(50)), Floor: ms(small.percentile(50)),
		Detail: fmt.Sprintf("p99 %s, %s, %s, %s", short(full.percentile(99)), short(small.percentile(99)),
			cpuDetail(full.cpuEach()), short(small.cpuEach()))})
}

// growTo creates the objects with the numbers from from to to, and measures.
func (b *bench) growTo(p *population, from, to int, empty int64) (*atSize, error) {
	before := treeUsage(b.server.pid)
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: to - from, limit: scaleLimit,
		prepare: func(i int, r *request) {
			object := p.object(from + i)
			*r = *post(object.collection, object.body)
		}}.run(b.server)
	if err != nil {
		return nil, err
	}
	if o.done < to-from {
		return nil, fmt.Errorf("%d of %d objects were made; %s", o.done, to-from, failures(o))
	}
	b.awaitIdle()
	time.Sleep(2 * settleTime)
	after := treeUsage(b.server.pid)
	s := &atSize{
		rate: o.rate(), cpu: (after.cpu - before.cpu) / time.Duration(to-from),
		memory: float64(after.anonymous-empty) / float64(to),
	}
	const most = 50
	page := &request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", p.list, pageLimit), accept: jsonType}
	if s.first, err = repeat(b.server, page, most, listTime); err != nil {
		return nil, err
	}
	if s.middle, err = b.middlePage(p.list, to/p.every, most); err != nil {
		return nil, err
	}
	if s.get, err = gets(b.server, func(i int) string { return p.listed(i*stride, to).path() }); err != nil {
		return nil, err
	}
	if p.readable != "" {
		reader := *b.server
		reader.bearer = "Bearer " + readerToken
		if s.authorized, err = gets(&reader, func(int) string { return p.readable }); err != nil {
			return nil, err
		}
	}
	s.lag, s.highLag, err = b.oneWatcher(p, to)
	return s, err
}

// gets requests one object after the other.
func gets(t *target, path func(i int) string) (*outcome, error) {
	const count = 2000
	o, err := plan{inFlight: 1, connections: 1, count: count, limit: writeTime, prepare: func(i int, r *request) {
		*r = request{method: http.MethodGet, path: path(i), accept: jsonType}
	}}.run(t)
	if err == nil && o.failed > 0 {
		err = errors.New(failures(o))
	}
	return o, err
}

// tokenStart is the beginning of every continue token: {"v": in base64.
const tokenStart = "eyJ2Ijo"

// middlePage measures the page after half of the objects. It requests the pages before as protobuf, for which the
// server does not have to cache anything.
func (b *bench) middlePage(path string, objects, most int) (*timing, error) {
	stride := min(5000, objects/2)
	token := ""
	for done := 0; done < objects/2; done += stride {
		a, err := b.call(
			&request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d%s", path, stride, token), accept: protobufType},
		)
		if err != nil {
			return nil, err
		}
		start := bytes.Index(a.body, []byte(tokenStart))
		if start < 0 {
			return nil, errors.New("a page without a continue token")
		}
		text := a.body[start:]
		if end := bytes.IndexFunc(text, notBase64); end >= 0 {
			text = text[:end]
		}
		token = "&continue=" + string(text)
	}
	return repeat(
		b.server,
		&request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d%s", path, pageLimit, token), accept: jsonType}, most,
		listTime,
	)
}

func notBase64(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// oneWatcher measures the time from a write until a watcher of the list has its event, with one write at a time.
func (b *bench) oneWatcher(p *population, objects int) (p50, p99 time.Duration, err error) {
	const writes = 300
	a, err := b.call(&request{method: http.MethodGet, path: p.list + "?limit=1", accept: jsonType})
	if err != nil {
		return 0, 0, err
	}
	version, err := listVersion(a.body)
	if err != nil {
		return 0, 0, err
	}
	f := newFanOut(1, writes, p.list+"?watch=true&resourceVersion="+version)
	f.inFlight = 1
	f.emit = func(i int, r *request) {
		body := []byte(`{"metadata":{"annotations":{"sent":"` + mark + strings.Repeat("0", markDigits) + `"}}}`)
		stamp(body, bytes.Index(body, []byte(mark)))
		*r = request{
			method: http.MethodPatch, path: p.listed(i*stride, objects).path(), accept: jsonType,
			contentType: "application/merge-patch+json", body: body,
		}
	}
	d, err := f.run(b.server)
	if err != nil {
		return 0, 0, err
	}
	return d.lagAt(50), d.lagAt(99), nil
}

// updates returns requests that update an object and have the time in it.
func updates(path string, name func(i int) string) func(i int, r *request) {
	return func(i int, r *request) {
		body, at := eventMap(name(i))
		stamp(body, at)
		*r = request{method: http.MethodPut, path: path + "/" + name(i), accept: jsonType, contentType: jsonType, body: body}
	}
}

// restartWith measures a start on the data, and the first page after it, for which the objects are loaded. empty is
// the server's memory without objects.
func (b *bench) restartWith(p *population, empty int64) error {
	if err := b.instance.restart(b.ctx); err != nil {
		return err
	}
	b.add(
		figure{Row: p.row + "-start", Value: ms(b.instance.ready), Detail: cpuDetail(treeUsage(b.server.pid).cpu)},
	)
	time.Sleep(settleTime)
	before := treeUsage(b.server.pid)
	begin := time.Now()
	if _, err := b.call(
		&request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", p.list, pageLimit), accept: jsonType},
	); err != nil {
		return err
	}
	took := time.Since(begin)
	time.Sleep(settleTime)
	after := treeUsage(b.server.pid)
	b.add(figure{Row: p.row + "-load", Value: ms(took), Detail: details(cpuDetail(after.cpu-before.cpu),
		fmt.Sprintf("%.2f KB an object then", float64(after.anonymous-empty)/float64(p.size)/kilobyte))})
	return b.streamAll(p, after.anonymous)
}

// streamAll measures a list of all objects without a limit: its time, and how much more memory than before the server
// uses at most meanwhile.
func (b *bench) streamAll(p *population, before int64) error {
	most, done, stopped := int64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most = max(most, treeUsage(b.server.pid).anonymous)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t, err := repeat(b.server, &request{method: http.MethodGet, path: p.list, accept: jsonType}, 1, 0)
	close(done)
	<-stopped
	if err != nil {
		return err
	}
	time.Sleep(3 * settleTime)
	b.add(figure{Row: p.row + "-stream", Value: float64(most-before) / megabyte,
		Detail: details(fmt.Sprintf("%.0f MB in %s", float64(t.size)/megabyte, short(t.wall)), cpuDetail(t.cpu),
			fmt.Sprintf("%.0f MB when idle again", float64(treeUsage(b.server.pid).anonymous-before)/megabyte))})
	return nil
}

const (
	// watchersOfOne is the number of watchers, each of one object.
	watchersOfOne = 20_000
	// unwatched is the number of objects without a watcher.
	unwatched = 2_000
)

// eachWatched returns the name of the watched object i, unwatchedName that of object i without a watcher.
func eachWatched(i int) string   { return fmt.Sprintf("each-%05d", i*stride%watchersOfOne) }
func unwatchedName(i int) string { return fmt.Sprintf("quiet-%05d", i%unwatched) }

// watchEach measures watchers of one object each, and the cost of a write that does not concern any of these watchers.
func (b *bench) watchEach() error {
	if err := b.fresh(); err != nil {
		return err
	}
	ns, err := b.namespace("each")
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	writes := plan{inFlight: inFlight, connections: b.options.connections, count: watchersOfOne + unwatched,
		limit: writeTime, prepare: func(i int, r *request) {
			name := unwatchedName(i)
			if i < watchersOfOne {
				name = eachWatched(i)
			}
			body, _ := eventMap(name)
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: body}
		}}
	if o, err := writes.run(b.server); err != nil || o.done < writes.count {
		return errors.Join(err, errors.New("the objects were not made"))
	}
	// Objects that nobody watches.
	writes.count, writes.prepare = watchersOfOne, updates(path, unwatchedName)
	alone, err := writes.run(b.server)
	if err != nil {
		return err
	}
	few, withFew, err := b.watchOneEach(path, watchersOfOne/tenth, writes)
	if err != nil {
		return err
	}
	half, withHalf, err := b.watchOneEach(path, watchersOfOne/2, writes)
	if err != nil {
		return err
	}
	all, withAll, err := b.watchOneEach(path, watchersOfOne, writes)
	if err != nil {
		return err
	}
	b.add(figure{Row: "watch-each-cpu", Value: ms(withAll.cpuEach()), Floor: ms(withFew.cpuEach()),
		Detail: fmt.Sprintf("%s without watchers, %s with half of them, %s with an event for one", short(alone.cpuEach()),
			short(withHalf.cpuEach()), short(all.cpuOf(watchersOfOne)))})
	b.add(figure{Row: "watch-each-lag", Value: ms(all.lagAt(50)), Floor: ms(few.lagAt(50)),
		Detail: fmt.Sprintf("p99 %s, with half of them %s and %s, a tenth p99 %s, %s made", short(all.lagAt(99)),
			short(half.lagAt(50)), short(half.lagAt(99)), short(few.lagAt(99)), perSecond.write(all.rate()))})
	if b.server.pid == 0 {
		return nil
	}
	if err := b.freshFloor(); err != nil {
		return err
	}
	floor, err := b.fanOutFloor(watchersOfOne, 1, all.bytes, 0)
	if err != nil {
		return err
	}
	b.add(figure{Row: "watch-each-memory", Value: float64(all.opened) / kilobyte, Floor: float64(floor.opened) / kilobyte,
		Detail: fmt.Sprintf("%.1f KB after the events, %.1f KB each of half, %.1f KB each of a tenth of them",
			float64(all.after)/kilobyte, float64(half.opened)/kilobyte, float64(few.opened)/kilobyte)})
	return nil
}

// cpuOf returns the processor time of the fan-out divided by n writes.
func (d *delivered) cpuOf(writes int) time.Duration {
	return d.cpu * time.Duration(d.events) / time.Duration(writes)
}

// watchOneEach opens watches of one object each, makes writes that concern none of them, and updates every object
// once, watched or not.
func (b *bench) watchOneEach(path string, watchers int, writes plan) (*delivered, *outcome, error) {
	a, err := b.call(&request{method: http.MethodGet, path: path + "?limit=1", accept: jsonType})
	if err != nil {
		return nil, nil, err
	}
	version, err := listVersion(a.body)
	if err != nil {
		return nil, nil, err
	}
	time.Sleep(settleTime)
	f := newFanOut(watchers, watchersOfOne, "")
	f.each = 1
	f.watchOf = func(i int) *request {
		w := f.watch
		w.path = path + "?watch=true&resourceVersion=" + version + "&fieldSelector=metadata.name%3D" + eachWatched(i)
		return &w
	}
	var quietly *outcome
	f.opened = func() error {
		quietly, err = writes.run(b.server)
		return err
	}
	// The order is mixed, so that the watched objects are not written first.
	const step = 3001 // has no common divisor with the number of objects
	f.emit = updates(path, func(i int) string { return eachWatched(i * step % watchersOfOne) })
	d, err := f.run(b.server)
	return d, quietly, err
}
