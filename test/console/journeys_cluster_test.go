package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

const rbac = "/apis/rbac.authorization.k8s.io/v1"

// reader gives jane the Pods of a namespace.
func (s *server) reader(t testing.TB, namespace string) {
	t.Helper()
	s.namespace(t, namespace)
	s.create(t, rbac+"/namespaces/"+namespace+"/roles", `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pod-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
`)
	s.create(t, rbac+"/namespaces/"+namespace+"/rolebindings", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pod-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`)
}

func whatMayI(t *testing.T, s *server, p *page) {
	s.namespace(t, "mine")
	in(s, p)
	p.click("Access")
	p.sees("What may I do")
	p.types("#namespace", "mine"+kb.Enter)
	p.sees("Rules in mine", "cluster-admin")
	p.shot("access")
}

func whatMayAnother(t *testing.T, s *server, p *page) {
	s.reader(t, "hers")
	in(s, p)
	p.open("#/access")
	p.types("#namespace", "hers"+kb.Enter)
	p.types("input[name=user]", "jane")
	p.click("Look")
	p.sees("What may jane do")
	p.until("the binding of the rule is named", `[...document.querySelectorAll('.plain tbody tr')].some((r) => r.cells[0].innerText === 'pods' && r.cells[3].innerText === 'get, list, watch' && r.cells[4].innerText.includes('jane-reads (Role pod-reader)'))`)
	p.shot("access-of-another")
	p.click("jane-reads")
	p.sees("RoleBinding", "Role pod-reader")
}

func question(t *testing.T, s *server, p *page) {
	s.reader(t, "asked")
	in(s, p)
	p.open("#/access")
	p.types("#namespace", "asked"+kb.Enter)
	p.types("input[name=user]", "jane")
	p.click("Look")
	p.sees("May jane")
	ask := func(verb, resource, answer string) {
		p.types("[aria-label=verb]", verb)
		p.types("[aria-label=resource]", resource)
		p.click("Ask")
		p.until("the answer is "+answer, `document.querySelector('form .badge')?.innerText === '`+answer+`'`)
	}
	ask("list", "pods", "yes")
	p.sees("jane-reads")
	ask("delete", "deployments.apps", "no")
	p.shot("may-i")
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        description: A Widget is something for a test.
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 10, description: How large it is.}
              color: {type: string, enum: [red, blue], default: blue, description: The color of its case.}
              tags: {type: array, maxItems: 5, items: {type: string}}
              parts:
                type: array
                items:
                  type: object
                  properties: {name: {type: string}, weight: {type: number}}
            x-kubernetes-validations:
            - {rule: "self.color != 'red' || self.size > 2", message: red ones are larger than 2}
          status:
            type: object
            properties: {phase: {type: string}, size: {type: integer}}
`

func definition(t *testing.T, s *server, p *page) {
	s.namespace(t, "form")
	in(s, p)
	s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	p.click("Custom resources")
	p.click("Widget")
	p.sees("A Widget is something for a test.", "How large it is.", "at least 1; at most 10", "one of red, blue", "red ones are larger than 2", "list of object")
	p.shot("definition")
	p.click("Create with a form")
	p.fills("name", "made-by-form")
	p.fills("namespace", "form")
	p.fills("spec.size", "2")
	p.chooses(".fields select", "red")
	p.fills("spec.tags", "a, b")
	p.sees("name: made-by-form", "size: 2")
	p.clickOn("Create", `document.querySelector('.fields button.primary')`)
	p.sees("422 Invalid", "red ones are larger than 2")
	p.shot("form")
	p.fills("spec.size", "3")
	p.clickOn("Create", `document.querySelector('.fields button.primary')`)
	p.until("the object is open", `location.hash === '#/o/widgets.example.com/form/made-by-form'`)
	p.sees("made-by-form", "Scale")
	s.stores(t, "/apis/example.com/v1/namespaces/form/widgets/made-by-form", "map[color:red size:3 tags:[a b]]", "spec")
}

func customResource(t *testing.T, s *server, p *page) {
	s.namespace(t, "widgets")
	path := "/apis/example.com/v1/namespaces/widgets/widgets"
	s.create(t, path, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: first}\nspec: {size: 4}\n")
	in(s, p)
	p.keys(":")
	p.keys("wd" + kb.Enter)
	p.types("#namespace", "widgets"+kb.Enter)
	row := func(cells string) {
		p.until("the row is "+cells, `document.querySelector('.rows tbody tr')?.innerText.split('\t').slice(0, 4).join() === '`+cells+`'`)
	}
	row("first,4,blue,")
	s.patch(t, path+"/first/status", "operator", `{"status":{"phase":"Ready"}}`)
	row("first,4,blue,Ready")
	s.patch(t, path+"/first", "operator", `{"spec":{"size":7}}`)
	row("first,7,blue,Ready")
	p.shot("custom-resource")
	p.click("first")
	p.click("Scale")
	p.sees("Replicas")
	p.types("dialog input", "9")
	p.clickOn("Scale", `document.querySelector('dialog button.primary')`)
	s.stores(t, path+"/first", 9, "spec", "size")
}

func extensions(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "extended")
	s.create(t, "/apis/apiregistration.k8s.io/v1/apiservices", `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.metrics.example.com}
spec: {group: metrics.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: extended, name: missing}}
`)
	s.create(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: broken}
webhooks:
- name: broken.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  failurePolicy: Ignore
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: extended}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`)
	s.create(t, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few-replicas}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas < 100"}]
`)
	t.Cleanup(func() {
		s.call(t, "DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1.metrics.example.com", "application/json", "{}")
		s.call(t, "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/broken", "application/json", "{}")
	})
	s.create(t, core+"/configmaps", configMap("seen-by-the-webhook", "a: b"))
	in(s, p)
	p.click("Extensions")
	p.sees("v1.metrics.example.com", "extended/missing", "ServiceNotFound", "broken.example.com", "few-replicas")
	p.until("the failure is counted", `[...document.querySelectorAll('[aria-label=Webhooks] tbody tr')].some((r) => r.cells[8].innerText === '1' && r.cells[6].innerText === '1')`)
	p.shot("extensions")
	p.click("broken.example.com")
	p.sees("ValidatingWebhookConfiguration", "broken")
}

