// Package etcdtest runs an etcd in memory for tests.
package etcdtest

import (
	"log/slog"
	"net"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage/memoryetcd"
)

// Serve runs an etcd in memory until the test ends, and returns its URL.
func Serve(t testing.TB) string {
	t.Helper()
	s := memoryetcd.New(memoryetcd.Options{Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = s.Serve(l); close(done) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return "http://" + l.Addr().String()
}
