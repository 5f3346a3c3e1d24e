package etcd

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// cluster is a cluster of etcd members in this process. Their data stays when they are stopped.
type cluster struct {
	t       testing.TB
	dir     string
	members []*member
	adjust  func(*embed.Config)
}

type member struct {
	name         string
	client, peer url.URL
	running      *embed.Etcd
}

// start runs a cluster of n members until the test ends. adjust may change their configuration; it may be nil.
// configuration; nil does not.
func start(t testing.TB, n int, adjust func(*embed.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), adjust: adjust}
	for i := range n {
		c.members = append(c.members, &member{name: fmt.Sprintf("m%d", i), client: freeURL(t), peer: freeURL(t)})
	}
	for i := range c.members {
		c.launch(i, embed.ClusterStateFlagNew)
	}
	for i := range c.members {
		c.awaitReady(i)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.stop(i)
		}
	})
	return c
}

// lastPort is the port that was used last. The ports are below those that the system uses for outgoing connections, so
// that the port of a stopped member stays free.
var lastPort atomic.Int32

// freeURL returns an address that is free and that no other caller has got.
func freeURL(t testing.TB) url.URL {
	t.Helper()
	const lowest, ports = 15_000, 15_000
	for range 1000 {
		n := int(lastPort.Add(1)) + os.Getpid()*97
		address := fmt.Sprintf("127.0.0.1:%d", lowest+n%ports)
		// Listening on the UDP port shows other processes that run these tests that the port is used.
		reserved, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = reserved.Close() }) // the error does not matter
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return url.URL{Scheme: "http", Host: address}
		}
	}
	t.Fatal("no free port")
	return url.URL{}
}

func (c *cluster) launch(i int, state string) {
	c.t.Helper()
	if err := c.tryLaunch(i, state); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) tryLaunch(i int, state string) error {
	m := c.members[i]
	config := embed.NewConfig()
	config.Name = m.name
	config.Dir = filepath.Join(c.dir, m.name)
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{m.client}, []url.URL{m.client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{m.peer}, []url.URL{m.peer}
	var all []string
	for _, o := range c.members {
		all = append(all, o.name+"="+o.peer.String())
	}
	config.InitialCluster = strings.Join(all, ",")
	config.ClusterState = state
	config.TickMs, config.ElectionMs = 50, 500
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	if c.adjust != nil {
		c.adjust(config)
	}
	running, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("starting %s: %w", m.name, err)
	}
	m.running = running
	return nil
}

func (c *cluster) awaitReady(i int) {
	c.t.Helper()
	if err := c.tryAwaitReady(i); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) tryAwaitReady(i int) error {
	select {
	case <-c.members[i].running.Server.ReadyNotify():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s is not ready within %v", c.members[i].name, patience)
	}
}

// stop ends a member; it does nothing if the member is stopped.
func (c *cluster) stop(i int) {
	if m := c.members[i]; m.running != nil {
		m.running.Close()
		m.running = nil
	}
}

// launchNew runs a member that was stopped and has lost its data, as the first member of a new cluster.
func (c *cluster) launchNew(i int) {
	c.t.Helper()
	c.launch(i, embed.ClusterStateFlagNew)
}

// restart runs a stopped member on its own data.
func (c *cluster) restart(i int) {
	c.t.Helper()
	if err := c.tryRestart(i); err != nil {
		c.t.Fatal(err)
	}
}

// tryRestart is restart for other goroutines than that of the test, which may not call t.Fatal.
func (c *cluster) tryRestart(i int) error {
	if err := c.tryLaunch(i, embed.ClusterStateFlagExisting); err != nil {
		return err
	}
	return c.tryAwaitReady(i)
}

func (c *cluster) leader() int {
	c.t.Helper()
	i, err := c.findLeader()
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

func (c *cluster) findLeader() (int, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, m := range c.members {
			if m.running != nil && m.running.Server.Leader() == m.running.Server.MemberID() {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no member leads within %v", patience)
}

func (c *cluster) endpoints() []string {
	var out []string
	for _, m := range c.members {
		out = append(out, m.client.String())
	}
	return out
}

// open returns a store on the cluster that is closed when the test ends.
func (c *cluster) open(t testing.TB, o etcd.Options) *etcd.Store {
	t.Helper()
	o.Endpoints = c.endpoints()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	s, err := etcd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func long() bool { return os.Getenv("KEELSON_LONG") != "" }
