package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	cdpnetwork "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

const (
	figurePods   = 10_000
	figureRate   = 500 // events a second
	figureFrames = 10 * time.Second
)

// TestFigures measures the console and prints a table in Markdown. It judges nothing: machines are noisy.
func TestFigures(t *testing.T) {
	if os.Getenv("KEELSON_FIGURES") == "" {
		t.Skip("it takes minutes: set KEELSON_FIGURES=1")
	}
	var rows [][2]string
	add := func(what, format string, args ...any) {
		rows = append(rows, [2]string{what, fmt.Sprintf(format, args...)})
	}
	defer func() {
		var out strings.Builder
		out.WriteString("\n| figure | value |\n| --- | --- |\n")
		for _, row := range rows {
			fmt.Fprintf(&out, "| %s | %s |\n", row[0], row[1])
		}
		fmt.Print(out.String())
	}()
	measureServer(t, add)
	s := start(t)
	client := manyClient()
	began := time.Now()
	createPods(t, s, client, 0, figurePods)
	t.Logf("%d pods are created in %v", figurePods, time.Since(began))

	p := browse(t, 1280, 800)
	measureFirstView(t, p, s, add)
	measureList(p, s, add)
	for _, view := range []struct{ name, hash, action string }{
		{"idle, the list is not shown (the noise of this machine)", "#/r/configmaps?ns=default", ""},
		{"list of all pods", "#/r/pods", ""},
		{"sorted by age", "#/r/pods?sort=-Age", ""},
		{"sorted by name", "#/r/pods?sort=Name", ""},
		{"only what is failing, and a part of the name", "#/r/pods?failing=1&q=pod-1", ""},
		{"scrolling the list of all pods", "#/r/pods", scroll},
	} {
		p.open(view.hash)
		p.sees("live")
		p.do("wait", chromedp.Sleep(time.Second))
		sent, stop := sendEvents(t, s, client)
		p.do("wait", chromedp.Sleep(time.Second))
		before := sent.Load()
		gaps := p.frames(view.action)
		rate := float64(sent.Load()-before) / figureFrames.Seconds()
		stop()
		add(fmt.Sprintf("frames, %.0f events/s, %s", rate, view.name), "%s", gaps)
	}
	p.open("#/r/pods")
	p.sees("live")
	add("frames, no events, scrolling the list of all pods", "%s", p.frames(scroll))
	add("frames, no events, jumping through the list of all pods", "%s", p.frames(jump))
	heap, rss := p.memory()
	add("memory of the tab after that", "%s of JavaScript, %s in all", mebibytes(heap), mebibytes(rss))
}

func mebibytes(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }

// manyClient returns a client for many requests at a time.
func manyClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 32, MaxConnsPerHost: 32,
	}}
}

const podPath = "/api/v1/namespaces/default/pods"

// figurePod returns a pod of about 2.5 KB.
func figurePod(i int) string {
	env := make([]any, 12)
	for j := range env {
		env[j] = map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": strings.Repeat("v", 60)}
	}
	b, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": fmt.Sprintf("pod-%05d", i), "labels": map[string]string{"app": fmt.Sprintf("app-%d", i%100), "pod-template-hash": "5d7f8c9b6d"},
			"annotations": map[string]string{"example.com/checksum": strings.Repeat("c", 200)},
		},
		"spec": map[string]any{"nodeName": fmt.Sprintf("node-%d", i%50), "automountServiceAccountToken": false, "containers": []any{map[string]any{
			"name": "main", "image": "registry.example.com/team/application:1.2.3", "env": env,
			"resources": map[string]any{"requests": map[string]string{"cpu": "100m", "memory": "128Mi"}},
		}}},
	})
	return string(b)
}

// sendAs sends a request of the administrator and returns the status code.
func sendAs(s *server, client *http.Client, method, path, contentType, body string) (int, error) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", contentType)
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func createPods(t testing.TB, s *server, client *http.Client, from, to int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if code, err := sendAs(s, client, http.MethodPost, podPath, "application/json", figurePod(i)); err != nil || code != http.StatusCreated {
					t.Errorf("pod %d: %d %v", i, code, err)
					return
				}
			}
		})
	}
	workers.Wait()
}

