package console

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// many calls do for 0 to n-1, eight at a time.
func many(n int, do func(i int)) {
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := w; i < n; i += 8 {
				do(i)
			}
		})
	}
	wait.Wait()
}

// warnings creates an Event about a pod.
func (s *server) warning(t testing.TB, namespace, name, object, message string, at time.Time, count int) {
	t.Helper()
	s.create(t, "/api/v1/namespaces/"+namespace+"/events", fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: %s}
involvedObject: {apiVersion: v1, kind: Pod, namespace: %s, name: %s}
type: Warning
reason: Failed
message: %q
count: %d
firstTimestamp: %[6]q
lastTimestamp: %[6]q
source: {component: kubelet}
`, name, namespace, object, message, count, at.UTC().Format(time.RFC3339)))
}

// overviewWarnings has more warnings than a page of a list has, the newest of them in the last namespace, of which some say the same.
func overviewWarnings(t *testing.T, s *server, p *page) {
	s.namespace(t, "a-warnings")
	s.namespace(t, "z-warnings")
	hourAgo := time.Now().Add(-50 * time.Minute)
	many(520, func(i int) {
		s.warning(t, "a-warnings", fmt.Sprintf("old.%d", i), fmt.Sprintf("old-%d", i), fmt.Sprintf("old news %d", i%30), hourAgo, 1)
	})
	for i := range 3 {
		s.warning(t, "z-warnings", fmt.Sprintf("new.%d", i), fmt.Sprintf("new-%d", i), "the image is gone", time.Now().Add(time.Duration(i-9)*time.Second), 4)
	}
	in(s, p)
	first := func(text string) {
		p.until("the first warning is "+text, fmt.Sprintf(
			`[...(document.querySelector('[aria-label=Warnings] tbody tr')?.cells ?? [])].slice(1).map((c) => c.innerText).join('|') === %q`, text))
	}
	first("Pod z-warnings/new-2 and 2 more|Failed|12|the image is gone")
	p.sees("old news", "and 17 more") // 520 Events of 30 messages
	p.shot("overview-warnings")
	s.warning(t, "a-warnings", "newest", "newest", "just now", time.Now(), 1)
	first("Pod a-warnings/newest|Failed|1|just now") // live
	s.create(t, "/api/v1/namespaces/a-warnings/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")
	p.until("the namespaces are counted", `(window.counted = [...document.querySelectorAll('.tiles a')].find((a) => a.innerText.includes('namespaces')).innerText)`)
	s.namespace(t, "m-warnings")
	p.until("they are counted again", `[...document.querySelectorAll('.tiles a')].find((a) => a.innerText.includes('namespaces')).innerText !== window.counted`)
}

// relatedOfMany looks for what belongs to an object among more objects than one part of a list has, with lists whose items are null.
func relatedOfMany(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "crowd")
	s.create(t, core+"/configmaps", configMap("a-owner", "a: b"))
	many(2050, func(i int) { s.create(t, core+"/configmaps", configMap(fmt.Sprintf("m-%d", i), "a: b")) })
	s.create(t, core+"/configmaps", s.owned(t, configMap("z-dependent", "a: b"), "v1", "ConfigMap", core+"/configmaps/a-owner"))
	in(s, p)
	p.until("some lists have null items", `(() => {
		if (window.sent) return true;
		window.sent = window.fetch;
		window.fetch = async (to, o) => {
			const response = await window.sent(to, o);
			const json = /\/(limitranges|leases|podtemplates|configmaps)\?/.test(String(to)) && await response.clone().json().catch(() => null);
			return json && Array.isArray(json.items) && !json.items.length ? new Response(JSON.stringify({...json, items: null})) : response;
		};
		return true;
	})()`)
	p.open("#/o/configmaps/crowd/a-owner/related")
	p.until("the last ConfigMap is drawn", `!!document.querySelector('.graph a[aria-label="ConfigMap z-dependent"]')`)
	p.sees("Not looked at: ", "leases.coordination.k8s.io")
	p.misses("Not readable for you")
	p.misses("Not read:")
	p.open("#/o/configmaps/crowd/z-dependent/related")
	p.sees("Nothing belongs to it.")
	p.misses("Not readable for you")
}

// timelineOfMany looks at more changes than fit: the newest come first, few of them are in the document, and older ones as one scrolls.
func timelineOfMany(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "busy-feed")
	s.create(t, core+"/configmaps", configMap("oldest", "a: b"))
	many(1200, func(i int) { s.create(t, core+"/configmaps", configMap(fmt.Sprintf("m-%d", i), "a: b")) })
	s.create(t, core+"/configmaps", configMap("newest", "a: b"))
	in(s, p)
	p.until("its requests are counted", `(() => {
		if (window.asked) return true;
		window.asked = [];
		const send = window.fetch;
		window.fetch = (to, o) => {
			if (String(to).includes('/changes?')) window.asked.push(String(to));
			return send(to, o);
		};
		return true;
	})()`)
	p.open("#/timeline?ns=busy-feed")
	first := func(name string) {
		p.until(name+" is the first", fmt.Sprintf(`document.querySelector('.feed li:not(.space)')?.innerText.includes('busy-feed/%s')`, name))
	}
	first("newest")
	p.sees("live", "the newest 200")
	p.until("one list and a watch were enough", `window.asked.length === 2 && document.querySelectorAll('.feed li').length < 120`)
	s.create(t, core+"/configmaps", configMap("later", "a: b"))
	first("later")
	p.until("the end of the feed is reached by scrolling", `(() => {
		const box = document.querySelector('.feed-box');
		box.scrollTop = box.scrollHeight;
		return [...document.querySelectorAll('.feed li')].some((l) => l.innerText.includes('busy-feed/oldest'));
	})()`)
	p.until("few rows are in the document", `document.querySelectorAll('.feed li').length < 120`)
	p.misses("the newest")
	p.shot("timeline-long")
	p.fills("Since", "0\r")
	first("later")
	p.types("[aria-label=name]", "oldest"+"\r")
	p.until("the only one is found", `document.querySelectorAll('.feed li:not(.space)').length === 1`)
}

// ticking looks at columns in which the server has written how long ago something was, and at a column of quantities that is sorted.
func ticking(t *testing.T, s *server, p *page) {
	s.namespace(t, "ticking")
	for name, seconds := range map[string]int{"recent": 20, "older": 70, "oldest": 9 * 3600} {
		s.warning(t, "ticking", name, name, "tick "+name, time.Now().Add(-time.Duration(seconds)*time.Second), 1)
	}
	s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: disks.ticking.example.com}
spec:
  group: ticking.example.com
  scope: Cluster
  names: {plural: disks, singular: disk, kind: Disk, listKind: DiskList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .size}
    - {name: Backup, type: date, jsonPath: .backup}
`)
	const disks = "/apis/ticking.example.com/v1/disks"
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := s.send(t, http.MethodGet, disks, "", ""); code == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the definition is not served")
		}
	}
	backup := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	for name, size := range map[string]string{"a": "1Gi", "b": "900Mi", "c": "1.5Gi", "d": "1.25Gi", "e": "128Ki"} {
		s.create(t, disks, fmt.Sprintf("apiVersion: ticking.example.com/v1\nkind: Disk\nmetadata: {name: %s}\nsize: %s\nbackup: %q\n", name, size, backup))
	}
	s.create(t, disks, "apiVersion: ticking.example.com/v1\nkind: Disk\nmetadata: {name: none}\n")
	in(s, p)
	p.open("#/r/events?ns=ticking&sort=Last Seen")
	order := func(column, names string) {
		p.until("the order by "+column+" is "+names, fmt.Sprintf(
			`[...document.querySelectorAll('.rows tbody tr:not(.spacer)')].map((r) => r.cells[%s].innerText.trim().replace(/^.*\W/, '')).join(' ') === %q`, column, names))
	}
	order("4", "recent older oldest")
	p.until("Last Seen is read", `(window.seen = document.querySelector('.rows tbody tr').cells[0].innerText)`)
	p.until("it grows", `document.querySelector('.rows tbody tr').cells[0].innerText !== window.seen`)
	p.open("#/r/disks.ticking.example.com?sort=Size")
	order("0", "e b a d c none")
	p.until("a date of a custom resource is read", `(window.seen = document.querySelector('.rows tbody tr').cells[2].innerText)`)
	p.until("it grows", `document.querySelector('.rows tbody tr').cells[2].innerText !== window.seen`)
	p.open("#/r/disks.ticking.example.com?sort=-Size")
	order("0", "c d a b e none")
}

