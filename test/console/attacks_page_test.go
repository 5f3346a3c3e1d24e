package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestAttackToken: a person with few rights gets no more with the page, and the token is nowhere but in the memory of the page.
func TestAttackToken(t *testing.T) {
	s := start(t)
	s.create(t, configMaps, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: readable}\ndata: {a: b}\n")
	s.create(t, "/api/v1/namespaces/default/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {a: hidden-value}\n")
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
`)
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
`)
	p := browse(t, 1280, 800)
	p.logIn(s, "viewer")
	p.open("#/r/configmaps?ns=default")
	p.sees("readable", "live")
	p.open("#/r/secrets?ns=default")
	p.sees("403")
	p.open("#/o/secrets/default/hidden")
	p.sees("403")
	p.open("#/o/configmaps/default/readable")
	p.sees("b")
	p.presses("section.object header button.danger")
	p.presses("dialog[open] footer button.danger")
	p.sees("cannot delete")
	p.keys("\x1b")
	for _, view := range []string{"#/", "#/access", "#/definitions", "#/extensions", "#/server", "#/timeline?ns=default"} {
		p.open(view)
		p.do("wait", chromedp.Poll(`!document.querySelector('main .busy')`, nil))
	}
	// Scripts of the page's origin that do not have the token: a browser adds nothing to their requests.
	for _, path := range []string{configMaps, "/api/v1/secrets"} {
		if code := p.says(`fetch('` + path + `').then((r) => String(r.status))`); code != "401" && code != "403" {
			t.Errorf("without the token %s is answered with %s", path, code)
		}
		if code := p.says(`fetch('` + path + `', { method: 'POST', body: '{}', headers: { 'X-Keelson-Console': '1', 'Content-Type': 'application/json' } })
			.then((r) => String(r.status))`); code != "401" && code != "403" {
			t.Errorf("without the token POST %s is answered with %s", path, code)
		}
	}
	if code := p.says(`fetch('/api/v1/secrets', { headers: { Authorization: 'Bearer viewer' } }).then((r) => String(r.status))`); code != "403" {
		t.Errorf("with the token Secrets are answered with %s", code)
	}
	// A token that is easy to find.
	p.reloads(token)
	p.open("#/r/configmaps?ns=default")
	p.sees("readable", "live")
	where := p.says(`(async () => {
		const found = [];
		const look = (place, text) => String(text).includes('` + token + `') && found.push(place);
		look('localStorage', JSON.stringify({ ...localStorage }));
		look('sessionStorage', JSON.stringify({ ...sessionStorage }));
		look('cookies', document.cookie);
		look('the document', document.documentElement.outerHTML);
		look('the address', location.href);
		look('history', JSON.stringify(history.state));
		look('window.name', window.name);
		for (const e of document.querySelectorAll('input, textarea')) look('a field', e.value);
		for (const e of performance.getEntries()) look('requests', e.name);
		for (const key of Object.getOwnPropertyNames(window)) try { if (typeof window[key] === 'string') look('window.' + key, window[key]); } catch {}
		for (const d of (await indexedDB.databases?.()) ?? []) found.push('a database ' + d.name);
		try { for (const k of await caches.keys()) found.push('a cache ' + k); } catch {}
		if ((await navigator.serviceWorker?.getRegistrations?.())?.length) found.push('a service worker');
		return found.join(', ');
	})()`)
	if where != "" {
		t.Errorf("the token is in %s", where)
	}
	p.do("load the page again", chromedp.Reload(), chromedp.WaitVisible("#token"))
	if text := p.text(); strings.Contains(text, "readable") {
		t.Error("objects are shown after the page was loaded again")
	}
	p.reloads(token)
	p.click("Log out")
	p.do("wait for the login", chromedp.WaitVisible("#token"))
	if text := p.text(); strings.Contains(text, "readable") {
		t.Error("objects are shown after the end of the login")
	}
	if list := s.call(t, http.MethodGet, configMaps, "", ""); !strings.Contains(list, "readable") {
		t.Error("the object is gone")
	}
}

