package crd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const benchGroup = "bench.example.com"

// benchDefinition returns a definition with about 40 fields on three levels.
func benchDefinition() string {
	fields := []string{
		`"size":{"type":"integer","minimum":0,"maximum":1000}`,
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
			inner = append(inner, fmt.Sprintf(`"field%d":{%s}`, n, types[n%len(types)]))
		}
		fields = append(fields, fmt.Sprintf(`"part%d":{"type":"object","properties":{%s}}`, part, strings.Join(inner, ",")))
	}
	version := `{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{
		"spec":{"type":"object","required":["size"],"properties":{` + strings.Join(fields, ",") + `}},
		"status":{"type":"object","properties":{"phase":{"type":"string"},"observedGeneration":{"type":"integer","format":"int64"}}}}}}}`
	return definition(benchGroup, version)
}

// benchWidget returns an object of about 4 KB.
func benchWidget(name string, i int) string {
	var parts, data []string
	for part := range 4 {
		parts = append(parts, fmt.Sprintf(`"part%d":{"field0":"web","field1":%d,"field2":true,`+
			`"field3":"2026-01-02T03:04:05Z",`+
			`"field4":"blue","field5":7,"field6":false,"field7":"2026-01-02T03:04:05Z"}`, part, i))
	}
	for n := range 20 {
		data = append(data, fmt.Sprintf(`"key-%02d":"%s"`, n, strings.Repeat("a value ", 16)))
	}
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"%s","labels":{"app":"web",`+
		`"tier":"front"}},"spec":{"size":%d,"class":"small",`+
		`"paused":false,"host":"web-%d.example.com","labels":{"team":"shop"},"tags":["a","b","c"],"port":8080,%s,`+
		`"data":{%s}}}`,
		benchGroup, name, i%1000, i, strings.Join(parts, ","), strings.Join(data, ","))
}

// serve sends a request to the handler without a network connection.
func (w *world) serve(method, path, contentType, body string, want int) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	if answer.Code != want {
		w.t.Fatalf("%s %s: %d, want %d: %s", method, path, answer.Code, want, answer.Body)
	}
}

const benchWidgets = "/apis/" + benchGroup + "/v1/namespaces/x/widgets"

func benchWorld(b *testing.B) *world {
	w := newWorld(b)
	w.must(http.StatusCreated, "POST", definitions, asJSON, benchDefinition())
	w.await(http.StatusOK, benchWidgets)
	b.ReportAllocs()
	return w
}

func BenchmarkCreate(b *testing.B) {
	w := benchWorld(b)
	bodies := make([]string, 1000)
	for i := range bodies {
		bodies[i] = benchWidget("NAME", i)
	}
	for i := 0; b.Loop(); i++ {
		w.serve(
			"POST", benchWidgets, asJSON, strings.Replace(bodies[i%len(bodies)], "NAME", fmt.Sprintf("w%08d", i), 1),
			http.StatusCreated,
		)
	}
}

func BenchmarkUpdateStatus(b *testing.B) {
	w := benchWorld(b)
	w.serve("POST", benchWidgets, asJSON, benchWidget("a", 1), http.StatusCreated)
	for i := 0; b.Loop(); i++ {
		w.serve(
			"PATCH", benchWidgets+"/a/status", asMerge, fmt.Sprintf(`{"status":{"phase":"Ready","observedGeneration":%d}}`, i),
			http.StatusOK,
		)
	}
}