// sendEvents changes pods at figureRate: 9 of 10 changes are of a status; the others create and delete a pod. It returns the number
// of changes until now, and what stops it.
func sendEvents(t testing.TB, s *server, client *http.Client) (*atomic.Int64, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var sent atomic.Int64
	work := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range work {
				switch i % 20 {
				case 0:
					_, _ = sendAs(s, client, http.MethodPost, podPath, "application/json", figurePod(20_000+i))
				case 10:
					_, _ = sendAs(s, client, http.MethodDelete, fmt.Sprintf("%s/pod-%05d?gracePeriodSeconds=0", podPath, 20_000+i-10), "", "")
				default:
					phase := []string{"Running", "Pending", "Failed"}[i/7%3]
					_, _ = sendAs(s, client, http.MethodPatch, fmt.Sprintf("%s/pod-%05d/status", podPath, i*7919%figurePods), "application/merge-patch+json",
						fmt.Sprintf(`{"status":{"phase":%q,"message":"%d","startTime":"2024-01-01T00:00:00Z"}}`, phase, i))
				}
				sent.Add(1)
			}
		})
	}
	workers.Go(func() {
		defer close(work)
		began := time.Now()
		for i := 0; ctx.Err() == nil; time.Sleep(4 * time.Millisecond) {
			for due := int(time.Since(began).Seconds() * figureRate); i < due && ctx.Err() == nil; i++ {
				select {
				case work <- i:
				case <-ctx.Done():
				}
			}
		}
	})
	return &sent, func() {
		cancel()
		workers.Wait()
	}
}

const (
	// scroll and jump are what a frame does to the box of the rows.
	scroll = `if (box) { at += 90 * step; if (at > box.scrollHeight - box.clientHeight || at < 0) step = -step; box.scrollTop = at; }`
	jump   = `if (box) box.scrollTop = Math.random() * box.scrollHeight;`
)

// frames measures the time between frames.
func (p *page) frames(action string) string {
	p.t.Helper()
	var gaps []float64
	ctx, stop := context.WithTimeout(p.ctx, figureFrames+patience)
	defer stop()
	err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf(`new Promise((resolve) => {
		const gaps = [];
		const box = document.querySelector('.rows');
		let at = 0, step = 1, last = 0;
		const end = performance.now() + %d;
		const frame = (now) => {
			if (last) gaps.push(now - last);
			last = now;
			%s
			if (now > end) resolve(gaps);
			else requestAnimationFrame(frame);
		};
		requestAnimationFrame(frame);
	})`, figureFrames.Milliseconds(), action), &gaps, awaited))
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(gaps)
	dropped, long := 0, 0
	for _, g := range gaps {
		dropped += max(0, int(g/(1000./60)+0.5)-1)
		if g > 50 {
			long++
		}
	}
	at := func(q float64) float64 { return gaps[int(q*float64(len(gaps)-1))] }
	return fmt.Sprintf("%d frames, gap p50 %.1f ms, p99 %.1f ms, longest %.1f ms, %d dropped, %d above 50 ms", len(gaps), at(0.5), at(0.99), at(1), dropped, long)
}

// memory returns the memory of JavaScript, and of the process of the tab.
func (p *page) memory() (heap, rss float64) {
	p.t.Helper()
	p.do("measure the memory", performance.Enable(), heapprofiler.CollectGarbage(), chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			if m.Name == "JSHeapUsedSize" {
				heap = m.Value
			}
		}
		return err
	}))
	browser := chromedp.FromContext(p.ctx).Browser.Process().Pid
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		text, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if strings.Contains(string(text), "--type=renderer") && descends(pid, browser) {
			rss = max(rss, resident(pid))
		}
	}
	return heap, rss
}

// descends reports whether a process is one of those that another one has started.
func descends(pid, from int) bool {
	for range 10 {
		if pid == from {
			return true
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, found := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !found || len(fields) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return false
}

// resident returns the memory of a process in bytes.
func resident(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			return float64(kib) * 1024
		}
	}
	return 0
}

// measureFirstView counts the requests and bytes of the page until it shows the login, and until it shows the first view.
func measureFirstView(t *testing.T, p *page, s *server, add func(string, string, ...any)) {
	t.Helper()
	var mu sync.Mutex
	requests, bytes := 0, 0.
	chromedp.ListenTarget(p.ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *cdpnetwork.EventRequestWillBeSent:
			requests++
		case *cdpnetwork.EventLoadingFinished:
			bytes += e.EncodedDataLength
		}
	})
	took := func() (int, float64) {
		p.do("wait", chromedp.Sleep(time.Second))
		mu.Lock()
		defer mu.Unlock()
		defer func() { requests, bytes = 0, 0 }()
		return requests, bytes / 1024
	}
	p.do("watch the network", cdpnetwork.Enable(), cdpnetwork.SetCacheDisabled(true))
	p.do("open the console", chromedp.Navigate(s.url+"/console/"), chromedp.WaitVisible("#token"))
	n, size := took()
	add("until the login is shown, nothing in the cache", "%d requests, %.1f KiB on the wire", n, size)
	p.logIn(s, token)
	took()
	p.do("load it with a cache", cdpnetwork.SetCacheDisabled(false), chromedp.Reload(), chromedp.WaitVisible("#token"))
	took()
	p.do("load it again", chromedp.Reload(), chromedp.WaitVisible("#token"))
	n, size = took()
	add("the same, with the files in the cache", "%d requests, %.1f KiB", n, size)
	p.do("log in", chromedp.Evaluate(submit, nil), chromedp.WaitVisible("nav.side"))
	n, size = took()
	add("from the login to the overview: identity, discovery, 10 counts, warnings", "%d requests, %.1f KiB", n, size)
	p.open("#/o/configmaps/default/kube-root-ca.crt/yaml")
	p.do("wait for the editor", chromedp.Poll(`!!document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')`, nil))
	n, size = took()
	add("the first editor", "%d requests, %.1f KiB", n, size)
}

