package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	// definitionGroups is the number of API groups of the definitions.
	definitionGroups = 20
	// ends is the number of definitions at the beginning, and at the end, that are compared.
	ends = 100
)

// definitionOf returns a definition of about 40 fields on three levels. All schemas are different, like those of
// different projects.
func definitionOf(group string, i int) (body []byte, plural string) {
	plural = fmt.Sprintf("things%05ds", i)
	kind := fmt.Sprintf("Thing%05d", i)
	return fmt.Appendf(nil,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.%s"},`+
			`"spec":{"group":"%s","scope":"Namespaced",`+
			`"names":{"plural":"%s","singular":"%s","kind":"%s","listKind":"%sList"},"versions":[{"name":"v1","served":true,`+
			`"storage":true,"subresources":{"status":{}},`+
			`"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"},{"name":"Phase",`+
			`"type":"string","jsonPath":".status.phase"}],`+
			`"schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{"spec":{"type":"object",`+
			`"required":["size"],"properties":{%s}},`+
			`"status":{"type":"object","properties":{"phase":{"type":"string"},"observedGeneration":{"type":"integer",`+
			`"format":"int64"}}}}}}}]}}`,
		plural, group, group, plural, strings.TrimSuffix(plural, "s"), kind, kind, definitionFields(i)), plural
}

// definitionFields returns the fields of a specification.
func definitionFields(i int) string {
	fields := []string{
		fmt.Sprintf(`"size":{"type":"integer","minimum":0,"maximum":%d,"description":"How many there shall be."}`, 1000+i),
		`"class":{"type":"string","enum":["small","medium","large"],"default":"medium"}`,
		`"paused":{"type":"boolean"}`,
		`"host":{"type":"string","maxLength":253,"pattern":"^[a-z0-9.-]*$"}`,
		`"labels":{"type":"object","additionalProperties":{"type":"string"}}`,
		`"data":{"type":"object","additionalProperties":{"type":"string"}}`,
		`"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}`,
		`"port":{"x-kubernetes-int-or-string":true}`,
	}
	for part := range 4 {
		var inner []string
		for n := range 8 {
			types := [...]string{
				`"type":"string"`, `"type":"integer","format":"int64"`, `"type":"boolean"`, `"type":"string","format":"date-time"`,
			}
			inner = append(
				inner,
				fmt.Sprintf(`"field%d":{%s,"description":"What field %d of part %d is for."}`, n, types[n%len(types)], n, part),
			)
		}
		fields = append(fields, fmt.Sprintf(`"part%d":{"type":"object","properties":{%s}}`, part, strings.Join(inner, ",")))
	}
	return strings.Join(fields, ",")
}

// defined is the result of creating definitions one after the other.
type defined struct {
	served []time.Duration // of each: from sending it until its objects could be listed
	cpu    time.Duration   // of the server, for each
	memory float64         // bytes for each, 0 if unknown
}