// blackHole forwards connections to a server until it is closed: then nothing gets through, and nobody is told.
type blackHole struct {
	net.Listener
	closed chan struct{}
}

func newBlackHole(t testing.TB, to string) *blackHole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &blackHole{l, make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	pass := func(from, to net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			select {
			case <-b.closed:
				_, _ = io.Copy(io.Discard, from) // reads, so that the sender sees no full window
				return
			default:
			}
			if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
				_ = to.Close()
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go pass(c, up)
			go pass(up, c)
		}
	}()
	return b
}

// TestSilentServer: when nothing gets through any more, the page says so while it can still matter, on each view that is live.
func TestSilentServer(t *testing.T) {
	s := start(t)
	s.namespace(t, "silent")
	s.create(t, "/api/v1/namespaces/silent/configmaps", configMap("watched", "a: b"))
	b := browse(t, 1280, 800)
	for _, c := range []struct{ view, live, silent string }{
		{"#/r/configmaps?ns=silent", "live", "the server does not answer"},
		{"#/o/configmaps/silent/watched", "Created", "the server does not answer"},
		{"#/timeline?ns=silent", "live", "no connection"},
		{"#/", "live", "no connection"},
	} {
		t.Run(c.view, func(t *testing.T) {
			hole := newBlackHole(t, strings.TrimPrefix(s.url, "https://"))
			through := *s
			through.url = "https://" + hole.Addr().String()
			p := b.tab(t)
			p.logIn(&through, token)
			p.open(c.view)
			p.sees(c.live)
			p.do("stay a moment", chromedp.Sleep(time.Second)) // until the watch is open
			close(hole.closed)
			p.sees(c.silent)
			p.shot("silent-" + strings.ReplaceAll(strings.Trim(c.view, "#/"), "/", "-"))
		})
	}
}

