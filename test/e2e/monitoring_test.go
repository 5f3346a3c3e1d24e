package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const monitoring = "../../packaging/prometheus/"

// TestMonitoring watches a server under load with the files in packaging/prometheus, by the packages of Prometheus: the
// configuration reads the metrics with a token of the service account, which may read nothing else. Every expression of the
// dashboard has data, every metric that an alert selects is there, and the alerts that fire are those of the faults here.
func TestMonitoring(t *testing.T) {
	s := serve(t, "--snapshot-schedule", "1h", "--admission-webhook-budget", "1ms")
	k := newKubectl(s, program(t, "kubectl"))
	k.run(t, "apply", "-f", monitoring+"access.yaml")
	k.run(t, "apply", "-f", "testdata/monitoring.yaml")
	token := k.run(t, "create", "token", "prometheus", "--namespace", "monitoring", "--duration", "8760h")
	client, scrape := scraper(t, s, token)
	if status, _ := httpGet(t, client, scrape[:strings.LastIndexByte(scrape, '/')]+"/api/v1/namespaces"); status != http.StatusForbidden {
		t.Errorf("the service account lists namespaces: %d", status)
	}

	load := monitoringClient{newAPIServer("keelson", s.port), k.run(t, "create", "token", "jailed")}
	defer load.background(t)()
	eventually(t, time.Minute, "the first snapshot", func(context.Context) error {
		found, err := filepath.Glob(filepath.Join(s.dir, "data", "backups", "keelson-*"))
		if err == nil && len(found) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	p := newPrometheus(t)
	const scrapes, interval = 45, 20 * time.Second // the time of the samples; the test does not wait for it
	alerts := parseAlerts(t, p.parser)
	at := time.Now().Add(-scrapes * interval).Truncate(time.Second)
	var firing map[string]bool
	for i := range scrapes {
		load.round(t.Context(), i)
		at = at.Add(interval)
		status, body := httpGet(t, client, scrape)
		if status != http.StatusOK {
			t.Fatalf("the metrics: %d %s", status, body)
		}
		p.store(t, body, at, "job", "keelson", "instance", "127.0.0.1")
		firing = p.evaluate(t, alerts, at)
	}
	// The webhook that cannot be reached makes requests fail, and the priority level with one seat rejects requests.
	if got, want := slices.Sorted(maps.Keys(firing)), []string{"KeelsonErrors", "KeelsonRequestsRejected"}; !slices.Equal(got, want) {
		t.Errorf("the alerts %v fire, want %v", got, want)
	}
	for _, a := range alerts {
		for _, selector := range selectors(t, a.Query()) {
			// A disk is not filled here; TestFullDisk of package server checks the answers 507.
			selector = strings.Replace(selector, `code="507",`, "", 1)
			if len(p.query(t, selector, at)) == 0 {
				t.Errorf("the alert %s: there is no %s", a.Name(), selector)
			}
		}
	}
	for _, panel := range dashboard(t) {
		for _, expr := range panel.exprs {
			result := p.query(t, expr, at)
			known := 0
			for _, sample := range result {
				if !math.IsNaN(sample.F) {
					known++
				}
			}
			if known == 0 {
				t.Errorf("the panel %q has no data (%d samples are no numbers):\n%s", panel.title, len(result), expr)
			}
		}
	}
}

// scraper returns a client as packaging/prometheus/prometheus.yaml configures it, and the URL of the metrics.
func scraper(t *testing.T, s *server, token string) (*http.Client, string) {
	t.Helper()
	text, err := os.ReadFile(monitoring + "prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(string(text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ScrapeConfigs) != 1 || !slices.Equal(c.RuleFiles, []string{"alerts.yaml"}) {
		t.Fatalf("%d scrape configurations, and the rules %v", len(c.ScrapeConfigs), c.RuleFiles)
	}
	job := c.ScrapeConfigs[0]
	if job.JobName != "keelson" || job.MetricsPath != "/metrics" {
		t.Errorf("the job %s scrapes %s", job.JobName, job.MetricsPath)
	}
	dir := t.TempDir()
	ca, err := os.ReadFile(filepath.Join(s.dir, "data", "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		job.HTTPClientConfig.TLSConfig.CAFile:              ca,
		job.HTTPClientConfig.Authorization.CredentialsFile: []byte(token),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	job.HTTPClientConfig.SetDirectory(dir)
	client, err := commonconfig.NewClientFromConfig(job.HTTPClientConfig, job.JobName)
	if err != nil {
		t.Fatal(err)
	}
	return client, fmt.Sprintf("%s://127.0.0.1:%d%s", job.Scheme, s.port, job.MetricsPath)
}

func httpGet(t *testing.T, client *http.Client, url string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, body
}

// monitoringClient sends requests that succeed and that fail. What they fail with is in testdata/monitoring.yaml.
type monitoringClient struct {
	*apiServer
	jailed string // the token of a service account whose priority level has one seat
}

// send sends a request whose answer does not matter.
func (c *monitoringClient) send(ctx context.Context, token, method, path, body string) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the arguments are wrong
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", jsonType)
	if w, err := c.http.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, w.Body)
		_ = w.Body.Close()
	}
}

// round sends some requests of each kind.
func (c *monitoringClient) round(ctx context.Context, n int) {
	const namespace = "/api/v1/namespaces/default/"
	object := fmt.Sprintf(`{"metadata":{"name":"round-%d"}}`, n)
	for _, r := range []struct{ token, method, path, body string }{
		{adminToken, "POST", namespace + "configmaps", object},
		{adminToken, "GET", "/api/v1/configmaps", ""},
		{adminToken, "POST", namespace + "secrets", object}, // a webhook with failurePolicy Fail cannot be reached
		{"wrong", "GET", "/api/v1/configmaps", ""},
		{c.jailed, "GET", namespace + "secrets", ""}, // the seat may be taken; otherwise it is forbidden
		{c.jailed, "GET", namespace + "secrets", ""},
		{c.jailed, "GET", namespace + "secrets", ""},
		{c.jailed, "GET", namespace + "secrets", ""},
	} {
		c.send(ctx, r.token, r.method, r.path, r.body)
	}
}

// background opens a watch, and takes the seat of the priority level most of the time: a read at a resource version of the
// future waits for it. The function that it returns ends both.
func (c *monitoringClient) background(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for token, path := range map[string]string{
		adminToken: "/api/v1/configmaps?watch=true",
		c.jailed:   "/api/v1/namespaces/default/configmaps?resourceVersion=1099511627776",
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				c.send(ctx, token, "GET", path, "")
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// parseAlerts checks packaging/prometheus/alerts.yaml as promtool does, and returns its rules.
func parseAlerts(t *testing.T, p parser.Parser) (alerts []*rules.AlertingRule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(monitoring+"alerts.yaml", false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, group := range groups.Groups {
		for _, r := range group.Rules {
			expr, err := p.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			if severity := r.Labels["severity"]; r.Annotations["summary"] == "" || severity != "critical" && severity != "warning" {
				t.Errorf("%s has the labels %v and the annotations %v", r.Alert, r.Labels, r.Annotations)
			}
			alerts = append(alerts, rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), 0, labels.FromMap(r.Labels),
				labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler)))
		}
	}
	return alerts
}

// evaluate evaluates alerts at a time, stores the series ALERTS, and returns the names of those that fire.
func (p *prometheus) evaluate(t *testing.T, alerts []*rules.AlertingRule, at time.Time) map[string]bool {
	t.Helper()
	firing := map[string]bool{}
	for _, a := range alerts {
		result, err := a.Eval(t.Context(), 0, at, p.query1, nil, 0)
		if err != nil {
			t.Fatalf("%s: %v", a.Name(), err)
		}
		p.append(t, result, at)
		if slices.ContainsFunc(a.ActiveAlerts(), func(a *rules.Alert) bool { return a.State == rules.StateFiring }) {
			firing[a.Name()] = true
		}
	}
	return firing
}

// selectors returns the series that an expression selects, each as an expression of the newest samples.
func selectors(t *testing.T, expr parser.Expr) (out []string) {
	t.Helper()
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			out = append(out, s.String())
		}
		return nil
	})
	return out
}

