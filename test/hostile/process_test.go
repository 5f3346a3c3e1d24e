package hostile

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/server/pace"
)

// The test binary is the server when roleVar names a configuration; dirVar is the
// directory that it may use.
const (
	roleVar = "KEELSON_HOSTILE_SERVER"
	dirVar  = "KEELSON_HOSTILE_DIR"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// tokensFile is the file of static tokens in a server's directory.
const tokensFile = "tokens.csv"

// configurations returns the servers that rows may attack, by name. The function
// changes the configuration of a server with defaults, which may use dir.
func configurations() map[string]func(dir string, c *keelson.Config) {
	return map[string]func(string, *keelson.Config){
		"": func(string, *keelson.Config) {},
		// history forgets soon.
		"history": func(_ string, c *keelson.Config) { c.HistoryWindow = 2 * time.Second },
		// verbose logs every request.
		"verbose": func(_ string, c *keelson.Config) {
			const everything = slog.Level(-10)
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: everything}))
		},
		// webhook asks a program that never answers whose the tokens are that it does not know.
		"webhook": func(dir string, c *keelson.Config) { c.Authentication.Webhook.ConfigFile = silentWebhook(dir) },
		// issuer believes the tokens of an issuer of OpenID Connect.
		"issuer": serveIssuer,
		// kms has a key-management plug-in for secrets, which the test serves.
		"kms": encryptSecrets,
		// cbor serves CBOR.
		"cbor": func(_ string, c *keelson.Config) { c.FeatureGates = []string{"CBORServingAndStorage=true"} },
		// proxies are clients has one authority for both.
		"proxies are clients": func(dir string, c *keelson.Config) {
			c.ClientCAFile = filepath.Join(dir, authorityFile)
			c.Authentication.RequestHeader.ClientCAFile = c.ClientCAFile
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

// serve runs a server until its standard input ends, and answers what is asked there.
func serve(name, dir string) error {
	change, ok := configurations()[name]
	if !ok {
		return fmt.Errorf("no configuration is called %q", name)
	}
	pace.Start(os.Getenv) // as the command does
	config := keelson.DefaultConfig()
	config.DataDir, config.SecurePort = filepath.Join(dir, "data"), 0
	config.TokenAuthFile = filepath.Join(dir, tokensFile)
	config.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	slog.SetDefault(config.Log)
	change(dir, &config)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := keelson.Start(ctx, config)
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

// What a server is asked on its standard input.
const (
	collect = "collect" // collect the garbage, give memory back, and report
	report  = "report"
	stop    = "stop" // stop the server, and say what went wrong
)

// stopServer stops a server and returns what went wrong, "" for nothing. It waits for
// half of the time that a request may take.
func stopServer(s *keelson.Server) string {
	ctx, cancel := context.WithTimeout(context.Background(), keelson.DefaultConfig().RequestTimeout/2)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// silentWebhook listens on a port, takes connections and never answers. It returns the
// kubeconfig of that.
func silentWebhook(dir string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // the test's output has it
	}
	go func() {
		var open []net.Conn // so that none is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
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

// authorityFile is where writeAuthority writes.
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

// insideUsage is what the Go runtime of the server counts.
type insideUsage struct {
	Goroutines, Heap, Allocated int64
	Failure                     string // of a stop
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

// output keeps what a process writes.
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

// startServer starts a server of a configuration in a directory. It ends with t, or
// with this process.
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

// line reads a line that the server writes, for patience at most.
func (p *process) line() (string, error) {
	defer time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() }).Stop() // ends the reading
	line, err := p.stdout.ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask sends a question to the server's own process and returns its answer.
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

// kill ends the process at once, if it runs.
func (p *process) kill() {
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // it was killed
		close(p.ended)
	}
}
