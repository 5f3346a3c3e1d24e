package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// listen collects what the browser complains of.
func (p *page) listen() {
	note := func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, text)
	}
	chromedp.ListenTarget(p.ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			note("exception: " + e.ExceptionDetails.Error())
		case *cdpruntime.EventConsoleAPICalled:
			if e.Type == cdpruntime.APITypeError {
				note(fmt.Sprintf("console.error: %v", e.Args))
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError && e.Entry.Source != cdplog.SourceNetwork {
				note(fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
			}
		}
	})
}

// found returns the problems until now.
func (p *page) found() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// clean fails the test if the browser has complained of anything.
func (p *page) clean() {
	p.t.Helper()
	for _, problem := range p.found() {
		p.t.Errorf("the browser says: %s", problem)
	}
}

// text returns the visible text of the page.
func (p *page) text() (text string) {
	ctx, stop := context.WithTimeout(p.ctx, 2*time.Second)
	defer stop()
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ''`, &text))
	return text
}

// logIn opens the console of a server and logs in with a token.
func (p *page) logIn(s *server, token string) {
	p.t.Helper()
	p.do("open the console", chromedp.Navigate(s.url+"/console/"), chromedp.WaitVisible("#token"))
	p.do("log in", chromedp.SendKeys("#token", token+kb.Enter), chromedp.WaitVisible("nav.side"))
}

// open goes to an address inside the console.
func (p *page) open(hash string) {
	p.t.Helper()
	p.do("go to "+hash, chromedp.Evaluate(fmt.Sprintf("location.hash = %q", hash), nil))
}

// sees waits until the page shows a text.
func (p *page) sees(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.do(fmt.Sprintf("wait for %q", text), chromedp.Poll(
			fmt.Sprintf("document.body.innerText.includes(%q)", text), nil, chromedp.WithPollingInterval(50*time.Millisecond)))
	}
}

// misses waits until the page does not show a text.
func (p *page) misses(text string) {
	p.t.Helper()
	p.do(fmt.Sprintf("wait until %q is gone", text), chromedp.Poll(
		fmt.Sprintf("!document.body.innerText.includes(%q)", text), nil, chromedp.WithPollingInterval(50*time.Millisecond)))
}

// click clicks the visible button, link or label with that text.
func (p *page) click(text string) {
	p.t.Helper()
	script := fmt.Sprintf(`(() => {
		const all = [...document.querySelectorAll('dialog[open] *, body *')].filter((e) =>
			/^(A|BUTTON|LABEL|SUMMARY|LI|TH)$/.test(e.tagName) && e.innerText?.trim() === %q && e.checkVisibility());
		const open = document.querySelector('dialog[open]');
		const e = (open && all.find((x) => open.contains(x))) ?? all[0];
		e?.click();
		return !!e;
	})()`, text)
	p.do("click "+text, chromedp.Poll(script, nil, chromedp.WithPollingInterval(50*time.Millisecond)))
}

// types writes into a field, which it empties before.
func (p *page) types(selector, text string) {
	p.t.Helper()
	p.do("write into "+selector, chromedp.WaitVisible(selector), chromedp.Focus(selector),
		chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).select?.()", selector), nil),
		chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(text))
}

// keys presses keys, wherever the focus is.
func (p *page) keys(text string) {
	p.t.Helper()
	p.do("press "+text, chromedp.KeyEvent(text))
}

// edits replaces the text of the editor.
func (p *page) edits(text string) {
	p.t.Helper()
	p.do("wait for the editor", chromedp.Poll(`!!document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')`, nil))
	p.do("focus the editor", chromedp.Evaluate(`document.querySelector('.editor').shadowRoot.querySelector('.cm-content').focus()`, nil))
	p.do("replace its text", chromedp.KeyEvent("a", chromedp.KeyModifiers(2)), chromedp.ActionFunc(func(ctx context.Context) error {
		return insert(ctx, text)
	}))
}

// shot writes a screenshot of the window.
func (p *page) shot(name string) {
	p.t.Helper()
	dir := os.Getenv("KEELSON_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = screenshot(ctx)
		return err
	}))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".webp"), picture, 0o644)
	}
	if err != nil {
		p.t.Errorf("the screenshot %s: %v", name, err)
	}
}

func screenshot(ctx context.Context) ([]byte, error) {
	return cdppage.CaptureScreenshot().WithFormat(cdppage.CaptureScreenshotFormatWebp).WithQuality(60).Do(ctx)
}
