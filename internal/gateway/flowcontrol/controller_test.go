package flowcontrol

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// testLevel returns a level with queues. If queues is 0, the level refuses requests that find no free seats.
func testLevel(name string, shares, queues, length int32) *flowcontrolv1.PriorityLevelConfiguration {
	limited := &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: &shares, LendablePercent: new(int32(0)), BorrowingLimitPercent: new(int32(0)),
		LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
	}
	if queues > 0 {
		limited.LimitResponse = flowcontrolv1.LimitResponse{
			Type:    flowcontrolv1.LimitResponseTypeQueue,
			Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: 1, QueueLengthLimit: length},
		}
	}
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-level-" + "x"},
		Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: limited},
	}
}

// testSchema returns a schema for all requests of a user. The user "*" means all users.
func testSchema(name, level, user string, precedence int32) *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-schema"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{
					{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

func configured(seats int, levels ...*flowcontrolv1.PriorityLevelConfiguration) *Controller {
	c := New(Options{ReadOnly: seats})
	schemas := []*flowcontrolv1.FlowSchema{testSchema("all", levels[0].Name, "*", 100)}
	for _, l := range levels {
		schemas = append(schemas, testSchema(l.Name, l.Name, l.Name, 50))
	}
	c.Configure(schemas, levels)
	return c
}

func getPods() *request.Info {
	return &request.Info{Verb: "get", Resource: "pods", Name: "p", Namespace: "n", AsksResource: true, Version: "v1"}
}

func user(name string, groups ...string) *request.User {
	return &request.User{Name: name, Groups: groups}
}

func (c *Controller) page(t *testing.T, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest("GET", dumpPath+name, nil))
	return w.Body.String()
}

// waiting returns how many requests wait at a level.
func (c *Controller) waiting(name string) (n int) {
	c.snapshot(func(l *level, _ time.Duration) {
		if l.name == name {
			n = l.queues.Counts().Waiting
		}
	})
	return n
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	c := configured(1, testLevel("one", 1, 1, 2))
	first := c.Begin(getPods(), user("a"), "")
	if !first.Wait(t.Context(), patience) {
		t.Fatal("the first is refused")
	}
	results := make(chan bool)
	var waited request.Tracker
	for range 2 {
		go func() {
			info := getPods()
			info.Tracker = &waited
			next := c.Begin(info, user("a"), "")
			ok := next.Wait(t.Context(), patience)
			next.Release()
			results <- ok
		}()
	}
	wait.Until(t, "two requests in the queue", func() bool { return c.waiting("one") == 2 })
	if c.Begin(getPods(), user("a"), "").Wait(t.Context(), patience) {
		t.Error("a request is served although the queue is full")
	}
	read, write := c.Current()
	if read != 1 || write != 0 {
		t.Errorf("%d and %d in flight", read, write)
	}
	if text := c.page(t, "dump_requests?includeRequestDetails=1"); strings.Count(text, "one, ") != 2 ||
		!strings.Contains(text, "get,") {
		t.Errorf("%s", text)
	}
	first.Release()
	first.Release() // has no effect
	for range 2 {
		if !<-results {
			t.Error("a queued request is refused")
		}
	}
	if waited.Outside() == 0 {
		t.Error("the time in the queue is not recorded")
	}
	ended := 0.0
	for _, n := range c.flows[flowKey{"all", "one"}].executions[0].Weights {
		ended += n
	}
	if ended != 3 {
		t.Errorf("%v requests ended", ended)
	}
	if text := c.page(t, "dump_priority_levels"); !strings.Contains(text,
		"one,               0,            true,   false,       0,               0,                 3,                  1,"+
			"                0,                0\n") {
		t.Errorf("%s", text)
	}
}

func TestWaitingEnds(t *testing.T) {
	c := configured(1, testLevel("one", 1, 1, 50))
	first := c.Begin(getPods(), user("a"), "")
	first.Wait(t.Context(), patience)
	if c.Begin(getPods(), user("b"), "").Wait(t.Context(), time.Millisecond) {
		t.Error("a request is served that found no seat in its time")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- c.Begin(getPods(), user("b"), "").Wait(ctx, patience) }()
	wait.Until(t, "a request in the queue", func() bool { return c.waiting("one") == 1 })
	cancel()
	if <-done {
		t.Error("a request is served whose client is gone")
	}
	f := c.flows[flowKey{"all", "one"}]
	if f.rejected[timedOut] != 1 || f.rejected[cancelled] != 1 || f.waiting != 0 || f.waitingSeats != 0 {
		t.Errorf("%+v", f)
	}
	first.Release()
	if !c.Begin(getPods(), user("b"), "").Wait(t.Context(), patience) {
		t.Error("the seat is lost")
	}
}

