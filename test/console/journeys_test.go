package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// TestJourneys does what people do with the console. The journeys share a server and a browser; each has a tab, and mostly a
// namespace, of its own.
func TestJourneys(t *testing.T) {
	s := start(t, "--feature-gates=ExtendWebSocketsToKubelet=true")
	b := browse(t, 1280, 800)
	for _, j := range []struct {
		name string
		do   func(*testing.T, *server, *page)
	}{
		{"first use", firstUse}, {"wrong token", wrongToken}, {"log out", logOut}, {"login that ends", loginEnds},
		{"keyboard", keyboard}, {"palette", palette}, {"filters", filters}, {"only what is failing", failing},
		{"sort", sortColumns}, {"all columns", allColumns}, {"live", live},
		{"create documents", createDocuments}, {"create dry run", createDryRun}, {"busy server", busyServer}, {"apply conflict", applyConflict},
		{"edit", edit}, {"edit refused", editRefused}, {"edit conflict", editConflict}, {"owners of fields", fieldOwners},
		{"conditions and events", conditionsAndEvents}, {"related", related}, {"reference", reference}, {"secret", secret},
		{"secret in every view", secretEverywhere}, {"warnings", overviewWarnings}, {"related of many", relatedOfMany},
		{"timeline of many", timelineOfMany}, {"undelete with content", undeleteWhole}, {"times and quantities", ticking},
		{"delete", deleteForeground}, {"stuck", stuck}, {"scale", scale}, {"restart", restart}, {"cordon", cordon}, {"suspend", suspend},
		{"compare versions", compareVersions}, {"blame", blame}, {"blame of names", blameOfNames},
		{"hidden", hidden}, {"rounded", rounded}, {"revert", revert}, {"undelete", undelete}, {"timeline", timeline},
		{"namespace that is gone", namespaceGone},
		{"what may I", whatMayI}, {"what may another", whatMayAnother}, {"may I", question},
		{"definition", definition}, {"custom resource", customResource}, {"extensions", extensions}, {"server", serverPage},
		{"dark and light", darkAndLight}, {"narrow", narrow}, {"wide", wide}, {"few rights", fewRights},
		{"logs", logs}, {"terminal", terminal}, {"no node", noNode},
	} {
		t.Run(j.name, func(t *testing.T) {
			p := b.tab(t)
			j.do(t, s, p)
			p.clean()
		})
	}
}

// in logs in as the administrator. The browser has the cookie of a proxy already.
func in(s *server, p *page) *page {
	p.t.Helper()
	if s.proxy != "" {
		p.do("open the console", navigate(s.proxy+"/console/"), visible("nav.side"))
		p.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))", nil) // until it listens to keys
		return p
	}
	p.logIn(s, token)
	return p
}

// namespace creates a namespace and returns the path of the core API in it.
func (s *server) namespace(t testing.TB, name string) string {
	t.Helper()
	s.create(t, "/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")
	return "/api/v1/namespaces/" + name
}

// object reads an object.
func (s *server) object(t testing.TB, path string) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.call(t, http.MethodGet, path, "", "")), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// missing fails the test unless the server says that there is no such object. It waits for a deletion that goes on.
func (s *server) missing(t testing.TB, path string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		code, text := s.send(t, http.MethodGet, path, "", "")
		if code == http.StatusNotFound {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is still there: %d %s", path, code, text)
		}
	}
}

// patch changes an object by a merge patch, as a field manager.
func (s *server) patch(t testing.TB, path, manager, body string) {
	t.Helper()
	s.call(t, http.MethodPatch, path+"?fieldManager="+manager, "application/merge-patch+json", body)
}

// field returns a part of a decoded object. Strings are members, numbers are elements.
func field(o any, path ...any) any {
	for _, step := range path {
		switch at := step.(type) {
		case string:
			m, _ := o.(map[string]any)
			o = m[at]
		case int:
			l, _ := o.([]any)
			if at >= len(l) {
				return nil
			}
			o = l[at]
		}
	}
	return o
}

// stores waits until the server has a value in an object, as the console has just sent it.
func (s *server) stores(t testing.TB, path string, want any, fields ...any) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got := field(s.object(t, path), fields...)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v is %v, not %v", path, fields, got, want)
		}
	}
}

func configMap(name, data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {" + data + "}\n"
}

func pod(name, labels string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", labels: {" + labels + "}}\n" +
		"spec:\n  containers:\n  - {name: web, image: \"nginx:1.27\", ports: [{containerPort: 80}]}\n"
}

func deployment(name, labels string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", labels: {" + labels + "}}\n" + `
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: nginx, image: "nginx:1.27", ports: [{containerPort: 80}], envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: password}}]}
`
}

