package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// The test binary starts itself as a process that can be killed. roleVar is the environment variable with the role of
// that process, settingsVar that with its settings in JSON.
const (
	roleVar     = "KEELSON_ETCD_TEST_ROLE"
	settingsVar = "KEELSON_ETCD_TEST_SETTINGS"
)

// roles run until the process is killed. They call ready when they serve.
var roles = map[string]func(settings []byte, ready func()) error{
	"member": beMember, "replica": beReplica, "own member": beOwnMember,
}

func TestMain(m *testing.M) {
	run, is := roles[os.Getenv(roleVar)]
	if !is {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the process of the test has ended
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, run([]byte(os.Getenv(settingsVar)), func() { fmt.Println("ready") }))
	os.Exit(1)
}

// child is a process that the test has started.
type child struct {
	role  string
	cmd   *exec.Cmd
	out   *bufio.Reader
	stdin io.Closer
	said  strings.Builder // standard error; complete when the process was killed
}

func spawn(t testing.TB, role string, settings any) *child {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{role: role, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, settingsVar+"="+string(text))
	c.cmd.Stderr = &c.said
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// awaitReady waits until the process serves.
func (c *child) awaitReady(t testing.TB) {
	t.Helper()
	process := c.cmd.Process
	defer time.AfterFunc(patience, func() { _ = process.Kill() }).Stop() // ends the reading
	if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
		c.kill()
		t.Fatalf("a %s does not start: %q, %v\n%s", c.role, line, err, c.said.String())
	}
}

// kill ends the process at once if it is running.
func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // the process may have ended
	_ = c.cmd.Wait()         // returns an error because the process was killed
	c.cmd = nil
}

// memberSettings are the settings of one member, whose data is in Dir.
type memberSettings struct {
	Name, Dir, Client, Peer string
	All                     string // the value of --initial-cluster
}

func beMember(settings []byte, ready func()) error {
	var s memberSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	client, err := url.Parse(s.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(s.Peer)
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialCluster = s.Name, s.Dir, s.All
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.TickMs, config.ElectionMs = 50, 500
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	m, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	<-m.Server.ReadyNotify()
	ready()
	return <-m.Err()
}

// replicaSettings are the settings of one Keelson server.
type replicaSettings struct {
	Endpoints []string
	Port      int
	Tokens    string
}

func beReplica(settings []byte, ready func()) error {
	var s replicaSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	conf := config.InMemory() // without a data directory
	conf.Storage.Backend, conf.Storage.Etcd.Servers = config.StorageEtcd, s.Endpoints
	conf.Serving.Port, conf.Authentication.TokenFile, conf.Diagnostics.Log = s.Port, s.Tokens, quiet()
	server, err := keelson.Start(context.Background(), conf)
	if err != nil {
		return err
	}
	ready()
	return <-server.Failed()
}

// processes are members and replicas that run as processes.
type processes struct {
	t        testing.TB
	members  []memberSettings
	replicas []replicaSettings
	running  struct{ members, replicas []*child }
}

// startProcesses runs a cluster, and replicas of the server on it that accept token.
func startProcesses(t testing.TB, members, replicas int, token string) *processes {
	t.Helper()
	p := &processes{t: t}
	dir := t.TempDir()
	var endpoints, all []string
	for i := range members {
		m := memberSettings{Name: fmt.Sprintf("m%d", i), Client: urlOf(t), Peer: urlOf(t)}
		m.Dir = filepath.Join(dir, m.Name)
		p.members = append(p.members, m)
		endpoints, all = append(endpoints, m.Client), append(all, m.Name+"="+m.Peer)
	}
	for i := range p.members {
		p.members[i].All = strings.Join(all, ",")
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range replicas {
		u := freeURL(t)
		port, err := strconv.Atoi(u.Port())
		if err != nil {
			t.Fatal(err)
		}
		p.replicas = append(p.replicas, replicaSettings{Endpoints: endpoints, Port: port, Tokens: tokens})
	}
	p.running.members, p.running.replicas = make([]*child, members), make([]*child, replicas)
	p.restart()
	return p
}

func urlOf(t testing.TB) string {
	u := freeURL(t)
	return u.String()
}

// restart starts all processes that are not running, members first, because a replica needs a quorum to start.
func (p *processes) restart() {
	p.t.Helper()
	up(p.t, "member", p.members, p.running.members)
	up(p.t, "replica", p.replicas, p.running.replicas)
}

func up[S any](t testing.TB, role string, settings []S, running []*child) {
	t.Helper()
	var waiting []*child
	for i, c := range running {
		if c == nil {
			running[i] = spawn(t, role, settings[i])
			waiting = append(waiting, running[i])
		}
	}
	for _, c := range waiting {
		c.awaitReady(t)
	}
}

// kill kills some of a list of processes.
func kill(list []*child, which ...int) {
	for _, i := range which {
		if list[i] != nil {
			list[i].kill()
			list[i] = nil
		}
	}
}

// urls returns the URLs of the replicas.
func (p *processes) urls() []string {
	var out []string
	for _, r := range p.replicas {
		out = append(out, "https://127.0.0.1:"+strconv.Itoa(r.Port))
	}
	return out
}

// settle waits until every transaction of processes that were killed has taken effect or never will. It commits a
// transaction through each member, which takes effect after the earlier ones.
func (p *processes) settle() {
	p.t.Helper()
	var endpoints []string
	for _, m := range p.members {
		endpoints = append(endpoints, m.Client)
	}
	settle(p.t, endpoints)
}

func settle(t testing.TB, endpoints []string) {
	t.Helper()
	for i, endpoint := range endpoints {
		s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{endpoint}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		within(t, endpoint+" commits", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := s.Commit(ctx, put(fmt.Sprint("/settled/", i), ""))
			return err
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