// TestSeatsAndEndAtOnce has requests that get seats at the moment at which their clients go away. They execute,
// and the message about their seats is no longer in the channel when they wait again.
func TestSeatsAndEndAtOnce(t *testing.T) {
	c := configured(1, testLevel("one", 1, 1, 50))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 40 {
		first, second := c.Begin(getPods(), user("a"), ""), c.Begin(getPods(), user("a"), "")
		if !first.Wait(t.Context(), patience) {
			t.Fatal("the first is refused")
		}
		second.ctx, second.limit = gone, patience
		if got := second.arrive(); got != fairqueue.Waits {
			t.Fatalf("the second: %d", got)
		}
		first.Release()
		if !second.sleep() || len(second.ready) != 0 {
			t.Fatalf("the second does not execute, or %d messages are left", len(second.ready))
		}
		second.Release()
	}
}

func TestLevelsWithoutQueuesRefuse(t *testing.T) {
	c := configured(1, testLevel("reject", 1, 0, 0))
	first := c.Begin(getPods(), user("a"), "")
	if !first.Wait(t.Context(), patience) || c.Begin(getPods(), user("b"), "").Wait(t.Context(), patience) {
		t.Error("not one of one")
	}
	if n := c.flows[flowKey{"all", "reject"}].rejected[concurrencyLimit]; n != 1 {
		t.Errorf("%d", n)
	}
	master := c.Begin(getPods(), user("admin", request.GroupMasters), "")
	if !master.Wait(t.Context(), patience) || master.level.name != "exempt" {
		t.Error("system:masters is refused")
	}
	// A user without groups, whom only the FlowSchema catch-all matches.
	c.Configure(nil, nil)
	if got := c.Begin(getPods(), user("x"), "").level.name; got != "catch-all" {
		t.Errorf("%s", got)
	}
}

// TestRequestsOfManyGoroutines runs in a bubble, so that requests always have to wait. It has requests that pause, time out, are cancelled and end while the configuration changes.
// The executing requests never have more seats than there are, and at the end all seats are free.
func TestRequestsOfManyGoroutines(t *testing.T) {
	synctest.Test(t, testRequestsOfManyGoroutines)
}

func testRequestsOfManyGoroutines(t *testing.T) {
	const seats = 5
	c := configured(seats, testLevel("one", 50, 8, 10), testLevel("two", 50, 4, 10), testLevel("three", 1, 0, 0))
	var running, served, refused atomic.Int64
	var wg sync.WaitGroup
	for g := range uint64(32) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(g, 1))
			for range 300 {
				who := []string{"one", "two", "three"}[random.IntN(3)]
				ticket := c.Begin(getPods(), user(who), "")
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond+1)
				if !ticket.Wait(ctx, time.Duration(1+random.IntN(2000))*time.Microsecond) {
					refused.Add(1)
					cancel()
					continue
				}
				served.Add(1)
				// Levels round their seats up, and requests keep their seats when their level gets fewer.
				if n := running.Add(1); n > 3*seats {
					t.Errorf("%d run", n)
				}
				time.Sleep(200 * time.Microsecond) // so that others have to wait
				if random.IntN(3) == 0 {
					running.Add(-1)
					ticket.Pause()
					ticket.Read(func() {})
					ticket.Release()
				} else {
					running.Add(-1)
					ticket.Release()
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			level := testLevel("two", 50, int32(1+i%7), 10)
			c.Configure([]*flowcontrolv1.FlowSchema{testSchema("two", "two", "two", 50), testSchema("one", "one", "one", 50)},
				[]*flowcontrolv1.PriorityLevelConfiguration{testLevel("one", 50, 8, 10), level})
			c.Adjust()
			c.page(t, "dump_queues")
		}
	})
	wg.Wait()
	if served.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d served, %d refused", served.Load(), refused.Load())
	}
	c.snapshot(func(l *level, _ time.Duration) {
		if n := l.queues.Counts(); n.Executing != 0 || n.Seats != 0 || n.Waiting != 0 || n.ActiveQueues != 0 {
			t.Errorf("%s: %+v", l.name, n)
		}
	})
	if read, write := c.Current(); read != 0 || write != 0 {
		t.Errorf("%d and %d in flight", read, write)
	}
}

