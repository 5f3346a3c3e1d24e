package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startUp measures starts on empty data, and the memory afterwards.
func (b *bench) startUp() error {
	const times = 5
	if b.launcher == nil {
		if b.server.pid != 0 {
			b.addIdle("as it was found")
		}
		return nil
	}
	var ready []time.Duration
	for range times {
		if err := b.fresh(); err != nil {
			return err
		}
		ready = append(ready, b.instance.ready)
	}
	used := treeUsage(b.server.pid)
	slices.Sort(ready)
	b.add(
		figure{
			Row: "start", Value: ms(ready[times/2]),
			Detail: details(fmt.Sprintf("%s to %s", short(ready[0]), short(ready[times-1])), cpuDetail(used.cpu)),
		},
	)
	time.Sleep(settleTime)
	b.addIdle("")
	return nil
}

// addIdle adds the rows of an idle server: its memory and the size of its program.
func (b *bench) addIdle(detail string) {
	used := treeUsage(b.server.pid)
	b.add(figure{Row: "memory-idle", Value: float64(used.anonymous) / megabyte, Detail: detail})
	b.add(figure{Row: "binary", Value: float64(used.binary) / megabyte, Detail: "the largest program of the server"})
}

// createPods creates the pods and measures this.
func (b *bench) createPods() error {
	if err := b.ensure(); err != nil {
		return err
	}
	ns, err := b.namespace("pods")
	if err != nil {
		return err
	}
	if b.bodies == nil {
		b.bodies = podBodies(b.options.pods)
	}
	path := "/api/v1/namespaces/" + ns + "/pods"
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: len(b.bodies), limit: 5 * time.Minute,
		prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: b.bodies[i]}
		}}.run(b.server)
	if err != nil {
		return err
	}
	if o.done < len(b.bodies) {
		return fmt.Errorf("%d of %d pods were created; %s", o.done, len(b.bodies), failures(o))
	}
	b.pods = ns
	asJSON, stored, err := b.podSizes()
	if err != nil {
		return err
	}
	floor, err := b.floor.commitsAlone(stored)
	if err != nil {
		return err
	}
	b.add(figure{Row: "create-pods", Value: o.rate(), Floor: floor.Rate,
		Detail: details(latency(o), cpuDetail(o.cpuEach()), fmt.Sprintf("sent %d B, returned %d B", len(b.bodies[0]),
			asJSON))})
	return b.postFloor(len(b.bodies[0]), asJSON)
}

// podSizes returns the size of a pod as JSON and as protobuf, the format of stored pods.
func (b *bench) podSizes() (asJSON, asProtobuf int, err error) {
	for _, f := range []struct {
		accept string
		size   *int
	}{{jsonType, &asJSON}, {protobufType, &asProtobuf}} {
		a, err := b.call(&request{method: http.MethodGet, path: b.podPath(0), accept: f.accept})
		if err != nil {
			return 0, 0, err
		}
		*f.size = len(a.body)
	}
	return asJSON, asProtobuf, nil
}

func (b *bench) podPath(i int) string { return "/api/v1/namespaces/" + b.pods + "/pods/" + podName(i) }

// needPods creates the pods unless they exist.
func (b *bench) needPods() error {
	if b.pods != "" {
		return nil
	}
	return b.createPods()
}

// listing is one way to list the pods.
type listing struct {
	key, query, accept string
	gzip               bool
	pods               func(all int) int // the number of expected pods
	most               int               // the largest number of repetitions
}

const listTime = 8 * time.Second

