package server

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// updateDocs writes the table in docs/metrics.md anew.
var updateDocs = flag.Bool("update", false, "write the table of metrics in docs/metrics.md anew")

const metricsPage = "../../docs/metrics.md"

// family is a metric of kube-apiserver 1.37: its name, its type and the names of its labels.
type family struct {
	name, kind string
	labels     []string
}

// webhookCalled is the event after which the metrics of HTTP clients appear.
const webhookCalled = "a webhook was called"

// queued is the event after which the metrics of queues appear.
const queued = "a request passed a priority level with queues"

// inEtcd is the condition for the metrics of etcd's client.
const inEtcd = "objects are stored in an etcd cluster"

// servedWhen has the metrics that appear only after an event or under a condition that the test does not produce.
var servedWhen = map[string]string{
	"etcd_lease_object_counts":                                        inEtcd,
	"grpc_client_handled_total":                                       inEtcd,
	"grpc_client_msg_received_total":                                  inEtcd,
	"grpc_client_msg_sent_total":                                      inEtcd,
	"grpc_client_started_total":                                       inEtcd,
	"apiserver_flowcontrol_next_s_bounds":                             queued,
	"apiserver_flowcontrol_next_discounted_s_bounds":                  queued,
	"apiserver_flowcontrol_latest_s":                                  queued,
	"apiserver_flowcontrol_dispatch_r":                                queued,
	"rest_client_response_size_bytes":                                 webhookCalled,
	"rest_client_requests_total":                                      webhookCalled,
	"rest_client_request_size_bytes":                                  webhookCalled,
	"rest_client_request_duration_seconds":                            webhookCalled,
	"apiserver_authorization_decisions_total":                         "an authorizer has decided; the group system:masters needs none",
	"apiserver_admission_webhook_admission_duration_seconds":          "a webhook was called",
	"apiserver_admission_webhook_fail_open_count":                     "the failure of a webhook was ignored",
	"apiserver_admission_webhook_request_total":                       "a webhook was called",
	"apiserver_impersonation_attempts_duration_seconds":               "a user was impersonated",
	"apiserver_impersonation_attempts_total":                          "a user was impersonated",
	"apiserver_impersonation_authorization_attempts_duration_seconds": "a user was impersonated",
	"apiserver_impersonation_authorization_attempts_total":            "a user was impersonated",
	"apiserver_request_terminations_total":                            "a request was refused or ended to protect the server",
	"apiserver_watch_cache_consistent_read_total":                     "a list was served from memory",
	"apiserver_flowcontrol_request_queue_length_after_enqueue":        queued,
	"apiserver_flowcontrol_current_inqueue_requests":                  queued,
	"apiserver_flowcontrol_current_inqueue_seats":                     queued,
	"apiserver_flowcontrol_request_wait_duration_seconds":             queued,
	"apiserver_init_events_total":                                     "a watch was sent the objects that exist",
	"apiserver_watch_cache_initialization_errors_total":               "objects could not be read into memory",
	"apiserver_watch_list_duration_seconds":                           "a watch with sendInitialEvents was begun",
	"etcd_bookmark_counts":                                            "--show-hidden-metrics-for-version is set",
	"etcd_bookmark_total":                                             "the store has advanced without changes of resources; Keelson has one watch of the store, so the labels are empty",
	"kube_apiserver_pod_logs_backend_tls_failure_total":               "the certificate of a kubelet was not accepted",
	"kube_apiserver_pod_logs_insecure_backend_total":                  "a log was read from a kubelet",
	"pod_security_exemptions_total":                                   "a request was exempt",
}

// Reasons why metrics of kube-apiserver do not apply to Keelson.
const (
	noLoopback    = "Keelson's controllers call the server without requests"
	noDeclarative = "Keelson validates each object once, without a second implementation to compare with"
	noExec        = "Keelson runs no credential plug-ins"
	noTransports  = "Keelson has one transport for each server that it calls, and no cache of them"
	noInformers   = "what follows a resource reads the log of the cache, without a queue and a store of its own"
	regenerations = "OpenAPI documents are made when they are requested, not when a definition changes"
)