// TestSlowBodies checks that a request whose body does not come gives its seat to another one, and waits again.
func TestSlowBodies(t *testing.T) {
	c := configured(1, testLevel("one", 1, 1, 50))
	slow := c.Begin(getPods(), user("slow"), "")
	slow.Wait(t.Context(), patience)
	read, result := make(chan bool), make(chan bool)
	go func() { result <- slow.Read(func() { <-read }) }()
	other := c.Begin(getPods(), user("other"), "")
	if !other.Wait(t.Context(), patience) {
		t.Fatal("another request waits for a body that does not come")
	}
	read <- true
	wait.Until(t, "the slow request in the queue", func() bool { return c.waiting("one") == 1 })
	other.Release()
	if !<-result {
		t.Error("the slow request is refused")
	}
	slow.Release()
	if n := c.levels["one"].queues.Counts(); n.Seats != 0 || n.Executing != 0 {
		t.Errorf("%+v", n)
	}
}

func TestEstimates(t *testing.T) {
	c := New(Options{ReadOnly: 600, Sizes: func(_, resource string) (Size, bool) {
		s, ok := map[string]Size{
			"pods": {Objects: 5000, Bytes: 10_000_000}, "nodes": {Objects: 450}, "few": {Objects: 3, Bytes: 900},
		}[resource]
		return s, ok
	}})
	for line, want := range map[string]int{
		"list pods": 10, "list pods limit=100": 2, "list pods limit=100&labelSelector=a": 10,
		"list pods limit=100&resourceVersion=0": 10, "list pods limit=x": 1, "list pods continue=x": 90, "list nodes": 5,
		"list few": 1, "list unknown": 1, "watch pods": 1, "watch pods sendInitialEvents=true": 10, "get pods": 1,
		"watch pods sendInitialEvents=x": 1, "list pods resourceVersion=7&limit=500": 10,
	} {
		parts := append(strings.Split(line, " "), "")
		info := &request.Info{Verb: parts[0], Resource: parts[1], AsksResource: true}
		if got := c.estimate(info, parts[2], 90); got.Initial != want || got.Final != 0 || got.Watchers != -1 {
			t.Errorf("%s: %+v, want %d", line, got, want)
		}
		if got := c.estimate(info, parts[2], 3); got.Initial != min(want, 3) {
			t.Errorf("%s: %+v with 3 seats at most", line, got)
		}
	}
	watching := func(n int, query string, info request.Info) {
		for range n {
			c.watchers.add(&info, query)
		}
	}
	pods := request.Info{Group: "", Resource: "pods", AsksResource: true}
	inA, named := pods, pods
	inA.Namespace, named.Namespace, named.Name = "a", "a", "p"
	watching(20, "", pods)
	watching(30, "", inA)
	watching(2, "", named)
	watching(500, "fieldSelector=spec.nodeName%3Dn", pods)
	watching(3, "fieldSelector=metadata.name%3Dp", inA)
	for line, want := range map[string]Estimate{
		"update a p": {Initial: 1, Final: 6, Extra: 5 * time.Millisecond, Watchers: 56},
		"create a":   {Initial: 1, Final: 6, Extra: 5 * time.Millisecond, Watchers: 51},
		"delete b x": {Initial: 1, Final: 3, Extra: 5 * time.Millisecond, Watchers: 21},
	} {
		parts := append(strings.Split(line, " "), "")
		info := pods
		info.Verb, info.Namespace, info.Name = parts[0], parts[1], parts[2]
		if got := c.estimate(&info, "", 90); got != want {
			t.Errorf("%s: %+v", line, got)
		}
	}
	info := inA
	info.Verb = "update"
	if got := c.estimate(&info, "", 2); got.Final != 2 || got.Extra != 15*time.Millisecond {
		t.Errorf("with two seats at most: %+v", got)
	}
	end := c.watchers.add(&request.Info{Resource: "nodes", AsksResource: true}, "")
	end()
	if n := c.watchers.interested(&request.Info{Resource: "nodes"}); n != 0 {
		t.Errorf("%d watchers of nodes", n)
	}
}