// TestAttackPolicy: the browser refuses to run what is not a file of the console, and to send anything elsewhere. The
// server and the proxy send the same policy, so the page of the server is enough.
func TestAttackPolicy(t *testing.T) {
	s := start(t)
	other := blank(t)
	c := startProxy(t, kubeconfig(t, s.url, token))
	p := browse(t, 1280, 800)
	for _, enter := range []func(){func() { p.logIn(s, token) }, func() { p.enter(c.link) }} {
		enter()
		var results []string
		p.evaluate(`(async (other) => {
			const results = [];
			const attempt = async (what, run) => {
				let result;
				try {
					result = await run();
				} catch (e) {
					result = false;
				}
				if (result) results.push(what + ': ' + result);
			};
			const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
			const tried = async (what, prepare) => attempt(what, async () => { window.hacked = 0; await prepare(); await wait(150); return window.hacked; });
			await attempt('eval', () => eval('1'));
			await attempt('Function', () => new Function('return 1')());
			await attempt('setTimeout', async () => { window.hacked = 0; setTimeout('window.hacked = 1'); await wait(50); return window.hacked; });
			await attempt('innerHTML', () => { const e = document.createElement('div'); e.innerHTML = '<b>x</b>'; return e.firstChild !== null; });
			await attempt('outerHTML', () => { const e = document.body.appendChild(document.createElement('div')); e.outerHTML = '<b id=evil1>x</b>'; return !!document.getElementById('evil1'); });
			await attempt('insertAdjacentHTML', () => { document.body.insertAdjacentHTML('beforeend', '<b id=evil2>x</b>'); return !!document.getElementById('evil2'); });
			await attempt('document.write', () => { document.write('<b id=evil3>x</b>'); return !!document.getElementById('evil3'); });
			await attempt('DOMParser', () => !!new DOMParser().parseFromString('<b>x</b>', 'text/html').body.firstChild);
			await attempt('setHTMLUnsafe', () => { const e = document.createElement('div'); e.setHTMLUnsafe('<b>x</b>'); return e.firstChild !== null; });
			await attempt('createContextualFragment', () => !!document.createRange().createContextualFragment('<b>x</b>').firstChild);
			await attempt('srcdoc', () => { const e = document.createElement('iframe'); e.srcdoc = '<b>x</b>'; return e.srcdoc !== ''; });
			await attempt('a policy of trusted types', () => !!trustedTypes.createPolicy('default', { createHTML: (x) => x, createScript: (x) => x }));
			await tried('inline script', () => { const e = document.createElement('script'); e.append('window.hacked = 1'); document.body.append(e); });
			await tried('inline script with text', () => { const e = document.createElement('script'); e.text = 'window.hacked = 1'; document.body.append(e); });
			await tried('inline module', () => { const e = document.createElement('script'); e.type = 'module'; e.append('window.hacked = 1'); document.body.append(e); });
			await tried('script in SVG', () => { const e = document.createElementNS('http://www.w3.org/2000/svg', 'script'); e.append('window.hacked = 1'); document.body.append(e); });
			await tried('attribute onclick', () => { const e = document.body.appendChild(document.createElement('b')); e.setAttribute('onclick', 'window.hacked = 1'); e.click(); });
			await tried('javascript: link', () => { const e = document.body.appendChild(document.createElement('a')); e.href = 'javascript:window.hacked=1'; e.click(); });
			await tried('javascript: location', () => { location.href = 'javascript:window.hacked=1'; });
			await attempt('import data:', () => import('data:text/javascript,export default 1'));
			await attempt('import other', () => import(other + '/x.js'));
			await attempt('Worker blob:', () => new Promise((resolve) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))); w.onmessage = () => resolve(true); w.onerror = () => resolve(false); setTimeout(() => resolve(false), 300); }));
			await attempt('fetch other', () => fetch(other, { mode: 'no-cors' }).then(() => true));
			await attempt('beacon', () => new Promise((resolve) => { let blocked = false; addEventListener('securitypolicyviolation', () => (blocked = true), { once: true }); navigator.sendBeacon(other, 'x'); setTimeout(() => resolve(!blocked), 200); }));
			await attempt('WebSocket other', () => new Promise((resolve) => { const w = new WebSocket(other.replace('http', 'ws')); let blocked = false; addEventListener('securitypolicyviolation', () => (blocked = true), { once: true }); setTimeout(() => resolve(!blocked), 200); }));
			await attempt('EventSource other', () => new Promise((resolve) => { let blocked = false; addEventListener('securitypolicyviolation', () => (blocked = true), { once: true }); new EventSource(other); setTimeout(() => resolve(!blocked), 200); }));
			for (const [tag, member] of [['img', 'src'], ['iframe', 'src'], ['embed', 'src'], ['object', 'data'], ['video', 'src'], ['link', 'href']]) {
				await attempt('element ' + tag, () => new Promise((resolve) => {
					let blocked = false;
					addEventListener('securitypolicyviolation', () => (blocked = true), { once: true });
					const e = document.createElement(tag);
					if (tag === 'link') e.rel = 'stylesheet';
					e[member] = other + '/' + tag;
					document.body.append(e);
					setTimeout(() => resolve(!blocked), 300);
				}));
			}
			await attempt('form', () => new Promise((resolve) => {
				let blocked = false;
				addEventListener('securitypolicyviolation', () => (blocked = true), { once: true });
				const form = document.body.appendChild(document.createElement('form'));
				form.action = other;
				form.method = 'POST';
				form.submit();
				setTimeout(() => resolve(!blocked), 300);
			}));
			await attempt('base', () => { const e = document.createElement('base'); e.href = other; document.head.append(e); return document.baseURI.startsWith(other); });
			await attempt('inline style', () => { const e = document.createElement('style'); e.append('body { --evil: 1 }'); document.head.append(e); return getComputedStyle(document.body).getPropertyValue('--evil') !== ''; });
			await attempt('attribute style', () => { const e = document.body.appendChild(document.createElement('b')); e.setAttribute('style', '--evil: 1'); return getComputedStyle(e).getPropertyValue('--evil') !== ''; });
			await attempt('service worker', () => navigator.serviceWorker.register('data:text/javascript,1').then(() => true));
			return results;
		})(`+quoted(other.URL)+`)`, &results)
		for _, result := range results {
			t.Errorf("%s is not refused", result)
		}
	}
}
