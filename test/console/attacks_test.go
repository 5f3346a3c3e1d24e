package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	cdpnetwork "github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// proxied is a running `keelson console`.
type proxied struct {
	t    testing.TB
	link string // the first one
	url  string // http://127.0.0.1:PORT
	in   io.Writer
	read chan string // further links
}

var linkText = regexp.MustCompile(`^http://127\.0\.0\.1:\d+/console/login\?once=\S+$`)

// kubeconfig writes a kubeconfig for a server with a token.
func kubeconfig(t testing.TB, url, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, url, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startProxy starts `keelson console` for the server of a kubeconfig.
func startProxy(t testing.TB, kubeconfig string) *proxied {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "console", "--kubeconfig", kubeconfig, "--no-open")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	p := &proxied{t: t, in: in, read: make(chan string, 10)}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if linkText.MatchString(lines.Text()) {
				p.read <- lines.Text()
			}
		}
	}()
	p.link = p.nextLink()
	p.url, _, _ = strings.Cut(p.link, "/console/")
	return p
}

// nextLink returns the next link that the command prints.
func (p *proxied) nextLink() string {
	p.t.Helper()
	select {
	case link := <-p.read:
		return link
	case <-time.After(patience):
		p.t.Fatal("keelson console has printed no link")
		return ""
	}
}

// another presses Enter and returns the link that is printed then.
func (p *proxied) another() string {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
	return p.nextLink()
}

// enter opens the link of a proxy and waits for the page.
func (p *page) enter(link string) {
	p.t.Helper()
	p.do("open the link", chromedp.Navigate(link), chromedp.WaitVisible("nav.side"))
}

// reloads loads the page again, which ends the login, and logs in.
func (p *page) reloads(token string) {
	p.t.Helper()
	p.do("load the page again", chromedp.Reload(), chromedp.WaitVisible("#token"))
	p.do("log in", chromedp.SendKeys("#token", token+"\r"), chromedp.WaitVisible("nav.side"))
}

// goes opens an address, which may be refused.
func (p *page) goes(address string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_ = chromedp.Run(ctx, chromedp.Navigate(address)) // what is there then is looked at by the caller
}

// lands waits until a page that is being loaded shows a text.
func (p *page) lands(text string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.text(), text); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("the page does not say %q, but %.1500s", text, p.text())
		}
	}
}

// evaluate runs an expression in the page, waits for it if it is a promise, and puts its value into result. The policy of the
// page applies to what it calls, such as eval.
func (p *page) evaluate(expression string, result any) {
	p.t.Helper()
	p.do("run "+expression, chromedp.Evaluate(expression, result, awaited))
}

// awaited waits for the promise that an expression returns, and lets the policy of the page apply.
func awaited(e *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams {
	return e.WithAwaitPromise(true).WithAllowUnsafeEvalBlockedByCSP(false)
}

// says returns the text of an expression.
func (p *page) says(expression string) (text string) {
	p.t.Helper()
	p.evaluate(expression, &text)
	return text
}

// presses clicks the first visible element of a selector.
func (p *page) presses(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.Poll(fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%q)].find((x) => x.checkVisibility());
		e?.click();
		return !!e;
	})()`, selector), nil, chromedp.WithPollingInterval(50*time.Millisecond)))
}

// pastes replaces the text of the editor by a text from the clipboard, which is faster than insert for long ones.
func (p *page) pastes(text string) {
	p.t.Helper()
	p.do("wait for the editor", chromedp.Poll(`!!document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')`, nil))
	p.do("focus the editor", chromedp.Evaluate(`document.querySelector('.editor').shadowRoot.querySelector('.cm-content').focus()`, nil),
		chromedp.KeyEvent("a", chromedp.KeyModifiers(2)))
	p.do("paste", chromedp.Evaluate(fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.setData('text/plain', %s);
		document.querySelector('.editor').shadowRoot.querySelector('.cm-content').dispatchEvent(
			new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
	})()`, quoted(text)), nil))
}

// harm is an expression whose value tells what hostile data has done to the page.
const harm = `(() => {
	const found = [];
	if (window.hacked) found.push('a script has run: ' + window.hacked);
	if (({}).polluted !== undefined) found.push('the prototype of all objects has a new member');
	const visit = (root) => {
		for (const e of root.querySelectorAll('*')) {
			const tag = e.tagName.toLowerCase();
			if (e.matches('img.cm-widgetBuffer:not([src])')) continue; // of CodeMirror
			if (/^(iframe|object|embed|img|marquee|base|frame|video|audio|math|template|portal)$/.test(tag)) found.push('element ' + tag);
			if (tag === 'script' && !e.src.startsWith(location.origin + '/console/')) found.push('a script element');
			if (tag === 'link' && !e.href.startsWith(location.origin + '/console/')) found.push('a link element to ' + e.href);
			if (e.classList.contains('evil') || /^evil/.test(e.id)) found.push('an element of data: ' + tag);
			for (const a of e.attributes) {
				if (/^on/i.test(a.name)) found.push('attribute ' + a.name);
				if (/^(xlink:href|href|action|formaction|srcdoc|data|src)$/i.test(a.name) && !/^(script|link)$/.test(tag) && !a.value.startsWith('#')) {
					found.push(tag + ' ' + a.name + '=' + a.value.slice(0, 100));
				}
			}
			if (e.shadowRoot) visit(e.shadowRoot);
		}
	};
	visit(document);
	return found.slice(0, 20).join('\n');
})()`

// unharmed fails the test if hostile data has done anything to the page, or has tried to.
func (p *page) unharmed(where string) {
	p.t.Helper()
	if found := p.says(harm); found != "" {
		p.t.Errorf("%s: %s", where, found)
	}
	for _, problem := range p.found() {
		if strings.Contains(problem, "Content Security Policy") || strings.Contains(problem, "Trusted") {
			p.t.Errorf("%s: the browser says: %s", where, problem)
		}
	}
}

// status sends a request without a browser and returns the status and the body.
func status(t testing.TB, method, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// browseWith opens a browser with further flags.
func browseWith(t testing.TB, flags ...chromedp.ExecAllocatorOption) *page {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 800),
		chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-first-run", true), chromedp.UserDataDir(t.TempDir()),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(options, flags...)...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	p := &page{t: t, ctx: ctx}
	p.listen()
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// bodies collects the responses to the page from now on. The result returns them: headers and body by address.
func (p *page) bodies() func() map[string]string {
	p.t.Helper()
	var mu sync.Mutex
	found := map[string]string{}
	addresses := map[cdpnetwork.RequestID]string{}
	var running sync.WaitGroup
	chromedp.ListenTarget(p.ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *cdpnetwork.EventResponseReceived:
			addresses[e.RequestID] = e.Response.URL
			found[e.Response.URL] += fmt.Sprintf("%v\n", e.Response.Headers)
		case *cdpnetwork.EventResponseReceivedExtraInfo:
			found["headers of "+string(e.RequestID)] += e.HeadersText
		case *cdpnetwork.EventLoadingFinished:
			address := addresses[e.RequestID]
			running.Go(func() {
				_ = chromedp.Run(p.ctx, chromedp.ActionFunc(func(ctx context.Context) error {
					body, err := cdpnetwork.GetResponseBody(e.RequestID).Do(ctx)
					mu.Lock()
					defer mu.Unlock()
					found[address] += string(body)
					return err
				}))
			})
		}
	})
	p.do("watch the network", cdpnetwork.Enable())
	return func() map[string]string {
		running.Wait()
		mu.Lock()
		defer mu.Unlock()
		return found
	}
}
