package keelson_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// BenchmarkStart starts servers in memory, one after the other, and stops them.
func BenchmarkStart(b *testing.B) {
	for _, inProcess := range []bool{false, true} {
		b.Run(fmt.Sprintf("InProcess=%v", inProcess), func(b *testing.B) {
			c := config.InMemory()
			c.Serving.InProcess = inProcess
			benchmarkStarts(b, func() *keelson.Server { return start(b, c) }, func() {})
		})
	}
}

// benchmarkStarts measures the time until the server is ready, and the time until a new client has the response to
// its first create. It calls stopped after each server has stopped, and does not measure that.
func benchmarkStarts(b *testing.B, start func() *keelson.Server, stopped func()) {
	for _, name := range []string{"Ready", "FirstAnswer"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				s := start()
				if name == "FirstAnswer" {
					if _, err := clientset(b, s).CoreV1().ConfigMaps("default").Create(
						b.Context(), configMap("first"), metav1.CreateOptions{},
					); err != nil {
						b.Fatal(err)
					}
				}
				took = append(took, time.Since(begin))
				b.StopTimer()
				stop(b, s)
				stopped()
				b.StartTimer()
			}
			slices.Sort(took)
			for _, percent := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*percent/100])/float64(time.Millisecond), fmt.Sprintf("p%d-ms", percent))
			}
		})
	}
}

// BenchmarkIdle measures the anonymous memory of one idle server in memory with a connected client. Many of them
// run in one process.
func BenchmarkIdle(b *testing.B) {
	const servers = 100
	for _, inProcess := range []bool{false, true} {
		b.Run(fmt.Sprintf("InProcess=%v", inProcess), func(b *testing.B) {
			c := config.InMemory()
			c.Serving.InProcess = inProcess
			first := start(b, c) // also makes what servers of a process share
			defer stop(b, first)
			settle(b, first)
			var sum int
			for b.Loop() {
				before := anonymousMemory(b)
				var all []*keelson.Server
				for range servers {
					all = append(all, start(b, c))
					settle(b, all[len(all)-1])
				}
				sum += anonymousMemory(b) - before
				for _, s := range all {
					stop(b, s)
				}
			}
			b.ReportMetric(float64(sum)/float64(b.N)/servers/1e6, "MB/server")
		})
	}
}

// anonymousMemory returns the anonymous memory of this process in bytes, after it has collected its garbage.
func anonymousMemory(tb testing.TB) int {
	tb.Helper()
	runtime.GC() // FreeOSMemory collects again, because sync.Pool keeps its content for one collection
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skip(err) // not Linux
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		tb.Fatal(err)
	}
	return kilobytes << 10
}

