package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// TestLibraryFigures measures how long a server in this process takes to start and to be forked, and how much memory a
// hundred idle ones take, beside envtest with kube-apiserver and etcd. Each start ends with the first answered request.
// It prints figures and fails only if something does not work.
func TestLibraryFigures(t *testing.T) {
	if os.Getenv("KEELSON_FIGURES") == "" {
		t.Skip("KEELSON_FIGURES is not set")
	}
	ctrl.SetLogger(logr.Discard()) // its lines would hide the figures
	dir := t.TempDir()
	quiet := func(inProcess bool) config.Config {
		c := config.InMemory()
		c.Diagnostics.Log, c.Serving.InProcess = slog.New(slog.DiscardHandler), inProcess
		return c
	}
	const starts = 200
	for _, inProcess := range []bool{false, true} {
		repeat(t, fmt.Sprintf("Start, InProcess=%v", inProcess), starts, func(int) *keelson.Server {
			s, err := keelson.Start(t.Context(), quiet(inProcess))
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
	for _, storage := range []string{config.StorageMemory, config.StorageEmbedded} {
		c := quiet(true)
		if c.Storage.Backend = storage; storage == config.StorageEmbedded {
			c.Storage.DataDir = filepath.Join(dir, "first")
		}
		forkFigures(t, c, func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) })
	}
	memoryFigures(t, quiet(false))
	envtestFigures(t)
}

// repeat starts servers one after the other, and prints how long it takes until each has answered a request.
func repeat(t *testing.T, what string, n int, start func(i int) *keelson.Server) {
	t.Helper()
	var took []time.Duration
	for i := range n {
		began := time.Now()
		s := start(i)
		firstRequest(t, s.RESTConfig())
		if i > 0 { // the first does what a process does once
			took = append(took, time.Since(began))
		} else {
			t.Logf("%s: the first in the process %.1f ms", what, milliseconds(time.Since(began)))
		}
		stopServer(t, s)
	}
	report(t, what, took)
}

func forkFigures(t *testing.T, c config.Config, dir func(int) string) {
	t.Helper()
	s, err := keelson.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer stopServer(t, s)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	const objects, forks = 1000, 200
	for i := range objects {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m-", i)}, Data: map[string]string{"a": "b"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	p, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // of a measurement
	t.Logf("Snapshot of %d objects, %s: %.1f ms", objects, c.Storage.Backend, milliseconds(time.Since(began)))
	repeat(t, fmt.Sprintf("fork with %d objects, %s", objects, c.Storage.Backend), forks, func(i int) *keelson.Server {
		fork, err := p.Start(t.Context(), func(c *config.Config) {
			if c.Storage.Backend == config.StorageEmbedded {
				c.Storage.DataDir = dir(i)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return fork
	})
}

// memoryFigures prints the memory of idle servers that run side by side.
func memoryFigures(t *testing.T, c config.Config) {
	t.Helper()
	const servers = 100
	before := anonymousMemory(t)
	began := time.Now()
	for range servers {
		s, err := keelson.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer stopServer(t, s)
		firstRequest(t, s.RESTConfig())
	}
	t.Logf("%d servers started one after the other in %.2f s", servers, time.Since(began).Seconds())
	time.Sleep(time.Second) // until their controllers are idle
	each := (anonymousMemory(t) - before) / servers
	t.Logf("anonymous memory of each of %d idle servers: %.2f MB", servers, float64(each)/(1<<20))
}

// anonymousMemory returns the anonymous memory of this process after a garbage collection, in bytes.
func anonymousMemory(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	debug.FreeOSMemory() // twice, because sync.Pool keeps its content for one collection
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(string(line), "RssAnon: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	t.Fatal("/proc/self/status has no RssAnon")
	return 0
}

// envtestFigures prints how long envtest takes to start kube-apiserver and etcd, and to stop them.
func envtestFigures(t *testing.T) {
	t.Helper()
	assets := t.TempDir()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(program(t, name), filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	const starts = 10
	var started, stopped []time.Duration
	for range starts {
		e := &envtest.Environment{BinaryAssetsDirectory: assets}
		began := time.Now()
		c, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		firstRequest(t, c)
		started = append(started, time.Since(began))
		began = time.Now()
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		stopped = append(stopped, time.Since(began))
	}
	report(t, "envtest with kube-apiserver and etcd", started)
	report(t, "stop of envtest", stopped)
}

// firstRequest sends one request.
func firstRequest(t *testing.T, c *rest.Config) {
	t.Helper()
	if _, err := kubernetes.NewForConfigOrDie(c).CoreV1().Namespaces().Get(
		t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func stopServer(t *testing.T, s *keelson.Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// report prints the median and the 99th percentile.
func report(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	at := func(percent int) float64 { return milliseconds(took[(len(took)-1)*percent/100]) }
	t.Logf("%s: p50 %.1f ms, p99 %.1f ms (%d times)", what, at(50), at(99), len(took))
}
