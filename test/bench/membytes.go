package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The rows in this file compare the memory that a server uses for objects with the bytes that it stores, without a single
// watcher (kubernetes/kubernetes#142062).

// A memoryShape is a number of objects of equal size.
type memoryShape struct {
	row    string
	count  int
	stored string // the format in which the objects are stored
	path   string // of the collection
	object func(i int) []byte
}

const (
	reportGroup = "bench.example.com"
	reportsPath = "/apis/" + reportGroup + "/v1/namespaces/{ns}/sbomreports"
)

var memoryShapes = []memoryShape{
	{"bytes-configmaps", 50_000, protobufType, "/api/v1/namespaces/{ns}/configmaps", func(i int) []byte {
		return configMap(fmt.Sprintf("memory-%06d", i), 100)
	}},
	{"bytes-pods", 10_000, protobufType, "/api/v1/namespaces/{ns}/pods", func(i int) []byte {
		return podNumbered(i, 10_000)
	}},
	{"bytes-small-reports", 10_000, jsonType, reportsPath, func(i int) []byte { return sbomReport(i, 3) }},
	{"bytes-reports", 100, jsonType, reportsPath, func(i int) []byte { return sbomReport(i, 500) }},
	{"bytes-large-reports", 100, jsonType, reportsPath, func(i int) []byte { return sbomReport(i, 1100) }},
}

// sbomReportDefinition defines reports of the components of an image, with a schema for each field.
const sbomReportDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
	`"metadata":{"name":"sbomreports.` + reportGroup + `"},"spec":{"group":"` + reportGroup + `","scope":"Namespaced",` +
	`"names":{"plural":"sbomreports","singular":"sbomreport","kind":"SbomReport","listKind":"SbomReportList"},` +
	`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{` +
	`"report":{"type":"object","properties":{"updateTimestamp":{"type":"string","format":"date-time"},` +
	`"components":{"type":"array","items":{"type":"object","properties":{` +
	`"bom-ref":{"type":"string"},"type":{"type":"string"},"name":{"type":"string"},"version":{"type":"string"},` +
	`"purl":{"type":"string"},"hashes":{"type":"array","items":{"type":"object","properties":{"alg":{"type":"string"},` +
	`"content":{"type":"string"}}}},"licenses":{"type":"array","items":{"type":"object","properties":{` +
	`"license":{"type":"object","properties":{"name":{"type":"string"}}}}}},"properties":{"type":"array",` +
	`"items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}}}}}}}}}}}}}]}}`

// sbomReport returns a report with components of about 1.2 KB each.
func sbomReport(i, components int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"%s/v1","kind":"SbomReport","metadata":{"name":"report-%06d"},`+
		`"report":{"updateTimestamp":"2026-01-02T03:04:05Z","components":[`, reportGroup, i)
	for n := range components {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"bom-ref":"pkg:deb/debian/library-%[1]d-%[2]d@1.2.%[1]d?arch=amd64","type":"library",`+
			`"name":"library-%[1]d-%[2]d","version":"1.2.%[1]d-3+deb13u1",`+
			`"purl":"pkg:deb/debian/library-%[1]d-%[2]d@1.2.%[1]d-3+deb13u1?arch=amd64&distro=debian-13.1",`+
			`"hashes":[{"alg":"SHA-256","content":"%064[1]x"},{"alg":"MD5","content":"%032[2]x"}],`+
			`"licenses":[{"license":{"name":"GPL-2.0-or-later"}},{"license":{"name":"LGPL-2.1-only"}}],"properties":[`, n, i)
		for p := range 6 {
			if p > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":"aquasecurity:trivy:Property%d","value":"library-%d-%d layer %064x"}`, p, n, i, n*i)
		}
		b.WriteString("]}")
	}
	b.WriteString("]}}")
	return []byte(b.String())
}

// memoryOfBytes measures the memory for the objects of a shape after they were written, after a restart in which they
// were loaded, and after lists in one format.
func (b *bench) memoryOfBytes(s *memoryShape) error {
	if err := b.fresh(); err != nil {
		return err
	}
	if b.launcher == nil {
		return errors.New("give --start")
	}
	ns, err := b.namespace("bytes")
	if err != nil {
		return err
	}
	path := strings.Replace(s.path, "{ns}", ns, 1)
	if s.path == reportsPath {
		if err := b.defineReports(path); err != nil {
			return err
		}
	}
	page := &request{method: http.MethodGet, path: path + "?limit=1", accept: s.stored}
	if _, err := b.call(page); err != nil {
		return err
	}
	time.Sleep(2 * settleTime)
	empty := treeUsage(b.server.pid).anonymous
	const parallel = 8 // few, because some of the objects are large
	o, err := plan{inFlight: parallel, connections: b.options.connections, count: s.count, limit: scaleLimit,
		prepare: func(i int, r *request) {
			*r = request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: s.object(i)}
		}}.run(b.server)
	if err != nil {
		return err
	}
	if o.done < s.count {
		return fmt.Errorf("%d of %d objects were made; %s", o.done, s.count, failures(o))
	}
	var grown []float64 // anonymous memory more than without the objects
	measure := func() {
		time.Sleep(3 * settleTime)
		grown = append(grown, float64(treeUsage(b.server.pid).anonymous-empty))
	}
	measure()
	if err := b.instance.restart(b.ctx); err != nil {
		return err
	}
	if _, err := b.call(page); err != nil {
		return err
	}
	measure()
	var sizes []float64
	for _, format := range []string{s.stored, jsonType} {
		t, err := repeat(b.server, &request{method: http.MethodGet, path: path + "?resourceVersion=0", accept: format}, 1, 0)
		if err != nil {
			return err
		}
		sizes = append(sizes, float64(t.size))
		if format == jsonType {
			break
		}
		measure()
	}
	measure()
	stored, asJSON := sizes[0], sizes[len(sizes)-1]
	listed := (grown[len(grown)-1] - grown[len(grown)-2]) / asJSON
	detail := fmt.Sprintf("%.1f MB stored, %.2f x after writing, then %.2f x the JSON for its lists", stored/megabyte,
		grown[0]/stored, listed)
	if s.stored != jsonType {
		detail += fmt.Sprintf(" (%.2f x the protobuf for lists in protobuf)", (grown[2]-grown[1])/stored)
	}
	b.add(figure{Row: s.row, Value: grown[1] / stored, Floor: 1, Detail: detail})
	return nil
}

func (b *bench) defineReports(path string) error {
	if _, err := b.call(&request{
		method: http.MethodPost, path: definitionsPath, accept: jsonType, contentType: jsonType,
		body: []byte(sbomReportDefinition),
	}); err != nil {
		return err
	}
	c, err := dial(b.server)
	if err != nil {
		return err
	}
	defer c.close()
	return b.awaitList(c, path)
}