// panel is a panel of the dashboard.
type panel struct {
	title string
	exprs []string
}

// dashboard returns the panels of docs/grafana/keelson.json with the variables replaced.
func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	text, err := os.ReadFile("../../docs/grafana/keelson.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		out := panel{title: p.Title}
		for _, target := range p.Targets {
			out.exprs = append(out.exprs, strings.NewReplacer("$job", "keelson", "$instance", ".*").Replace(target.Expr))
		}
		panels = append(panels, out)
	}
	return panels
}

// alertTests is a file of tests for promtool, as far as packaging/prometheus/alerts_test.yaml uses its fields.
type alertTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []struct {
		Name        string         `json:"name"`
		Interval    model.Duration `json:"interval"`
		InputSeries []struct {
			Series string `json:"series"`
			Values string `json:"values"`
		} `json:"input_series"`
		Expressions []struct {
			Expr     string         `json:"expr"`
			EvalTime model.Duration `json:"eval_time"`
			Samples  []struct {
				Labels string  `json:"labels"`
				Value  float64 `json:"value"`
			} `json:"exp_samples"`
		} `json:"promql_expr_test"`
	} `json:"tests"`
}

// TestAlerts runs packaging/prometheus/alerts_test.yaml: made samples, and which alerts fire at which time.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(monitoring + "alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file alertTests
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			p := newPrometheus(t)
			alerts := parseAlerts(t, p.parser)
			start := time.Unix(0, 0)
			appender := p.db.Appender(t.Context())
			for _, series := range test.InputSeries {
				l, values, err := p.parser.ParseSeriesDesc(series.Series + " " + series.Values)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range values {
					ms := start.Add(time.Duration(i) * time.Duration(test.Interval)).UnixMilli()
					if _, err := appender.Append(0, l, ms, v.Value); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := appender.Commit(); err != nil {
				t.Fatal(err)
			}
			at := start
			for _, e := range test.Expressions {
				for ; !at.After(start.Add(time.Duration(e.EvalTime))); at = at.Add(time.Duration(file.EvaluationInterval)) {
					for name := range p.evaluate(t, alerts, at) {
						tested[name] = true
					}
				}
				var got, want []string
				for _, sample := range p.query(t, e.Expr, start.Add(time.Duration(e.EvalTime))) {
					got = append(got, fmt.Sprintf("%s %v", sample.Metric, sample.F))
				}
				for _, sample := range e.Samples {
					l, err := p.parser.ParseMetric(sample.Labels)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, fmt.Sprintf("%s %v", l, sample.Value))
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("after %v: %v, want %v", e.EvalTime, got, want)
				}
			}
		})
	}
	for _, a := range parseAlerts(t, newPrometheus(t).parser) {
		if !tested[a.Name()] {
			t.Errorf("no test makes %s fire", a.Name())
		}
	}
}
