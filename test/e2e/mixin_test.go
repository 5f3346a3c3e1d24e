package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// TestMixinRules evaluates the rules about API servers that most clusters are watched with, those of the project
// kubernetes-mixin, with the rule engine of Prometheus on scrapes of Keelson under load. Every recording rule must have data,
// every alert must be valid, and none may fire.
func TestMixinRules(t *testing.T) {
	dir := logDir(t)
	s := keelsonOn(t, dir, "--storage", "memory")
	p := newPrometheus(t)
	const scrapes, interval = 12, 20 * time.Second // the time of the samples; the test does not wait for it
	at := time.Now().Add(-scrapes * interval).Truncate(time.Second)
	for i := range scrapes {
		mixinLoad(t, s, i)
		at = at.Add(interval)
		p.scrape(t, s, at)
	}
	for _, r := range recordingRules() {
		result := p.record(t, &r, at)
		if len(result) == 0 {
			t.Errorf("%s %v has no data:\n%s", r.name, r.labels, r.expr)
			continue
		}
		for _, sample := range result {
			if strings.Contains(r.name, ":availability30d") && sample.F < 0.9 {
				t.Errorf("%s %v is %v", r.name, r.labels, sample.F)
			}
		}
	}
	for name, expr := range mixinAlerts() {
		if result := p.query(t, expr, at); len(result) > 0 {
			t.Errorf("the alert %s fires on a healthy server: %v", name, result)
		}
	}
}

// mixinLoad sends a few requests of each kind that the rules tell apart: reads and writes, of all scopes, which succeed, fail
// for a reason of the client, and find nothing.
func mixinLoad(t *testing.T, s *apiServer, round int) {
	t.Helper()
	const collection = "/api/v1/namespaces/default/configmaps"
	name := fmt.Sprintf("round-%d", round)
	object := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
	for _, r := range []struct {
		method, path, contentType string
		body                      []byte
		want                      int
	}{
		{"POST", collection, jsonType, object, 201},
		{"GET", collection + "/" + name, "", nil, 200},
		{"GET", collection + "/missing", "", nil, 404},
		{"GET", collection, "", nil, 200},
		{"GET", "/api/v1/configmaps", "", nil, 200},
		{"PUT", collection + "/" + name, jsonType, object, 200},
		{"PATCH", collection + "/" + name, mergeType, []byte(`{"data":{"a":"b"}}`), 200},
		{"DELETE", collection + "/" + name, "", nil, 200},
		{"GET", "/healthz", "", nil, 200},
	} {
		if status, answer := s.must(t, r.method, r.path, jsonType, r.contentType, r.body); status != r.want {
			t.Fatalf("%s %s: %d %s", r.method, r.path, status, answer)
		}
	}
}

// prometheus is a Prometheus without its server: its database, query engine and rules.
type prometheus struct {
	db     *tsdb.DB
	query1 rules.QueryFunc
	parser parser.Parser
}

func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	options := tsdb.DefaultOptions()
	options.OutOfOrderTimeWindow = (24 * time.Hour).Milliseconds() // tests store samples before they evaluate rules at earlier times
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := parser.NewParser(parser.Options{})
	const mostSamples = 10_000_000
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: mostSamples, Timeout: time.Minute, Parser: p})
	return &prometheus{db: db, query1: rules.EngineQueryFunc(engine, db), parser: p}
}

