package hostile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/pace"
)

// The test binary runs as a server if the environment variable roleVar names a configuration. dirVar is the directory
// that the server may use.
const (
	roleVar = "KEELSON_HOSTILE_SERVER"
	dirVar  = "KEELSON_HOSTILE_DIR"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// tokensFile is the file of static tokens in a server's directory.
const tokensFile = "tokens.csv"

// configurations returns the configurations of servers that rows may attack, by name. Each function changes the
// default configuration, and may use dir.
func configurations() map[string]func(dir string, c *config.Config) {
	return map[string]func(string, *config.Config){
		"": func(string, *config.Config) {},
		// history keeps history for a short time only.
		"history": func(_ string, c *config.Config) {
			c.Storage.HistoryWindow, c.Storage.HistoryBytes = 2*time.Second, 32<<20
		},
		// patient gives requests a long time, so that answers that are not read are still there when the attack ends.
		"patient": func(_ string, c *config.Config) { c.Requests.Timeout = time.Hour },
		// verbose logs every request.
		"verbose": func(_ string, c *config.Config) {
			const everything = slog.Level(-10)
			c.Diagnostics.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: everything}))
		},
		// webhook asks a program that never answers about unknown tokens.
		"webhook": func(dir string, c *config.Config) { c.Authentication.Webhook.ConfigFile = silentWebhook(dir) },
		// issuer accepts the tokens of an OpenID Connect issuer.
		"issuer": serveIssuer,
		// console has the console, at which people log in at that issuer.
		"console": serveConsole,
		// kms uses a KMS plug-in for Secrets, which the test serves.
		"kms": encryptSecrets,
		// admission has plug-ins of admission that are off by default, and authorizes kubelets.
		"admission": admitStrictly,
		// cbor serves CBOR.
		"cbor": func(_ string, c *config.Config) { c.API.FeatureGates = []string{"CBORServingAndStorage=true"} },
		// proxies are clients has one certificate authority for clients and for front proxies.
		"proxies are clients": func(dir string, c *config.Config) {
			c.Authentication.ClientCAFile = filepath.Join(dir, authorityFile)
			c.Authentication.RequestHeader.ClientCAFile = c.Authentication.ClientCAFile
			c.Authentication.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
		},
	}
}

func TestMain(m *testing.M) {
	name, isServer := os.LookupEnv(roleVar)
	if !isServer {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "the server ended:", serve(name, os.Getenv(dirVar)))
	os.Exit(1)
}

// serve runs a server until its standard input ends, and answers the commands there.
func serve(name, dir string) error {
	change, ok := configurations()[name]
	if !ok {
		return fmt.Errorf("no configuration is called %q", name)
	}
	pace.Start(os.Getenv, pace.ReadMemory(os.DirFS("/"))) // as in cmd/keelson
	conf := config.Default()
	conf.Storage.DataDir, conf.Serving.Port = filepath.Join(dir, "data"), config.FreePort
	conf.Authentication.TokenFile = filepath.Join(dir, tokensFile)
	conf.Diagnostics.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	slog.SetDefault(conf.Diagnostics.Log)
	change(dir, &conf)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := keelson.Start(ctx, conf)
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	go func() {
		fmt.Fprintln(os.Stderr, "the server failed:", <-s.Failed())
		os.Exit(1)
	}()
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		usage := inside()
		switch questions.Text() {
		case collect:
			runtime.GC()
			debug.FreeOSMemory()
			usage = inside()
		case holders:
			usage.Holders = holdersOfHeap()
		case stop:
			usage.Failure = stopServer(s)
		}
		answer, err := json.Marshal(usage)
		if err != nil {
			return err
		}
		fmt.Println(string(answer))
	}
	return io.EOF // the test has ended
}

// These are the commands on the standard input of a server.
const (
	collect = "collect" // collect the garbage, return memory to the system, and report usage
	report  = "report"
	holders = "holders" // say what was allocated where and is still used
	stop    = "stop"    // stop the server and report its error
)

