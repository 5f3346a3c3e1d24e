package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	token = "console-admin"
	// patience is how long a test waits for something to appear.
	patience = 20 * time.Second
)

// chromium returns the path of the browser. It skips the test if there is none.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium here: `make browser` installs the one of Debian")
	return ""
}

// programDir is the folder of the program, "" as long as no test has needed it.
var programDir string

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "keelson-console-program-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "keelson")
	build := exec.Command("go", "build", "-o", path, "./cmd/keelson")
	build.Dir = "../.."
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// server is a running Keelson, and who asks it.
type server struct {
	url, dir, token string
	program         string
	client          *http.Client
	user            string // that requests impersonate, if it is not empty
	proxy           string // the URL of `keelson console` in front of it, if its page is looked at
}

// start starts a server of its own for a test. Its administrator has a token.
func start(t testing.TB, flags ...string) *server {
	t.Helper()
	chromium(t) // without a browser there is nothing to test
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: t.TempDir(), token: token, program: program}
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte(token+",admin,1,system:masters\nviewer,viewer,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	s.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	out, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, append([]string{
		"serve", "--data-dir", filepath.Join(s.dir, "data"), "--secure-port", fmt.Sprint(port), "--token-auth-file", tokens,
	}, flags...)...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		_ = out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(out.Name())
			t.Logf("the log of the server:\n%s", text)
		}
	})
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if r, err := s.client.Get(s.url + "/readyz"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			t.Fatal("the server did not get ready")
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// call sends a request as the administrator and returns the body. A status that is not 2xx fails the test.
func (s *server) call(t testing.TB, method, path, contentType, body string) string {
	t.Helper()
	code, text := s.send(t, method, path, contentType, body)
	if code/100 != 2 {
		t.Fatalf("%s %s: %d: %s", method, path, code, text)
	}
	return text
}

// send sends a request and returns the status code and the body.
func (s *server) send(t testing.TB, method, path, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", contentType)
	if s.user != "" {
		r.Header.Set("Impersonate-User", s.user)
		r.Header.Set("Impersonate-Group", "system:masters")
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, string(text)
}

// as returns the server for a user who may do everything.
func (s *server) as(user string) *server {
	other := *s
	other.user = user
	return &other
}

// create creates an object of JSON or YAML in a collection.
func (s *server) create(t testing.TB, path, object string) {
	t.Helper()
	s.call(t, http.MethodPost, path, "application/yaml", object)
}

// A page is a tab of a browser.
type page struct {
	t             testing.TB
	ctx           context.Context
	width, height int
	// problems are what the browser has complained of: errors of scripts and refusals by the policy.
	mu       sync.Mutex
	problems []string
	failures []string // of requests, which may be what a test wants
}

// browse opens a browser with a window of that size.
func browse(t testing.TB, width, height int) *page {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-first-run", true), chromedp.UserDataDir(t.TempDir()),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(ignoreUnknown))
	t.Cleanup(func() {
		cancel()
		stop()
	})
	p := &page{t: t, ctx: ctx, width: width, height: height}
	p.listen()
	if err := chromedp.Run(ctx); err != nil { // the browser lives as long as the context of the first call
		t.Fatal(err)
	}
	p.resize(width, height)
	return p
}

// ignoreUnknown drops what chromedp says of events that it does not know yet.
func ignoreUnknown(format string, args ...any) {
	if !strings.HasPrefix(format, "unhandled") {
		log.Printf("chromedp: "+format, args...)
	}
}

// tab opens a tab of the same browser for a test, which closes it at its end.
func (p *page) tab(t testing.TB) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	t.Cleanup(cancel)
	other := &page{t: t, ctx: ctx, width: p.width, height: p.height}
	other.listen()
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	other.resize(p.width, p.height)
	return other
}

// resize gives the window another size.
func (p *page) resize(width, height int) {
	p.t.Helper()
	p.do("resize the window", chromedp.EmulateViewport(int64(width), int64(height)))
}

// do runs actions, which may take as long as patience.
func (p *page) do(what string, actions ...chromedp.Action) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	if err := chromedp.Run(ctx, actions...); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("it did not happen within %v", patience)
		}
		p.shot("failed-" + strings.ReplaceAll(p.t.Name(), "/", "-"))
		p.t.Fatalf("%s: %v\nthe page says: %.1500s\nproblems: %q", what, err, p.content(), append(p.found(), p.failures...))
	}
}
