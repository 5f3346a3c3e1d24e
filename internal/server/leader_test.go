package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// TestOneServerLeads has three servers on one store. In each round the leader stops, and another one deletes the content of a namespace.
// A server that is alone on its store has no leader.
func TestOneServerLeads(t *testing.T) {
	store := etcdtest.Serve(t)
	start := func() *servertest.Server {
		c := servertest.Default("namespace-controller")
		c.Storage.Backend, c.Storage.Etcd.Servers = config.StorageEtcd, []string{store}
		return servertest.Start(t, c)
	}
	servers := []*servertest.Server{start(), start(), start()}
	says := func(text string) func(*servertest.Server) bool {
		return func(s *servertest.Server) bool { return strings.Contains(s.Get("/readyz?verbose"), "\n"+text) }
	}
	const leads, others = "leader: this server does ", "leader: another server "
	for len(servers) > 0 {
		var leader int
		wait.Until(t, "one of the servers leads", func() bool {
			leader = slices.IndexFunc(servers, says(leads))
			return leader >= 0
		})
		for i, s := range servers {
			if i != leader {
				wait.Until(t, "the others know it", func() bool { return says(others)(s) })
			}
		}
		s := servers[leader]
		s.Create("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)
		s.Do(http.MethodDelete, "/api/v1/namespaces/n", "")
		wait.Until(t, "the namespace is gone", func() bool {
			return s.Send(http.MethodGet, "/api/v1/namespaces/n", "").Status == http.StatusNotFound
		})
		servertest.Stop(t, s)
		servers = slices.Delete(servers, leader, leader+1)
	}
	if text := servertest.Start(t, servertest.Default()).Get("/readyz?verbose"); strings.Contains(text, "leader") {
		t.Errorf("a server that is alone says %s", text)
	}
}
