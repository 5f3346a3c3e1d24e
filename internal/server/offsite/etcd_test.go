package offsite_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// onEtcd is the configuration of a server on etcd with a copy.
func onEtcd(t *testing.T, url, to string) servertest.Config {
	c := withCopy(t, to)
	c.Storage.Backend, c.Storage.Etcd.Servers = config.StorageEtcd, []string{url}
	return c
}

// TestCopyOfEtcd checks that one of two servers on etcd writes the copy, that the other one says so and goes on after it, and that the copy
// can be restored.
func TestCopyOfEtcd(t *testing.T) {
	url, to := etcdtest.Serve(t), t.TempDir()
	copied := func(s *servertest.Server) {
		t.Helper()
		wait.Seen(t, "the copy", func() (bool, string) {
			text := remark(s)
			return strings.Contains(text, " 0 revisions and 0 bytes behind"), text
		})
	}
	c := onEtcd(t, url, to)
	first := servertest.Start(t, c)
	copied(first)
	other := onEtcd(t, url, to)
	pki := filepath.Join(other.Storage.DataDir, "pki")
	wait.NoError(t, "the key of service account tokens, which is made in the background", func() error {
		_, err := os.Stat(filepath.Join(c.Storage.DataDir, "pki", "sa.key"))
		return err
	})
	if err := os.CopyFS(pki, os.DirFS(filepath.Join(c.Storage.DataDir, "pki"))); err != nil {
		t.Fatal(err)
	}
	second := servertest.Start(t, other)
	wait.Seen(t, "the other server waits", func() (bool, string) {
		text := remark(second)
		return strings.Contains(text, "the copy of the data is written by "), text
	})
	for i := range 20 {
		s := []*servertest.Server{first, second}[i%2]
		s.Create("/api/v1/namespaces/default/configmaps", apitest.ConfigMap(fmt.Sprint("c", i)))
	}
	servertest.Stop(t, first)
	second.Create("/api/v1/namespaces/default/configmaps", apitest.ConfigMap("last"))
	wait.Seen(t, "the other server copies", func() (bool, string) {
		text := remark(second)
		return !strings.Contains(text, "written by"), text
	})
	copied(second)
	servertest.Stop(t, second)

	b, closeBucket, err := bucket.Open(t.Context(), to, bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBucket()
	x, err := copies.ReadIndex(t.Context(), b)
	if err != nil || len(x.Lines()) != 1 {
		t.Fatalf("%v, %+v", err, x)
	}
	p, err := x.Plan(copies.Target{})
	if err != nil {
		t.Fatal(err)
	}
	o := embedded.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	if _, err := p.Restore(t.Context(), b, o, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	text := content(t, o.Dir)
	for i := range 20 {
		if key := fmt.Sprintf("/registry/configmaps/default/c%d ", i); !strings.Contains(text, key) {
			t.Errorf("the copy does not have %s", key)
		}
	}
	if !strings.Contains(text, "/registry/configmaps/default/last ") {
		t.Error("the copy does not have the last change")
	}
	standbyOfEtcd(t, to)
}

// standbyOfEtcd checks that a standby follows the copy of a cluster of etcd, and that one that shall take over refuses to.
func standbyOfEtcd(t *testing.T, to string) {
	var log apitest.Log
	follower := withCopy(t, to)
	follow(t, follower, &log)
	awaitLog(t, &log, "follows the copy")
	wait.NoError(t, "the order to take over", func() error { return offsite.Promote(follower.Storage.DataDir) })
	awaitLog(t, &log, "cannot take over")
	c := withCopy(t, to)
	s := &offsite.Standby{Config: &c.Storage, TakeOver: true, Name: "standby", Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	if _, err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "keelson restore") {
		t.Errorf("a standby that shall take over: %v", err)
	}
}

// TestCopyOfEtcdConfig checks what is refused for servers on etcd.
func TestCopyOfEtcdConfig(t *testing.T) {
	for want, change := range map[string]func(*config.Storage){
		"=sync is not for data that other servers write too": func(s *config.Storage) { s.Backup.Mode = config.BackupSync },
		"if the data is in etcd":                             func(s *config.Storage) { s.DataDir = "" },
		"Exclusive":                                          func(s *config.Storage) { s.Backup.Exclusive, s.Backup.LockDuration = true, 2*time.Second },
	} {
		c := onEtcd(t, "http://127.0.0.1:1", t.TempDir())
		change(&c.Storage)
		if s, err := server.Start(t.Context(), c.Config, c.Options); err == nil {
			servertest.Stop(t, s)
			t.Errorf("%s: no error", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
