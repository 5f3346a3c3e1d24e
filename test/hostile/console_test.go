package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// consoleAttacks are attacks without credentials on what needs none: the console and the page at /.
func consoleAttacks() []row {
	return []row{
		{
			name: "files of the console that are not read", row: "45", server: "console", fresh: true, run: unreadConsole,
			// Each connection takes about 60 KiB. Without the limit of streams 2,700 of them take 300 MiB.
			limits: limits{cpu: 10 * time.Second, peak: 96 << 20, kept: 16 << 20},
		},
		{
			name: "half bodies for the token exchange", row: "45", server: "console", fresh: true, run: halfExchanges,
			// Without the limit of streams and a place before the body is read, 2,700 of them take 330 MiB.
			limits: limits{cpu: 10 * time.Second, peak: 96 << 20, kept: 16 << 20},
		},
	}
}

// serveConsole configures the console, with an issuer at which people log in.
func serveConsole(dir string, c *config.Config) {
	serveIssuer(dir, c)
	c.Serving.Console = true
}

const consoleConnections, consoleStreams = 30, 90

// unreadConsole requests the largest file of the console, compressed and not, on streams whose window is closed.
func unreadConsole(a *attack) {
	page := a.anonymous.get("/console/").want(a, http.StatusOK)
	file := regexp.MustCompile(`/?main-[A-Z0-9]+\.js`).Find(page.body)
	if file == nil {
		a.Fatalf("the page names no program: %s", page.body)
	}
	path := "/console/" + string(file)
	counts := map[string]int{}
	for i := range consoleConnections {
		c := a.dialHTTP2(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for s := range uint32(consoleStreams) {
			pairs := []string{"accept-encoding", []string{"gzip", "identity"}[i%2]}
			if err := c.headers(2*s+1, true, http.MethodGet, path, pairs...); err != nil {
				break // the server has closed the connection
			}
		}
		a.countAnswers(c, counts)
	}
	a.judgeUnauthenticated(counts)
}

// halfExchanges sends bodies of the token exchange that do not end.
func halfExchanges(a *attack) {
	counts := map[string]int{}
	half := []byte(fmt.Sprintf(`{"code":"%060000d`, 1))
	var all []*connection
	for range consoleConnections {
		c := a.dialHTTP2(true)
		all = append(all, c)
		for s := range uint32(consoleStreams) {
			pairs := []string{"content-type", jsonType, "origin", "https://server"}
			if err := c.headers(2*s+1, false, http.MethodPost, "/console/oidc/token", pairs...); err != nil {
				break
			}
			for part := half; len(part) > 0; part = part[min(len(part), 16<<10):] {
				// The frames stay below the windows of the server: 60 KB a stream, and what it takes back of refused ones.
				if err := c.write(func(f *http2.Framer) error { return f.WriteData(2*s+1, false, part[:min(len(part), 16<<10)]) }); err != nil {
					break
				}
			}
		}
	}
	// Those that have a place wait for the end of their bodies; the others are refused before that.
	wait.NoError(a, "a request that is refused", func() error {
		clear(counts)
		for _, c := range all {
			for _, status := range c.answered() {
				counts[status]++
			}
		}
		if counts["429"] == 0 {
			return fmt.Errorf("answers: %v", counts)
		}
		return nil
	})
	a.judgeUnauthenticated(counts)
}

// countAnswers waits until the streams of a connection are answered, or the connection is closed, and adds the answers to counts.
func (a *attack) countAnswers(c *connection, counts map[string]int) {
	a.Helper()
	wait.NoError(a, "the answers", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.status); n < consoleStreams && !c.closed && !c.goaway {
			return fmt.Errorf("%d of %d", n, consoleStreams)
		}
		return nil
	})
	for _, status := range c.answered() {
		counts[status]++
	}
}

// judgeUnauthenticated checks that some requests were refused, and that browsers at another address are served.
func (a *attack) judgeUnauthenticated(counts map[string]int) {
	a.Helper()
	if counts[strconv.Itoa(http.StatusTooManyRequests)] == 0 {
		a.Errorf("nothing was refused: %v", counts)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if conn, err := dialer.Dial("tcp", a.server.url[len("https://"):]); err != nil {
		a.Logf("there is no other address: %v", err) // not every system has 127.0.0.2
		return
	} else {
		_ = conn.Close()
	}
	other := newClient(a.T, a.server.url, "", false)
	defer other.close()
	other.http.Transport.(*http2.Transport).DialTLSContext = func(ctx context.Context, network, address string, c *tls.Config) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: dialer, Config: c}).DialContext(ctx, network, address)
	}
	for _, path := range []string{"/console/", "/console/config.json"} {
		other.get(path).want(a, http.StatusOK)
	}
}
