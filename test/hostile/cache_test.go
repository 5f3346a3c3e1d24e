package hostile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// cacheAttacks are attacks on reads, watches, the store and its history.
func cacheAttacks() []row {
	return []row{
		{
			name: "resource version in the future", row: "6",
			rights: []right{{resources: "configmaps", verbs: "get,list,watch"}},
			run:    futureVersions,
		},
		{
			// A watcher that does not read costs a position in the log that all watchers share, and one buffer. This
			// follows from the design; there is no single check to remove. The limit of memory guards it.
			name: "watchers that stop reading", row: "7",
			rights: []right{{resources: "configmaps", verbs: "list,watch"}},
			setup:  func(a *attack) { a.create(a.path("configmaps"), configMap("big", 100)) },
			run:    stalledWatchers,
			limits: limits{cpu: 8 * time.Second, peak: 256 << 20, kept: 64 << 20},
		},
		{
			name: "updates of a large object", slow: true, row: "7",
			fresh:  true,
			rights: []right{{resources: "configmaps", verbs: "get,list,watch,create,update"}},
			run:    largeUpdates,
			limits: limits{cpu: 20 * time.Second, peak: 256 << 20, kept: 96 << 20},
		},
		{
			name: "pages and exact reads far behind", slow: true, row: "35",
			fresh:  true,
			rights: []right{{resources: "configmaps", verbs: "list"}},
			setup:  manyObjects,
			run:    readsFarBehind,
			// The measured usage includes the administrator's writes, which remove old changes from the log.
			limits: limits{cpu: 10 * time.Second, peak: 256 << 20, kept: 96 << 20},
		},
		{
			name: "tokens and revisions that are compacted", row: "5",
			server: "history",
			rights: []right{{resources: "configmaps", verbs: "list,watch"}},
			setup: func(a *attack) {
				for i := range 20 {
					a.create(a.path("configmaps"), configMap(fmt.Sprintf("c-%d", i), 10))
				}
			},
			run: compactedReads,
		},
		{
			name: "overwritten data gives its space back", slow: true, row: "37",
			server: "history", fresh: true,
			rights: []right{{resources: "configmaps", verbs: "create,update"}},
			run:    overwrites,
			limits: limits{cpu: 40 * time.Second, peak: 384 << 20, kept: 64 << 20},
		},
	}
}

func configMap(name string, size int) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		"data": map[string]any{"text": strings.Repeat("x", size)},
	}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of maps and strings
	}
	return b
}

// futureVersions reads at a revision that does not exist yet, which must end with 504, and watches from it, which must
// send nothing.
func futureVersions(a *attack) {
	future := strconv.Itoa(1 << 40)
	got := a.user.get(a.path("configmaps?resourceVersion="+future)).want(a, http.StatusGatewayTimeout)
	if got.reason() != "Timeout" || !strings.Contains(string(got.body), "Too large resource version") {
		a.Errorf("%s", got.body)
	}
	a.user.get(a.path("configmaps/x?resourceVersion="+future)).want(a, http.StatusGatewayTimeout)
	watch := a.user.get(a.path("configmaps?watch=1&timeoutSeconds=1&resourceVersion=" + future))
	if strings.Contains(string(watch.body), "ADDED") {
		a.Errorf("a watch from the future was sent %s", shorten(string(watch.body)))
	}
}

// stalledWatchers opens watches that are never read, while an object of 100 KB is written repeatedly.
func stalledWatchers(a *attack) {
	const watchers = 50
	for i := range watchers {
		c := a.dialHTTP2(false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
		if err := c.headers(
			1, true, http.MethodGet, a.path("configmaps?watch=1"), "authorization", "Bearer "+a.user.token,
		); err != nil {
			a.Fatalf("watcher %d: %v", i, err)
		}
	}
	for i := range size(100, 1000) {
		object := configMap("big", 100<<10)
		object["metadata"].(map[string]any)["labels"] = map[string]any{"n": strconv.Itoa(i)}
		a.admin.send(http.MethodPut, a.path("configmaps/big"), jsonType, encode(object)).want(a, http.StatusOK)
	}
}

// largeUpdates writes an object of 900 KB so often that the log of the resource has to drop changes, while a client
// watches.
func largeUpdates(a *attack) {
	watch, cancel := context.WithCancel(context.Background())
	a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(configMap("big", 10))).want(a, http.StatusCreated)
	resp, err := a.user.open(watch, http.MethodGet, a.path("configmaps?watch=1"), "", nil)
	if err != nil {
		a.Fatal(err)
	}
	read := make(chan int, 1)
	go func() { read <- drain(resp.Body) }()
	for i := range size(130, 400) {
		object := configMap("big", 900<<10)
		object["data"].(map[string]any)["n"] = strconv.Itoa(i)
		a.user.send(http.MethodPut, a.path("configmaps/big"), jsonType, encode(object)).want(a, http.StatusOK)
	}
	cancel()
	if n := <-read; n < 1<<20 {
		a.Errorf("the watcher read %d bytes", n)
	}
}

// drain reads until the end and returns the number of bytes.
func drain(r interface{ Read([]byte) (int, error) }) int {
	buffer, sum := make([]byte, 64<<10), 0
	for {
		n, err := r.Read(buffer)
		sum += n
		if err != nil {
			return sum
		}
	}
}

