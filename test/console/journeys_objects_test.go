package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const apps = "/apis/apps/v1/namespaces/"

// busyServer creates an object at a server that first says how long to wait.
func busyServer(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "busy")
	in(s, p)
	p.click("Create")
	p.edits("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: patient, namespace: busy}\n")
	p.until("its requests are answered 429", `(() => {
		const send = window.fetch;
		window.refused = 0;
		window.fetch = (path, o) => o.method === 'POST' && window.refused < 2
			? (window.refused++, Promise.resolve(new Response('{"message":"busy"}', {status: 429, headers: {'Retry-After': '0'}})))
			: send(path, o);
		return true;
	})()`)
	p.clickOn("Create", `document.querySelector('main button.primary')`)
	p.sees("ConfigMap patient")
	p.until("two requests were refused", `window.refused === 2`)
	s.stores(t, core+"/configmaps/patient", "patient", "metadata", "name")
}

func createDocuments(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "documents")
	in(s, p)
	p.click("Create")
	p.sees("Several documents are separated by ---")
	p.edits(`apiVersion: v1
kind: ConfigMap
metadata:
  name: made
  namespace: documents
data:
  color: blue
---
apiVersion: v1
kind: Service
metadata:
  name: refused
  namespace: documents
spec:
  ports:
  - port: 99999
---
apiVersion: v1
kind: Secret
metadata:
  name: made-too
  namespace: documents
stringData:
  password: hidden
`)
	p.clickOn("Create", `document.querySelector('main button.primary')`)
	p.sees("ConfigMap made", "Service refused", "99999", "Secret made-too")
	p.until("two are created and one is refused", `[...document.querySelectorAll('.plain .badge')].map((e) => e.innerText).join() === 'ok,refused,ok'`)
	p.shot("create")
	s.stores(t, core+"/configmaps/made", "blue", "data", "color")
	s.stores(t, core+"/secrets/made-too", "aGlkZGVu", "data", "password")
	s.missing(t, core+"/services/refused")
	p.click("ConfigMap made")
	p.sees("color", "blue")
}

func createDryRun(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "tried")
	in(s, p)
	p.open("#/r/configmaps?ns=tried")
	p.sees("kube-root-ca.crt")
	p.clickOn("Create", `document.querySelector('main a.button')`)
	p.shows("kind: ConfigMap")
	p.shows("namespace: tried")
	p.edits(strings.Replace(p.yaml(), "name:", "name: not-yet", 1))
	p.click("Try (dry run)")
	p.sees("would be created")
	p.shot("create-dry-run")
	s.missing(t, core+"/configmaps/not-yet")
	p.edits("apiVersion: v1\nkind: ConfigMap\nmetadata: [\n")
	p.click("Try (dry run)")
	p.until("a mistake in YAML is shown", `document.querySelector('.problem')?.checkVisibility()`)
}

func applyConflict(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "conflict")
	text := func(color string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: contested\n  namespace: conflict\ndata:\n  color: " + color + "\n"
	}
	s.call(t, http.MethodPatch, core+"/configmaps/contested?fieldManager=gitops", "application/apply-patch+yaml", text("blue"))
	in(s, p)
	p.open("#/create")
	p.edits(text("red"))
	p.click("Apply")
	p.sees(`conflict with "gitops"`, ".data.color")
	p.shot("apply-conflict")
	s.stores(t, core+"/configmaps/contested", "blue", "data", "color")
	p.click("Take over fields")
	p.click("Apply")
	p.sees("applied")
	s.stores(t, core+"/configmaps/contested", "red", "data", "color")
}