func (b *bench) listings() []listing {
	all := func(n int) int { return n }
	page := func(n int) int { return min(n, 500) }
	group := func(n int) int { // the pods of the first group
		groups := max(1, n/groupSize)
		return (n + groups - 1) / groups
	}
	const partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	return []listing{
		{key: "list-json", query: "resourceVersion=0", accept: jsonType, pods: all, most: 15},
		{key: "list-protobuf", query: "resourceVersion=0", accept: protobufType, pods: all, most: 15},
		{key: "list-table", query: "resourceVersion=0", accept: tableType, pods: all, most: 15},
		{key: "list-metadata", query: "resourceVersion=0", accept: partial, pods: all, most: 15},
		{key: "list-consistent", query: "", accept: jsonType, pods: all, most: 15},
		{key: "list-gzip", query: "resourceVersion=0", accept: jsonType, gzip: true, pods: all, most: 15},
		{key: "list-page", query: "limit=500", accept: jsonType, pods: page, most: 100},
		{
			key: "list-selector", query: "labelSelector=bench/group%3D" + podGroup(0, b.options.pods), accept: jsonType,
			pods: group, most: 300,
		},
	}
}

func (b *bench) list(l listing) error {
	if err := b.needPods(); err != nil {
		return err
	}
	r := &request{method: http.MethodGet, path: "/api/v1/namespaces/" + b.pods + "/pods?" + l.query, accept: l.accept}
	if l.gzip {
		r.acceptEncoding = "gzip"
	}
	a, err := b.call(r) // this also warms up the server
	if err != nil {
		return err
	}
	plain, err := l.check(a, b.options.pods)
	if err != nil {
		return err
	}
	a.body = nil
	return b.timeList(l.key, r, l.most, func(size int) string {
		if l.gzip {
			return fmt.Sprintf("%.1f MB for %.1f MB", float64(size)/megabyte, float64(plain)/megabyte)
		}
		return fmt.Sprintf("%.1f MB", float64(size)/megabyte)
	})
}

// timeList adds the row of a list. The floor is the floor server with the same number of bytes.
func (b *bench) timeList(row string, r *request, most int, describe func(size int) string) error {
	t, err := repeat(b.server, r, most, listTime)
	if err != nil {
		return err
	}
	bare := &request{method: http.MethodGet, path: "/bytes?n=" + strconv.Itoa(t.size), accept: r.accept}
	if _, err := repeat(&b.floor.target, bare, 1, 0); err != nil { // this creates the bytes
		return err
	}
	floor, err := repeat(&b.floor.target, bare, most, listTime)
	if err != nil {
		return err
	}
	b.add(figure{Row: row, Value: ms(t.wall), Floor: ms(floor.wall),
		Detail: details(describe(t.size), fmt.Sprintf("best of %d %s", t.times, short(t.best)), cpuDetail(t.cpu),
			"floor "+cpuDetail(floor.cpu))})
	return nil
}

// check returns the size of the response without compression, and an error if the response has the wrong content.
func (l listing) check(a *answer, all int) (int, error) {
	body := a.body
	if l.gzip != (a.header["content-encoding"] == "gzip") {
		return 0, fmt.Errorf("content-encoding %q", a.header["content-encoding"])
	}
	if l.gzip {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return 0, err
		}
	}
	if n, want := bytes.Count(body, []byte(podMark)), l.pods(all); n < want {
		return 0, fmt.Errorf("%d pods came, not %d", n, want)
	}
	return len(body), nil
}

// memoryOfPods measures the memory with the pods, after lists in both encodings.
func (b *bench) memoryOfPods() error {
	if err := b.needPods(); err != nil {
		return err
	}
	if b.server.pid == 0 {
		return errors.New("give --pid or --start")
	}
	for _, accept := range []string{jsonType, protobufType} {
		if _, err := repeat(
			b.server,
			&request{method: http.MethodGet, path: "/api/v1/namespaces/" + b.pods + "/pods?resourceVersion=0", accept: accept},
			1, 0,
		); err != nil {
			return err
		}
	}
	return b.memory("memory-pods")
}

func (b *bench) memory(row string) error {
	if b.server == nil || b.server.pid == 0 {
		return errors.New("give --pid or --start")
	}
	time.Sleep(settleTime)
	b.add(figure{Row: row, Value: float64(treeUsage(b.server.pid).anonymous) / megabyte})
	return nil
}

func (b *bench) memoryAfterLoad() error {
	if err := b.needPods(); err != nil {
		return err
	}
	return b.memory("memory-load")
}

const getTime = 5 * time.Second

