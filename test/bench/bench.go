package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	inFlight    = 64
	requestTime = time.Minute // for requests that are not measured

	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	tableType    = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// bench is one run of the benchmark.
type bench struct {
	ctx      context.Context
	options  *options
	progress io.Writer
	launcher *launcher
	floor    *floorProcess
	report   report

	server     *target
	instance   *instance // the server, if this run has started it
	namespaces []string  // that this run has created
	pods       string    // the namespace of the pods; "" if they do not exist yet
	bodies     [][]byte
	// definitions are the names of the definitions that this run has created; custom describes the objects of one of
	// them.
	definitions []string
	custom      custom
	// layers has the samples in each layer of the server during the last measured requests, with --layers.
	layers map[string]int64
}

// step measures some rows.
type step struct {
	keys []string
	run  func() error
}

// steps are the steps of a run in their order.
func (b *bench) steps() []step {
	steps := []step{{[]string{"start", "memory-idle", "binary"}, b.startUp}, {[]string{"create-pods"}, b.createPods}}
	for _, l := range b.listings() {
		if l.key == "list-table" { // memory is measured after lists of the two encodings, before Tables are cached
			steps = append(steps, step{[]string{"memory-pods"}, b.memoryOfPods})
		}
		steps = append(steps, step{[]string{l.key}, func() error { return b.list(l) }})
	}
	steps = append(steps,
		step{[]string{"get-json"}, func() error { return b.get("get-json", jsonType) }},
		step{[]string{"get-protobuf"}, func() error { return b.get("get-protobuf", protobufType) }},
		step{[]string{"patch-status"}, b.patchStatus},
		step{[]string{"create-configmaps"}, b.createConfigMaps},
		step{[]string{"apply-configmaps"}, b.applyConfigMaps},
		step{[]string{"apply-existing"}, func() error {
			return b.applyChanges("apply-existing", "/api/v1/namespaces/{ns}/configmaps", 400, changedMap)
		}},
		step{[]string{"apply-deployments"}, func() error {
			return b.applyChanges("apply-deployments", "/apis/apps/v1/namespaces/{ns}/deployments", 2500, deployment)
		}},
		step{[]string{"memory-load"}, b.memoryAfterLoad},
		step{[]string{"watch-200"}, b.watchFew},
		step{[]string{"watch-paced"}, b.watchPaced},
		step{[]string{"watch-2000", "watch-memory"}, b.watchMany},
		step{[]string{"crd-served", "crd-cpu", "crd-memory", "crd-discovery", "crd-openapi"}, b.defineSpread},
		step{[]string{"crd-one-group"}, b.defineTogether},
		step{[]string{"custom-create"}, b.createCustom},
		step{[]string{"custom-memory"}, b.memoryOfCustom},
		step{[]string{"custom-list"}, b.listCustom},
		step{[]string{"custom-get"}, b.getCustom},
	)
	if b.options.long {
		for i := range memoryShapes {
			steps = append(steps, step{[]string{memoryShapes[i].row}, func() error { return b.memoryOfBytes(&memoryShapes[i]) }})
		}
		steps = append(steps,
			step{[]string{"memory-configmaps"}, b.memoryOfConfigMaps},
			step{[]string{"watch-each-cpu", "watch-each-lag", "watch-each-memory"}, b.watchEach},
			step{[]string{"pages-churn"}, b.pagesUnderChurn},
			step{[]string{"events-heap"}, b.heapOfEvents},
			step{[]string{"past-list", "past-history", "past-disk"}, b.readPast},
		)
		for _, p := range populations(b.options) {
			steps = append(steps, step{p.rows(), func() error { return b.scale(p) }})
		}
	}
	return steps
}