// firstUse is what somebody does who has read nothing.
func firstUse(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "shop")
	for i, status := range []string{"Running", "Running", "Pending"} {
		name := fmt.Sprintf("web-%d", i)
		s.create(t, core+"/pods", pod(name, "app: web"))
		s.patch(t, core+"/pods/"+name+"/status", "kubelet", `{"status":{"phase":"`+status+`"}}`)
	}
	in(s, p)
	p.sees("Overview", "admin", "No Event tells of a problem", "pods")
	p.until("the pods are counted", `[...document.querySelectorAll('.tiles a')].some((a) => a.innerText.replace(/\s+/g, ' ') === '3 pods')`)
	p.shot("overview")
	p.click("Pod")
	p.sees("live", "web-1", "Running")
	p.rows("web-0", "web-1", "web-2")
	p.shot("pods")
	p.click("web-1")
	p.sees("nginx:1.27", "app=web", "Running")
	if got := field(s.object(t, core+"/pods/web-1"), "status", "phase"); got != "Running" {
		t.Errorf("the server says %v", got)
	}
}

func wrongToken(_ *testing.T, s *server, p *page) {
	p.do("open the console", navigate(s.url+"/console/"), visible("#token"))
	p.types("#token", "no-such-token"+kb.Enter)
	p.sees("The server does not accept this token.")
	p.misses("Your login has ended")
	p.shot("login-refused")
	p.types("#token", token+kb.Enter)
	p.sees("Overview")
}

func logOut(t *testing.T, s *server, p *page) {
	in(s, p)
	p.open("#/r/namespaces")
	p.sees("kube-system")
	p.click("Log out")
	p.sees("Bearer token")
	p.misses("kube-system")
	p.open("#/r/secrets")
	p.sees("Bearer token")
	p.shot("login")
	if code, _ := (&server{url: s.url, client: s.client}).send(t, http.MethodGet, "/api/v1/namespaces", "", ""); code == http.StatusOK {
		t.Error("the server shows namespaces without a token")
	}
	p.types("#token", token+kb.Enter)
	p.sees("Secret", "live") // the address is kept
}