func edit(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "edit")
	s.create(t, core+"/configmaps", configMap("settings", "color: blue, size: large"))
	in(s, p)
	p.open("#/o/configmaps/edit/settings")
	p.sees("blue")
	p.click("YAML")
	p.shows("color: blue")
	p.click("Edit")
	p.sees("Review the change")
	p.edits(strings.Replace(p.yaml(), "color: blue", "color: green", 1))
	p.click("Review the change")
	p.sees("-  color: blue", "+  color: green", "accepted it as a dry run")
	p.shot("edit-review")
	s.stores(t, core+"/configmaps/settings", "blue", "data", "color")
	p.click("Save")
	p.sees("settings is changed")
	s.stores(t, core+"/configmaps/settings", "green", "data", "color")
	p.shows("color: green")
	p.shot("yaml")
}

func editRefused(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "refused")
	s.create(t, core+"/services", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{name: http, port: 80}]}\n")
	in(s, p)
	p.open("#/o/services/refused/web/yaml")
	p.shows("port: 80")
	p.click("Edit")
	p.sees("Review the change")
	p.edits(strings.Replace(p.yaml(), "  port: 80", "  port: 99999", 1))
	p.click("Review the change")
	p.sees("422 Invalid", "spec.ports[0].port", "must be between 1 and 65535")
	p.shot("edit-refused")
	p.click("Back to the editor")
	p.shows("port: 99999")
	s.stores(t, core+"/services/web", 80, "spec", "ports", 0, "port")
	p.edits(p.yaml() + "nonsense: 1\n")
	p.click("Review the change")
	p.sees("nonsense")
}

func editConflict(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "raced")
	s.create(t, core+"/configmaps", configMap("raced", "color: blue"))
	in(s, p)
	p.open("#/o/configmaps/raced/raced/yaml")
	p.shows("color: blue")
	p.click("Edit")
	p.sees("Review the change")
	p.edits(strings.Replace(p.yaml(), "color: blue", "color: green", 1))
	s.patch(t, core+"/configmaps/raced", "operator", `{"data":{"size":"large"}}`)
	p.sees("It has changed meanwhile")
	p.click("Review the change")
	p.sees("409 Conflict", "operator changed it since you began", "+  size: large")
	p.shot("edit-conflict")
	s.stores(t, core+"/configmaps/raced", "blue", "data", "color")
}

func fieldOwners(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "owners")
	s.call(t, http.MethodPatch, core+"/configmaps/shared?fieldManager=gitops", "application/apply-patch+yaml", configMap("shared", "color: blue"))
	s.patch(t, core+"/configmaps/shared", "operator", `{"data":{"size":"large"}}`)
	in(s, p)
	p.open("#/o/configmaps/owners/shared/yaml")
	p.shows("size: large")
	if strings.Contains(p.yaml(), "managedFields") {
		t.Error("managedFields are shown")
	}
	p.click("Show who owns each field")
	p.shows("gitops (Apply)")
	p.shows("operator (Update)")
	p.shot("field-owners")
}