func newBench(ctx context.Context, o *options, dir string, progress io.Writer) (*bench, error) {
	b := &bench{ctx: ctx, options: o, progress: progress}
	b.report = report{Label: o.label, Server: o.server, Time: time.Now(), CPUs: runtime.NumCPU(), Pods: o.pods}
	if o.start != "" {
		log, err := os.OpenFile(o.serverLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
		b.launcher = &launcher{command: o.start, etcd: o.etcd, dir: dir, token: o.token, log: log}
		b.report.Server = o.start
	} else {
		address, err := loopback(o.server)
		if err != nil {
			return nil, err
		}
		b.server = &target{address: address, bearer: "Bearer " + o.token, pid: o.pid}
		c, err := dial(b.server)
		if err != nil {
			return nil, err
		}
		c.close()
	}
	var err error
	b.floor, err = startFloor(dir)
	return b, err
}

func (b *bench) close() {
	if b.instance != nil {
		b.instance.stop()
	} else {
		b.cleanUp()
	}
	b.floor.stop()
}

func (b *bench) run() {
	for _, s := range b.steps() {
		var wanted []string
		for _, k := range s.keys {
			if b.options.rows.MatchString(k) {
				wanted = append(wanted, k)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		if b.ctx.Err() != nil {
			return
		}
		fmt.Fprintf(b.progress, "bench: %s\n", strings.Join(wanted, ", "))
		rows, begin, others := len(b.report.Rows), time.Now(), b.others()
		if err := s.run(); err != nil {
			for _, k := range wanted {
				b.add(figure{Row: k, Error: err.Error()})
			}
		}
		busy := max(0, float64(b.others()-others)) / float64(time.Since(begin)) / float64(runtime.NumCPU())
		for i := rows; i < len(b.report.Rows); i++ {
			b.report.Rows[i].Others = busy
		}
	}
	if b.options.against != "" {
		return
	}
	if err := b.bareFloors(); err != nil {
		fmt.Fprintln(b.progress, "bench: floors:", err)
	}
}

// others returns the processor time of this machine that was used neither by this program nor by the server.
func (b *bench) others() time.Duration {
	own := treeUsage(os.Getpid()).cpu
	if b.instance == nil && b.server != nil {
		own += treeUsage(b.server.pid).cpu
	}
	return machineBusy() - own
}

// add adds a figure to the report if its row was selected.
func (b *bench) add(f figure) {
	if !b.options.rows.MatchString(f.Row) {
		return
	}
	e, ok := expected(f.Row)
	if !ok {
		panic("no row " + f.Row)
	}
	f.Name, f.Unit, f.Reference = e.name, e.unit.String(), e.kubeAPIServer
	b.report.Rows = append(b.report.Rows, f)
	if f.Error != "" {
		fmt.Fprintf(b.progress, "bench: %s: %s\n", f.Row, f.Error)
		return
	}
	fmt.Fprintf(b.progress, "bench: %s: %s, floor %s; %s\n", f.Row, e.unit.write(f.Value), e.unit.write(f.Floor), f.Detail)
}

// fresh starts a server on empty data. If this run does not start servers, the running server stays.
func (b *bench) fresh() error {
	if b.launcher == nil {
		return b.identify()
	}
	if b.instance != nil {
		b.instance.stop()
		b.instance, b.server = nil, nil
	}
	b.pods, b.namespaces, b.definitions, b.custom = "", nil, nil, custom{}
	s, err := b.launcher.start(b.ctx)
	if err != nil {
		return err
	}
	b.instance, b.server = s, &s.target
	return b.identify()
}

// ensure starts a server if none is running.
func (b *bench) ensure() error {
	if b.server != nil {
		return b.identify()
	}
	return b.fresh()
}

// identify asks the server for its version, once in a run.
func (b *bench) identify() error {
	if b.report.Version != "" {
		return nil
	}
	a, err := b.call(&request{method: http.MethodGet, path: "/version", accept: jsonType})
	if err != nil {
		return err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		return err
	}
	b.report.Version = v.GitVersion
	return nil
}

// call sends one request that is not measured, and returns an error unless it succeeds.
func (b *bench) call(r *request) (*answer, error) {
	c, err := dial(b.server)
	if err != nil {
		return nil, err
	}
	defer c.close()
	a, err := c.do(r, requestTime)
	if err != nil {
		return nil, err
	}
	if a.status < 200 || a.status > 299 {
		return a, fmt.Errorf("%s %s: %d %s", r.method, r.path, a.status, a.body[:min(len(a.body), longestFailure)])
	}
	return a, nil
}

// namespace creates a namespace and the service account that pods need.
func (b *bench) namespace(purpose string) (string, error) {
	name := fmt.Sprintf("bench-%s-%x", purpose, time.Now().UnixNano())
	post := func(path, body string) error {
		a, err := b.call(
			&request{method: http.MethodPost, path: path, accept: jsonType, contentType: jsonType, body: []byte(body)},
		)
		if a != nil && a.status == http.StatusConflict {
			return nil
		}
		return err
	}
	if err := post(
		"/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`,
	); err != nil {
		return "", err
	}
	b.namespaces = append(b.namespaces, name)
	return name, post(
		"/api/v1/namespaces/"+name+"/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`,
	)
}

// cleanUp deletes everything that this run has created. A server without controllers does not delete the objects of a
// deleted namespace, so cleanUp does that, too.
func (b *bench) cleanUp() {
	if err := b.deleteDefinitions(); err != nil {
		fmt.Fprintf(b.progress, "bench: definitions are left: %v\n", err)
	}
	for _, ns := range b.namespaces {
		if err := b.deleteNamespace(ns); err != nil {
			fmt.Fprintf(b.progress, "bench: namespace %s is left: %v\n", ns, err)
		}
	}
}

func (b *bench) deleteNamespace(ns string) error {
	for _, resource := range []string{"pods", "configmaps", "serviceaccounts"} {
		if err := b.deleteAll("/api/v1/namespaces/" + ns + "/" + resource); err != nil {
			return err
		}
	}
	path := "/api/v1/namespaces/" + ns
	if _, err := b.call(&request{method: http.MethodDelete, path: path, accept: jsonType}); err != nil {
		return err
	}
	body := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + ns + `"},"spec":{"finalizers":[]}}`
	a, err := b.call(
		&request{
			method: http.MethodPut, path: path + "/finalize", accept: jsonType, contentType: jsonType, body: []byte(body),
		},
	)
	if a != nil && a.status == http.StatusNotFound {
		return nil // a controller has done it
	}
	return err
}

func (b *bench) deleteAll(path string) error {
	const atOnce, rounds = "2000", 1000
	for range rounds {
		a, err := b.call(&request{method: http.MethodGet, path: path + "?limit=1", accept: jsonType})
		if err != nil {
			return err
		}
		if bytes.Contains(a.body, []byte(`"items":[]`)) {
			return nil
		}
		if _, err := b.call(
			&request{method: http.MethodDelete, path: path + "?gracePeriodSeconds=0&limit=" + atOnce, accept: jsonType},
		); err != nil {
			return err
		}
	}
	return errors.New("objects stay")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const megabyte, kilobyte = 1e6, 1e3

// details joins the texts that are not empty.
func details(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ", ")
}

func latency(o *outcome) string {
	return fmt.Sprintf("p50 %s, p99 %s", short(o.percentile(50)), short(o.percentile(99)))
}

// cpuDetail returns the server's processor time for one operation as text.
func cpuDetail(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "CPU " + short(d)
}

func short(d time.Duration) string {
	switch {
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%.1f us", float64(d)/float64(time.Microsecond))
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f us", float64(d)/float64(time.Microsecond))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", ms(d))
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms(d))
	}
	return fmt.Sprintf("%.0f ms", ms(d))
}

func failures(o *outcome) string {
	if o.failed == 0 {
		return ""
	}
	return fmt.Sprintf("%d FAILED: %s", o.failed, o.failure)
}
