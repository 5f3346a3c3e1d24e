package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The rows in this file show what grows with the number of objects or watchers, and what does not: each figure is
// printed beside the same figure at a tenth of the size, in the column of the floor.

const (
	// Every second object is small, the others are large: the size of their data, in bytes. As returned they have about
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
	objects      int
	rate         float64       // objects created in a second
	cpu          time.Duration // of creating one object
	memory       float64       // bytes for each object
	first        *timing       // a page at the beginning of the list
	middle       *timing       // a page after half of the objects
	lag, highLag time.Duration // from a write to its event, median and 99th percentile
	get          time.Duration // of one object, median
}

// scale measures many small objects of one resource, and a start with them.
func (b *bench) scale() error {
	if b.launcher == nil {
		return errors.New("give --start")
	}
	if err := b.fresh(); err != nil {
		return err
	}
	ns, err := b.namespace("scale")
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	if _, err := b.call(&request{method: http.MethodGet, path: path + "?limit=1", accept: jsonType}); err != nil {
		return err
	}
	time.Sleep(settleTime)
	empty := treeUsage(b.server.pid).anonymous
	all := b.options.objects
	small, err := b.growTo(path, 0, all/tenth, empty)
	if err != nil {
		return err
	}
	full, err := b.growTo(path, all/tenth, all, empty)
	if err != nil {
		return err
	}
	b.add(figure{Row: "scale-create", Value: full.rate, Floor: small.rate,
		Detail: details(fmt.Sprintf("%d objects", all), cpuDetail(full.cpu), "a tenth "+cpuDetail(small.cpu))})
	b.add(figure{Row: "scale-memory", Value: full.memory / kilobyte, Floor: small.memory / kilobyte})
	b.add(figure{Row: "scale-page", Value: ms(full.first.wall), Floor: ms(small.first.wall),
		Detail: details(cpuDetail(full.first.cpu), "after half of the objects "+short(full.middle.wall),
			"a tenth "+short(small.middle.wall))})
	b.add(figure{Row: "scale-get", Value: ms(full.get), Floor: ms(small.get)})
	b.add(figure{Row: "scale-lag", Value: ms(full.lag), Floor: ms(small.lag),
		Detail: fmt.Sprintf("p99 %s, a tenth %s", short(full.highLag), short(small.highLag))})
	return b.restartWith(path, all, empty)
}

// growTo creates the objects with the numbers from from to to, and measures.
func (b *bench) growTo(path string, from, to int, empty int64) (*atSize, error) {
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: to - from, limit: scaleLimit,
		prepare: func(i int, r *request) {
			*r = request{
				method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: scaleObject(from + i),
			}
		}}.run(b.server)
	if err != nil {
		return nil, err
	}
	if o.done < to-from {
		return nil, fmt.Errorf("%d of %d objects were made; %s", o.done, to-from, failures(o))
	}
	time.Sleep(2 * settleTime)
	s := &atSize{
		objects: to, rate: o.rate(), cpu: o.cpuEach(), memory: float64(treeUsage(b.server.pid).anonymous-empty) / float64(to),
	}
	const most = 50
	page := &request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", path, pageLimit), accept: jsonType}
	if s.first, err = repeat(b.server, page, most, listTime); err != nil {
		return nil, err
	}
	if s.middle, err = b.middlePage(path, to, most); err != nil {
		return nil, err
	}
	const gets = 2000
	read, err := plan{inFlight: 1, connections: 1, count: gets, limit: writeTime, prepare: func(i int, r *request) {
		*r = request{method: http.MethodGet, path: path + "/" + scaleName(i*stride%to), accept: jsonType}
	}}.run(b.server)
	if err != nil {
		return nil, err
	}
	s.get = read.percentile(50)
	s.lag, s.highLag, err = b.oneWatcher(path, to)
	return s, err
}

func scaleName(i int) string { return fmt.Sprintf("scale-%07d", i) }

func scaleObject(i int) []byte {
	return configMap(scaleName(i), []int{scaleSmall, scaleLarge}[i%2])
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

// oneWatcher measures the time from a write until a watcher of everything has its event, with one write at a time.
func (b *bench) oneWatcher(path string, objects int) (p50, p99 time.Duration, err error) {
	const writes = 300
	a, err := b.call(&request{method: http.MethodGet, path: path + "?limit=1", accept: jsonType})
	if err != nil {
		return 0, 0, err
	}
	version, err := listVersion(a.body)
	if err != nil {
		return 0, 0, err
	}
	f := newFanOut(1, writes, path+"?watch=true&resourceVersion="+version)
	f.inFlight = 1
	f.emit = updates(path, func(i int) string { return scaleName(i * stride % objects) })
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
func (b *bench) restartWith(path string, objects int, empty int64) error {
	if err := b.instance.restart(b.ctx); err != nil {
		return err
	}
	b.add(figure{Row: "scale-start", Value: ms(b.instance.ready)})
	time.Sleep(settleTime)
	before := treeUsage(b.server.pid)
	begin := time.Now()
	if _, err := b.call(
		&request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", path, pageLimit), accept: jsonType},
	); err != nil {
		return err
	}
	took := time.Since(begin)
	time.Sleep(settleTime)
	after := treeUsage(b.server.pid)
	b.add(figure{Row: "scale-load", Value: ms(took), Detail: details(cpuDetail(after.cpu-before.cpu),
		fmt.Sprintf("%.2f KB an object then", float64(after.anonymous-empty)/float64(objects)/kilobyte))})
	return b.streamAll(path, after.anonymous)
}

// streamAll measures a list of all objects without a limit: its time, and how much more memory than before the server
// uses at most meanwhile.
func (b *bench) streamAll(path string, before int64) error {
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
	t, err := repeat(b.server, &request{method: http.MethodGet, path: path, accept: jsonType}, 1, 0)
	close(done)
	<-stopped
	if err != nil {
		return err
	}
	time.Sleep(3 * settleTime)
	b.add(figure{Row: "scale-stream", Value: float64(most-before) / megabyte,
		Detail: details(fmt.Sprintf("%.0f MB in %s", float64(t.size)/megabyte, short(t.wall)), cpuDetail(t.cpu),
			fmt.Sprintf("%.0f MB when idle again", float64(treeUsage(b.server.pid).anonymous-before)/megabyte))})
	return nil
}

const (
	// watchersOfOne is the number of watchers, each of one object.
	watchersOfOne = 10_000
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
	all, withAll, err := b.watchOneEach(path, watchersOfOne, writes)
	if err != nil {
		return err
	}
	b.add(figure{Row: "watch-each-cpu", Value: ms(withAll.cpuEach()), Floor: ms(withFew.cpuEach()),
		Detail: fmt.Sprintf("%s without watchers, %s with an event for one", short(alone.cpuEach()),
			short(all.cpuOf(watchersOfOne)))})
	b.add(figure{Row: "watch-each-lag", Value: ms(all.lagAt(50)), Floor: ms(few.lagAt(50)),
		Detail: details(fmt.Sprintf("p99 %s, a tenth %s", short(all.lagAt(99)), short(few.lagAt(99))), fmt.Sprintf("%s made",
			perSecond.write(all.rate())))})
	if b.server.pid != 0 {
		b.add(figure{Row: "watch-each-memory", Value: float64(all.opened) / kilobyte,
			Detail: fmt.Sprintf("%.1f KB after the events", float64(all.after)/kilobyte)})
	}
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
