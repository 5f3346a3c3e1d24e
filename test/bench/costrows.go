package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// costRow is an operation whose processor time is measured, on the server and on the floor server.
type costRow struct {
	key, name string
	measure   func(b *bench) (*cost, error)
}

// cost is the processor time of one operation of a server and of its floor.
type cost struct {
	server, floor time.Duration
}

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"

	// Changes go to so many objects, each in turn.
	changedObjects = 500
	costTime       = time.Minute
)

// costRows are the rows of --cost in the order of the table.
func costRows() []costRow {
	return []costRow{
		{"pod-create", "create a Pod, 2.5 KB sent, 6 KB returned", func(b *bench) (*cost, error) {
			return b.creation("Pod", podPath, podBody)
		}},
		{"configmap-create", "create a ConfigMap, 0.2 KB", func(b *bench) (*cost, error) {
			return b.creation("ConfigMap", "/api/v1/namespaces/{ns}/configmaps", func(i int) []byte {
				return configMap(fmt.Sprintf("settings-%06d", i), 120)
			})
		}},
		{"event-create", "create an Event", func(b *bench) (*cost, error) {
			return b.creation("Event", "/api/v1/namespaces/{ns}/events", scheduledEvent)
		}},
		{"custom-create", "create a custom object, 4 KB", func(b *bench) (*cost, error) {
			path, err := b.customPath()
			if err != nil {
				return nil, err
			}
			return b.creation("Thing", path, func(i int) []byte { return customObject("Thing00000", i) })
		}},
		{"configmap-update", "update a ConfigMap", func(b *bench) (*cost, error) {
			return b.change(change{
				kind: "ConfigMap", path: "/api/v1/namespaces/{ns}/configmaps", name: mapName, method: http.MethodPut,
				contentType: jsonType, object: func(i, v int) []byte { return changedMap(mapName(i), v) },
			})
		}},
		{"lease-update", "update a Lease", func(b *bench) (*cost, error) {
			return b.change(change{
				kind: "Lease", path: "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", name: leaseName,
				method: http.MethodPut, contentType: jsonType, object: lease, versioned: true,
			})
		}},
		{"custom-patch", "change a custom object, 4 KB, merge patch", func(b *bench) (*cost, error) {
			path, err := b.customPath()
			if err != nil {
				return nil, err
			}
			return b.change(change{
				kind: "Thing", path: path, name: customName, method: http.MethodPatch, contentType: mergePatch,
				create: func(i int) []byte { return customObject("Thing00000", i) },
				object: func(_, v int) []byte { return fmt.Appendf(nil, `{"spec":{"port":%d}}`, 8080+v) },
			})
		}},
		{"status-strategic", "patch the status of a Pod, strategic merge", func(b *bench) (*cost, error) {
			return b.change(podStatus(strategicPatch, func(_, v int) []byte { return statusPatch(v) }))
		}},
		{"status-merge", "patch the status of a Pod, merge patch", func(b *bench) (*cost, error) {
			return b.change(podStatus(mergePatch, func(_, v int) []byte { return statusPatch(v) }))
		}},
		{"status-apply", "apply the status of a Pod", func(b *bench) (*cost, error) {
			return b.change(podStatus(applyPatch, func(i, v int) []byte {
				// Apply configurations of Go clients leave out what is not set.
				status := strings.ReplaceAll(string(statusPatch(v)), `"lastProbeTime":null,`, "")
				return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + podName(i) + `"},` + status[1:])
			}))
		}},
		{"deployment-apply", "apply a Deployment, 1.5 KB", func(b *bench) (*cost, error) {
			name := func(i int) string { return fmt.Sprintf("applied-%06d", i) }
			return b.change(change{
				kind: "Deployment", path: "/apis/apps/v1/namespaces/{ns}/deployments", name: name, method: http.MethodPatch,
				contentType: applyPatch, object: func(i, v int) []byte { return deployment(name(i), v) },
			})
		}},
		{"pod-bind", "bind a Pod", func(b *bench) (*cost, error) {
			return b.post("Binding", "/binding", func(i int) []byte {
				return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},`+
					`"target":{"kind":"Node","name":"node-%04d"}}`, podName(i), i%1000)
			})
		}},
		{"pod-evict", "evict a Pod", func(b *bench) (*cost, error) {
			return b.post("Eviction", "/eviction", func(i int) []byte {
				return fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s"},`+
					`"deleteOptions":{"gracePeriodSeconds":0}}`, podName(i))
			})
		}},
		{"pod-get-json", "get a Pod, JSON", func(b *bench) (*cost, error) { return b.costOfGets(jsonType) }},
		{"pod-get-protobuf", "get a Pod, protobuf", func(b *bench) (*cost, error) { return b.costOfGets(protobufType) }},
		{"list-json", "list the Pods, JSON", func(b *bench) (*cost, error) {
			return b.costOfList("resourceVersion=0", jsonType)
		}},
		{"list-protobuf", "list the Pods, protobuf", func(b *bench) (*cost, error) {
			return b.costOfList("resourceVersion=0", protobufType)
		}},
		{"list-table", "list the Pods as Table", func(b *bench) (*cost, error) {
			return b.costOfList("resourceVersion=0", tableType)
		}},
		{"watch-burst", "an event at one of 200 watchers, 64 writes in flight", func(b *bench) (*cost, error) {
			return b.costOfWatch(2000, 0)
		}},
		{"watch-paced", "an event at one of 200 watchers, 800 events/s", func(b *bench) (*cost, error) {
			return b.costOfWatch(1600, 800)
		}},
	}
}