func (d *defined) middle(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// define creates definitions, and lists the objects of each until that succeeds.
func (b *bench) define(groups int) (*defined, error) {
	if err := b.fresh(); err != nil {
		return nil, err
	}
	c, err := dial(b.server)
	if err != nil {
		return nil, err
	}
	defer c.close()
	time.Sleep(settleTime)
	before := treeUsage(b.server.pid)
	d := &defined{}
	for i := range b.options.definitions {
		group := fmt.Sprintf("g%02d.bench.example.com", i%groups)
		body, plural := definitionOf(group, i)
		b.definitions = append(b.definitions, plural+"."+group)
		start := time.Now()
		a, err := c.do(
			&request{method: http.MethodPost, path: definitionsPath, accept: jsonType, contentType: jsonType, body: body},
			requestTime,
		)
		if err != nil {
			return nil, err
		}
		if a.status != http.StatusCreated {
			return nil, fmt.Errorf("definition %d: %d %.300s", i, a.status, a.body)
		}
		if err := b.awaitList(c, "/apis/"+group+"/v1/"+plural); err != nil {
			return nil, err
		}
		d.served = append(d.served, time.Since(start))
	}
	time.Sleep(settleTime)
	after := treeUsage(b.server.pid)
	n := len(d.served)
	d.cpu = (after.cpu - before.cpu) / time.Duration(n)
	d.memory = float64(after.anonymous-before.anonymous) / float64(n)
	return d, nil
}

func (b *bench) awaitList(c *connection, path string) error {
	const every = 200 * time.Microsecond
	for end := time.Now().Add(requestTime); time.Now().Before(end); time.Sleep(every) {
		a, err := c.do(&request{method: http.MethodGet, path: path, accept: jsonType}, requestTime)
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("%s is not served", path)
}

// defineSpread measures definitions of several groups, and the discovery documents of a server that has them.
func (b *bench) defineSpread() error {
	d, err := b.define(definitionGroups)
	if err != nil {
		return err
	}
	n := len(d.served)
	few := min(ends, n)
	b.add(figure{Row: "crd-served", Value: ms(d.middle(d.served, 50)), Detail: details("p99 "+short(d.middle(d.served,
		99)),
		fmt.Sprintf("the first %d p50 %s, the last %s", few, short(d.middle(d.served[:few], 50)),
			short(d.middle(d.served[n-few:], 50))))})
	if b.server.pid != 0 {
		b.add(figure{Row: "crd-cpu", Value: ms(d.cpu), Detail: fmt.Sprintf("of %d", n)})
		b.add(figure{Row: "crd-memory", Value: d.memory / megabyte})
	}
	if err := b.documents(
		"crd-discovery", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	); err != nil {
		return err
	}
	return b.documents("crd-openapi", "/openapi/v3", jsonType)
}

// documents measures a document about all definitions when it is first requested after a definition was created.
func (b *bench) documents(row, path, accept string) error {
	const times = 5
	var walls []time.Duration
	size := 0
	for i := range times {
		body, plural := definitionOf("fresh.bench.example.com", b.options.definitions+len(b.definitions)+i)
		if _, err := b.call(
			&request{method: http.MethodPost, path: definitionsPath, accept: jsonType, contentType: jsonType, body: body},
		); err != nil {
			return err
		}
		b.definitions = append(b.definitions, plural+".fresh.bench.example.com")
		c, err := dial(b.server)
		if err != nil {
			return err
		}
		err = b.awaitList(c, "/apis/fresh.bench.example.com/v1/"+plural)
		start := time.Now()
		var a *answer
		if err == nil {
			a, err = c.do(&request{method: http.MethodGet, path: path, accept: accept}, requestTime)
		}
		walls = append(walls, time.Since(start))
		c.close()
		if err != nil {
			return err
		}
		if a.status != http.StatusOK {
			return fmt.Errorf("%s: %d", path, a.status)
		}
		size = len(a.body)
	}
	slices.Sort(walls)
	b.add(
		figure{
			Row: row, Value: ms(walls[times/2]),
			Detail: details(fmt.Sprintf("%.1f KB", float64(size)/kilobyte), "best "+short(walls[0])),
		},
	)
	return nil
}

// defineTogether measures definitions of one group.
func (b *bench) defineTogether() error {
	d, err := b.define(1)
	if err != nil {
		return err
	}
	detail := ""
	if b.server.pid != 0 {
		detail = fmt.Sprintf("%s, %.2f MB each", cpuDetail(d.cpu), d.memory/megabyte)
	}
	n := len(d.served)
	few := min(ends, n)
	b.add(figure{Row: "crd-one-group", Value: ms(d.middle(d.served, 50)), Detail: details("p99 "+short(d.middle(d.served,
		99)), detail,
		fmt.Sprintf("the first %d p50 %s, the last %s", few, short(d.middle(d.served[:few], 50)),
			short(d.middle(d.served[n-few:], 50))))})
	return nil
}

const (
	customObjects = 10_000
	customSize    = 4096
	customGroup   = "custom.bench.example.com"
)

// customMark is in the name of every custom object; it is used to count objects in a list.
const customMark = "bench-thing-"

// customObject returns a custom object of about customSize bytes.
func customObject(kind string, i int) []byte {
	var parts []string
	for part := range 4 {
		parts = append(
			parts,
			fmt.Sprintf(
				`"part%d":{"field0":"web","field1":%d,"field2":true,"field3":"2026-01-02T03:04:05Z","field4":"blue","field5":7,`+
					`"field6":false,"field7":"2026-01-02T03:04:05Z"}`,
				part, i,
			),
		)
	}
	head := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"%s","metadata":{"name":"%s%06d","labels":{"app":"web",`+
		`"tier":"front"}},"spec":{"size":%d,"class":"small","paused":false,"host":"web-%d.example.com",`+
		`"labels":{"team":"shop"},"tags":["a","b","c"],"port":8080,%s,"data":{`, customGroup, kind, customMark, i, i%1000, i,
		strings.Join(parts, ","))
	const entries = 20
	left := max(0, customSize-len(head))/entries - len(`"key-00":"",`)
	var data []string
	for n := range entries {
		data = append(data, fmt.Sprintf(`"key-%02d":"%s"`, n, filler(max(0, left))))
	}
	return []byte(head + strings.Join(data, ",") + "}}}")
}

// custom describes the custom objects of a run.
type custom struct {
	path   string // of the collection; "" if the objects do not exist yet
	memory float64
	rate   *outcome
	size   int // bytes of one object as JSON
}

func (c *custom) object(i int) string { return fmt.Sprintf("%s/%s%06d", c.path, customMark, i) }

// needCustom creates the custom objects unless they exist.
func (b *bench) needCustom() error {
	if b.custom.path != "" {
		return nil
	}
	if err := b.fresh(); err != nil {
		return err
	}
	body, plural := definitionOf(customGroup, 0)
	if _, err := b.call(
		&request{method: http.MethodPost, path: definitionsPath, accept: jsonType, contentType: jsonType, body: body},
	); err != nil {
		return err
	}
	b.definitions = append(b.definitions, plural+"."+customGroup)
	ns, err := b.namespace("custom")
	if err != nil {
		return err
	}
	path := "/apis/" + customGroup + "/v1/namespaces/" + ns + "/" + plural
	c, err := dial(b.server)
	if err != nil {
		return err
	}
	err = b.awaitList(c, path)
	c.close()
	if err != nil {
		return err
	}
	bodies := make([][]byte, customObjects)
	for i := range bodies {
		bodies[i] = customObject("Thing00000", i)
	}
	time.Sleep(settleTime)
	before := treeUsage(b.server.pid)
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: len(bodies), limit: 5 * time.Minute,
		prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: bodies[i]}
		}}.run(b.server)
	if err != nil {
		return err
	}
	if o.done < len(bodies) {
		return fmt.Errorf("%d of %d objects were created; %s", o.done, len(bodies), failures(o))
	}
	time.Sleep(2 * settleTime)
	b.custom = custom{
		path: path, rate: o, memory: float64(treeUsage(b.server.pid).anonymous-before.anonymous) / customObjects,
	}
	a, err := b.call(&request{method: http.MethodGet, path: b.custom.object(0), accept: jsonType})
	if err != nil {
		return err
	}
	b.custom.size = len(a.body)
	return nil
}

func (b *bench) createCustom() error {
	if err := b.needCustom(); err != nil {
		return err
	}
	return b.addWrites("custom-create", b.custom.rate, b.custom.size)
}

// memoryOfCustom returns the memory for each custom object: what the server uses more than before, including the
// history in the buffers of the store.
func (b *bench) memoryOfCustom() error {
	if err := b.needCustom(); err != nil {
		return err
	}
	if b.server.pid == 0 {
		return errors.New("give --pid or --start")
	}
	b.add(
		figure{
			Row: "custom-memory", Value: b.custom.memory / kilobyte, Floor: float64(b.custom.size) / kilobyte,
			Detail: "the floor is its own size as JSON",
		},
	)
	return nil
}

func (b *bench) listCustom() error {
	if err := b.needCustom(); err != nil {
		return err
	}
	const most = 15
	r := &request{method: http.MethodGet, path: b.custom.path + "?resourceVersion=0", accept: jsonType}
	a, err := b.call(r)
	if err != nil {
		return err
	}
	if n := bytes.Count(a.body, []byte(`"`+customMark)); n != customObjects {
		return fmt.Errorf("%d objects came, not %d", n, customObjects)
	}
	a.body = nil
	return b.timeList(
		"custom-list", r, most, func(size int) string { return fmt.Sprintf("%.1f MB", float64(size)/megabyte) },
	)
}

func (b *bench) getCustom() error {
	if err := b.needCustom(); err != nil {
		return err
	}
	paths := make([]string, customObjects)
	for i := range paths {
		paths[i] = b.custom.object(i * stride % customObjects)
	}
	return b.timeGets("custom-get", jsonType, paths, b.custom.size)
}

// deleteDefinitions deletes the definitions that this run has created, with their objects.
func (b *bench) deleteDefinitions() error {
	for _, name := range b.definitions {
		if _, err := b.call(
			&request{method: http.MethodDelete, path: definitionsPath + "/" + name, accept: jsonType},
		); err != nil {
			return err
		}
	}
	return nil
}
