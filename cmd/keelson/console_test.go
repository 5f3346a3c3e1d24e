package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/console"
)

// TestConsole starts a server and `keelson console` for it, opens the printed link, and requests another link.
func TestConsole(t *testing.T) {
	dir := t.TempDir()
	server := run(t, "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0")
	defer server.stop(t)
	kubeconfig := filepath.Join(dir, "data", "kubeconfig")
	url := regexp.MustCompile(`https://\S+`).FindString(server.lines[0])
	if want := "Console: " + url + "/console/ (log in with a token), or without one: keelson console --kubeconfig " + kubeconfig; server.lines[3] != want {
		t.Errorf("the server says %q, want %q", server.lines[3], want)
	}
	cmd := command("console", "--kubeconfig", kubeconfig, "--no-open")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // long gone if the test went well
	lines := bufio.NewScanner(out)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it ended early: %s", &errOut)
		}
		return lines.Text()
	}
	if got, want := next(), "The console of "+url+": open this link, once and within 10 minutes:"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	link := regexp.MustCompile(`^(http://127\.0\.0\.1:\d+)/console/login\?once=[A-Za-z0-9_-]{43}$`)
	first := link.FindStringSubmatch(next())
	if first == nil {
		t.Fatalf("no link: %q", lines.Text())
	}
	next()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: 20 * time.Second}
	secret := "" // what the page finds in its address
	get := func(url string) (int, string) {
		t.Helper()
		question, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		question.Header.Set(console.HeaderName, secret)
		r, err := browser.Do(question)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if given, ok := strings.CutPrefix(r.Request.URL.Fragment, "session="); ok {
			secret = given
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	if code, _ := get(first[1] + "/api/v1/namespaces"); code != http.StatusUnauthorized {
		t.Errorf("before the login: %d", code)
	}
	if code, body := get(first[0]); code != http.StatusOK || !strings.Contains(body, "csp-nonce") {
		t.Errorf("the link: %d %s", code, body)
	}
	if code, body := get(first[1] + "/api/v1/namespaces"); code != http.StatusOK || !strings.Contains(body, `"kind":"NamespaceList"`) {
		t.Errorf("the API: %d %s", code, body)
	}
	if code, body := get(first[1] + "/console/config.json"); code != http.StatusOK || !strings.Contains(body, `"proxied":true,"server":"`+url+`"`) {
		t.Errorf("the settings: %d %s", code, body)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if second := next(); !link.MatchString(second) || second == first[0] {
		t.Errorf("the next link is %q", second)
	}
	port := first[1][strings.LastIndex(first[1], ":")+1:]
	for args, want := range map[string]string{
		"--port " + port: "cannot listen on 127.0.0.1:" + port + ": address already in use; choose another port with --port",
		"--port 65536":   "--port must be 0 to 65535, not 65536",
		"--context x":    `the kubeconfig has no context "x"`,
		"more":           `keelson console takes no arguments, but there is "more"`,
	} {
		_, got, code := keelson(append([]string{"console", "--no-open", "--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
		if code != 1 || got != "keelson: "+want+"\n" {
			t.Errorf("%s: exit %d, %q", args, code, got)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errOut.Len() > 0 {
		t.Errorf("after SIGINT: %v, %s", err, &errOut)
	}
}

// TestConsoleOpensABrowser has cases in which a browser exists, is missing, or is not wanted.
func TestConsoleOpensABrowser(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	content := "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		noOpen bool
		err    error
		opened bool
		errOut string
	}{
		"opened": {false, nil, true, ""}, "not wanted": {true, nil, false, ""}, "no display": {false, errNoDisplay, true, ""},
		"broken": {false, errors.New("no such program"), true, "No browser was opened: no such program\n"},
	} {
		var out, errOut bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		opened := ""
		k := consoleCommand{
			kubeconfig: kubeconfig, noOpen: c.noOpen, out: &out, errOut: &errOut,
			getenv: func(string) string { return "" },
			open:   func(url string) error { opened = url; return c.err },
		}
		k.in = lineReader(cancel)
		err := k.run(ctx)
		if err != nil || (opened != "") != c.opened || errOut.String() != c.errOut || c.opened && !strings.Contains(out.String(), opened+"\n") {
			t.Errorf("%s: %v, opened %q, %q %q", name, err, opened, &out, &errOut)
		}
	}
}

// lineReader stands for a terminal that is first read after the link was printed. It calls the function and has no
// lines.
type lineReader func()

// Read implements io.Reader.
func (r lineReader) Read([]byte) (int, error) {
	r()
	return 0, io.EOF
}

// TestConsoleIsOnByDefault checks that the console is on in `keelson serve`, and off in `keelson kube-apiserver`.
func TestConsoleIsOnByDefault(t *testing.T) {
	serve, as := newServe(io.Discard, io.Discard, serveDefaults()), newKubeAPIServer(io.Discard, io.Discard)
	if on, off := serve.Flags().Lookup("console").DefValue, as.Flags().Lookup("console").DefValue; on != "true" || off != "false" {
		t.Errorf("keelson serve: %s, kube-apiserver: %s", on, off)
	}
	if config.Default().Serving.Console || config.InMemory().Serving.Console {
		t.Error("a server in a program has the console without asking for it")
	}
}