// holdersOfHeap returns the five places in the program whose allocations use the most of the heap, as samples tell. A profile in text
// form would begin with those that use nothing.
func holdersOfHeap() string {
	const places, frames = 5, 12
	n, _ := runtime.MemProfile(nil, false)
	records := make([]runtime.MemProfileRecord, n+100)
	n, _ = runtime.MemProfile(records, false)
	records = records[:n]
	slices.SortFunc(records, func(a, b runtime.MemProfileRecord) int { return cmp.Compare(b.InUseBytes(), a.InUseBytes()) })
	var w strings.Builder
	for _, r := range records[:min(places, n)] {
		fmt.Fprintf(&w, "%d bytes in %d objects:\n", r.InUseBytes(), r.InUseObjects())
		stack := runtime.CallersFrames(r.Stack())
		for range frames {
			f, more := stack.Next()
			fmt.Fprintf(&w, "  %s:%d\n", f.Function, f.Line)
			if !more {
				break
			}
		}
	}
	return w.String()
}

// stopServer stops a server and returns its error, or "". It waits for half of the time that a request may take.
func stopServer(s *keelson.Server) string {
	ctx, cancel := context.WithTimeout(context.Background(), config.Default().Requests.Timeout/2)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// silentWebhook listens on a port, accepts connections and never answers. It returns the path of a kubeconfig for it.
func silentWebhook(dir string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // the output of the test shows it
	}
	go func() {
		var open []net.Conn // keeps the connections, so that they are not closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
			runtime.KeepAlive(open)
		}
	}()
	path := filepath.Join(dir, "webhook.yaml")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c," +
		" user: u}}]\nusers: [{name: u}]\n" +
		"clusters: [{name: c, cluster: {server: \"http://" + l.Addr().String() + "\"}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		panic(err)
	}
	return path
}

// authorityFile returns the path that writeAuthority writes to.
const authorityFile = "authority.crt"

// writeAuthority writes the certificate of an authority.
func writeAuthority(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return os.WriteFile(
		filepath.Join(dir, authorityFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600,
	)
}

// insideUsage is the usage as counted by the Go runtime of the server.
type insideUsage struct {
	Goroutines, Heap, Allocated int64
	Failure                     string // the error of stopping
	Holders                     string // see holdersOfHeap
}

func inside() insideUsage {
	samples := []metrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	number := func(i int) int64 { return int64(samples[i].Value.Uint64()) } //nolint:gosec // far below the limit
	return insideUsage{Goroutines: number(0), Heap: number(1), Allocated: number(2)}
}

// output keeps the output of a process.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is a running server.
type process struct {
	dir, url string
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	stdout   *bufio.Reader
	log      *output
	ended    chan struct{} // closed when the process has ended
}

// startServer starts a server with a configuration in a directory. It ends with t, or with this process.
func startServer(t *testing.T, configuration, dir string) *process {
	t.Helper()
	if err := writeTokens(dir); err != nil {
		t.Fatal(err)
	}
	p := &process{dir: dir, cmd: exec.Command(os.Args[0]), log: &output{}, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVar+"="+configuration, dirVar+"="+dir)
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := p.line()
	if err != nil || !strings.HasPrefix(line, "https://") {
		p.kill()
		t.Fatalf("the server does not start: %q, %v\n%s", line, err, p.log)
	}
	p.url = line
	return p
}

// line reads one line from the server, waiting for at most patience.
func (p *process) line() (string, error) {
	defer time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() }).Stop() // ends the reading
	line, err := p.stdout.ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask sends a command to the server process and returns its answer.
func (p *process) ask(question string) (insideUsage, error) {
	var u insideUsage
	if _, err := fmt.Fprintln(p.stdin, question); err != nil {
		return u, err
	}
	line, err := p.line()
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal([]byte(line), &u)
}

// kill ends the process at once if it is running.
func (p *process) kill() {
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Kill() // the process may have ended
		_ = p.cmd.Wait()         // returns an error because the process was killed
		close(p.ended)
	}
}