const podPath = "/api/v1/namespaces/{ns}/pods"

// podBody returns a pod to create.
func podBody(i int) []byte {
	return []byte(strings.NewReplacer("NAME", podName(i), "GROUP", "g0000").Replace(podTemplate))
}

func customName(i int) string { return fmt.Sprintf("%s%06d", customMark, i) }

func mapName(i int) string   { return fmt.Sprintf("changed-%06d", i) }
func leaseName(i int) string { return fmt.Sprintf("node-%06d", i) }

// podStatus is a change of the status of pods by one manager.
func podStatus(contentType string, patch func(i, variant int) []byte) change {
	return change{
		kind: "Pod", path: podPath, name: podName, method: http.MethodPatch, contentType: contentType, subresource: "/status",
		create: podBody,
		object: patch,
	}
}

func lease(i, v int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s"},`+
		`"spec":{"holderIdentity":"%s","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:%02d.000000Z"}}`,
		leaseName(i), leaseName(i), v%60)
}

func scheduledEvent(i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Event","metadata":{"name":"web-%06d.17a1b2c3d4e5f6a7"},`+
		`"involvedObject":{"kind":"Pod","namespace":"{ns}","name":"web-%06d","uid":"0a1b2c3d-0000-4000-8000-%012d",`+
		`"apiVersion":"v1","resourceVersion":"%d"},"reason":"Scheduled",`+
		`"message":"Successfully assigned web-%06d to node-0001","source":{"component":"default-scheduler"},`+
		`"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z","count":1,"type":"Normal",`+
		`"eventTime":null,"reportingComponent":"","reportingInstance":""}`, i, i, i, i+1, i)
}

// change is a row of changes of objects that exist.
type change struct {
	kind, path, subresource string
	name                    func(i int) string
	method, contentType     string
	create                  func(i int) []byte          // the object to create first; nil means object(i, 0)
	object                  func(i, variant int) []byte // the body of a change
	versioned               bool                        // an update must have the resourceVersion of the object
}

// costNamespace creates a namespace and puts its name into a path.
func (b *bench) costNamespace(path string) (string, error) {
	if err := b.ensure(); err != nil {
		return "", err
	}
	ns, err := b.namespace("cost")
	return strings.Replace(path, "{ns}", ns, 1), err
}

// creation measures creates of the objects of body in a namespace of their own.
func (b *bench) creation(kind, path string, body func(i int) []byte) (*cost, error) {
	path, err := b.costNamespace(path)
	if err != nil {
		return nil, err
	}
	ns := b.namespaces[len(b.namespaces)-1]
	bodies := make([][]byte, b.options.pods)
	for i := range bodies {
		bodies[i] = []byte(strings.ReplaceAll(string(body(i)), "{ns}", ns))
	}
	creates := func(path string) plan {
		return plan{count: len(bodies), prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: bodies[i]}
		}}
	}
	server, returned, err := b.costOfServer(creates(path))
	if err != nil {
		return nil, err
	}
	return b.besideFloor(server, kind, returned, creates("/create?type="+kind))
}

// costOfServer is costOf for the measured requests to the server; with --layers a profile is taken meanwhile.
func (b *bench) costOfServer(p plan) (each time.Duration, returned []byte, err error) {
	measure := func() (err error) {
		each, returned, err = b.costOf(b.server, p)
		return err
	}
	if b.options.layers {
		b.layers, err = b.profiled(measure)
	} else {
		err = measure()
	}
	return each, returned, err
}

