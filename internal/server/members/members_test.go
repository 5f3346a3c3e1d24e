package members_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/members"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

const (
	maps    = "/api/v1/namespaces/default/configmaps"
	changes = "/apis/history.keelson.dev/v1alpha1/changes?since=0&fieldSelector=resource=configmaps&limit=1000"
)

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// named returns the configuration of a member.
func named(t *testing.T, name string) servertest.Config {
	t.Helper()
	c := servertest.Default()
	c.Storage.Backend, c.Storage.DataDir = config.StorageMembers, filepath.Join(t.TempDir(), "data")
	c.Storage.Members.Name, c.Storage.Members.Address = name, freeAddress(t)
	c.Diagnostics.Flags = map[string]string{"service-cluster-ip-range": c.Network.ServiceClusterIPRange, "event-ttl": "1h", "data-dir": name}
	return c
}

// first starts a server that makes a cluster.
func first(t *testing.T) (*servertest.Server, servertest.Config) {
	t.Helper()
	c := named(t, "a")
	c.Storage.Members.Init = true
	return servertest.Start(t, c), c
}

// joining returns the configuration of a server that joins the cluster of another one.
func joining(t *testing.T, s *servertest.Server, name string) servertest.Config {
	t.Helper()
	c := named(t, name)
	c.Storage.Members.Join, c.Storage.Members.Token = s.URL(), token(t, s, time.Hour).Text
	return c
}

func token(t *testing.T, s *servertest.Server, lifetime time.Duration) (made members.TokenAnswer) {
	t.Helper()
	post(t, s, "/tokens", members.TokenRequest{Lifetime: lifetime}, &made)
	return made
}

// post sends a request to change the membership, and decodes the answer.
func post(t *testing.T, s *servertest.Server, path string, body, out any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	a := s.Send(http.MethodPost, members.Path+path, string(text))
	if a.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), out); err != nil {
		t.Fatal(err)
	}
}

// list returns the members by name, as a server sees them.
func list(t *testing.T, s *servertest.Server) map[string]members.Member {
	t.Helper()
	var all []members.Member
	if err := json.Unmarshal([]byte(s.Get(members.Path)), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]members.Member{}
	for _, m := range all {
		out[m.Name] = m
	}
	return out
}

// awaitSame waits until all servers tell the same past, and returns it.
func awaitSame(t *testing.T, servers ...*servertest.Server) (text string) {
	t.Helper()
	past := func(s *servertest.Server) string {
		var all struct{ Items json.RawMessage }
		if err := json.Unmarshal([]byte(s.Get(changes)), &all); err != nil {
			t.Fatal(err)
		}
		return string(all.Items)
	}
	for _, s := range servers[1:] {
		wait.Seen(t, "the same past", func() (bool, string) {
			text = past(servers[0])
			other := past(s)
			return text == other, fmt.Sprintf("%s\n%s", text, other)
		})
	}
	return text
}