// start starts a server without a log, which the caller stops.
func start(tb testing.TB, c config.Config) *keelson.Server {
	tb.Helper()
	c.Diagnostics.Log = slog.New(slog.DiscardHandler)
	s, err := keelson.Start(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func stop(tb testing.TB, s *keelson.Server) {
	tb.Helper()
	if err := s.Stop(context.Background()); err != nil {
		tb.Error(err)
	}
}

func clientset(tb testing.TB, s *keelson.Server) *kubernetes.Clientset {
	tb.Helper()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// TestNothingIsLeftBehind: a server that was stopped leaves no goroutine, no open file and no listener, although clients
// hold connections and watches.
func TestNothingIsLeftBehind(t *testing.T) {
	stop(t, start(t, config.InMemory())) // makes what servers of a process share
	goroutines, files := goroutineStacks(), openFiles(t)
	for i := range 4 {
		c := config.InMemory()
		c.Serving.InProcess = i%2 == 1
		s := start(t, c)
		client := clientset(t, s)
		w, err := client.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stop(t, s) // although nobody reads the watch
		w.Stop()   // ends the client's own goroutine of the watch
	}
	wait.Seen(t, "the goroutines and the files to be gone", func() (bool, string) {
		if now := goroutineStacks(); strings.Count(now, "\n\n") > strings.Count(goroutines, "\n\n") {
			return false, "goroutines are left behind. Before:\n" + goroutines + "After:\n" + now
		}
		now := openFiles(t)
		return len(now) <= len(files), "files are left behind. Before: " + strings.Join(files, ", ") + ". After: " + strings.Join(now, ", ")
	})
}

// goroutineStacks returns the stacks of all goroutines, each followed by an empty line.
func goroutineStacks() string {
	var b bytes.Buffer
	const everyGoroutine = 2
	_ = pprof.Lookup("goroutine").WriteTo(&b, everyGoroutine) // writing to a buffer cannot fail
	return b.String()
}

// openFiles returns the targets of the open file descriptors of this process.
func openFiles(t *testing.T) []string {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil // not Linux
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil { // not the descriptor of dir itself
			out = append(out, target)
		}
	}
	return out
}

// TestIdleServersAreSmall checks the memory of an idle server with a connected client: about 3 MB of heap and
// stacks. The limit is a little higher, because the overhead of the runtime differs between runs.
func TestIdleServersAreSmall(t *testing.T) {
	const servers, most = 20, 13 << 18 // 3.25 MiB
	used := func() int64 {
		runtime.GC()
		runtime.GC() // twice, because sync.Pool keeps its content for one collection
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	first := start(t, config.InMemory()) // also makes what servers of a process share
	defer stop(t, first)
	settle(t, first)
	before := used()
	for range servers {
		s := start(t, config.InMemory())
		defer stop(t, s)
		settle(t, s)
	}
	each := (used() - before) / servers
	t.Logf("an idle server takes %d KiB", each>>10)
	if each > most && !raceDetector {
		t.Errorf("an idle server takes %d bytes of heap and stacks, more than %d", each, most)
	}
}

// settle waits until the controllers of a new server have created the objects in its namespaces.
func settle(tb testing.TB, s *keelson.Server) {
	tb.Helper()
	client := clientset(tb, s)
	waitForIdle(tb, s)
	if _, err := client.CoreV1().ServiceAccounts("").List(tb.Context(), metav1.ListOptions{}); err != nil {
		tb.Fatal(err) // it connects the client
	}
}

// TestLaterServersHaveTheSameObjects compares the default objects of two servers. The first server of a process
// creates them one by one, and later servers copy them. Only UIDs and times may differ.
func TestLaterServersHaveTheSameObjects(t *testing.T) {
	type object struct {
		kind, name string
		uid        string
		spec       any
	}
	read := func(s *keelson.Server) map[string]object {
		client, out := clientset(t, s), map[string]object{}
		add := func(kind string, m *metav1.ObjectMeta, spec any) {
			if m.UID == "" || m.CreationTimestamp.IsZero() || len(m.ManagedFields) == 0 && kind != "Namespace" {
				t.Errorf("%s %s is not complete: %+v", kind, m.Name, m)
			}
			out[kind+" "+m.Namespace+"/"+m.Name] = object{kind, m.Name, string(m.UID), spec}
		}
		roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range roles.Items {
			add("ClusterRole", &roles.Items[i].ObjectMeta, roles.Items[i].Rules)
		}
		bindings, err := client.RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range bindings.Items {
			add("RoleBinding", &bindings.Items[i].ObjectMeta, bindings.Items[i].Subjects)
		}
		flows, err := client.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range flows.Items {
			add("FlowSchema", &flows.Items[i].ObjectMeta, flows.Items[i].Status.Conditions[0].Status)
		}
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range namespaces.Items {
			add("Namespace", &namespaces.Items[i].ObjectMeta, namespaces.Items[i].Spec)
		}
		return out
	}
	// The aggregation controller writes some roles soon after the start, so it is off.
	without := func(c *config.Config) { c.Controllers.Names = []string{"-clusterrole-aggregation-controller", "*"} }
	first, second := keelson.ForTest(t, without), keelson.ForTest(t, without)
	a, b := read(first), read(second)
	if len(a) < 80 || len(a) != len(b) {
		t.Errorf("%d objects in the first, %d in the second server", len(a), len(b))
	}
	for key, x := range a {
		y, ok := b[key]
		if !ok || !equality.Semantic.DeepEqual(x.spec, y.spec) {
			t.Errorf("%s: %+v in the first, %+v in the second server", key, x, y)
		}
		if x.uid == y.uid {
			t.Errorf("%s has the UID %s in both servers", key, x.uid)
		}
	}
}
