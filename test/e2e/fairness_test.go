package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// fairnessLatency is how long each request of the load executes, because an admission webhook takes that long.
	fairnessLatency = 250 * time.Millisecond
	// fairnessSeats are the seats of the priority level of the load.
	fairnessSeats = 10
	// fairnessTime is how long requests are sent.
	fairnessTime = 40 * time.Second
	// The level can serve fairnessSeats/fairnessLatency = 40 requests a second; a tenth of that is a fair share. These are
	// the rates of the eight quiet and of the two noisy flows, together four times as much as can be served.
	quietRate, noisyRate = 3.0, 68.0
	noisyFlows, allFlows = 2, 10
)

// flowResult is what became of the requests of one flow.
type flowResult struct {
	mu                    sync.Mutex // guards what follows
	sent, served, refused int
	other                 map[string]int // other results
	retryAfter            map[string]int
	latencies             []time.Duration
}

func (f *flowResult) percentile(p float64) time.Duration {
	if len(f.latencies) == 0 {
		return 0
	}
	return f.latencies[min(int(p*float64(len(f.latencies))), len(f.latencies)-1)]
}

// TestFairness sends the same mix of ten flows, two of them noisy, at four times the capacity of a priority level to
// kube-apiserver and to Keelson, and prints what each flow gets. The quiet flows must get all that they ask for, and the
// noisy ones the same from both servers.
func TestFairness(t *testing.T) {
	dir := logDir(t)
	limits := []string{"--max-requests-inflight=16", "--max-mutating-requests-inflight=16"}
	results := map[string][]*flowResult{}
	for name, run := range map[string]func(t *testing.T) *apiServer{
		"kube-apiserver": func(t *testing.T) *apiServer { return kubeAPIServer(t, dir, startEtcd(t, dir), limits...) },
		"Keelson":        func(t *testing.T) *apiServer { return keelsonOn(t, dir, limits...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t)
			prepareFairness(t, s)
			results[name] = loadFlows(t, s)
			printFlows(t, s, results[name])
			s.kill()
		})
	}
	want, got := results["kube-apiserver"], results["Keelson"]
	if want == nil || got == nil {
		return // only one was chosen with -run
	}
	for i := range got {
		if i >= noisyFlows {
			if share := float64(got[i].served) / float64(got[i].sent); share < 0.99 {
				t.Errorf("the quiet flow %d got %.3f of what it asked for", i, share)
			}
			continue
		}
		if ratio := float64(got[i].served) / float64(want[i].served); ratio < 0.9 || ratio > 1.1 {
			t.Errorf("the noisy flow %d got %.2f times what it got from kube-apiserver", i, ratio)
		}
	}
}

// prepareFairness makes a level of 10 seats that lends and borrows nothing, a FlowSchema of the group load, and a webhook
// that takes some time.
func prepareFairness(t *testing.T, s *apiServer) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(slowReview))
	t.Cleanup(hook.Close)
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	// 100 of 345 shares of 32 seats are 10.
	for _, o := range []struct{ path, body string }{
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"load"},"roleRef":{"apiGroup":
			"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","apiGroup":
			"rbac.authorization.k8s.io","name":"load"}]}`},
		{"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"load"},"spec":{"type":
			"Limited","limited":{"nominalConcurrencyShares":100,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":
			{"type":"Queue","queuing":{"queues":64,"handSize":6,"queueLengthLimit":20}}}}}`},
		{"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"metadata":{"name":"load"},"spec":{"matchingPrecedence":50,
			"priorityLevelConfiguration":{"name":"load"},"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":
			"Group","group":{"name":"load"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":
			["*"]}]}]}}`},
		{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"slow"},
			"webhooks":[{"name":"slow.example.com","clientConfig":{"url":%q,"caBundle":%s},"rules":[{"apiGroups":[""],
			"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],"sideEffects":"None",
			"admissionReviewVersions":["v1"],"timeoutSeconds":10}]}`, strings.Replace(hook.URL, "localhost", "127.0.0.1", 1), ca)},
	} {
		if status, body := s.must(t, http.MethodPost, o.path, jsonType, jsonType, []byte(o.body)); status != http.StatusCreated {
			t.Fatalf("%s: %d %s", o.path, status, body)
		}
	}
	eventually(t, time.Minute, "the priority level has 10 seats", func(ctx context.Context) error {
		_, body, err := s.call(ctx, http.MethodGet, "/metrics", "", "", nil)
		if want := `apiserver_flowcontrol_current_limit_seats{priority_level="load"} ` + strconv.Itoa(fairnessSeats); err == nil &&
			!strings.Contains(string(body), want) {
			err = fmt.Errorf("the metrics have no line %s", want)
		}
		return err
	})
	eventually(t, time.Minute, "the webhook is called", func(ctx context.Context) error {
		began := time.Now()
		status, _, err := send(ctx, s, "nobody")
		if err == nil && (status != http.StatusCreated || time.Since(began) < fairnessLatency) {
			err = fmt.Errorf("%d after %v", status, time.Since(began))
		}
		return err
	})
}