// submit logs in with the token of the administrator.
const submit = `(() => {
	document.querySelector('#token').value = '` + token + `';
	window.began = performance.now();
	document.querySelector('form').requestSubmit();
})()`

// measureList measures how long the list of all pods needs, several times.
func measureList(p *page, s *server, add func(string, string, ...any)) {
	p.t.Helper()
	var first, all []float64
	for range 5 {
		var times []float64
		p.do("open the list", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/console/#/r/pods"), chromedp.WaitVisible("#token"))
		p.do("log in and wait for the rows", chromedp.Evaluate(`new Promise((resolve) => {
			`+submit+`;
			let first = 0;
			const look = () => {
				const now = performance.now() - window.began;
				const count = document.querySelector('[data-testid=count]')?.textContent;
				if (!first && document.querySelector('.rows tbody th a')) first = now;
				if (first && count === '`+strconv.Itoa(figurePods)+`' && document.querySelector('.live.live')) resolve([first, now]);
				else requestAnimationFrame(look);
			};
			look();
		})`, &times, awaited))
		first, all = append(first, times[0]), append(all, times[1])
	}
	slices.Sort(first)
	slices.Sort(all)
	add(fmt.Sprintf("from the login to the first rows of %d pods, median of 5", figurePods), "%.0f ms", first[2])
	add("until all are there, median of 5", "%.0f ms", all[2])
	heap, rss := p.memory()
	add("memory of the tab with the list", "%s of JavaScript, %s in all", mebibytes(heap), mebibytes(rss))
}

// measureServer measures what the console costs a server that nobody looks at.
func measureServer(t *testing.T, add func(string, string, ...any)) {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	const runs = 7
	starts, memory := map[bool][]float64{}, map[bool][]float64{}
	for range runs { // in turn, so that both have the same noise
		for _, on := range []bool{true, false} {
			took, rss := startOnce(t, program, on)
			starts[on], memory[on] = append(starts[on], took.Seconds()*1000), append(memory[on], rss)
		}
	}
	for _, on := range []bool{true, false} {
		slices.Sort(starts[on])
		slices.Sort(memory[on])
		add(fmt.Sprint("server with --console=", on), "ready after %.0f ms (%.0f to %.0f), %s when idle (%s to %s), median of %d", starts[on][runs/2],
			starts[on][0], starts[on][runs-1], mebibytes(memory[on][runs/2]), mebibytes(memory[on][0]), mebibytes(memory[on][runs-1]), runs)
	}
	with, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	add("size of the program", "%s", mebibytes(float64(with.Size())))
	add("of that, the files of the console", "%.1f KiB", float64(with.Size()-sizeWithout(t))/1024)
}

// startOnce starts a server and returns the time until it is ready, and its memory 2 s later.
func startOnce(t *testing.T, program string, console bool) (time.Duration, float64) {
	t.Helper()
	port := freePort(t)
	c := exec.Command(program, "serve", "--data-dir", t.TempDir(), "--secure-port", strconv.Itoa(port), fmt.Sprint("--console=", console))
	began := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	}()
	client := manyClient()
	for ; time.Since(began) < 20*time.Second; time.Sleep(2 * time.Millisecond) {
		if r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port)); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				took := time.Since(began)
				client.CloseIdleConnections()
				time.Sleep(2 * time.Second)
				return took, resident(c.Process.Pid)
			}
		}
	}
	t.Fatal("the server did not get ready")
	return 0, 0
}

// sizeWithout returns the size of a program whose files of the console are empty.
func sizeWithout(t *testing.T) int64 {
	t.Helper()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../../internal/console/dist/*.gz")
	replace := map[string]string{}
	for _, f := range files {
		path, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = empty
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": replace})
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "keelson"), "./cmd/keelson")
	build.Dir = "../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	info, err := os.Stat(filepath.Join(dir, "keelson"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
