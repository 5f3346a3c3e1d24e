package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// scraped is a metric of a scrape.
type scraped struct {
	kind, help string
	labels     map[string]bool // names of labels, each list sorted and joined with commas
	series     map[string]bool // labels with their values, without those of buckets
}

// TestMetricsAsKubeAPIServer sends the same requests to kube-apiserver and to Keelson. Metrics of both must have the same type,
// help text, names of labels and bounds of buckets, and the metrics of requests the same labels: none that kube-apiserver does
// not have, and all that it has of the requests of the test.
func TestMetricsAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	const flag, plugin = "--disable-admission-plugins", "ServiceAccount" // nobody creates service accounts for kube-apiserver
	servers := []*apiServer{
		kubeAPIServer(t, dir, startEtcd(t, dir), flag, plugin), keelsonOn(t, dir, "--storage", "memory", flag, plugin),
	}
	var before, after [2]map[string]*scraped
	for i, s := range servers {
		before[i] = scrapeAll(t, s)
		for _, r := range requestsToCount() {
			if _, _, err := s.call(t.Context(), r.method, r.path, r.accept, r.contentType, []byte(r.body)); err != nil {
				t.Fatalf("%s %s: %v", r.method, r.path, err)
			}
		}
		time.Sleep(time.Second) // the metrics of a watch follow its end
		after[i] = scrapeAll(t, s)
	}
	want, got := after[0], after[1]
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w, g := want[name], got[name]
		switch {
		case g == nil:
			t.Logf("only kube-apiserver has %s", name) // package server has the list, with why
		case g.kind != w.kind || g.help != w.help:
			t.Errorf("%s: %s %q, want %s %q", name, g.kind, g.help, w.kind, w.help)
		case !maps.Equal(g.labels, w.labels):
			t.Errorf("%s has the labels %v, want %v", name, slices.Collect(maps.Keys(g.labels)),
				slices.Collect(maps.Keys(w.labels)))
		}
	}
	for _, name := range []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
		"apiserver_request_body_size_bytes", "apiserver_requested_deprecated_apis", "apiserver_response_sizes",
	} {
		for series := range want[name].series {
			// Requests that were there before are those of kube-apiserver to itself.
			if old := before[0][name]; (old == nil || !old.series[series]) && !got[name].series[series] && !ownOfKubeAPIServer(series) {
				t.Errorf("only kube-apiserver has %s{%s}", name, series)
			}
		}
		for series := range got[name].series {
			if !want[name].series[series] {
				t.Errorf("only Keelson has %s{%s}", name, series)
			}
		}
	}
}

// ownOfKubeAPIServer reports whether a series is of a request that kube-apiserver makes of itself while the test runs.
func ownOfKubeAPIServer(series string) bool {
	for _, own := range []string{"leases", "apiservices", "limitranges", "servicecidrs", "ipaddresses", "openapi/v3", "flowschemas",
		"endpointslices", `"resourcequotas"`, "clusterrole", `subresource="status",verb="PUT"`} {
		if strings.Contains(series, own) {
			return true
		}
	}
	return false
}

type countedRequest struct{ method, path, accept, contentType, body string }

// requestsToCount are requests with all verbs, also such as fail or are refused in different places.
func requestsToCount() (out []countedRequest) {
	const (
		maps, pods  = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
		deployments = "/apis/apps/v1/namespaces/default/deployments"
		applyType   = "application/apply-patch+yaml"
	)
	object := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)
	}
	add := func(method, path, contentType, body string) {
		out = append(out, countedRequest{method, path, jsonType, contentType, body})
	}
	for i := range 3 {
		add("POST", maps, jsonType, object(fmt.Sprint("c", i)))
	}
	add("POST", maps+"?dryRun=All&fieldValidation=Strict", jsonType, object("dry"))
	add("POST", maps, jsonType, "{")
	add("POST", "/api/v1/namespaces/missing/configmaps", jsonType, object("x"))
	for _, path := range []string{
		maps + "/c0", maps + "/missing", maps, maps + "?limit=1", maps + "?fieldSelector=metadata.name%3Dc0", "/api/v1/configmaps",
		"/api/v1/namespaces", "/api/v1/namespaces/default", "/api/v1/nodes/x", "/api/v1/namespaces/default/endpoints",
		"/api/v1/componentstatuses", maps + "?watch=1&timeoutSeconds=1", "/version", "/healthz", "/livez", "/readyz", "/livez/ping",
		"/api", "/apis", "/api/v1", "/apis/nope.io/v1/foos", "/api/v1/foos", maps + "/c0/foo", "/nowhere", pods + "/p/log",
		pods + "/p/exec?command=a", pods + "/p/proxy/", "/api/v1/nodes/n/proxy/x",
	} {
		add("GET", path, "", "")
	}
	add("HEAD", maps+"/c0", "", "")
	add("OPTIONS", maps, "", "")
	add("PUT", maps+"/c0", jsonType, object("c0"))
	add("PATCH", maps+"/c0", mergeType, `{"data":{"z":"1"}}`)
	add("PATCH", maps+"/c0", strategicType, `{"data":{"z":"2"}}`)
	add("PATCH", maps+"/applied?fieldManager=x", applyType, object("applied"))
	add("POST", pods, jsonType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	add("PATCH", pods+"/p/status", mergeType, `{"status":{"reason":"x"}}`)
	add("POST", deployments, jsonType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":`+
		`{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`)
	add("GET", deployments+"/d/scale", "", "")
	add("PATCH", deployments+"/d/scale", mergeType, `{"spec":{"replicas":2}}`)
	add("DELETE", deployments+"/d", "", "")
	add("DELETE", maps+"/c1", "", "")
	add("DELETE", maps+"/c1", "", "")
	add("DELETE", maps, "", "")
	out = append(out, countedRequest{"GET", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "", ""})
	return out
}

var (
	sampleForm = regexp.MustCompile(`^([^{ ]+)(?:\{(.*)\})? \S+$`)
	labelForm  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// scrapeAll reads the metrics of a server.
func scrapeAll(t *testing.T, s *apiServer) map[string]*scraped {
	t.Helper()
	status, body := s.must(t, http.MethodGet, "/metrics", "", "", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d", status)
	}
	out := map[string]*scraped{}
	help, current := "", (*scraped)(nil)
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			_, help, _ = strings.Cut(rest, " ")
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			current = &scraped{kind: kind, help: help, labels: map[string]bool{}, series: map[string]bool{}}
			out[name] = current
			continue
		}
		match := sampleForm.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("%q is no sample", line)
		}
		var names, pairs []string
		for _, pair := range labelForm.FindAllStringSubmatch(match[2], -1) {
			if pair[1] != "le" && pair[1] != "quantile" {
				names, pairs = append(names, pair[1]), append(pairs, pair[0])
			}
		}
		slices.Sort(names)
		slices.Sort(pairs)
		current.labels[strings.Join(names, ",")], current.series[strings.Join(pairs, ",")] = true, true
	}
	return out
}