// scrape reads the metrics of a server and stores them with a time, and with the labels that kube-prometheus gives them.
func (p *prometheus) scrape(t *testing.T, s *apiServer, at time.Time) {
	t.Helper()
	status, body := s.must(t, http.MethodGet, "/metrics", "", "", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	p.store(t, body, at, "job", "apiserver", "instance", "127.0.0.1", "cluster", "test", "namespace", "default")
}

// store stores metrics in the text format with a time and further labels, and a sample of up.
func (p *prometheus) store(t *testing.T, body []byte, at time.Time, further ...string) {
	t.Helper()
	appender := p.db.Appender(t.Context())
	add := func(metric string, value float64) {
		l, err := p.parser.ParseMetric(metric)
		if err != nil {
			t.Fatalf("%s: %v", metric, err)
		}
		b := labels.NewBuilder(l)
		for i := 0; i < len(further); i += 2 {
			b.Set(further[i], further[i+1])
		}
		if _, err := appender.Append(0, b.Labels(), at.UnixMilli(), value); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		last := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[last+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		add(line[:last], value)
	}
	add("up", 1)
	if err := appender.Commit(); err != nil {
		t.Fatal(err)
	}
}

// record evaluates a recording rule and stores its result, which other rules use.
func (p *prometheus) record(t *testing.T, r *recordingRule, at time.Time) promql.Vector {
	t.Helper()
	expr, err := p.parser.ParseExpr(r.expr)
	if err != nil {
		t.Fatalf("%s: %v\n%s", r.name, err, r.expr)
	}
	rule := rules.NewRecordingRule(r.name, expr, labels.FromMap(r.labels))
	result, err := rule.Eval(t.Context(), 0, at, p.query1, nil, 0)
	if err != nil {
		t.Fatalf("%s: %v\n%s", r.name, err, r.expr)
	}
	p.append(t, result, at)
	return result
}

// append stores the result of a rule.
func (p *prometheus) append(t *testing.T, result promql.Vector, at time.Time) {
	t.Helper()
	appender := p.db.Appender(t.Context())
	for _, sample := range result {
		if _, err := appender.Append(0, sample.Metric, at.UnixMilli(), sample.F); err != nil {
			t.Fatalf("%v: %v", sample.Metric, err)
		}
	}
	if err := appender.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (p *prometheus) query(t *testing.T, expr string, at time.Time) promql.Vector {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := p.query1(ctx, expr, at)
	if err != nil {
		t.Fatalf("%v\n%s", err, expr)
	}
	return result
}

// recordingRule is a recording rule.
type recordingRule struct {
	name, expr string
	labels     map[string]string
}

// What the rules of the mixin select. latency is the metric of the service level, without its suffix.
const (
	latency       = "apiserver_request_sli_duration_seconds"
	requestsTotal = "apiserver_request_total"
	reads         = `job="apiserver",verb=~"LIST|GET"`
	writes        = `job="apiserver",verb=~"POST|PUT|PATCH|DELETE"`
	ordinary      = `,subresource!~"proxy|attach|log|exec|portforward"`
)

// recordingRules are the rules of the mixin about API servers, in their order: the rates at which the error budget burns, the
// quantiles of the latency, and the availability.
func recordingRules() []recordingRule {
	return slices.Concat(burnRates(), quantiles(), availability())
}

// slowReads returns an expression of the rate of reads that took too long: 1 s for one object, 5 s for a namespace, 30 s for all.
func slowReads(count, bucket func(selector string) string) string {
	return fmt.Sprintf("%s - ((%s or vector(0)) + %s + %s)", count(reads+ordinary),
		bucket(reads+ordinary+`,scope=~"resource|",le="1"`), bucket(reads+ordinary+`,scope="namespace",le="5"`),
		bucket(reads+ordinary+`,scope="cluster",le="30"`))
}

func burnRates() (out []recordingRule) {
	for _, window := range []string{"1d", "1h", "2h", "30m", "3d", "5m", "6h"} {
		rate := func(metric string) func(string) string {
			return func(selector string) string {
				return fmt.Sprintf("sum by (cluster) (rate(%s{%s}[%s]))", metric, selector, window)
			}
		}
		count, bucket, total := rate(latency+"_count"), rate(latency+"_bucket"), rate(requestsTotal)
		failed := func(selector string) string {
			return fmt.Sprintf("(%s or vector(0) * on() group_left(cluster) %s)", total(selector+`,code=~"5.."`), total(selector))
		}
		out = append(out,
			recordingRule{"apiserver_request:burnrate" + window,
				fmt.Sprintf("((%s) + %s) / %s", slowReads(count, bucket), failed(reads), total(reads)),
				map[string]string{"verb": "read"}},
			recordingRule{"apiserver_request:burnrate" + window,
				fmt.Sprintf("((%s - %s) + %s) / %s", count(writes+ordinary), bucket(writes+ordinary+`,le="1"`), failed(writes),
					total(writes)),
				map[string]string{"verb": "write"}},
		)
	}
	return out
}

func quantiles() (out []recordingRule) {
	for verb, selector := range map[string]string{"read": reads, "write": writes} {
		out = append(out, recordingRule{
			"cluster_quantile:" + latency + ":histogram_quantile",
			fmt.Sprintf("histogram_quantile(0.99, sum by (cluster, le, resource) (rate(%s_bucket{%s}[5m]))) > 0", latency,
				selector+ordinary),
			map[string]string{"verb": verb, "quantile": "0.99"},
		})
	}
	return out
}

func availability() []recordingRule {
	const (
		byVerb     = "code_verb:" + requestsTotal
		byCode     = "code:" + requestsTotal + ":increase30d"
		byScope    = "cluster_verb_scope:" + latency + "_count"
		byScopeLE  = "cluster_verb_scope_le:" + latency + "_bucket"
		month      = ":increase30d"
		hour       = ":increase1h"
		all        = `verb=~"LIST|GET|POST|PUT|PATCH|DELETE"`
		hoursADay  = 24
		daysAMonth = 30
	)
	var out []recordingRule
	add := func(name, expr string, labels ...string) {
		r := recordingRule{name: name, expr: expr, labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			r.labels[labels[i]] = labels[i+1]
		}
		out = append(out, r)
	}
	for _, codes := range []string{"2..", "4.."} { // a healthy server answers no 3xx and 5xx
		add(byVerb+hour, fmt.Sprintf(`sum by (cluster, code, verb) (increase(%s{job="apiserver",%s,code=~%q}[1h]))`,
			requestsTotal, all, codes))
	}
	add(byVerb+month, fmt.Sprintf("avg_over_time(%s[30d]) * %d * %d", byVerb+hour, hoursADay, daysAMonth))
	add(byCode, fmt.Sprintf(`sum by (cluster, code) (%s{verb=~"LIST|GET"})`, byVerb+month), "verb", "read")
	add(byCode, fmt.Sprintf(`sum by (cluster, code) (%s{verb=~"POST|PUT|PATCH|DELETE"})`, byVerb+month), "verb", "write")
	add(byScope+hour, fmt.Sprintf(`sum by (cluster, verb, scope) (increase(%s_count{job="apiserver"}[1h]))`, latency))
	add(byScope+month, fmt.Sprintf("sum by (cluster, verb, scope) (avg_over_time(%s[30d]) * 24 * 30)", byScope+hour))
	add(byScopeLE+hour, fmt.Sprintf("sum by (cluster, verb, scope, le) (increase(%s_bucket[1h]))", latency))
	add(byScopeLE+month, fmt.Sprintf("sum by (cluster, verb, scope, le) (avg_over_time(%s[30d]) * 24 * 30)", byScopeLE+hour))

	sum := func(metric string) func(string) string {
		return func(selector string) string {
			selector = strings.ReplaceAll(strings.ReplaceAll(selector, `job="apiserver",`, ""), ordinary, "")
			return fmt.Sprintf("sum by (cluster) (%s{%s})", metric, selector)
		}
	}
	count, bucket := sum(byScope+month), sum(byScopeLE+month)
	slowRead := slowReads(count, bucket)
	slowWrite := fmt.Sprintf("%s - %s", count(writes), bucket(writes+`,le="1"`))
	failed := func(verb string) string {
		return fmt.Sprintf(`sum by (cluster) (%s{%scode=~"5.."} or 0 * %s)`, byCode, verb, byCode)
	}
	add("apiserver_request:availability30d", fmt.Sprintf("1 - ((%s) + (%s) + %s) / sum by (cluster) (%s)", slowWrite, slowRead,
		failed(""), byCode), "verb", "all")
	add("apiserver_request:availability30d", fmt.Sprintf(`1 - ((%s) + %s) / sum by (cluster) (%s{verb="read"})`, slowRead,
		failed(`verb="read",`), byCode), "verb", "read")
	add("apiserver_request:availability30d", fmt.Sprintf(`1 - ((%s) + %s) / sum by (cluster) (%s{verb="write"})`, slowWrite,
		failed(`verb="write",`), byCode), "verb", "write")
	for verb, selector := range map[string]string{"read": reads, "write": writes} {
		add("code_resource:apiserver_request_total:rate5m",
			fmt.Sprintf("sum by (cluster,code,resource) (rate(%s{%s}[5m]))", requestsTotal, selector), "verb", verb)
	}
	return out
}

// mixinAlerts are the expressions of the alerts of the mixin about API servers, by name.
func mixinAlerts() map[string]string {
	burns := func(long, short string, factor float64) string {
		return fmt.Sprintf("sum(apiserver_request:burnrate%s) > (%v * 0.01) and sum(apiserver_request:burnrate%s) > (%v * 0.01)",
			long, factor, short, factor)
	}
	expires := func(seconds int) string {
		const metric = "apiserver_client_certificate_expiration_seconds"
		return fmt.Sprintf(`%s_count{job="apiserver"} > 0 and on(job) histogram_quantile(0.01, sum by (job, le) `+
			`(rate(%s_bucket{job="apiserver"}[5m]))) < %d`, metric, metric, seconds)
	}
	const terminations = `sum(rate(apiserver_request_terminations_total{job="apiserver"}[10m]))`
	return map[string]string{
		"KubeAPIErrorBudgetBurn 1h":        burns("1h", "5m", 14.4),
		"KubeAPIErrorBudgetBurn 6h":        burns("6h", "30m", 6),
		"KubeAPIErrorBudgetBurn 1d":        burns("1d", "2h", 3),
		"KubeAPIErrorBudgetBurn 3d":        burns("3d", "6h", 1),
		"KubeClientCertificateExpiration":  expires(7 * 24 * 3600),
		"KubeClientCertificateExpiration1": expires(24 * 3600),
		"KubeAggregatedAPIErrors":          "sum by(name, namespace)(increase(aggregator_unavailable_apiservice_total[10m])) > 4",
		"KubeAggregatedAPIDown": "(1 - max by(name, namespace)(avg_over_time(aggregator_unavailable_apiservice[10m]))) * 100 " +
			"< 85",
		"KubeAPIDown": `absent(up{job="apiserver"} == 1)`,
		"KubeAPITerminatedRequests": fmt.Sprintf(`%s / (sum(rate(apiserver_request_total{job="apiserver"}[10m])) + %s) > 0.20`,
			terminations, terminations),
		"KubeVersionMismatch": `count(count by (git_version) (label_replace(kubernetes_build_info,"git_version","$1",` +
			`"git_version","(v[0-9]*.[0-9]*).*"))) > 1`,
		"KubeClientErrors": `(sum(rate(rest_client_requests_total{code=~"5.."}[5m])) by (instance, job) / ` +
			`sum(rate(rest_client_requests_total[5m])) by (instance, job)) > 0.01`,
	}
}