func conditionsAndEvents(t *testing.T, s *server, p *page) {
	s.namespace(t, "events")
	now := time.Now().UTC().Add(-4 * time.Minute).Format(time.RFC3339)
	s.create(t, apps+"events/deployments", deployment("web", "app: web"))
	s.patch(t, apps+"events/deployments/web/status", "controller", `{"status":{"conditions":[
		{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable","message":"Deployment does not have minimum availability.","lastTransitionTime":"`+now+`"},
		{"type":"Progressing","status":"True","reason":"ReplicaSetUpdated","message":"ReplicaSet is progressing.","lastTransitionTime":"`+now+`"}]}}`)
	uid := field(s.object(t, apps+"events/deployments/web"), "metadata", "uid")
	event := func(name, kind, reason, message string) {
		s.create(t, "/api/v1/namespaces/events/events", fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: %s}
involvedObject: {apiVersion: apps/v1, kind: Deployment, namespace: events, name: web, uid: %v}
type: %s
reason: %s
message: %q
count: 4
firstTimestamp: %[6]q
lastTimestamp: %[6]q
source: {component: deployment-controller}
`, name, uid, kind, reason, message, now))
	}
	event("web.1", "Normal", "ScalingReplicaSet", "Scaled up replica set web-5d4 to 3")
	event("web.2", "Warning", "FailedCreate", "exceeded quota: pods=3")
	in(s, p)
	p.sees("exceeded quota: pods=3") // on the overview
	p.open("#/o/deployments.apps/events/web")
	p.sees("MinimumReplicasUnavailable", "Progressing")
	p.shot("deployment")
	p.click("Events")
	p.sees("FailedCreate", "ScalingReplicaSet", "deployment-controller")
	p.shot("events")
}

// owned adds an owner to the metadata of an object in YAML that begins with its name.
func (s *server) owned(t testing.TB, object, apiVersion, kind, path string) string {
	t.Helper()
	m := field(s.object(t, path), "metadata")
	return strings.Replace(object, "metadata: {", fmt.Sprintf(
		"metadata: {ownerReferences: [{apiVersion: %s, kind: %s, name: %v, uid: %v, controller: true, blockOwnerDeletion: true}], ",
		apiVersion, kind, field(m, "name"), field(m, "uid")), 1)
}

// family creates a Deployment with a ReplicaSet that has two Pods.
func (s *server) family(t testing.TB, namespace string) string {
	t.Helper()
	core := s.namespace(t, namespace)
	s.create(t, apps+namespace+"/deployments", deployment("web", "app: web"))
	set := strings.Replace(deployment("web-5d4", "app: web"), "kind: Deployment", "kind: ReplicaSet", 1)
	s.create(t, apps+namespace+"/replicasets", s.owned(t, set, "apps/v1", "Deployment", apps+namespace+"/deployments/web"))
	for _, name := range []string{"web-5d4-a", "web-5d4-b"} {
		s.create(t, core+"/pods", s.owned(t, pod(name, "app: web"), "apps/v1", "ReplicaSet", apps+namespace+"/replicasets/web-5d4"))
	}
	return core
}

func related(t *testing.T, s *server, p *page) {
	s.family(t, "family")
	in(s, p)
	p.open("#/o/deployments.apps/family/web")
	p.sees("nginx:1.27")
	p.click("Related")
	p.until("the graph has four objects and three lines", `document.querySelectorAll('.graph g[role=listitem]').length === 4 && document.querySelectorAll('.graph .edge').length === 3`)
	p.sees("web-5d4-a", "Refers to", "ConfigMap settings")
	p.shot("related")
	p.until("there are no messages", `!document.querySelector('.toast')`)
	p.clickOn("the Pod", `document.querySelector('.graph a[aria-label="Pod web-5d4-b"]')`)
	p.sees("Containers")
	p.click("Related")
	p.until("its owners are drawn", `document.querySelectorAll('.graph g[role=listitem]').length === 3 && document.querySelectorAll('.graph .edge').length === 2`)
	p.sees("Nothing belongs to it.")
}

func reference(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "refers")
	s.create(t, core+"/configmaps", configMap("settings", "color: blue"))
	s.create(t, apps+"refers/deployments", deployment("web", "app: web"))
	in(s, p)
	p.open("#/o/deployments.apps/refers/web")
	p.sees("Refers to", "Secret password")
	p.click("ConfigMap settings")
	p.sees("color", "blue")
	p.open("#/o/deployments.apps/refers/web")
	p.click("Secret password")
	p.sees(`404 NotFound`, `secrets "password" not found`)
	p.shot("not-found")
}

func secret(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "secrets")
	s.create(t, core+"/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: open-sesame}\n")
	in(s, p)
	p.open("#/o/secrets/secrets/login")
	p.sees("show (11 bytes)")
	p.misses("open-sesame")
	p.shot("secret")
	p.click("show (11 bytes)")
	p.sees("open-sesame")
	s.stores(t, core+"/secrets/login", "b3Blbi1zZXNhbWU=", "data", "password")
}

func deleteForeground(t *testing.T, s *server, p *page) {
	core := s.family(t, "foreground")
	in(s, p)
	p.open("#/o/deployments.apps/foreground/web")
	p.click("Delete")
	p.sees("What it owns")
	p.click("is deleted before it (Foreground)")
	p.shot("delete")
	p.clickOn("Delete", `document.querySelector('dialog button.danger')`)
	p.sees("Deletion of web is asked for")
	p.sees("gone")
	s.missing(t, apps+"foreground/deployments/web")
	s.missing(t, apps+"foreground/replicasets/web-5d4")
	s.missing(t, core+"/pods/web-5d4-a")
}

func stuck(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "stuck")
	s.create(t, core+"/configmaps?fieldManager=operator", strings.Replace(configMap("stuck", "a: b"), "metadata: {", "metadata: {finalizers: [example.com/clean], ", 1))
	in(s, p)
	p.open("#/o/configmaps/stuck/stuck")
	p.click("Delete")
	p.sees("It has finalizers: example.com/clean")
	p.clickOn("Delete", `document.querySelector('dialog button.danger')`)
	p.sees("being deleted", "Deletion asked for")
	p.click("Why is it stuck")
	p.sees("Finalizer", "example.com/clean", "operator", "Its deletion was asked for", "ago by admin")
	p.shot("stuck")
	if field(s.object(t, core+"/configmaps/stuck"), "metadata", "deletionTimestamp") == nil {
		t.Error("it is not being deleted")
	}
	s.patch(t, core+"/configmaps/stuck", "operator", `{"metadata":{"finalizers":null}}`)
	p.sees("gone")
	s.missing(t, core+"/configmaps/stuck")
}

func scale(t *testing.T, s *server, p *page) {
	s.namespace(t, "scale")
	s.create(t, apps+"scale/deployments", deployment("web", "app: web"))
	in(s, p)
	p.open("#/o/deployments.apps/scale/web")
	p.click("Scale")
	p.until("the number is chosen", `document.activeElement?.value === '3'`)
	p.types("dialog input", "5")
	p.shot("scale")
	p.clickOn("Scale", `document.querySelector('dialog button.primary')`)
	p.sees("web is scaled to 5")
	s.stores(t, apps+"scale/deployments/web", 5, "spec", "replicas")
}

func restart(t *testing.T, s *server, p *page) {
	s.namespace(t, "restart")
	s.create(t, apps+"restart/deployments", deployment("web", "app: web"))
	in(s, p)
	p.open("#/o/deployments.apps/restart/web")
	p.click("Restart")
	p.sees("Restart: web")
	if field(s.object(t, apps+"restart/deployments/web"), "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt") == nil {
		t.Error("the template has no time of a restart")
	}
}

func cordon(t *testing.T, s *server, p *page) {
	s.create(t, "/api/v1/nodes", "apiVersion: v1\nkind: Node\nmetadata: {name: worker-1}\n")
	s.patch(t, "/api/v1/nodes/worker-1/status", "kubelet", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"},
		{"type":"MemoryPressure","status":"False"},{"type":"DiskPressure","status":"True","reason":"KubeletHasDiskPressure"}]}}`)
	in(s, p)
	p.open("#/o/nodes/-/worker-1")
	p.sees("DiskPressure")
	p.click("Cordon")
	p.sees("Cordon: worker-1", "Uncordon")
	s.stores(t, "/api/v1/nodes/worker-1", true, "spec", "unschedulable")
	p.shot("node")
	p.click("Uncordon")
	p.sees("Uncordon: worker-1")
	s.stores(t, "/api/v1/nodes/worker-1", nil, "spec", "unschedulable")
}