// undeleteWhole brings back a namespace with its content, and a definition with its objects, each from its own history.
func undeleteWhole(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "whole")
	s.create(t, core+"/configmaps", configMap("kept", "a: b"))
	s.create(t, core+"/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: kept}\nstringData: {password: hidden}\n")
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	s.create(t, definition, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.whole.example.com}
spec:
  group: whole.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	const boats = "/apis/whole.example.com/v1/namespaces/whole/boats"
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := s.send(t, http.MethodGet, boats, "", ""); code == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the definition is not served")
		}
	}
	s.create(t, boats, "apiVersion: whole.example.com/v1\nkind: Boat\nmetadata: {name: titanic}\nlength: 269\n")
	is := func(what, result string) {
		p.until(what+" "+result, fmt.Sprintf(
			`[...document.querySelectorAll('dialog .plain tbody tr')].some((r) => r.innerText.includes(%q) && r.innerText.includes(%q))`, what, result))
	}
	undelete := func(hash string) {
		p.open(hash)
		p.click("Undelete")
		p.sees("A namespace comes back with all that was in it")
		p.click("Try (dry run)")
	}
	s.call(t, http.MethodDelete, definition+"/boats.whole.example.com", "application/json", "{}")
	s.missing(t, definition+"/boats.whole.example.com")
	in(s, p)
	undelete("#/o/customresourcedefinitions.apiextensions.k8s.io/-/boats.whole.example.com/history")
	is("customresourcedefinitions boats.whole.example.com", "would come back")
	is("customresourcedefinitions.apiextensions.k8s.io", "cannot be looked at before")
	p.clickOn("Undelete", `document.querySelector('dialog button.primary:not(:disabled)')`)
	is("boats whole/titanic", "is back")
	s.stores(t, boats+"/titanic", 269, "length")

	s.call(t, http.MethodDelete, core, "application/json", "{}")
	s.missing(t, core)
	p.click("Close")
	undelete("#/o/namespaces/-/whole/history")
	p.sees("Undelete Namespace whole and its content")
	for _, what := range []string{"namespaces whole", "configmaps whole/kept", "secrets whole/kept", "boats whole/titanic"} {
		is(what, "would come back")
	}
	s.missing(t, core)
	p.clickOn("Undelete", `document.querySelector('dialog button.primary:not(:disabled)')`)
	for _, what := range []string{"namespaces whole", "configmaps whole/kept", "secrets whole/kept", "boats whole/titanic"} {
		is(what, "is back")
	}
	p.shot("undelete-whole")
	s.stores(t, core+"/configmaps/kept", "b", "data", "a")
	s.stores(t, core+"/secrets/kept", "aGlkZGVu", "data", "password")
	s.stores(t, boats+"/titanic", 269, "length")
}