// TestMembers checks the life of a cluster: servers join, write, stop and come back, are removed and replaced, and all of them have the
// same objects, past and credentials.
func TestMembers(t *testing.T) {
	a, configA := first(t)
	a.As("jane", "system:masters").Create(maps, `{"metadata":{"name":"first"}}`)
	b := servertest.Start(t, joining(t, a, "b"))
	configC := joining(t, b, "c")
	c := servertest.Start(t, configC)
	all := []*servertest.Server{a, b, c}
	for i, s := range all {
		s.As(fmt.Sprintf("user-%d", i), "system:masters").Create(maps, fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i))
		for _, other := range all {
			other.Get(fmt.Sprintf("%s/m%d", maps, i))
		}
	}
	if text := awaitSame(t, all...); !strings.Contains(text, `"user-2"`) || !strings.Contains(text, `"m0"`) {
		t.Error(text)
	}
	// The credentials of one member are those of all: here, the administrator's certificate.
	transport := a.HTTP().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	apitest.NewClient(t, &http.Client{Transport: transport}, c.URL()).Get(maps + "/m1")

	if m := list(t, b); len(m) != 3 || m["a"].Role == "learner" || m["c"].Error != "" || m["c"].Version == "" {
		t.Errorf("%+v", m)
	}
	post(t, b, "/move-leader", members.NameRequest{Name: "c"}, &struct{}{})
	if m := list(t, b); m["c"].Role != "leader" {
		t.Errorf("%+v", m)
	}
	servertest.Stop(t, c) // the leader
	b.Create(maps, `{"metadata":{"name":"without-c"}}`)
	c = servertest.Start(t, configC)
	c.Get(maps + "/without-c")
	awaitSame(t, a, b, c)

	post(t, a, "/remove", members.NameRequest{Name: "c"}, &struct{}{})
	err := <-c.Failed()
	if err == nil || !strings.Contains(err.Error(), "removed from the cluster") {
		t.Error(err)
	}
	servertest.Stop(t, c)
	again := configC
	again.Storage.Members.Join, again.Storage.Members.Token = "", ""
	if _, err := server.Start(t.Context(), again.Config, again.Options); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("a removed member starts: %v", err)
	}
	configC.Storage.Members.Token = token(t, a, time.Hour).Text
	c = servertest.Start(t, configC)
	awaitSame(t, a, b, c)

	// A member that is lost with its disk is replaced by a server with its name.
	servertest.Stop(t, c)
	if err := os.RemoveAll(configC.Storage.DataDir); err != nil {
		t.Fatal(err)
	}
	configC.Storage.Members.Address = freeAddress(t)
	c = servertest.Start(t, configC)
	c.Get(maps + "/first")
	if m := list(t, c); len(m) != 3 || m["c"].Address != "https://"+configC.Storage.Members.Address {
		t.Errorf("%+v", m)
	}
	servertest.Stop(t, a)
	c.Create(maps, `{"metadata":{"name":"without-a"}}`)
	a = servertest.Start(t, configA)
	awaitSame(t, a, b)
}