// loginEnds deletes the ServiceAccount whose token is used.
func loginEnds(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "ends")
	s.create(t, core+"/serviceaccounts", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: guest}\n")
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: guest-views}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: guest, namespace: ends}]
`)
	var review map[string]any
	answer := s.call(t, http.MethodPost, core+"/serviceaccounts/guest/token", "application/yaml", "apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\nspec: {}\n")
	if err := json.Unmarshal([]byte(answer), &review); err != nil {
		t.Fatal(err)
	}
	p.logIn(s, fmt.Sprint(field(review, "status", "token")))
	p.sees("system:serviceaccount:ends:guest")
	s.call(t, http.MethodDelete, core+"/serviceaccounts/guest", "application/json", "{}")
	p.until("the login has ended, while other lists are opened", `(() => {
		if (performance.now() - (window.went ?? 0) > 300) {
			window.went = performance.now();
			location.hash = location.hash === '#/r/pods' ? '#/r/configmaps' : '#/r/pods';
		}
		return document.body.innerText.includes('Your login has ended.');
	})()`)
	p.sees("Bearer token")
	p.shot("login-ended")
}

func keyboard(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "keys")
	for _, name := range []string{"first", "second", "third"} {
		s.create(t, core+"/pods", pod("keys-"+name, "app: keys"))
	}
	in(s, p)
	p.keys("gp")
	p.sees("keys-second", "live")
	p.keys("/")
	p.keys("keys-")
	p.rows("keys-first", "keys-second", "keys-third")
	p.keys(kb.Enter)
	p.keys("jjjkj")
	p.until("the third row is chosen", `document.querySelector('.rows tr.cursor')?.innerText.includes('keys-third')`)
	p.shot("keyboard")
	p.keys(kb.Enter)
	p.sees("nginx:1.27", "app=keys")
	p.until("the object is open", `location.hash === '#/o/pods/keys/keys-third'`)
	p.keys("?")
	p.sees("filter the list by name")
	p.shot("keys")
	p.keys(kb.Escape)
	p.misses("filter the list by name")
	p.keys(":")
	p.until("the palette has the focus", `document.activeElement?.getAttribute('aria-label') === 'Resource or page'`)
	p.keys("cm" + kb.Enter)
	p.until("the list of ConfigMaps is open", `location.hash.startsWith('#/r/configmaps')`)
	p.sees("kube-root-ca.crt")
	p.keys("gv")
	p.sees("Processor time")
}

func palette(_ *testing.T, s *server, p *page) {
	in(s, p)
	p.keys(":")
	p.keys("de")
	p.sees("deployments.apps")
	p.keys("ploy")
	p.until("Deployment is chosen", `document.querySelector('.palette [aria-selected=true]')?.innerText.startsWith('Deployment')`)
	p.shot("palette")
	p.keys(kb.Enter)
	p.until("the list is open", `location.hash.startsWith('#/r/deployments.apps')`)
	p.click("Go to :")
	p.keys("crd" + kb.Enter)
	p.until("the list is open", `location.hash.startsWith('#/r/customresourcedefinitions')`)
}

func filters(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "filters")
	for i, tier := range []string{"web", "web", "db"} {
		s.create(t, core+"/pods", pod(fmt.Sprintf("filter-%d", i), "tier: "+tier))
	}
	s.patch(t, core+"/pods/filter-1/status", "kubelet", `{"status":{"phase":"Running"}}`)
	s.create(t, "/api/v1/namespaces/default/pods", pod("filter-elsewhere", "tier: web"))
	in(s, p)
	p.open("#/r/pods")
	p.types("#search", "filter-")
	p.rows("filter-elsewhere", "filter-0", "filter-1", "filter-2")
	p.types("#namespace", "filters"+kb.Enter)
	p.rows("filter-0", "filter-1", "filter-2")
	p.types("[aria-label='Labels selector']", "tier=web"+kb.Enter)
	p.rows("filter-0", "filter-1")
	p.types("[aria-label='Fields selector']", "status.phase=Running"+kb.Enter)
	p.rows("filter-1")
	p.shot("filters")
	list := s.object(t, core+"/pods?labelSelector=tier%3Dweb&fieldSelector=status.phase%3DRunning")
	if name := field(list, "items", 0, "metadata", "name"); name != "filter-1" || field(list, "items", 1) != nil {
		t.Errorf("the server selects %v", list["items"])
	}
	p.types("[aria-label='Labels selector']", "=="+kb.Enter)
	p.sees("400 BadRequest")
	p.misses("Nothing here")
	p.types("[aria-label='Labels selector']", "tier=none"+kb.Enter)
	p.sees("Nothing here")
	p.misses("400 BadRequest")
	p.shot("empty")
}

func failing(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "failing")
	for name, status := range map[string]string{
		"good":    `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"web","ready":true,"image":"i","imageID":"","restartCount":0,"state":{"running":{}}}]}`,
		"broken":  `{"phase":"Running","containerStatuses":[{"name":"web","ready":false,"image":"i","imageID":"","restartCount":7,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`,
		"failed":  `{"phase":"Failed"}`,
		"done":    `{"phase":"Succeeded","containerStatuses":[{"name":"web","ready":false,"image":"i","imageID":"","restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}`,
		"waiting": `{"phase":"Pending"}`,
	} {
		s.create(t, core+"/pods", pod(name, "app: failing"))
		s.patch(t, core+"/pods/"+name+"/status", "kubelet", `{"status":`+status+`}`)
	}
	in(s, p)
	p.open("#/r/pods?ns=failing")
	p.rows("broken", "done", "failed", "good", "waiting")
	p.click("Only what is failing")
	p.rows("broken", "failed", "waiting")
	p.sees("3 of 5", "CrashLoopBackOff")
	p.shot("failing")
	p.click("broken")
	p.sees("CrashLoopBackOff", "7")
	p.shot("pod-failing")
}

func sortColumns(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "sort")
	for name, data := range map[string]string{"b-two": "a: b, c: d", "a-ten": "a: b, b: b, c: b, d: b, e: b, f: b, g: b, h: b, i: b, j: b", "c-one": "a: b"} {
		s.create(t, core+"/configmaps", configMap(name, data))
	}
	in(s, p)
	p.open("#/r/configmaps?ns=sort&q=-")
	p.click("Data")
	p.until("it is sorted", `document.querySelector('th[aria-sort=ascending]')?.innerText.startsWith('Data')`)
	sorted := func(order string) {
		p.until("the order is "+order, fmt.Sprintf(
			`[...document.querySelectorAll('.rows tbody th')].map((e) => e.innerText).filter((n) => !n.startsWith('kube-root')).join(' ') === %q`, order))
	}
	sorted("c-one b-two a-ten") // as numbers
	p.click("Data ↑")
	sorted("a-ten b-two c-one")
	p.shot("sorted")
	p.click("Data ↓")
	sorted("a-ten b-two c-one")
	p.click("Name")
	sorted("a-ten b-two c-one")
	p.click("Name ↑")
	sorted("c-one b-two a-ten")
}

func allColumns(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "columns")
	s.create(t, core+"/pods", pod("many-columns", "app: web"))
	in(s, p)
	p.open("#/r/pods?ns=columns")
	p.rows("many-columns")
	p.misses("Nominated Node")
	p.click("All columns")
	p.sees("Nominated Node", "Readiness Gates", "IP")
	p.shot("all-columns")
}

func live(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "live")
	in(s, p)
	p.open("#/r/configmaps?ns=live&q=thing")
	p.sees("live", "Nothing here")
	p.until("the page is marked", "(window.marked = true)")
	s.create(t, core+"/configmaps", configMap("thing", "a: b"))
	p.rows("thing")
	s.patch(t, core+"/configmaps/thing", "kubectl", `{"data":{"c":"d","e":"f"}}`)
	p.until("the change is shown", `document.querySelector('.rows tbody tr')?.innerText.split('\t')[1] === '3'`)
	p.shot("live")
	p.until("its age is read", `(window.age = document.querySelector('.rows time').innerText)`)
	p.until("its age grows", `document.querySelector('.rows time').innerText !== window.age`)
	s.call(t, http.MethodDelete, core+"/configmaps/thing", "application/json", "{}")
	p.sees("Nothing here")
	p.until("the page was not loaded again", "window.marked === true")
}
