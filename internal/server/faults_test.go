package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// watched is the names in the events of a watch.
func watched(t *testing.T, c *http.Client, url string) <-chan string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		t.Fatal(w, err)
	}
	events := make(chan string, 100)
	go func() {
		defer w.Body.Close()
		defer close(events)
		lines := bufio.NewScanner(w.Body)
		for lines.Scan() {
			var e struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				events <- err.Error()
				return
			}
			events <- e.Type + " " + e.Object.Metadata.Name
		}
	}()
	return events
}

func wantEvent(t *testing.T, events <-chan string, want string) {
	t.Helper()
	select {
	case got := <-events:
		if got != want {
			t.Errorf("the watch says %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("the watch did not say %q", want)
	}
}

// TestFullDisk lets the space run out and come back: writes are refused with a
// reason, reads and watches go on, deletions as long as there is some space, and
// then all goes on (HOSTILE row 4).
func TestFullDisk(t *testing.T) {
	const gibibyte = 1 << 30
	disk := vfs.NewMem()
	space := func(available uint64) {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: available, TotalBytes: 100 * gibibyte})
	}
	space(10 * gibibyte)
	config := testConfig(t)
	config.AdjustEngine = func(o *embedded.Options) { o.FS, o.ReserveBytes = disk, gibibyte }
	s := start(t, config)
	c := httpClient(t, s, true)
	url := s.URL() + configMaps
	create := func(name string) answer { return send(t, c, "POST", url, configMap(name, "1")) }
	for _, name := range []string{"a", "b"} {
		if a := create(name); a.status != http.StatusCreated {
			t.Fatal(a)
		}
	}
	events := watched(t, c, url+"?watch=true")
	wantEvent(t, events, "ADDED a")
	wantEvent(t, events, "ADDED b")
	refused := func(what string, a answer) {
		t.Helper()
		var status struct{ Kind, Status, Reason, Message string }
		err := json.Unmarshal([]byte(a.body), &status)
		if a.status != http.StatusInsufficientStorage || err != nil || status.Kind != "Status" ||
			status.Status != "Failure" ||
			status.Reason != "InsufficientStorage" || !strings.Contains(status.Message, "no space") {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	readable := func() {
		t.Helper()
		for _, path := range []string{configMaps, configMaps + "/b", "/readyz", "/api/v1/namespaces", SnapshotPath} {
			if a := call(t, c, "GET", s.URL()+path); a.status != http.StatusOK {
				t.Errorf("GET %s: %d %s", path, a.status, a.body)
			}
		}
	}

	space(gibibyte / 2)
	n := 0
	await(t, "a refusal", func() bool {
		n++
		return create(fmt.Sprint("filler", n)).status == http.StatusInsufficientStorage
	})
	for i := 1; i < n; i++ {
		wantEvent(t, events, fmt.Sprint("ADDED filler", i))
	}
	refused("create", create("c"))
	refused("update", send(t, c, "PUT", url+"/b", configMap("b", "2")))
	refused("generated name", send(t, c, "POST", url, `{"metadata":{"generateName":"g-"}}`))
	readable()
	if a := call(t, c, "DELETE", url+"/a"); a.status != http.StatusOK {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	wantEvent(t, events, "DELETED a")

	space(gibibyte / 8)
	await(t, "a refused deletion", func() bool {
		_, err := s.stores.main.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Delete("/registry/none")}})
		return errors.Is(err, storage.ErrNoSpace)
	})
	refused("delete", call(t, c, "DELETE", url+"/b"))
	readable()

	space(10 * gibibyte)
	await(t, "a create that succeeds", func() bool { return create("again").status == http.StatusCreated })
	wantEvent(t, events, "ADDED again")
	if a := call(t, c, "DELETE", url+"/b"); a.status != http.StatusOK {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	wantEvent(t, events, "DELETED b")
}

// failLogSync is what a disk says that cannot sync the engine's log.
func failLogSync(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if strings.HasSuffix(op.Path, ".log") {
			return syscall.EIO
		}
	}
	return nil
}

// TestFailedSync lets a sync of the log fail: the write that waits for it and all
// later ones are refused, reads go on, and the server says that it has to end
// (HOSTILE row 3). After a restart what was acknowledged is there.
func TestFailedSync(t *testing.T) {
	disk := vfs.NewCrashableMem()
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(failLogSync)}
	config := testConfig(t)
	config.AdjustEngine = func(o *embedded.Options) { o.FS = errorfs.Wrap(disk, broken) }
	s, err := Start(context.Background(), config.Config, config.Options)
	if err != nil {
		t.Fatal(err)
	}
	c := httpClient(t, s, true)
	url := s.URL() + configMaps
	if a := send(t, c, "POST", url, configMap("kept", "1")); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	broken.On()
	answers := make(chan answer, 20)
	for i := range cap(answers) {
		go func() { answers <- send(t, c, "POST", url, configMap(fmt.Sprint("lost", i), "1")) }()
	}
	for range cap(answers) {
		if a := <-answers; a.status != http.StatusServiceUnavailable {
			t.Errorf("a write whose sync failed: %d %s", a.status, a.body)
		}
	}
	broken.Off() // a disk that seems well again changes nothing
	for _, a := range []answer{
		send(t, c, "POST", url, configMap("later", "1")), send(t, c, "PUT", url+"/kept", configMap("kept", "2")),
		call(t, c, "DELETE", url+"/kept"),
	} {
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("a later write: %d %s", a.status, a.body)
		}
	}
	if a := call(t, c, "GET", url+"/kept"); a.status != http.StatusOK {
		t.Errorf("a read: %d %s", a.status, a.body)
	}
	select {
	case err := <-s.Failed():
		if !errors.Is(err, storage.ErrFailed) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the server failed with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the server goes on")
	}
	left := disk.CrashClone(vfs.CrashCloneCfg{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.Stop(ctx) // says that the store had failed

	config.AdjustEngine = func(o *embedded.Options) { o.FS = left }
	again := start(t, config)
	c = httpClient(t, again, true)
	if a := call(t, c, "GET", again.URL()+configMaps+"/kept"); a.status != http.StatusOK {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
}
