package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
		// narrow serves few requests at a time, so that a test can fill it.
		"narrow": func(_ string, c *keelson.Config) {
			c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = 8, 4
		},
		// short gives up on requests early, so that a test can wait for it.
		"short": func(_ string, c *keelson.Config) { c.RequestTimeout = 3 * time.Second },
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
		if questions.Text() == collect {
			runtime.GC()
			debug.FreeOSMemory()
		}
		answer, err := json.Marshal(inside())
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
)

// insideUsage is what the Go runtime of the server counts.
type insideUsage struct {
	Goroutines, Heap, Allocated int64
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
