package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// brokenDisk is an environment variable with a data directory. If it is set, the test binary serves from that
// directory, and syncs fail while there is a file "broken" beside it.
const brokenDisk = "KEELSON_TEST_BROKEN_DISK"

func serveOnBrokenDisk(dir string) error {
	c := config.Default()
	c.Storage.DataDir, c.Serving.Port = filepath.Join(dir, "data"), 0
	var err error
	if c.Diagnostics.Log, _, err = (logOptions{format: "text"}).logger(os.Stderr); err != nil {
		return err
	}
	o := server.Options{AdjustEngine: func(o *embedded.Options) {
		o.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				if _, err := os.Stat(filepath.Join(dir, "broken")); err == nil && strings.HasSuffix(op.Path, ".log") {
					return syscall.EIO
				}
			}
			return nil
		}))
	}}
	return serve(context.Background(), c, o, func(s *server.Server) error {
		_, err := welcome(context.Background(), os.Stdout, s, "")
		return err
	})
}

// TestFailedSyncEndsTheProcess checks that the write is refused, that the process ends with a clear message and code 1,
// and that the acknowledged writes are there when the disk works again.
func TestFailedSyncEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), brokenDisk+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended if the test went well
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("it did not start")
	}
	kubeconfig := filepath.Join(dir, "data", "kubeconfig")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	k, transport := credentials(t, kubeconfig)
	defer transport.CloseIdleConnections()
	create := func(name string) (int, error) {
		r, err := (&http.Client{Transport: transport}).Post(k.Clusters[0].Cluster.Server+
			"/api/v1/namespaces/default/configmaps", "application/json",
			strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`))
		if err != nil {
			return 0, err
		}
		return r.StatusCode, r.Body.Close()
	}
	if status, err := create("kept"); status != http.StatusCreated {
		t.Fatal(status, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The server itself writes too. If one of its writes failed first, the process may have ended already.
	if status, err := create("lost"); status != http.StatusServiceUnavailable && err == nil {
		t.Errorf("a write whose sync failed: %d", status)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the process goes on")
	}
	const want = "\nkeelson: the store failed: storage: failed, a write could not be made durable: input/output error\n"
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("exit code %d, %q; want 1 and %q", code, stderr.String(), want)
	}
	if err := os.Remove(filepath.Join(dir, "broken")); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if _, stderr, code := keelson("check", "--data-dir", data); code != 0 {
		t.Errorf("check: %d %s", code, stderr)
	}
	p := run(t, "serve", "--data-dir", data, "--secure-port", "0")
	defer p.stop(t)
	if status, body := get(t, kubeconfig, "/api/v1/namespaces/default/configmaps/kept"); status != http.StatusOK {
		t.Error(fmt.Sprint("after a restart: ", status, body))
	}
}
