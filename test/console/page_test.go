package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	cdpnetwork "github.com/chromedp/cdproto/network"
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
		case *cdpnetwork.EventLoadingFailed:
			p.mu.Lock()
			p.failures = append(p.failures, e.ErrorText)
			p.mu.Unlock()
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

// content returns the visible text of the dialogs, the messages and the view.
func (p *page) content() (text string) {
	ctx, stop := context.WithTimeout(p.ctx, 2*time.Second)
	defer stop()
	_ = chromedp.Run(ctx, chromedp.Evaluate(
		`[location.hash, ...[...document.querySelectorAll('dialog[open], .toasts, main')].map((e) => e.innerText)].join('\n')`, &text))
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

// click clicks the visible button, link or label with that text or accessible name, in the open dialog if there is one. It
// moves the pointer there and presses it, so what lies above the element fails the test.
func (p *page) click(text string) {
	p.t.Helper()
	p.clickOn(text, fmt.Sprintf(`[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('a, button, label, summary, li, th, input')]
		.filter((e) => (e.innerText?.replace(/\s+/g, ' ').trim() === %[1]q || e.getAttribute('aria-label') === %[1]q) && e.checkVisibility() && !e.disabled)
		.find((e, _, all) => !all.some((other) => other !== e && e.contains(other)))`, text))
}

// clickOn clicks the element that an expression returns. It waits until there is one, and it does not move.
func (p *page) clickOn(what, element string) {
	p.t.Helper()
	var at []float64
	p.do("find "+what, chromedp.Poll(fmt.Sprintf(`(() => {
		const e = %s;
		if (!e) return false;
		e.scrollIntoView({ block: 'nearest', inline: 'nearest' });
		const r = e.getBoundingClientRect();
		const at = [r.x + Math.min(r.width / 2, 60), r.y + r.height / 2];
		const top = document.elementFromPoint(...at);
		const still = window.lastAt?.join() === at.join();
		window.lastAt = at;
		return still && top && (e.contains(top) || top.contains(e)) ? at : false;
	})()`, element), &at, chromedp.WithPollingInterval(20*time.Millisecond)))
	p.do("click "+what, chromedp.MouseClickXY(at[0], at[1]))
}

// until waits until an expression is true.
func (p *page) until(what, expression string) {
	p.t.Helper()
	p.do("wait until "+what, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(30*time.Millisecond)))
}

// types writes into a field, which it empties before.
func (p *page) types(selector, text string) {
	p.t.Helper()
	p.do("find "+selector, chromedp.WaitVisible(selector), chromedp.Focus(selector))
	for tries, empty := 0, false; !empty && tries < 10; tries++ { // the page may draw the field again between the selection and the key
		p.do("empty "+selector, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).select?.()", selector), nil), press(kb.Delete),
			chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).value === ''", selector), &empty))
	}
	p.do("write into "+selector, press(text))
}

// fills writes into the field of a label that begins with a text.
func (p *page) fills(label, text string) {
	p.t.Helper()
	p.until("there is the field "+label, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll('label')].find((l) => l.innerText.trim().startsWith(%q))?.querySelector('input');
		e?.focus();
		e?.select();
		return !!e;
	})()`, label))
	p.do("write into "+label, press(kb.Delete), press(text))
}

// press presses keys as a keyboard does: a key whose event the page has handled itself writes no character.
func press(text string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for _, r := range text {
			var character string
			events := kb.Encode(r)
			for _, e := range events {
				if e.Type == input.KeyChar {
					character = e.Text
				}
			}
			for _, e := range events {
				switch {
				case e.Type == input.KeyChar:
					continue
				case e.Type != input.KeyUp && character != "":
					e.Type, e.Text, e.UnmodifiedText = input.KeyDown, character, character
				}
				if err := e.Do(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// keys presses keys, wherever the focus is.
func (p *page) keys(text string) {
	p.t.Helper()
	p.do(fmt.Sprintf("press %q", text), press(text))
}

// edits replaces the text of the editor.
func (p *page) edits(text string) {
	p.t.Helper()
	p.do("wait for the editor", chromedp.Poll(`!!document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')`, nil))
	p.do("focus the editor", chromedp.Evaluate(`document.querySelector('.editor').shadowRoot.querySelector('.cm-content').focus()`, nil))
	p.do("replace its text", chromedp.KeyEvent("a", chromedp.KeyModifiers(2)), press(kb.Backspace), chromedp.ActionFunc(func(ctx context.Context) error {
		return insert(ctx, text)
	}))
}

// shows waits until the editor shows a text.
func (p *page) shows(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the editor shows %q", text),
		fmt.Sprintf("(document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')?.innerText ?? '').includes(%q)", text))
}

// yaml returns the text of the editor. The editor has lines that are visible only, so the object must be small.
func (p *page) yaml() (text string) {
	p.t.Helper()
	p.do("read the editor", chromedp.Poll(`document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content') && true`, nil),
		chromedp.Evaluate(`[...document.querySelector('.editor').shadowRoot.querySelectorAll('.cm-line')].map((l) => l.innerText.replace(/\n$/, '')).join('\n')`, &text))
	return text
}

// chooses chooses an option of a list.
func (p *page) chooses(selector, value string) {
	p.t.Helper()
	p.do("choose "+value, chromedp.WaitVisible(selector), chromedp.SetValue(selector, value),
		chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).dispatchEvent(new Event('change', { bubbles: true }))", selector), nil))
}

// rows waits until the table has these rows, by the name of the object, in this order.
func (p *page) rows(names ...string) {
	p.t.Helper()
	want := strings.Join(names, " ")
	p.until("the rows are "+want, fmt.Sprintf("[...document.querySelectorAll('.rows tbody th')].map((e) => e.innerText).join(' ') === %q", want))
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

// largestShot is the size of a screenshot above which its quality is reduced, in bytes.
const largestShot = 60 << 10

func screenshot(ctx context.Context) (picture []byte, err error) {
	for quality := int64(60); quality >= 20; quality -= 20 {
		picture, err = cdppage.CaptureScreenshot().WithFormat(cdppage.CaptureScreenshotFormatWebp).WithQuality(quality).Do(ctx)
		if err != nil || len(picture) <= largestShot {
			break
		}
	}
	return picture, err
}

func navigate(url string) chromedp.Action     { return chromedp.Navigate(url) }
func visible(selector string) chromedp.Action { return chromedp.WaitVisible(selector) }

// insert puts a text where the focus is, as an input method does.
func insert(ctx context.Context, text string) error { return input.InsertText(text).Do(ctx) }