// slowReview allows everything after some time.
func slowReview(w http.ResponseWriter, r *http.Request) {
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	time.Sleep(fairnessLatency)
	w.Header().Set("Content-Type", jsonType)
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
		review.Request.UID)
}

// send sends one request of a flow, and returns its status and the header Retry-After.
func send(ctx context.Context, s *apiServer, flow string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/namespaces/default/configmaps?dryRun=All",
		bytes.NewReader([]byte(`{"metadata":{"name":"x"}}`)))
	if err != nil {
		return 0, "", err
	}
	r.Header = http.Header{
		"Authorization": {"Bearer " + adminToken}, "Content-Type": {jsonType}, "Impersonate-User": {flow},
		"Impersonate-Group": {"load"}, "User-Agent": {"e2e"},
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After"), err
}

// loadFlows sends the requests of all flows at random moments, whether earlier ones are answered or not, and waits for
// all answers.
func loadFlows(t *testing.T, s *apiServer) []*flowResult {
	t.Helper()
	// HTTP/1.1 lets all requests of a flow be under way at the same time.
	transport := s.http.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2, transport.MaxIdleConnsPerHost = false, 1000
	ctx, cancel := context.WithTimeout(t.Context(), fairnessTime+2*time.Minute)
	defer cancel()
	all := make([]*flowResult, allFlows)
	var wg sync.WaitGroup
	for i := range all {
		f := &flowResult{other: map[string]int{}, retryAfter: map[string]int{}}
		all[i] = f
		rate := quietRate
		if i < noisyFlows {
			rate = noisyRate
		}
		random := rand.New(rand.NewPCG(uint64(i), 36))
		wg.Go(func() {
			for next, end := time.Now(), time.Now().Add(fairnessTime); next.Before(end); {
				time.Sleep(time.Until(next))
				next = next.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
				f.sent++
				wg.Go(func() { f.one(ctx, s, fmt.Sprintf("flow%d", i)) })
			}
		})
	}
	wg.Wait()
	for _, f := range all {
		slices.Sort(f.latencies)
	}
	return all
}

// one sends one request and notes the result.
func (f *flowResult) one(ctx context.Context, s *apiServer, flow string) {
	began := time.Now()
	status, retry, err := send(ctx, s, flow)
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && status == http.StatusCreated:
		f.served++
		f.latencies = append(f.latencies, took)
	case err == nil && status == http.StatusTooManyRequests:
		f.refused++
		f.retryAfter[retry]++
	default:
		f.other[fmt.Sprint(status, err)]++
	}
}

// printFlows prints the results as a table.
func printFlows(t *testing.T, s *apiServer, all []*flowResult) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n| flow | sent | served | refused | median | p90 | p99 | longest |\n", s.name)
	for i, f := range all {
		fmt.Fprintf(&b, "| %d | %d | %d | %d | %v | %v | %v | %v | Retry-After %v, others %v\n", i, f.sent, f.served, f.refused,
			f.percentile(0.5).Round(time.Millisecond), f.percentile(0.9).Round(time.Millisecond),
			f.percentile(0.99).Round(time.Millisecond), f.percentile(1).Round(time.Millisecond), f.retryAfter, f.other)
	}
	_, metrics := s.must(t, http.MethodGet, "/metrics", "", "", nil)
	for line := range strings.Lines(string(metrics)) {
		if strings.Contains(line, `flow_schema="load"`) && !strings.Contains(line, "_bucket") {
			b.WriteString(line)
		}
	}
	t.Log(b.String())
}