// costOf carries out the requests of a plan and returns the processor time of one, and the response to the first.
func (b *bench) costOf(t *target, p plan) (time.Duration, []byte, error) {
	c, err := dial(t)
	if err != nil {
		return 0, nil, err
	}
	var r request
	p.prepare(0, &r)
	a, err := c.do(&r, requestTime)
	c.close()
	if err != nil {
		return 0, nil, err
	}
	if a.status < 200 || a.status > 299 {
		return 0, nil, fmt.Errorf("%s %s: %d %.300s", r.method, r.path, a.status, a.body)
	}
	others := p
	others.inFlight, others.connections, others.count, others.limit = inFlight, b.options.connections, p.count-1, costTime
	others.prepare = func(i int, r *request) { p.prepare(i+1, r) }
	if p.received != nil {
		p.received(0, a.body)
		others.received = func(i int, part []byte) { p.received(i+1, part) }
	}
	o, err := others.run(t)
	if err != nil {
		return 0, nil, err
	}
	if o.failed > 0 {
		return 0, nil, fmt.Errorf("%s", failures(o))
	}
	return o.cpuEach(), a.body, nil
}

// besideFloor measures the floor of an operation whose cost on the server is known. prototype is an object of that kind
// as the server returns it.
func (b *bench) besideFloor(server time.Duration, kind string, prototype []byte, p plan) (*cost, error) {
	c, err := dial(&b.floor.target)
	if err != nil {
		return nil, err
	}
	a, err := c.do(&request{method: http.MethodPut, path: "/prototype?type=" + kind, contentType: jsonType, body: prototype},
		requestTime)
	c.close()
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("floor: %.300s", a.body)
	}
	floor, _, err := b.costOf(&b.floor.target, p)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return &cost{server: server, floor: floor}, nil
}

// existingPods creates the pods and returns the path of the collection.
func (b *bench) existingPods() (string, error) {
	path, err := b.costNamespace(podPath)
	if err != nil {
		return "", err
	}
	_, _, err = b.costOf(b.server, plan{count: b.options.pods, prepare: func(i int, r *request) {
		*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: podBody(i)}
	}})
	return path, err
}

// change measures changes of objects, after each was changed once in the same way.
func (b *bench) change(c change) (*cost, error) {
	path, err := b.costNamespace(c.path)
	if err != nil {
		return nil, err
	}
	const variants = 60
	object := func(i int) string { return path + "/" + c.name(i) + c.subresource + "?fieldManager=bench-manager" }
	versions := &versions{free: make(chan int, changedObjects), of: map[int]int{}, last: make([][]byte, changedObjects)}
	changes := func(count, first int, place func(i int) string) plan {
		return plan{count: count, prepare: func(i int, r *request) {
			n, variant := i%changedObjects, (first+i/changedObjects)%variants
			*r = request{method: c.method, path: place(n), accept: jsonType, contentType: c.contentType, body: c.object(n, variant)}
		}}
	}
	create := plan{count: changedObjects, prepare: func(i int, r *request) {
		*r = request{method: http.MethodPost, path: path + "?fieldManager=bench-manager", accept: jsonType,
			contentType: jsonType}
		if r.body = c.object(i, 0); c.create != nil {
			r.body = c.create(i)
		}
	}}
	if c.contentType == applyPatch && c.create == nil {
		create = changes(changedObjects, 0, object)
	}
	first, measured := changes(changedObjects, 1, object), changes(b.options.pods, 2, object)
	if c.versioned {
		versions.follow(&create)
		for _, p := range []*plan{&first, &measured} {
			versions.follow(p)
			p.prepare = func(i int, r *request) {
				n, version := versions.take(i)
				*r = request{method: c.method, path: object(n), accept: jsonType, contentType: c.contentType, body: c.object(n, i)}
				r.body = bytes.Replace(r.body, []byte(`"metadata":{`), []byte(`"metadata":{"resourceVersion":"`+version+`",`), 1)
			}
		}
	}
	for _, p := range []plan{create, first} {
		if _, _, err := b.costOf(b.server, p); err != nil {
			return nil, err
		}
	}
	server, returned, err := b.costOfServer(measured)
	if err != nil {
		return nil, err
	}
	floor := "/create?type="
	if c.method == http.MethodPatch {
		floor = "/patch?type="
	}
	return b.besideFloor(server, c.kind, returned,
		changes(b.options.pods, 2, func(int) string { return floor + c.kind }))
}

// versions knows the resourceVersion of objects that are changed in turn. An object is changed again when its last
// response has come, so that the change is not refused.
type versions struct {
	free chan int // objects without a request

	mu   sync.Mutex
	of   map[int]int // the object of each request in flight, guarded by mu
	last [][]byte    // the beginning of each object's last response, guarded by mu
}

// follow lets p record the versions in its responses. Request i of p must be for object i, or for one from take.
func (v *versions) follow(p *plan) {
	p.received = func(i int, part []byte) {
		v.mu.Lock()
		defer v.mu.Unlock()
		n, taken := v.of[i]
		if !taken {
			n = i
		}
		if _, err := listVersion(v.last[n]); err == nil {
			return // it is known and the object is free
		}
		v.last[n] = append(v.last[n], part...)
		if _, err := listVersion(v.last[n]); err == nil {
			v.free <- n
		}
	}
}