// get reads pods one by one, evenly distributed over all of them.
func (b *bench) get(row, accept string) error {
	if err := b.needPods(); err != nil {
		return err
	}
	a, err := b.call(&request{method: http.MethodGet, path: b.podPath(0), accept: accept})
	if err != nil {
		return err
	}
	paths := make([]string, b.options.pods)
	for i := range paths {
		paths[i] = b.podPath(i * stride % len(paths))
	}
	return b.timeGets(row, accept, paths, len(a.body))
}

// stride is a prime number, so that two consecutive requests read pods that are far from each other.
const stride = 7919

// timeGets adds the row of reading objects of a size one by one.
func (b *bench) timeGets(row, accept string, paths []string, size int) error {
	p := plan{inFlight: inFlight, connections: b.options.connections, limit: getTime, prepare: func(i int, r *request) {
		*r = request{method: http.MethodGet, path: paths[i%len(paths)], accept: accept}
	}}
	o, err := p.run(b.server)
	if err != nil {
		return err
	}
	floor, err := b.bareGets(size)
	if err != nil {
		return err
	}
	b.add(figure{Row: row, Value: o.rate(), Floor: floor.rate(),
		Detail: details(latency(o), cpuDetail(o.cpuEach()), fmt.Sprintf("%d B", size), "floor "+cpuDetail(floor.cpuEach()),
			failures(o))})
	return nil
}

// bareGets reads size bytes from the floor server as often as get does.
func (b *bench) bareGets(size int) (*outcome, error) {
	path := "/bytes?n=" + strconv.Itoa(size)
	return plan{inFlight: inFlight, connections: b.options.connections, limit: getTime, prepare: func(_ int, r *request) {
		*r = request{method: http.MethodGet, path: path, accept: jsonType}
	}}.run(&b.floor.target)
}

const writeTime = 15 * time.Second

// patchStatus patches the status of pods, with the manager that has written it before.
func (b *bench) patchStatus() error {
	if err := b.needPods(); err != nil {
		return err
	}
	const pods, patches, variants = 1000, 10_000, 60
	targets := min(pods, b.options.pods)
	paths := make([]string, targets)
	for i := range paths {
		paths[i] = b.podPath(i) + "/status?fieldManager=bench-kubelet"
	}
	bodies := make([][]byte, variants)
	for i := range bodies {
		bodies[i] = statusPatch(i)
	}
	patch := func(count int) (*outcome, error) {
		return plan{inFlight: inFlight, connections: b.options.connections, count: count, limit: writeTime,
			prepare: func(i int, r *request) {
				// Each round over the pods sends the next variant, so that every patch changes something.
				*r = request{
					method: http.MethodPatch, path: paths[i%targets], accept: jsonType,
					contentType: "application/strategic-merge-patch+json", body: bodies[(count+i/targets)%variants],
				}
			}}.run(b.server)
	}
	if _, err := patch(targets); err != nil {
		return err
	}
	o, err := patch(patches)
	if err != nil {
		return err
	}
	_, stored, err := b.podSizes()
	if err != nil {
		return err
	}
	return b.addWrites("patch-status", o, stored)
}

// addWrites adds a row of writes. The floor is the same number of commits alone.
func (b *bench) addWrites(row string, o *outcome, stored int) error {
	floor, err := b.floor.commitsAlone(stored)
	if err != nil {
		return err
	}
	if o.done == 0 {
		return errors.New(failures(o))
	}
	b.add(
		figure{
			Row: row, Value: o.rate(), Floor: floor.Rate, Detail: details(latency(o), cpuDetail(o.cpuEach()), failures(o)),
		},
	)
	return nil
}

const smallData = 200

// createConfigMaps creates small objects.
func (b *bench) createConfigMaps() error {
	const count = 10_000
	bodies := make([][]byte, count)
	for i := range bodies {
		bodies[i] = configMap(fmt.Sprintf("settings-%06d", i), 0)
		bodies[i] = configMap(fmt.Sprintf("settings-%06d", i), max(0, smallData-len(bodies[i])))
	}
	return b.writeConfigMaps("create-configmaps", count, func(path string, i int, r *request) {
		*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: bodies[i]}
	})
}

