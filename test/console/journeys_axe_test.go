package console

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axe-core checks pages against the rules of WCAG. It is a development dependency of the page, and no part of it.
const axeFile = "../../internal/console/app/node_modules/axe-core/axe.min.js"

// TestAccessibility runs axe-core on the main views, light and dark. Nothing that it calls serious or critical may be left.
func TestAccessibility(t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there is no axe-core: `npm ci --ignore-scripts` in internal/console/app installs it (%v)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	core := s.family(t, "axe")
	s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	s.create(t, core+"/configmaps", configMap("settings", "color: blue"))
	s.as("bob").patch(t, core+"/configmaps/settings", "kubectl-edit", `{"data":{"color":"green"}}`)
	s.create(t, core+"/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: open-sesame}\n")
	s.patch(t, core+"/pods/web-5d4-a/status", "kubelet", `{"status":{"phase":"Failed"}}`)
	s.patch(t, core+"/pods/web-5d4-b/status", "kubelet", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`)
	b := browse(t, 1280, 800)
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			p := b.tab(t)
			p.do("open the console", navigate(s.url+"/console/"), visible("#token"),
				chromedp.Evaluate("localStorage.setItem('keelson-theme', '"+theme+"')", nil),
				navigate(s.url+"/console/"), visible("#token"))
			p.accessible("login", string(axe))
			p.types("#token", "wrong\r")
			p.sees("does not accept")
			p.accessible("login refused", string(axe))
			p.logIn(s, token)
			for _, view := range []struct{ hash, text string }{
				{"", "Overview"}, {"r/pods?ns=axe", "live"}, {"r/pods?ns=none", "Nothing here"}, {"r/pods?labels=%3D%3D", "400"},
				{"o/deployments.apps/axe/web", "nginx:1.27"}, {"o/pods/axe/web-5d4-b", "Running"}, {"o/secrets/axe/login", "show"},
				{"o/configmaps/axe/settings/yaml", "Edit"}, {"o/configmaps/axe/settings/events", "No Events"},
				{"o/deployments.apps/axe/web/related", "web-5d4-a"}, {"o/configmaps/axe/settings/history", "bob"},
				{"o/configmaps/axe/settings/why", "It waits for nothing"}, {"o/pods/axe/web-5d4-b/logs", "lines"},
				{"o/pods/axe/web-5d4-b/terminal", "Connect"}, {"create", "Several documents"}, {"timeline?ns=axe", "bob"},
				{"access", "Rules in"}, {"definitions", "Widget"}, {"definitions/widgets.example.com", "How large it is"},
				{"extensions", "Admission webhooks"}, {"server", "Most objects"}, {"nonsense", "The server has no"},
			} {
				p.open("#/" + view.hash)
				p.sees(view.text)
				p.accessible(view.hash, string(axe))
			}
			p.open("#/definitions/widgets.example.com")
			p.click("Create with a form")
			p.accessible("form", string(axe))
			p.open("#/o/deployments.apps/axe/web")
			for _, dialog := range []string{"Delete", "Scale", "Keys", "Go to :"} {
				p.click(dialog)
				p.until("the dialog is open", "!!document.querySelector('dialog[open]')")
				p.accessible("dialog "+dialog, string(axe))
				p.keys("\x1b")
				p.until("the dialog is closed", "!document.querySelector('dialog[open]')")
			}
			p.click("Restart")
			p.sees("Restart: web")
			p.accessible("message", string(axe))
			p.open("#/o/configmaps/axe/settings/history")
			p.click("Revert to this")
			p.sees("accepted it as a dry run")
			p.accessible("dialog revert", string(axe))
			p.keys("\x1b")
			p.click("Who set each field")
			p.sees("everything else")
			p.accessible("blame", string(axe))
			p.clean()
		})
	}
}

// accessible runs axe-core on the page as it is. It is evaluated by the debugger: the policy of the page does not let it in.
func (p *page) accessible(name, axe string) {
	p.t.Helper()
	var loaded bool
	p.do("look for axe-core", chromedp.Evaluate("'axe' in window", &loaded))
	if !loaded {
		p.do("load axe-core", chromedp.Evaluate(axe+";true", nil))
	}
	var text string
	p.do("run axe-core on "+name, chromedp.Evaluate(`axe.run({ resultTypes: ['violations'] }).then((r) => JSON.stringify(r.violations
		.filter((v) => ['serious', 'critical'].includes(v.impact))
		.map((v) => ({ rule: v.id, impact: v.impact, help: v.help, where: v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160) + ' ' + n.any.map((a) => a.message).join('; ').slice(0, 200)) }))))`,
		&text, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	var violations []struct {
		Rule, Impact, Help string
		Where              []string
	}
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range violations {
		p.t.Errorf("%s: %s (%s): %s\n\t%s", name, v.Rule, v.Impact, v.Help, strings.Join(v.Where, "\n\t"))
	}
}