// TestUndeleteOfGroups brings back objects of several groups of Kubernetes, in the order of their kinds.
func TestUndeleteOfGroups(t *testing.T) {
	s := start(t, "--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true")
	core := s.namespace(t, "groups")
	objects := []struct{ group, resource, object string }{ // in the order in which they come back
		{"rbac.authorization.k8s.io/v1", "roles", "kind: Role\nmetadata: {name: x}\n"},
		{"", "configmaps", configMap("x", "a: b")},
		{"batch/v1", "cronjobs", "kind: CronJob\nmetadata: {name: x}\nspec: {schedule: 0 3 * * *, jobTemplate: {spec: {template: {spec: " +
			"{restartPolicy: Never, containers: [{name: c, image: i}]}}}}}\n"},
		{"lifecycle.k8s.io/v1alpha1", "evictionrequests", "kind: EvictionRequest\nmetadata: {name: x}\nspec: {target: {pod: {name: p, " +
			"uid: 11111111-2222-4333-8444-555555555555}}, requester: acme.io/foo, intent: Eviction}\n"},
		{"networking.k8s.io/v1", "ingresses", "kind: Ingress\nmetadata: {name: x}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n"},
		{"policy/v1", "poddisruptionbudgets", "kind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {minAvailable: 1}\n"},
	}
	var want []string
	for _, o := range objects {
		path := core + "/" + o.resource
		if o.group != "" {
			path, o.object = "/apis/"+o.group+"/namespaces/groups/"+o.resource, "apiVersion: "+o.group+"\n"+o.object
		}
		s.create(t, path, o.object)
		s.call(t, http.MethodDelete, path+"/x", "application/json", "{}")
		s.missing(t, path+"/x")
		want = append(want, o.resource+" groups/x")
	}
	p := browse(t, 1280, 800).tab(t)
	in(s, p)
	p.click("What changed")
	p.types("#namespace", "groups"+"\r")
	p.sees("evictionrequests groups/x")
	p.chooses("[aria-label='Type of change']", "Deleted")
	p.click("Undelete all 6")
	p.click("Try (dry run)")
	rows := func(result string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('dialog .plain tbody tr')].filter((r) => r.innerText.includes(%q)).map((r) => r.cells[0].innerText).join() === %q`,
			result, strings.Join(want, ","))
	}
	p.until("all would come back, in this order", rows("would come back"))
	p.clickOn("Undelete", `document.querySelector('dialog button.primary:not(:disabled)')`)
	p.until("all are back", rows("is back"))
	p.clean()
}