// applyConfigMaps applies objects that do not exist yet.
func (b *bench) applyConfigMaps() error {
	const count = 5_000
	names, bodies := make([]string, count), make([][]byte, count)
	for i := range bodies {
		names[i] = fmt.Sprintf("applied-%06d", i)
		bodies[i] = configMap(names[i], smallData)
	}
	return b.writeConfigMaps("apply-configmaps", count, func(path string, i int, r *request) {
		*r = request{
			method: http.MethodPatch, path: path + "/" + names[i] + "?fieldManager=bench&force=true", accept: jsonType,
			contentType: "application/apply-patch+yaml", body: bodies[i],
		}
	})
}

// applyChanges applies existing objects, each time with another value of one field, with the manager that has created
// them.
func (b *bench) applyChanges(row, resource string, stored int, body func(name string, variant int) []byte) error {
	if err := b.ensure(); err != nil {
		return err
	}
	ns, err := b.namespace("applied")
	if err != nil {
		return err
	}
	const objects, changes, variants = 500, 5_000, 20
	bodies := make([][variants][]byte, objects)
	paths := make([]string, objects)
	for i := range bodies {
		name := fmt.Sprintf("existing-%06d", i)
		paths[i] = strings.Replace(resource, "{ns}", ns, 1) + "/" + name + "?fieldManager=bench"
		for v := range bodies[i] {
			bodies[i][v] = body(name, v)
		}
	}
	apply := func(count, first int) (*outcome, error) {
		return plan{inFlight: inFlight, connections: b.options.connections, count: count, limit: writeTime,
			prepare: func(i int, r *request) {
				*r = request{method: http.MethodPatch, path: paths[i%objects], accept: jsonType,
					contentType: "application/apply-patch+yaml", body: bodies[i%objects][(first+i/objects)%variants]}
			}}.run(b.server)
	}
	if _, err := apply(objects, 0); err != nil {
		return err
	}
	o, err := apply(changes, 1)
	if err != nil {
		return err
	}
	return b.addWrites(row, o, stored)
}

func (b *bench) writeConfigMaps(row string, count int, prepare func(path string, i int, r *request)) error {
	if err := b.ensure(); err != nil {
		return err
	}
	ns, err := b.namespace("maps")
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	o, err := plan{
		inFlight: inFlight, connections: b.options.connections, count: count, limit: writeTime,
		prepare: func(i int, r *request) { prepare(path, i, r) },
	}.run(b.server)
	if err != nil {
		return err
	}
	const stored = 350 // bytes of such a ConfigMap as protobuf, with its managedFields
	return b.addWrites(row, o, stored)
}

func (b *bench) watchFew() error {
	d, floor, err := b.fanOut("few", 200, 2000, 0)
	if err != nil {
		return err
	}
	b.addFanOut("watch-200", d, floor)
	return nil
}

