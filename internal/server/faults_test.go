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

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// watched starts a watch and returns a channel with the names of the objects in its events.
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
	case <-time.After(wait.Limit):
		t.Fatalf("the watch did not say %q", want)
	}
}

// TestFullDisk lets a disk become full and then have space again. While it is full, writes are refused with a
// reason, reads and watches continue, and deletions succeed as long as a little space is left. Then everything
// works again (HOSTILE row 4).
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
	create := func(name string) apitest.Answer { return apitest.Send(t, c, "POST", url, configMap(name, "1")) }
	for _, name := range []string{"a", "b"} {
		if a := create(name); a.Status != http.StatusCreated {
			t.Fatal(a)
		}
	}
	events := watched(t, c, url+"?watch=true")
	wantEvent(t, events, "ADDED a")
	wantEvent(t, events, "ADDED b")
	refused := func(what string, a apitest.Answer) {
		t.Helper()
		var status struct{ Kind, Status, Reason, Message string }
		err := json.Unmarshal([]byte(a.Body), &status)
		if a.Status != http.StatusInsufficientStorage || err != nil || status.Kind != "Status" ||
			status.Status != "Failure" ||
			status.Reason != "InsufficientStorage" || !strings.Contains(status.Message, "no space") {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	readable := func() {
		t.Helper()
		for _, path := range []string{configMaps, configMaps + "/b", "/readyz", "/api/v1/namespaces"} {
			if a := apitest.Send(t, c, "GET", s.URL()+path, ""); a.Status != http.StatusOK {
				t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
			}
		}
		if a := apitest.Send(t, c, "POST", s.URL()+snapshots.Path, ""); a.Status != http.StatusOK {
			t.Errorf("a snapshot: %d %s", a.Status, a.Body)
		}
	}

	shows := func(lines ...string) {
		t.Helper()
		body := apitest.Send(t, c, "GET", s.URL()+"/metrics", "").Body
		for _, line := range lines {
			if !strings.Contains(body, "\n"+line) {
				t.Errorf("/metrics does not have %q", line)
			}
		}
	}
	shows("keelson_storage_reserve_bytes 1.073741824e+09\n", "keelson_storage_low_space 0\n",
		"keelson_storage_refused_writes_total 0\n")

	space(gibibyte / 2)
	n := 0
	wait.Until(t, "a refusal", func() bool {
		n++
		return create(fmt.Sprint("filler", n)).Status == http.StatusInsufficientStorage
	})
	for i := 1; i < n; i++ {
		wantEvent(t, events, fmt.Sprint("ADDED filler", i))
	}
	refused("create", create("c"))
	refused("update", apitest.Send(t, c, "PUT", url+"/b", configMap("b", "2")))
	refused("generated name", apitest.Send(t, c, "POST", url, `{"metadata":{"generateName":"g-"}}`))
	readable()
	warning := "warn: the store refuses writes, because too little disk space is free\nreadyz check passed"
	if a := apitest.Send(t, c, "GET", s.URL()+"/readyz?verbose", ""); !strings.Contains(a.Body, warning) {
		t.Errorf("/readyz does not warn: %s", a.Body)
	}
	// The ballast file exists, so the available size is the size of the ballast.
	shows("keelson_storage_available_bytes 5.36870912e+08\n", "keelson_storage_low_space 1\n",
		`apiserver_request_total{code="507",`)
	if refused := s.stores.Main.(storage.SpaceReporter).Space().Refused; refused < 4 {
		t.Errorf("%d refused writes are counted, and there were 4", refused)
	}
	if a := apitest.Send(t, c, "DELETE", url+"/a", ""); a.Status != http.StatusOK {
		t.Errorf("delete: %d %s", a.Status, a.Body)
	}
	wantEvent(t, events, "DELETED a")

	space(gibibyte / 8)
	wait.Until(t, "a refused deletion", func() bool {
		_, err := s.stores.Main.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Delete("/registry/none")}})
		return errors.Is(err, storage.ErrNoSpace)
	})
	refused("delete", apitest.Send(t, c, "DELETE", url+"/b", ""))
	readable()

	space(10 * gibibyte)
	wait.Until(t, "a create that succeeds", func() bool { return create("again").Status == http.StatusCreated })
	shows("keelson_storage_low_space 0\n")
	if a := apitest.Send(t, c, "GET", s.URL()+"/readyz?verbose", ""); strings.Contains(a.Body, "warn:") {
		t.Errorf("/readyz still warns: %s", a.Body)
	}
	wantEvent(t, events, "ADDED again")
	if a := apitest.Send(t, c, "DELETE", url+"/b", ""); a.Status != http.StatusOK {
		t.Errorf("delete: %d %s", a.Status, a.Body)
	}
	wantEvent(t, events, "DELETED b")
}

// failLogSync returns the error of a disk that cannot sync the log of the engine.
func failLogSync(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if strings.HasSuffix(op.Path, ".log") {
			return syscall.EIO
		}
	}
	return nil
}

// TestFailedSync lets a sync of the log fail. The write that waits for it and all later ones are refused, reads
// continue, and the server reports that it must be stopped (HOSTILE row 3). After a restart all acknowledged
// writes are there.
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
	if a := apitest.Send(t, c, "POST", url, configMap("kept", "1")); a.Status != http.StatusCreated {
		t.Fatal(a)
	}
	broken.On()
	answers := make(chan apitest.Answer, 20)
	for i := range cap(answers) {
		go func() { answers <- apitest.Send(t, c, "POST", url, configMap(fmt.Sprint("lost", i), "1")) }()
	}
	for range cap(answers) {
		if a := <-answers; a.Status != http.StatusServiceUnavailable {
			t.Errorf("a write whose sync failed: %d %s", a.Status, a.Body)
		}
	}
	broken.Off() // the store stays failed although the disk works again
	for _, a := range []apitest.Answer{
		apitest.Send(t, c, "POST", url, configMap("later", "1")), apitest.Send(t, c, "PUT", url+"/kept", configMap("kept", "2")),
		apitest.Send(t, c, "DELETE", url+"/kept", ""),
	} {
		if a.Status != http.StatusServiceUnavailable {
			t.Errorf("a later write: %d %s", a.Status, a.Body)
		}
	}
	if a := apitest.Send(t, c, "GET", url+"/kept", ""); a.Status != http.StatusOK {
		t.Errorf("a read: %d %s", a.Status, a.Body)
	}
	select {
	case err := <-s.Failed():
		if !errors.Is(err, storage.ErrFailed) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the server failed with %v", err)
		}
	case <-time.After(wait.Limit):
		t.Fatal("the server goes on")
	}
	left := disk.CrashClone(vfs.CrashCloneCfg{})
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	_ = s.Stop(ctx) // the error says that the store had failed

	config.AdjustEngine = func(o *embedded.Options) { o.FS = left }
	again := start(t, config)
	c = httpClient(t, again, true)
	if a := apitest.Send(t, c, "GET", again.URL()+configMaps+"/kept", ""); a.Status != http.StatusOK {
		t.Errorf("after a restart: %d %s", a.Status, a.Body)
	}
}