func suspend(t *testing.T, s *server, p *page) {
	s.namespace(t, "suspend")
	path := "/apis/batch/v1/namespaces/suspend/cronjobs"
	s.create(t, path, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}
`)
	in(s, p)
	p.open("#/o/cronjobs.batch/suspend/nightly")
	p.click("Suspend")
	p.sees("Resume", "0 3 * * *")
	s.stores(t, path+"/nightly", true, "spec", "suspend")
	p.shot("cronjob")
	p.click("Resume")
	p.sees("Resume: nightly")
	s.stores(t, path+"/nightly", false, "spec", "suspend")
}

// versions creates a ConfigMap that three users have changed.
func (s *server) versions(t testing.TB, namespace string) string {
	t.Helper()
	path := s.namespace(t, namespace) + "/configmaps/settings"
	s.as("ada").create(t, strings.TrimSuffix(path, "/settings"), configMap("settings", "color: blue, size: large"))
	s.as("bob").patch(t, path, "kubectl-edit", `{"data":{"color":"green"}}`)
	s.as("eve").patch(t, path, "kubectl-patch", `{"data":{"size":null,"speed":"fast"}}`)
	return path
}

func compareVersions(t *testing.T, s *server, p *page) {
	s.versions(t, "versions")
	in(s, p)
	p.open("#/o/configmaps/versions/settings")
	p.sees("speed")
	p.click("History")
	p.sees("ada", "bob", "eve", ".data.color", "kubectl-edit")
	choose := func(n int) {
		p.clickOn("a version", fmt.Sprintf(`document.querySelectorAll('.versions input')[%d]`, n))
	}
	choose(0)
	choose(2)
	p.sees("-  color: blue", "+  color: green", "+  speed: fast", "-  size: large")
	p.shot("history")
	choose(0)
	p.sees("+ now")
}

func blame(t *testing.T, s *server, p *page) {
	s.versions(t, "blame")
	in(s, p)
	p.open("#/o/configmaps/blame/settings/history")
	p.click("Who set each field")
	p.until("each field has who set it", `(() => {
		const rows = [...document.querySelectorAll('.plain tbody tr')].map((r) => [...r.cells].slice(0, 2).map((c) => c.innerText).join(' '));
		return rows.includes('.data.color bob (by admin)') && rows.includes('.data.speed eve (by admin)');
	})()`)
	p.until("it stands beside the field", `[...(document.querySelector('.editor')?.shadowRoot?.querySelectorAll('.cm-line') ?? [])]
		.some((l) => l.innerText.includes('color: ') && l.innerText.includes('bob (by admin), patch'))`)
	p.shot("blame")
}

// blameOfNames looks for the authors of a label with a dot in its key, and of an item of a list that has no name.
func blameOfNames(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "blame-names")
	s.as("ada").create(t, core+"/services", `apiVersion: v1
kind: Service
metadata: {name: web, labels: {app.kubernetes.io/name: web, app.kubernetes.io/part-of: shop}}
spec: {ports: [{port: 80}], selector: {app: web}}
`)
	s.as("bob").patch(t, core+"/services/web", "kubectl-label", `{"metadata":{"labels":{"app.kubernetes.io/name":"other"}}}`)
	s.as("eve").patch(t, core+"/services/web", "kubectl-edit", `{"spec":{"ports":[{"port":81,"targetPort":80}]}}`)
	in(s, p)
	p.open("#/o/services/blame-names/web/history")
	p.click("Who set each field")
	beside := func(line, who string) {
		p.until(who+" stands beside "+line, fmt.Sprintf(`[...(document.querySelector('.editor')?.shadowRoot?.querySelectorAll('.cm-line') ?? [])]
			.some((l) => l.innerText.includes(%q) && l.innerText.includes(%q))`, line, who+" (by admin)"))
	}
	beside("app.kubernetes.io/name: other", "bob")
	beside("app.kubernetes.io/part-of: shop", "ada")
	beside("port: 81", "eve")
	beside("protocol: TCP", "ada")
	p.until("the table names the paths", `(() => {
		const text = document.querySelector('.blame .plain')?.innerText ?? '';
		return text.includes('.metadata.labels[app.kubernetes.io/name]') && text.includes('.spec.ports[0].port');
	})()`)
}

// hidden looks away: a page that has been hidden for a while follows nothing, and is right again when it is shown.
func hidden(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "hidden-page")
	make := func(name string) {
		s.create(t, core+"/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\n")
	}
	make("before")
	in(s, p)
	// Twenty seconds are a moment here.
	p.until("a shorter time", `(() => {
		if (window.hide) return true;
		const wait = window.setTimeout;
		window.setTimeout = (f, ms, ...more) => wait(f, ms === 20000 ? 50 : ms, ...more);
		window.hide = (on) => {
			Object.defineProperty(document, 'hidden', { configurable: true, get: () => on });
			document.dispatchEvent(new Event('visibilitychange'));
		};
		const send = window.fetch;
		window.watches = 0;
		window.fetch = (to, o) => {
			if (String(to).includes('watch=1')) {
				window.watches++;
				o.signal.addEventListener('abort', () => window.watches--);
			}
			return send(to, o);
		};
		return true;
	})()`)
	p.open("#/r/configmaps?ns=hidden-page")
	p.until("the list is followed", `window.watches === 1 && document.body.innerText.includes('before')`)
	p.until("the page is hidden", "(window.hide(true), true)")
	p.until("nothing is followed", `window.watches === 0`)
	make("meanwhile")
	p.until("the page is shown", "(window.hide(false), true)")
	p.sees("meanwhile")
	p.until("the list is followed again", `window.watches === 1`)
}

func revert(t *testing.T, s *server, p *page) {
	path := s.versions(t, "revert")
	in(s, p)
	p.open("#/o/configmaps/revert/settings/history")
	p.sees("ada")
	p.clickOn("Revert to this", `[...document.querySelectorAll('.versions button')].at(-1)`)
	p.sees("-  color: green", "+  color: blue", "accepted it as a dry run")
	p.shot("revert")
	s.stores(t, path, "green", "data", "color")
	p.clickOn("Revert", `document.querySelector('dialog button.primary')`)
	p.sees("settings is reverted")
	s.stores(t, path, "map[color:blue size:large]", "data")
	p.until("the revert is in the history, and that its fields belong to their managers of then",
		`document.querySelectorAll('.versions > li').length === 5`)
}

func undelete(t *testing.T, s *server, p *page) {
	path := s.versions(t, "undelete")
	in(s, p)
	p.open("#/o/configmaps/undelete/settings/history")
	p.sees("ada")
	s.as("mallory").call(t, http.MethodDelete, path, "application/json", "{}")
	p.sees("gone", "mallory", "Deleted")
	p.click("Undelete")
	p.sees("+  color: green", "accepted it as a dry run")
	p.shot("undelete")
	s.missing(t, path)
	p.clickOn("Undelete", `document.querySelector('dialog button.primary')`)
	p.sees("settings is back")
	s.stores(t, path, "map[color:green speed:fast]", "data")
	p.misses("gone")
	p.clickOn("Overview", `document.querySelector('.tabs a')`)
	p.sees("fast")
}

func timeline(t *testing.T, s *server, p *page) {
	path := s.versions(t, "timeline")
	collection := strings.TrimSuffix(path, "/settings")
	remove := func(path string) { s.as("mallory").call(t, http.MethodDelete, path, "application/json", "{}") }
	for _, object := range []struct{ name, data string }{{"one", "a: old"}, {"one", "a: b"}, {"two", "a: b"}} {
		s.as("ada").create(t, collection, configMap(object.name, object.data))
		remove(collection + "/" + object.name)
	}
	pods := strings.TrimSuffix(collection, "/configmaps") + "/pods"
	for _, name := range []string{"bare", "finished"} {
		s.as("ada").create(t, pods, pod(name, ""))
	}
	s.patch(t, pods+"/finished/status", "kubelet", `{"status":{"phase":"Succeeded"}}`)
	remove(pods + "/bare")
	remove(pods + "/finished")
	in(s, p)
	p.click("What changed")
	p.sees("live")
	p.types("#namespace", "timeline"+"\r")
	p.sees("bob", "mallory", "configmaps timeline/settings", ".data.color")
	p.shot("timeline")
	p.types("[aria-label=user]", "mallory"+"\r")
	p.sees("configmaps timeline/one")
	p.misses("bob")
	remove(path)
	p.sees("configmaps timeline/settings") // live
	p.chooses("[aria-label='Type of change']", "Deleted")
	p.click("Undelete all 5")
	rows := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('dialog .plain tbody tr')].filter((r) => r.innerText.includes(%q)).length`, text)
	}
	p.click("Try (dry run)")
	p.until("all would come back but what had finished", rows("would come back")+" === 4 && "+rows("it had finished, and would run again")+" === 1")
	p.shot("undelete-all")
	s.missing(t, path)
	p.clickOn("Undelete", `document.querySelector('dialog button.primary:not(:disabled)')`)
	p.until("all are back but what had finished", rows("is back")+" === 4 && "+rows("it had finished, and would run again")+" === 1")
	s.stores(t, path, "map[color:green speed:fast]", "data")
	s.stores(t, collection+"/one", "map[a:b]", "data") // as before its last deletion
	s.stores(t, pods+"/bare", "bare", "metadata", "name")
	s.missing(t, pods+"/finished")
	if text := s.call(t, http.MethodGet, path, "", ""); !strings.Contains(text, `"manager":"kubectl-edit"`) {
		t.Errorf("its fields do not belong to their managers of then: %s", text)
	}
}