// watchPaced measures the processor time for one event and one watcher if the events come one after the other. At full
// rate several events are sent together, which costs less. The time includes the writes that cause the events.
func (b *bench) watchPaced() error {
	const watchers, pace, events = 200, 800, 2400
	d, floor, err := b.fanOut("paced", watchers, events, pace)
	if err != nil {
		return err
	}
	if b.server.pid == 0 {
		return errors.New("give --pid or --start")
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	b.add(figure{Row: "watch-paced", Value: us(d.cpu), Floor: us(floor.cpu), Detail: details(
		fmt.Sprintf("%.0f events made in a second, floor %.0f", d.rate()/watchers, floor.rate()/watchers),
		fmt.Sprintf("lag p50 %s, p99 %s", short(d.lagAt(50)), short(d.lagAt(99))), fmt.Sprintf("%d B", d.bytes))})
	return nil
}

func (b *bench) watchMany() error {
	const watchers = 2000
	d, floor, err := b.fanOut("many", watchers, 300, 0)
	if err != nil {
		return err
	}
	b.addFanOut("watch-2000", d, floor)
	if b.server.pid == 0 {
		return nil
	}
	b.add(figure{Row: "watch-memory", Value: float64(d.opened) / kilobyte, Floor: float64(floor.opened) / kilobyte,
		Detail: fmt.Sprintf("%.1f KB after the events, floor %.1f KB", float64(d.after)/kilobyte,
			float64(floor.after)/kilobyte)})
	return nil
}

func (b *bench) addFanOut(row string, d, floor *delivered) {
	cpu := func(d *delivered) string {
		if c := cpuDetail(d.cpu); c != "" {
			return c + " each"
		}
		return ""
	}
	b.add(figure{Row: row, Value: d.rate(), Floor: floor.rate(), Detail: details(
		fmt.Sprintf("lag p50 %s, p99 %s", short(d.lagAt(50)), short(d.lagAt(99))), cpu(d), fmt.Sprintf("%d B", d.bytes),
		fmt.Sprintf("floor lag p99 %s", short(floor.lagAt(99))), cpu(floor))})
}

const streamsPerConnection = 100

// fanOutRounds is the number of repetitions of a fan-out, because one lasts less than a second.
const fanOutRounds = 3

// fanOut opens watches of a namespace and creates events there, on a new server and on a new floor server. It returns
// the median round of each. The memory is that of the first round.
func (b *bench) fanOut(purpose string, watchers, events int, pace float64) (server, floor *delivered, err error) {
	if err := b.fresh(); err != nil {
		return nil, nil, err
	}
	by := (*delivered).rate
	if pace > 0 {
		by = func(d *delivered) float64 { return float64(d.cpu) }
	}
	if server, err = median(
		by, func() (*delivered, error) { return b.fanOutServer(purpose, watchers, events, pace) },
	); err != nil {
		return nil, nil, err
	}
	if err := b.freshFloor(); err != nil {
		return nil, nil, err
	}
	floor, err = median(by, func() (*delivered, error) { return b.fanOutFloor(watchers, events, server.bytes, pace) })
	return server, floor, err
}

// median returns the middle one of several rounds, ordered by a figure.
func median(by func(*delivered) float64, round func() (*delivered, error)) (*delivered, error) {
	var all []*delivered
	for range fanOutRounds {
		d, err := round()
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	opened, after := all[0].opened, all[0].after
	slices.SortFunc(all, func(a, b *delivered) int { return cmp.Compare(by(a), by(b)) })
	d := all[len(all)/2]
	d.opened, d.after = opened, after
	return d, nil
}

func (b *bench) fanOutServer(purpose string, watchers, events int, pace float64) (*delivered, error) {
	ns, err := b.namespace(purpose)
	if err != nil {
		return nil, err
	}
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	a, err := b.call(&request{method: http.MethodGet, path: path + "?limit=1", accept: jsonType})
	if err != nil {
		return nil, err
	}
	version, err := listVersion(a.body)
	if err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	f := newFanOut(watchers, events, path+"?watch=true&resourceVersion="+version)
	f.pace = pace
	bodies, at := make([][]byte, events), make([]int, events)
	for i := range bodies {
		bodies[i], at[i] = eventMap(fmt.Sprintf("event-%06d", i))
	}
	f.emit = func(i int, r *request) {
		stamp(bodies[i], at[i])
		*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: bodies[i]}
	}
	return f.run(b.server)
}

// fanOutFloor runs the same fan-out with events of size bytes on the floor server.
func (b *bench) fanOutFloor(watchers, events, size int, pace float64) (*delivered, error) {
	f := newFanOut(watchers, events, "/watch")
	f.pace = pace
	bodies, at := make([][]byte, events), 0
	for i := range bodies {
		bodies[i], at = eventMap("")
		bodies[i] = append(bodies[i], bytes.Repeat([]byte{' '}, max(0, size-1-len(bodies[i])))...)
		bodies[i] = append(bodies[i], '\n')
	}
	f.emit = func(i int, r *request) {
		stamp(bodies[i], at)
		*r = request{method: http.MethodPost, path: "/emit", accept: jsonType, contentType: jsonType, body: bodies[i]}
	}
	return f.run(&b.floor.target)
}

func newFanOut(watchers, events int, path string) *fanOut {
	return &fanOut{
		watchers: watchers, perConnection: streamsPerConnection, events: events, inFlight: inFlight,
		watch: request{method: http.MethodGet, path: path, accept: jsonType},
	}
}

// freshFloor starts the floor server again, so that its memory belongs to the next measurement.
func (b *bench) freshFloor() error {
	dir := b.floor.dir
	b.floor.stop()
	floor, err := startFloor(dir)
	if err != nil {
		return err
	}
	b.floor = floor
	time.Sleep(settleTime)
	return nil
}

// listVersion returns the resourceVersion of a list, which is in front of its items.
func listVersion(list []byte) (string, error) {
	_, after, ok := bytes.Cut(list, []byte(`"resourceVersion":"`))
	if v, _, closed := bytes.Cut(after, []byte{'"'}); ok && closed && len(v) > 0 {
		return string(v), nil
	}
	return "", errors.New("a list without resourceVersion")
}

// memoryOfConfigMaps measures the memory of each of many small objects.
func (b *bench) memoryOfConfigMaps() error {
	const count, size = 60_000, 400
	if err := b.fresh(); err != nil {
		return err
	}
	if b.server.pid == 0 {
		return errors.New("give --pid or --start")
	}
	ns, err := b.namespace("memory")
	if err != nil {
		return err
	}
	time.Sleep(settleTime)
	before := treeUsage(b.server.pid)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	empty := len(configMap("memory-000000", 0))
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: count, limit: 5 * time.Minute,
		prepare: func(i int, r *request) {
			*r = request{
				method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType,
				body: configMap(fmt.Sprintf("memory-%06d", i), size-empty),
			}
		}}.run(b.server)
	if err != nil {
		return err
	}
	if o.done == 0 {
		return errors.New(failures(o))
	}
	time.Sleep(2 * settleTime)
	grown := float64(treeUsage(b.server.pid).anonymous - before.anonymous)
	b.add(figure{Row: "memory-configmaps", Value: grown / float64(o.done) / kilobyte,
		Detail: details(fmt.Sprintf("%.0f MB", grown/megabyte), fmt.Sprintf("created at %s", perSecond.write(o.rate())),
			failures(o))})
	return nil
}