// TestAThousandSchemas checks that the number of FlowSchemas does not matter to the cost of a request, and that those
// which no request matches have no series.
func TestAThousandSchemas(t *testing.T) {
	level := testLevel("one", 1, 64, 50)
	var schemas []*flowcontrolv1.FlowSchema
	for i := range 1000 {
		schemas = append(schemas, testSchema(fmt.Sprintf("s%d", i), "one", fmt.Sprintf("u%d", i), 500))
	}
	c := New(Options{ReadOnly: 100})
	c.Configure(schemas, []*flowcontrolv1.PriorityLevelConfiguration{level})
	info, who := getPods(), user("u999", "system:authenticated")
	once := func() {
		ticket := c.Begin(info, who, "")
		if !ticket.Wait(context.Background(), patience) {
			t.Error("refused")
		}
		ticket.Pause()
		ticket.Resume()
		ticket.Release()
	}
	if n := testing.AllocsPerRun(100, once); n > 1 {
		t.Errorf("%v allocations", n)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		series += len(f.GetMetric())
	}
	if series > 100 || !slices.Contains(names, "apiserver_flowcontrol_request_wait_duration_seconds") {
		t.Errorf("%d series: %v", series, names)
	}
}

// TestRetryAfter refuses 300 requests a second for a minute, as in a recording of kube-apiserver: a value of n
// seconds is returned for n seconds.
func TestRetryAfter(t *testing.T) {
	var r retryAfter
	times := map[int]int{}
	now := time.Duration(0)
	for range 300 * 31 {
		times[r.refused(now)]++
		now += time.Second / 300
	}
	for value, want := range map[int]int{1: 300, 2: 600, 4: 1200, 8: 2400, 16: 4800} {
		if n := times[value]; n < want-10 || n > want+10 {
			t.Errorf("%d was sent %d times, not %d", value, n, want)
		}
	}
	for range 300 {
		now += 10 * time.Second
		r.refused(now)
	}
	if got := r.refused(now); got != 1 {
		t.Errorf("when few are refused: %d", got)
	}
}

func TestConfigurationChanges(t *testing.T) {
	c := configured(10, testLevel("one", 100, 1, 50), testLevel("two", 100, 1, 50))
	seats := func() string {
		var out []string
		c.snapshot(func(l *level, _ time.Duration) { out = append(out, fmt.Sprintf("%s %d", l.name, l.queues.Limit())) })
		return strings.Join(out, ", ")
	}
	if got := seats(); got != "catch-all 1, exempt 0, one 5, two 5" {
		t.Errorf("%s", got)
	}
	ticket := c.Begin(getPods(), user("two"), "")
	ticket.Wait(t.Context(), patience)
	one := []*flowcontrolv1.PriorityLevelConfiguration{testLevel("one", 95, 1, 50)}
	schemas := []*flowcontrolv1.FlowSchema{testSchema("one", "one", "one", 5), testSchema("two", "two", "two", 5)}
	c.Configure(schemas, one)
	if got := c.Begin(getPods(), user("two"), "").level.name; got != "catch-all" {
		t.Errorf("a request of a schema whose level is gone is of %s", got)
	}
	if text := c.page(t, "dump_priority_levels"); !strings.Contains(text, "two,               1,            false,  true,") {
		t.Errorf("a level with a request is gone:\n%s", text)
	}
	ticket.Release()
	c.Adjust()
	if got := seats(); got != "catch-all 1, exempt 0, one 10" {
		t.Errorf("%s", got)
	}
	if n := c.levels["one"].mostSeat.Load(); n != 2 { // 15 % of ten
		t.Errorf("a request may occupy %d seats", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	c := configured(100, testLevel("one", 1, 64, 50))
	info, who := getPods(), user("u", "system:authenticated")
	b.ReportAllocs()
	for b.Loop() {
		ticket := c.Begin(info, who, "")
		ticket.Wait(b.Context(), patience)
		ticket.Pause()
		ticket.Resume()
		ticket.Release()
	}
}