// withoutMeaning has the metrics of kube-apiserver that Keelson does not have, with the reason.
var withoutMeaning = map[string]string{
	"apiextensions_apiserver_validation_ratcheting_seconds":      "old and new objects are compared while they are validated, not in a step of its own",
	"apiextensions_openapi_v2_regeneration_count":                regenerations,
	"apiextensions_openapi_v3_regeneration_count":                regenerations,
	"apiserver_request_timestamp_comparison_time":                "an update that changes nothing but times is found while managedFields are computed",
	"apiserver_selfrequest_total":                                noLoopback,
	"apiserver_watch_events_dispatch_duration_seconds":           "events are not sent to watches: each one reads the log of its resource when it is ready",
	"informer_processing_latency_seconds":                        noInformers,
	"informer_queued_items":                                      noInformers,
	"informer_store_resource_version":                            noInformers,
	"apiserver_validation_declarative_validation_mismatch_total": noDeclarative,
	"apiserver_validation_declarative_validation_panic_total":    noDeclarative,
	"apiserver_validation_duplicate_validation_error_total":      noDeclarative,
	"rest_client_exec_plugin_certificate_rotation_age":           noExec,
	"rest_client_exec_plugin_ttl_seconds":                        noExec,
	"rest_client_transport_cache_entries":                        noTransports,
	"rest_client_transport_cert_rotation_gc_calls_total":         noTransports,
	"rest_client_transport_create_calls_total":                   noTransports,
	"watch_cache_capacity":                                       "the log of a resource is limited by bytes, not by a number of events; keelson_cache_log_events and keelson_cache_log_bytes show it",
}

// TestMetricsOfKubeAPIServer sends a few requests and compares the metrics with those of kube-apiserver: each one is served
// with the same type and the same labels, or is in one of the lists above. docs/metrics.md has the result as a table.
func TestMetricsOfKubeAPIServer(t *testing.T) {
	shown := shownMetrics(t)
	var table strings.Builder
	table.WriteString("| metric | type | labels | Keelson |\n| --- | --- | --- | --- |\n")
	for _, want := range kubeFamilies(t) {
		got, found := shown[want.name]
		when, conditional := servedWhen[want.name]
		why, missing := withoutMeaning[want.name]
		state := "served"
		switch {
		case missing && found:
			t.Errorf("%s is served, but withoutMeaning has it", want.name)
		case missing:
			state = "- (" + why + ")"
		case conditional:
			state = "served when " + when
		case !found:
			t.Errorf("%s is not served", want.name)
		}
		if found && got.kind != want.kind {
			t.Errorf("%s is a %s, want %s", want.name, got.kind, want.kind)
		}
		if found && !slices.Equal(got.labels, want.labels) && len(want.labels) > 0 {
			t.Errorf("%s has the labels %v, want %v", want.name, got.labels, want.labels)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", want.name, want.kind, strings.Join(want.labels, ", "), state)
	}
	for _, name := range []string{"go_memory_classes_total_bytes", "go_sched_latencies_seconds", "process_open_fds"} {
		if _, found := shown[name]; !found {
			t.Errorf("%s is not served", name)
		}
	}
	compareTable(t, table.String())
}

// compareTable compares the table with the one in docs/metrics.md, or writes it there.
func compareTable(t *testing.T, table string) {
	t.Helper()
	const begin, end = "<!-- table of metrics: begin -->\n", "<!-- table of metrics: end -->"
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table", metricsPage)
	}
	if *updateDocs {
		if err := os.WriteFile(metricsPage, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != table {
		t.Errorf("the table in %s is old; go test ./internal/server -run %s -update writes it", metricsPage, t.Name())
	}
}

// shownMetrics starts a server, sends requests and returns its metrics.
func shownMetrics(t *testing.T) map[string]family {
	t.Helper()
	config := testConfig(t)
	config.Controllers.Names = defaultSettings().Controllers.Names
	s := start(t, config)
	client := httpClient(t, s, true)
	requestForMetrics(t, client, s.URL())
	return scrapeFamilies(t, apitest.Send(t, client, "GET", s.URL()+"/metrics", "").Body)
}

// requestForMetrics sends requests of several kinds.
func requestForMetrics(t *testing.T, client *http.Client, url string) {
	t.Helper()
	const widget = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/api/v1/namespaces/default/configmaps", widget},
		{"GET", "/api/v1/namespaces/default/configmaps/m", ""},
		{"GET", "/api/v1/namespaces/default/configmaps", ""},
		{"GET", "/api/v1/namespaces/default/endpoints", ""}, // a deprecated version
		{"GET", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&" +
			"allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", ""},
		{"DELETE", "/api/v1/namespaces/default/configmaps/m", ""},
		{"POST", "/api/v1/namespaces/default/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},` +
			`"spec":{"containers":[{"name":"a","image":"b"}]}}`},
		{"POST", "/api/v1/namespaces/default/services", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},` +
			`"spec":{"type":"NodePort","ports":[{"port":80}]}}`},
		{"GET", "/apis", ""},
	} {
		request, err := http.NewRequest(r.method, url+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
}

// scrapeFamilies parses the text format of metrics.
func scrapeFamilies(t *testing.T, text string) map[string]family {
	t.Helper()
	out := map[string]family{}
	var current family
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			current = family{name: name, kind: kind}
			out[name] = current
			continue
		}
		if strings.HasPrefix(line, "#") || len(out[current.name].labels) > 0 {
			continue
		}
		current.labels = labelNames(line)
		out[current.name] = current
	}
	return out
}

// labelNames returns the sorted names of the labels of a sample, without the labels le and quantile of the parts
// of histograms and summaries.
func labelNames(sample string) (names []string) {
	_, rest, found := strings.Cut(sample, "{")
	for found && rest != "" {
		name, value, ok := strings.Cut(rest, `="`)
		if !ok {
			break
		}
		if name != "le" && name != "quantile" {
			names = append(names, name)
		}
		_, rest, found = strings.Cut(value, `",`)
	}
	slices.Sort(names)
	return names
}