// addFloor adds a row to the table of floors.
func (b *bench) addFloor(name string, value float64, detail string) {
	b.report.Floors = append(b.report.Floors, figure{Name: name, Unit: perSecond.String(), Value: value, Detail: detail})
}

// postFloor measures creates that consist only of HTTP and the commit.
func (b *bench) postFloor(sent, returned int) error {
	body := bytes.Repeat([]byte{'x'}, sent)
	path := "/commit?n=" + strconv.Itoa(returned)
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: 10_000, limit: writeTime,
		prepare: func(_ int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: body}
		}}.run(&b.floor.target)
	if err != nil {
		return err
	}
	b.addFloor(
		fmt.Sprintf("POST of %d B, a synced Pebble commit, answer of %d B", sent, returned), o.rate(),
		details(latency(o), cpuDetail(o.cpuEach())),
	)
	return nil
}

// bareFloors measures the floors that do not belong to a row.
func (b *bench) bareFloors() error {
	const smallest = 100
	gets, err := b.bareGets(smallest)
	if err != nil {
		return err
	}
	b.addFloor(fmt.Sprintf("GET of %d B", smallest), gets.rate(), details(latency(gets), cpuDetail(gets.cpuEach())))
	const pod, configMap = 5000, 350
	for _, size := range []int{pod, configMap} {
		c, err := b.floor.commitsAlone(size)
		if err != nil {
			return err
		}
		b.addCommits(fmt.Sprintf("synced Pebble commits of %d B, %d in flight", size, inFlight), c)
	}
	c, err := b.floor.commitsOf("/fdatasync?n=500")
	if err != nil {
		return err
	}
	b.addCommits("fdatasync after a write of 4 KiB, one at a time", c)
	return nil
}

func (b *bench) addCommits(name string, c commits) {
	b.addFloor(name, c.Rate, fmt.Sprintf("p50 %s, p99 %s", short(c.P50), short(c.P99)))
}