func serverPage(t *testing.T, s *server, p *page) {
	in(s, p)
	p.click("Server")
	p.sees("Processor time", "Ready", "Most objects", "Slowest requests", "Free on the disk", "global-default")
	p.until("it is ready", `document.querySelector('.server .badge.good')?.innerText === 'yes'`)
	p.sees("Requests that wait", "None.")
	s.crowd(t, "crowd", 3)
	p.click("Read again")
	p.sees("crowd (narrow)")
	p.until("the crowd is counted",
		`[...document.querySelectorAll('[aria-label="Requests that wait"] tbody tr')].some((r) => /^crowd .narrow.\s+[1-3]$/.test(r.innerText))`)
	p.shot("server")
}

// crowd sends requests of a user until the test ends, of which one is handled for seconds and the others wait for its seat.
func (s *server) crowd(t *testing.T, user string, requests int) {
	t.Helper()
	const group = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	s.create(t, group+"prioritylevelconfigurations", `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: narrow}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, borrowingLimitPercent: 0, limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 50}}}
`)
	s.create(t, group+"flowschemas", `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: narrow}
spec:
  matchingPrecedence: 2
  priorityLevelConfiguration: {name: narrow}
  rules:
  - subjects: [{kind: User, user: {name: `+user+`}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"]}]
`)
	s.create(t, rbac+"/clusterrolebindings", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: `+user+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: `+user+`}]
`)
	ctx, stop := context.WithCancel(t.Context())
	var sent sync.WaitGroup
	t.Cleanup(func() {
		stop()
		sent.Wait()
		s.call(t, http.MethodDelete, rbac+"/clusterrolebindings/"+user, "application/json", "{}")
		s.call(t, http.MethodDelete, group+"flowschemas/narrow", "application/json", "{}")
		s.call(t, http.MethodDelete, group+"prioritylevelconfigurations/narrow", "application/json", "{}")
	})
	const future = "/api/v1/namespaces/default/configmaps?resourceVersion=1099511627776" // is waited for
	for range requests + 1 {
		sent.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+future, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+s.token)
				r.Header.Set("Impersonate-User", user)
				if response, err := s.client.Do(r); err == nil {
					_ = response.Body.Close()
				}
			}
		})
	}
	dump := func() string {
		return s.call(t, http.MethodGet, "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1", "", "")
	}
	for end := time.Now().Add(patience); strings.Count(dump(), user) < requests; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v not all requests of %s wait:\n%s", patience, user, dump())
		}
	}
}

