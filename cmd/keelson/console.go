package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// consoleName is the name of the command that shows the web console.
const consoleName = "console"

// consoleCommand has the flags of `keelson console`, and the streams and functions that tests replace.
type consoleCommand struct {
	kubeconfig, context string
	port                int
	noOpen              bool

	in          io.Reader
	out, errOut io.Writer
	getenv      func(string) string
	open        func(url string) error // shows a URL in a browser
}

func newConsole(in io.Reader, out, errOut io.Writer) *cobra.Command {
	k := consoleCommand{in: in, out: out, errOut: errOut, getenv: os.Getenv, open: openBrowser}
	c := &cobra.Command{
		Use: consoleName, Short: "Show any API server in a browser", Args: noArguments,
		Long: "Console serves a web page on this machine that shows and changes the objects of\n" +
			"an API server: Keelson or any other one. The requests of the page get the\n" +
			"credentials of a kubeconfig, which the browser does not see. It prints a link,\n" +
			"which works once and for 10 minutes, and opens it in a browser if there is one.\n" +
			"Enter prints another link.",
		Example: "  keelson console\n  keelson console --kubeconfig keelson-data/kubeconfig\n" +
			"  keelson console --context staging --port 8001 --no-open",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig to use; by default those that kubectl uses")
	f.StringVar(&k.context, "context", "", "context of the kubeconfig; by default the current one")
	f.IntVar(&k.port, "port", 0, "port of 127.0.0.1 to listen on; 0 picks a free one")
	f.BoolVar(&k.noOpen, "no-open", false, "do not open a browser")
	return c
}

// run serves the console until ctx ends.
func (c *consoleCommand) run(ctx context.Context) error {
	if c.port < 0 || c.port > 65535 {
		return fmt.Errorf("--port must be 0 to 65535, not %d", c.port)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("cannot listen on %s: address already in use; choose another port with --port", address)
		}
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	p, err := console.NewProxy(ctx, l.Addr().(*net.TCPAddr).Port, console.ProxyOptions{
		Connect: c.connect, Version: version.Keelson, Log: slog.New(slog.NewTextHandler(c.errOut, nil)), Now: time.Now,
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	link := p.NewLink()
	fmt.Fprintf(c.out, "The console of %s: open this link, once and within 10 minutes:\n%s\nEnter prints another link, Ctrl-C ends.\n",
		p.Server(), link)
	if !c.noOpen {
		if err := c.open(link); err != nil && !errors.Is(err, errNoDisplay) {
			fmt.Fprintf(c.errOut, "No browser was opened: %v\n", err)
		}
	}
	go func() { // it ends with the process, because nothing interrupts a read of a terminal
		for lines := bufio.NewScanner(c.in); lines.Scan() && ctx.Err() == nil; {
			fmt.Fprintln(c.out, p.NewLink())
		}
	}()
	return p.Serve(ctx, l)
}

// connect returns the server of the kubeconfig.
func (c *consoleCommand) connect(ctx context.Context) (*console.Upstream, error) {
	r, err := kubectlhistory.Connect(ctx, c.kubeconfig, c.context, c.getenv)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	return &console.Upstream{URL: u, Header: r.Header, TLS: r.Transport.TLSClientConfig, Proxy: r.Transport.Proxy}, nil
}

// errNoDisplay is the error of openBrowser on a machine without a display.
var errNoDisplay = errors.New("there is no display")

// openBrowser shows a URL in the browser of the person.
func openBrowser(address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return errNoDisplay
		}
	}
	c := exec.Command(name, args...) // without a context: the browser may outlive the command
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }() // the user sees in the browser whether it could show the page
	return nil
}