// TestJoinIsRefused checks which servers cannot join, and that they get nothing.
func TestJoinIsRefused(t *testing.T) {
	a, _ := first(t)
	other, _ := first(t)
	refused := func(name, want string, change func(c *servertest.Config)) {
		t.Helper()
		c := joining(t, a, name)
		change(&c)
		ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
		defer cancel()
		s, err := server.Start(ctx, c.Config, c.Options)
		if err == nil {
			servertest.Stop(t, s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", name, err, want)
		}
		if _, err := os.Stat(filepath.Join(c.Storage.DataDir, "pki", "ca.key")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it has keys: %v", name, err)
		}
	}
	refused("b", "not valid", func(c *servertest.Config) {
		parts := strings.Split(c.Storage.Members.Token, ".")
		c.Storage.Members.Token = strings.Join([]string{parts[0], parts[1], "GUESSED", parts[3]}, ".")
	})
	refused("b", "somebody answers in its place", func(c *servertest.Config) { c.Storage.Members.Join = other.URL() })
	refused("b", "has the form", func(c *servertest.Config) { c.Storage.Members.Token = "secret" })
	refused("b", "cannot read", func(c *servertest.Config) { c.Storage.Members.Token, c.Storage.Members.TokenFile = "", "/nowhere" })
	refused("b", "--service-cluster-ip-range", func(c *servertest.Config) { c.Diagnostics.Flags["service-cluster-ip-range"] = "10.9.0.0/16" })
	refused("b", "not valid", func(c *servertest.Config) {
		id := strings.Split(c.Storage.Members.Token, ".")[1]
		post(t, a, "/tokens/revoke", members.TokenRequest{ID: id}, &struct{}{})
	})
	refused("b", "the data of a single server", func(c *servertest.Config) {
		if err := os.MkdirAll(filepath.Join(c.Storage.DataDir, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	c := joining(t, a, "a")
	if _, err := server.Start(t.Context(), c.Config, c.Options); err == nil || !strings.Contains(err.Error(), `the name "a" runs`) {
		t.Errorf("a second server with the name of a member: %v", err)
	}
	single := servertest.Default()
	single.Storage.Backend, single.Storage.DataDir = config.StorageEmbedded, t.TempDir()
	if err := os.MkdirAll(filepath.Join(single.Storage.DataDir, "cluster"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Start(t.Context(), single.Config, single.Options); err == nil || !strings.Contains(err.Error(), "has a member of a cluster") {
		t.Errorf("a single server in the directory of a member: %v", err)
	}
	for _, path := range []string{members.Path, members.Path + "/tokens"} {
		if got := a.As("jane").Send(http.MethodGet, path, "").Status; got != http.StatusForbidden {
			t.Errorf("%s answers %d to a user without rights", path, got)
		}
	}
	if m := list(t, a); len(m) != 1 {
		t.Errorf("%+v", m)
	}
}

// TestReset checks that one member can go on alone with all that it has, also its past, that no revision comes twice, and that others join
// it again.
func TestReset(t *testing.T) {
	a, configA := first(t)
	a.As("jane", "system:masters").Create(maps, `{"metadata":{"name":"first"}}`)
	b := servertest.Start(t, joining(t, a, "b"))
	configC := joining(t, a, "c")
	c := servertest.Start(t, configC)
	c.Create(maps, `{"metadata":{"name":"second"}}`)
	before := awaitSame(t, a, b, c)
	old := revision(t, c.Get(maps))
	servertest.Stop(t, c)

	reset := configC
	reset.Storage.Members.Reset, reset.Storage.Members.Join, reset.Storage.Members.Token = true, "", ""
	if _, err := server.Start(t.Context(), reset.Config, reset.Options); err == nil || !strings.Contains(err.Error(), "stop all other members") {
		t.Errorf("a reset while the others run: %v", err)
	}
	servertest.Stop(t, b)
	servertest.Stop(t, a)
	// As if the process had been killed when the record was written and the data was not yet replaced.
	if err := os.WriteFile(filepath.Join(reset.Storage.DataDir, "cluster", "reset.json"), []byte(`{"Revision":1000000001}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the flag has no effect
		c = servertest.Start(t, reset)
		c.Get(maps + "/first")
		if got := revision(t, c.Get(maps)); got <= old+member.RevisionGap || got > old+member.RevisionGap+1000 {
			t.Errorf("the revision was %d and is %d", old, got)
		}
		if a := c.Send(http.MethodGet, fmt.Sprintf("%s?watch=true&resourceVersion=%d&timeoutSeconds=1", maps, old+1), ""); !strings.Contains(a.Body, "410") {
			t.Errorf("a watch of a revision that may be another one now: %s", a.Body)
		}
		if now := awaitSame(t, c, c); !strings.Contains(strings.TrimSuffix(now, "]"), strings.TrimSuffix(before, "]")) {
			t.Errorf("the past was\n%s\nand is\n%s", before, now)
		}
		if m := list(t, c); len(m) != 1 {
			t.Errorf("%+v", m)
		}
		servertest.Stop(t, c)
	}
	reset.Storage.Members.Reset, reset.Storage.Backend = false, config.StorageMembers
	c = servertest.Start(t, reset)
	if _, err := os.Stat(filepath.Join(reset.Storage.DataDir, "cluster", "reset.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the flag could have no effect again: %v", err)
	}
	if err := os.RemoveAll(configA.Storage.DataDir); err != nil {
		t.Fatal(err)
	}
	configA.Storage.Members.Init = false
	configA.Storage.Members.Join, configA.Storage.Members.Token = c.URL(), token(t, c, time.Hour).Text
	a = servertest.Start(t, configA)
	a.Create(maps, `{"metadata":{"name":"third"}}`)
	c.Get(maps + "/third")
	awaitSame(t, a, c)
}

// revision returns the resource version of a list.
func revision(t *testing.T, text string) (n int64) {
	t.Helper()
	var l metav1.List
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		n, err = strconv.ParseInt(l.ResourceVersion, 10, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