// manyObjects creates so many objects that reading all of them is expensive.
func manyObjects(a *attack) {
	var wg sync.WaitGroup
	const writers = 8
	n := size(12000, 100000)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				body := encode(configMap(fmt.Sprintf("c-%05d", i), 200))
				a.admin.send(http.MethodPost, a.path("configmaps"), jsonType, body).want(a, http.StatusCreated)
			}
		})
	}
	wg.Wait()
}

// readsFarBehind collects continue tokens and revisions while the administrator writes so much that the cache no
// longer has the first of them. Then it reads one page, and one object, at each of them.
func readsFarBehind(a *attack) {
	var lists []listMeta
	object := configMap("c-00000", 900<<10)
	const revisions = 60
	for i := range revisions + 45 {
		if i < revisions {
			var list listMeta
			got := a.user.get(a.path("configmaps?limit=5")).want(a, http.StatusOK)
			if err := json.Unmarshal(got.body, &list); err != nil {
				a.Fatal(err)
			}
			lists = append(lists, list)
			a.admin.send(
				http.MethodPatch, a.path("configmaps/c-00001"), mergeType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i),
			).want(a, http.StatusOK)
			continue
		}
		object["data"].(map[string]any)["n"] = strconv.Itoa(i)
		a.admin.send(http.MethodPut, a.path("configmaps/c-00000"), jsonType, encode(object)).want(a, http.StatusOK)
	}
	const small = 320 // a log that keeps a number of events of any size drops the first ones because of these
	for i := range small {
		a.admin.send(
			http.MethodPatch, a.path("configmaps/c-00001"), mergeType, fmt.Appendf(nil, `{"data":{"m":"%d"}}`, i),
		).want(a, http.StatusOK)
	}
	before, err := usageOf(a.server.cmd.Process.Pid)
	for _, list := range lists {
		a.user.get(a.path("configmaps?limit=5&continue="+url.QueryEscape(list.Metadata.Continue))).want(a, http.StatusOK)
		a.user.get(
			a.path("configmaps?limit=1&resourceVersionMatch=Exact&resourceVersion="+list.Metadata.ResourceVersion),
		).want(a, http.StatusOK)
	}
	if err != nil || raceDetector {
		return // nothing is measured on this system
	}
	after, err := usageOf(a.server.cmd.Process.Pid)
	if err != nil {
		a.Fatal(err)
	}
	const limit = 600 * time.Millisecond
	cpu := after.cpu - before.cpu
	if cpu > limit {
		a.Errorf("%d reads behind the log used %v of processor time, limit %v", 2*revisions, cpu, limit)
	}
	a.Logf("%d reads behind the log used %v of processor time", 2*revisions, cpu)
}

// listMeta is the part of a list that the test reads.
type listMeta struct {
	Metadata struct{ Continue, ResourceVersion string }
}

// compactedReads reads at revisions that the store has compacted. The response must be 410, for lists with a token
// that continues at the latest state, for lists and for watches.
func compactedReads(a *attack) {
	first := a.user.get(a.path("configmaps?limit=5")).want(a, http.StatusOK)
	var list listMeta
	if err := json.Unmarshal(first.body, &list); err != nil {
		a.Fatal(err)
	}
	exact := a.path("configmaps?resourceVersionMatch=Exact&resourceVersion=" + list.Metadata.ResourceVersion)
	wait.NoError(a, "the revision to be compacted", func() error {
		a.admin.send(
			http.MethodPatch, a.path("configmaps/c-0"), mergeType, []byte(`{"data":{"t":"`+time.Now().String()+`"}}`),
		).want(a, http.StatusOK)
		if got := a.user.get(exact); got.status != http.StatusGone {
			return fmt.Errorf("an exact list: %d", got.status)
		}
		return nil
	})
	got := a.user.get(
		a.path("configmaps?limit=5&continue="+url.QueryEscape(list.Metadata.Continue)),
	).want(a, http.StatusGone)
	if got.reason() != "Expired" || !strings.Contains(string(got.body), `"continue"`) {
		a.Errorf("%s", shorten(string(got.body)))
	}
}

// overwrites writes 400 MB into one object, and waits until the space is free again.
func overwrites(a *attack) {
	a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(configMap("big", 10))).want(a, http.StatusCreated)
	rng := rand.NewChaCha8([32]byte{})
	for range size(800, 4000) {
		// Random bytes in base64, which are text that compresses as little as possible.
		text := make([]byte, 375<<10)
		_, _ = rng.Read(text) // never fails
		object := configMap("big", 0)
		object["data"].(map[string]any)["text"] = base64.StdEncoding.EncodeToString(text)
		a.user.send(http.MethodPut, a.path("configmaps/big"), jsonType, encode(object)).want(a, http.StatusOK)
	}
	data := filepath.Join(a.server.dir, "data", "store")
	most := diskUsage(data)
	const limit = 96 << 20
	var now int64
	wait.NoError(a, "the space of what was overwritten", func() error {
		if now = diskUsage(data); now > limit {
			return fmt.Errorf("%.0f MiB of %.0f are still used, limit %d", mib(now), mib(most), limit>>20)
		}
		return nil
	})
	a.Logf("the store had %.0f MiB, and has %.0f", mib(most), mib(now))
}

// diskUsage returns the size of all files below a directory, without the ballast file.
func diskUsage(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(filepath.Base(path), "ballast") {
			return nil //nolint:nilerr // it was deleted in the meantime
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