// namespaceGone brings back what was deleted with its namespace, and the namespace.
func namespaceGone(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "regretted")
	s.create(t, core+"/configmaps", configMap("kept", "a: b"))
	s.call(t, http.MethodDelete, core, "application/json", "{}")
	s.missing(t, core)
	in(s, p)
	p.click("What changed")
	p.types("#namespace", "regretted"+"\r")
	p.sees("configmaps regretted/kept")
	p.chooses("[aria-label='Type of change']", "Deleted")
	p.clickOn("Undelete all", `[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('Undelete all'))`)
	p.click("Try (dry run)")
	p.until("both would come back", `['namespaces regretted', 'configmaps regretted/kept'].every((name) =>
		[...document.querySelectorAll('dialog .plain tbody tr')].some((r) => r.innerText.includes(name) && r.innerText.includes('would come back')))`)
	s.missing(t, core)
	p.clickOn("Undelete", `document.querySelector('dialog button.primary:not(:disabled)')`)
	p.until("both are back", `['namespaces regretted', 'configmaps regretted/kept'].every((name) =>
		[...document.querySelectorAll('dialog .plain tbody tr')].some((r) => r.innerText.includes(name) && r.innerText.includes('is back')))`)
	p.shot("undelete-namespace")
	s.stores(t, core+"/configmaps/kept", "map[a:b]", "data")
}

// rounded opens an object with a number that JavaScript cannot hold: it is not edited, so that nothing else is saved.
func rounded(t *testing.T, s *server, p *page) {
	s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: numbers.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: numbers, kind: Number}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {n: {type: integer, format: int64}}}}}}
`)
	path := "/apis/example.com/v1/numbers"
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		code, _ := s.send(t, http.MethodPost, path, "application/yaml", "apiVersion: example.com/v1\nkind: Number\nmetadata: {name: large}\nspec: {n: 9007199254740993}\n")
		if code == http.StatusCreated {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the definition is not served")
		}
	}
	in(s, p)
	p.open("#/o/numbers.example.com/-/large/yaml")
	p.sees("It cannot be edited here: there is a whole number above 2^53")
	p.misses("Edit")
	p.open("#/create")
	p.edits("apiVersion: example.com/v1\nkind: Number\nmetadata: {name: other}\nspec: {n: 9007199254740995}\n")
	p.clickOn("Create", `document.querySelector('.create button.primary')`)
	p.sees("a whole number above 2^53")
	s.missing(t, path+"/other")
}