// take returns the object to change in request i, and its version.
func (v *versions) take(i int) (object int, version string) {
	object = <-v.free
	v.mu.Lock()
	defer v.mu.Unlock()
	version, _ = listVersion(v.last[object])
	v.of[i], v.last[object] = object, nil
	return object, version
}

// post measures posts to a subresource of pods, each to another pod.
func (b *bench) post(body, subresource string, object func(i int) []byte) (*cost, error) {
	path, err := b.existingPods()
	if err != nil {
		return nil, err
	}
	pod, err := b.call(&request{method: http.MethodGet, path: path + "/" + podName(0), accept: jsonType})
	if err != nil {
		return nil, err
	}
	posts := func(place func(i int) string) plan {
		return plan{count: b.options.pods, prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: place(i), accept: jsonType, contentType: jsonType, body: object(i)}
		}}
	}
	server, _, err := b.costOfServer(posts(func(i int) string { return path + "/" + podName(i) + subresource }))
	if err != nil {
		return nil, err
	}
	return b.besideFloor(server, "Pod", pod.body, posts(func(int) string { return "/post?type=Pod&body=" + body }))
}

// costOfGets measures reads of pods one by one, evenly distributed over all of them.
func (b *bench) costOfGets(accept string) (*cost, error) {
	path, err := b.existingPods()
	if err != nil {
		return nil, err
	}
	const rounds = 4
	gets := plan{count: rounds * b.options.pods, prepare: func(i int, r *request) {
		*r = request{method: http.MethodGet, path: path + "/" + podName(i*stride%b.options.pods), accept: accept}
	}}
	if _, _, err := b.costOf(b.server, gets); err != nil { // this fills the caches
		return nil, err
	}
	server, returned, err := b.costOfServer(gets)
	if err != nil {
		return nil, err
	}
	gets.prepare = func(_ int, r *request) {
		*r = request{method: http.MethodGet, path: "/bytes?n=" + strconv.Itoa(len(returned)), accept: accept}
	}
	floor, _, err := b.costOf(&b.floor.target, gets)
	return &cost{server: server, floor: floor}, err
}

// costOfList measures lists of all pods, one after the other.
func (b *bench) costOfList(query, accept string) (*cost, error) {
	path, err := b.existingPods()
	if err != nil {
		return nil, err
	}
	const most = 30
	r := &request{method: http.MethodGet, path: path + "?" + query, accept: accept}
	if _, err := repeat(b.server, r, 1, 0); err != nil {
		return nil, err
	}
	server, err := repeat(b.server, r, most, listTime)
	if err != nil {
		return nil, err
	}
	bare := &request{method: http.MethodGet, path: "/bytes?n=" + strconv.Itoa(server.size), accept: accept}
	if _, err := repeat(&b.floor.target, bare, 1, 0); err != nil { // this creates the bytes
		return nil, err
	}
	floor, err := repeat(&b.floor.target, bare, most, listTime)
	if err != nil {
		return nil, err
	}
	return &cost{server: server.cpu, floor: floor.cpu}, nil
}

// costOfWatch measures an event at one of 200 watchers, with its share of the write that made it.
func (b *bench) costOfWatch(events int, pace float64) (*cost, error) {
	const watchers = 200
	if err := b.ensure(); err != nil {
		return nil, err
	}
	server, err := b.fanOutServer("cost", watchers, events, pace)
	if err != nil {
		return nil, err
	}
	floor, err := b.fanOutFloor(watchers, events, server.bytes, pace)
	if err != nil {
		return nil, err
	}
	return &cost{server: server.cpu, floor: floor.cpu}, nil
}

// customPath creates the definition of the custom objects, and returns the path of a collection of them.
func (b *bench) customPath() (string, error) {
	if err := b.ensure(); err != nil {
		return "", err
	}
	body, plural := definitionOf(customGroup, 0)
	c, err := dial(b.server)
	if err != nil {
		return "", err
	}
	defer c.close()
	a, err := c.do(
		&request{method: http.MethodPost, path: definitionsPath, accept: jsonType, contentType: jsonType, body: body},
		requestTime,
	)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusCreated && a.status != http.StatusConflict {
		return "", fmt.Errorf("the definition: %d %.300s", a.status, a.body)
	}
	if a.status == http.StatusCreated {
		b.definitions = append(b.definitions, plural+"."+customGroup)
	}
	path := "/apis/" + customGroup + "/v1/namespaces/{ns}/" + plural
	return path, b.awaitList(c, strings.Replace(path, "namespaces/{ns}/", "", 1))
}
