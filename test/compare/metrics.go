package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// metricRequests are sent before metrics are compared, so that both servers have counted the same.
func metricRequests() (out []request) {
	const (
		maps      = "/api/v1/namespaces/default/configmaps"
		mergeType = "application/merge-patch+json"
		applyType = "application/apply-patch+yaml"
	)
	object := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)
	}
	add := func(method, path, contentType, body string) {
		out = append(out, request{method: method, path: path, contentType: contentType, body: body})
	}
	add(http.MethodPost, maps, "", object("compare"))
	add(http.MethodPost, maps+"?dryRun=All", "", object("compare-dry"))
	add(http.MethodPost, maps, "", "{")
	add(http.MethodPut, maps+"/compare", "", object("compare"))
	add(http.MethodPatch, maps+"/compare", mergeType, `{"data":{"z":"1"}}`)
	add(http.MethodPatch, maps+"/compare-applied?fieldManager=x", applyType, object("compare-applied"))
	for _, path := range []string{
		maps + "/compare", maps + "/missing", maps, maps + "?limit=1", "/api/v1/configmaps", maps + "?watch=1&timeoutSeconds=1",
		maps + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "/version",
		"/healthz", "/livez", "/readyz", "/api", "/apis", "/apis/nope.example.com/v1/foos", "/nowhere", "/openapi/v2", "/openapi/v3",
		"/api/v1/componentstatuses", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
	} {
		add(http.MethodGet, path, "", "")
	}
	add(http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)
	add(http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", "",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"x"}}`)
	add(http.MethodDelete, maps+"/compare", "", "")
	add(http.MethodDelete, maps+"/compare-applied", "", "")
	return out
}

// collectMetrics returns type, help text, names of labels and bounds of buckets of each metric after the same requests.
func collectMetrics(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	for _, r := range metricRequests() {
		if _, err := s.do(ctx, r); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
	}
	time.Sleep(c.pause) // the metrics of a watch follow its end
	r, err := s.do(ctx, request{method: http.MethodGet, path: "/metrics", accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return parseMetrics(r.body), nil
}

var (
	series = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+`)
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// parseMetrics reads the text format of Prometheus. A metric without series is left out: kube-apiserver does not show it.
func parseMetrics(body []byte) map[string]any {
	metrics := map[string]map[string]any{}
	get := func(name string) map[string]any {
		if metrics[name] == nil {
			metrics[name] = map[string]any{"type": "", "help": "", "labels": map[string]any{}, "buckets": map[string]any{}}
		}
		return metrics[name]
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			get(name)["help"] = help
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			get(name)["type"] = kind
			continue
		}
		m := series.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		metric := get(familyOf(m[1], metrics))
		var names []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] == "le" || l[1] == "quantile" {
				metric["buckets"].(map[string]any)[l[2]] = true //nolint:forcetypeassert // get made it
				continue
			}
			names = append(names, l[1])
		}
		slices.Sort(names)
		metric["labels"].(map[string]any)[strings.Join(names, ",")] = true //nolint:forcetypeassert // get made it
	}
	out := map[string]any{}
	for name, m := range metrics {
		if labels, _ := m["labels"].(map[string]any); len(labels) > 0 {
			out[name] = m
		}
	}
	return out
}

// familyOf returns the name of the metric that a series belongs to: those of histograms and summaries have suffixes.
func familyOf(name string, metrics map[string]map[string]any) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(name, suffix)
		if m := metrics[base]; ok && m != nil && (m["type"] == "histogram" || m["type"] == "summary") {
			return base
		}
	}
	return name
}