// kubeFamilies returns the metrics of kube-apiserver 1.37, without those of the Go runtime.
func kubeFamilies(t *testing.T) (out []family) {
	t.Helper()
	f, err := os.Open("testdata/kube-apiserver-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		one := family{name: fields[0], kind: fields[1]}
		if fields[2] != "-" {
			one.labels = strings.Split(fields[2], ",")
		}
		out = append(out, one)
	}
	return out
}

// TestDashboardQueriesExistingMetrics checks that each metric in the expressions of the dashboard is served, or is
// in a list of metrics that appear only after an event.
func TestDashboardQueriesExistingMetrics(t *testing.T) {
	content, err := os.ReadFile("../../docs/grafana/keelson.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := shownMetrics(t)
	afterEvents := []string{
		"apiserver_admission_webhook_admission_duration_seconds", "apiserver_admission_webhook_fail_open_count",
		"apiserver_admission_webhook_skipped_total", "apiserver_flowcontrol_rejected_requests_total",
		// These exist only with --snapshot-schedule.
		"keelson_snapshots_total", "keelson_snapshot_last_success_timestamp_seconds", "keelson_snapshot_interval_seconds",
		"keelson_snapshot_last_size_bytes",
		// These exist only with --backup-to.
		"keelson_backup_behind_seconds", "keelson_backup_behind_bytes", "keelson_backup_written_bytes_total",
		"keelson_backup_objects_total",
	}
	metric := regexp.MustCompile(`[a-z]+_[a-z_]+`)
	checked := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range metric.FindAllString(target.Expr, -1) {
				if !strings.HasPrefix(name, "keelson_") && !strings.HasPrefix(name, "apiserver_") {
					continue // a function
				}
				checked++
				base := name
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					if short := strings.TrimSuffix(name, suffix); shown[short].kind == "histogram" {
						base = short
					}
				}
				base = strings.TrimSuffix(base, "_bucket")
				if _, found := shown[base]; !found && !slices.Contains(afterEvents, base) {
					t.Errorf("%s: there is no metric %s", panel.Title, name)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("the dashboard has no expressions")
	}
}