func darkAndLight(_ *testing.T, s *server, p *page) {
	in(s, p)
	p.open("#/r/pods?ns=failing")
	p.sees("CrashLoopBackOff")
	background := func(dark bool) {
		p.until("the colors change", map[bool]string{
			true:  `getComputedStyle(document.body).backgroundColor === 'rgb(18, 23, 28)'`,
			false: `getComputedStyle(document.body).backgroundColor === 'rgb(245, 246, 248)'`,
		}[dark])
	}
	background(false)
	p.click("Dark or light")
	background(true)
	p.shot("pods-dark")
	p.open("#/o/configmaps/versions/settings/yaml")
	p.shows("color: green")
	p.shot("yaml-dark")
	p.open("#/o/configmaps/versions/settings/history")
	p.sees("ada")
	p.shot("history-dark")
	p.logIn(s, token) // a reload keeps the choice
	background(true)
	p.click("Dark or light")
	background(false)
}

// fits checks that the page itself has no horizontal scroll bar: what is wide scrolls inside.
func (p *page) fits() {
	p.t.Helper()
	p.until("nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth && document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth`)
}

func narrow(_ *testing.T, s *server, p *page) {
	in(s, p)
	p.resize(360, 740)
	p.fits()
	p.shot("narrow-overview")
	p.click("Menu")
	p.click("Pod")
	p.until("the menu is closed", `!document.querySelector('.menu-open')`)
	p.types("#namespace", "failing"+kb.Enter)
	p.rows("broken", "done", "failed", "good", "waiting")
	p.fits()
	p.shot("narrow-pods")
	shots := map[string]string{
		"o/deployments.apps/events/web": "narrow-deployment", "o/configmaps/versions/settings/history": "narrow-history",
	}
	for _, view := range []string{
		"o/deployments.apps/events/web", "o/deployments.apps/events/web/events", "o/deployments.apps/family/web/related",
		"o/configmaps/versions/settings/history", "o/configmaps/versions/settings/yaml", "o/configmaps/stuck/stuck/why",
		"timeline?ns=timeline", "access", "definitions/widgets.example.com", "extensions", "server", "create",
	} {
		p.open("#/" + view)
		p.until("the view is there", `!document.querySelector('main .busy') && !!document.querySelector('main section')`)
		p.fits()
		if name := shots[view]; name != "" {
			p.shot(name)
		}
	}
}

func wide(_ *testing.T, s *server, p *page) {
	in(s, p)
	p.resize(2560, 1300)
	p.open("#/r/pods")
	p.sees("CrashLoopBackOff")
	p.fits()
	p.shot("wide-pods")
	p.open("#/o/deployments.apps/events/web")
	p.sees("MinimumReplicasUnavailable")
	p.fits()
	p.shot("wide-deployment")
	p.open("#/timeline?ns=timeline")
	p.sees("mallory")
	p.fits()
}

func fewRights(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "hidden")
	s.create(t, core+"/pods", pod("hidden", "app: web"))
	p.logIn(s, "viewer")
	p.sees("You may not list objects in all namespaces", "You may not list the Events")
	p.shot("few-rights-overview")
	p.click("Pod")
	p.sees("403 Forbidden", `User "viewer" cannot list resource "pods"`)
	p.misses("Nothing here")
	p.shot("few-rights-list")
	for view, text := range map[string]string{
		"o/pods/hidden/hidden":         `cannot get resource "pods"`,
		"o/pods/hidden/hidden/history": "403 Forbidden",
		"timeline":                     "403 Forbidden",
		"definitions":                  "403 Forbidden",
		"extensions":                   "403 Forbidden",
		"server":                       "403 Forbidden",
	} {
		p.open("#/" + view)
		p.sees(text)
	}
	p.open("#/access")
	p.sees("selfsubjectreviews", "Which bindings give these rules is not readable for you.")
	p.types("input[name=user]", "admin")
	p.click("Look")
	p.sees(`cannot impersonate`)
	p.open("#/create")
	p.edits(configMap("mine", "a: b"))
	p.clickOn("Create", `document.querySelector('main button.primary')`)
	p.sees(`cannot create resource "configmaps"`)
	s.missing(t, "/api/v1/namespaces/default/configmaps/mine")
}
