package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// hostile is text that a careless page would run or draw.
const hostile = `"><img src=x onerror=window.hacked=1 class=evil><script>window.hacked=2</script><b class=evil>b</b>` +
	`<a class=evil href="javascript:window.hacked=3">x</a>${window.hacked=4}{{constructor.constructor('window.hacked=5')()}}` +
	"\u202egnp.exe\u2066\u200b"

// object returns the JSON of an object.
func object(t testing.TB, apiVersion, kind string, metadata, rest map[string]any) string {
	t.Helper()
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	for key, value := range rest {
		o[key] = value
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// tours looks at all parts of an object.
func (p *page) tours(resource, namespace, name string) {
	p.t.Helper()
	address := fmt.Sprintf("#/o/%s/%s/%s", resource, namespace, url.PathEscape(name))
	for _, part := range []string{"", "/yaml", "/events", "/related", "/history", "/why"} {
		p.open(address + part)
		p.do("wait for "+address+part, chromedp.Poll(fmt.Sprintf(
			`document.querySelector('section.object h1')?.textContent.includes(%s) && !document.querySelector('main .busy')`, quoted(name)), nil,
			chromedp.WithPollingInterval(50*time.Millisecond)))
		p.unharmed(resource + " " + name + part)
	}
}

// TestAttackNames: names, labels, annotations, messages and descriptions are shown as text.
func TestAttackNames(t *testing.T) {
	s := start(t)
	roles := []string{
		"<img src=x onerror=window.hacked=1 class=evil>", "javascript:window.hacked=1", `"onmouseover="window.hacked=1`, "__proto__",
		"constructor", "a b?q=1#x&y", "..%", "\u202eevil\u2066", "'-window.hacked=1-'", "${window.hacked=1}",
	}
	var made []string
	for _, name := range roles {
		code, text := s.send(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", "application/json",
			object(t, "rbac.authorization.k8s.io/v1", "ClusterRole", map[string]any{"name": name, "annotations": map[string]string{"a": hostile}}, nil))
		if code == http.StatusCreated {
			made = append(made, name)
		} else if !strings.Contains(name, "%") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object(t, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding",
		map[string]any{"name": roles[0]}, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": roles[0]},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": hostile}},
		}))
	s.create(t, configMaps, object(t, "v1", "ConfigMap", map[string]any{
		"name": "victim", "annotations": map[string]string{"a": hostile, "b/" + strings.Repeat("x", 63): strings.Repeat(hostile, 500)},
		"labels": map[string]string{"constructor": "toString"}, "finalizers": []string{"evil.example/javascript.alert"},
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": hostile, "name": "../../" + hostile, "uid": "../" + hostile}},
	}, map[string]any{"data": map[string]any{"key": hostile, "yaml": "a: !!js/function x\n" + hostile, "__proto__": "{}"}}))
	s.create(t, "/api/v1/namespaces/default/events", object(t, "v1", "Event", map[string]any{"name": "e"}, map[string]any{
		"type": "Warning", "reason": hostile[:100], "message": hostile, "source": map[string]any{"component": hostile},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "javascript:window.hacked=1"},
		"firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z",
	}))
	column := map[string]any{"name": "<b class=evil>Column</b>", "type": "string", "jsonPath": ".spec.text", "description": hostile}
	s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object(t, "apiextensions.k8s.io/v1", "CustomResourceDefinition",
		map[string]any{"name": "traps.evil.example"}, map[string]any{"spec": map[string]any{
			"group": "evil.example", "scope": "Namespaced", "names": map[string]any{"plural": "traps", "kind": "Trap", "singular": "trap"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": hostile[:150],
				"additionalPrinterColumns": []any{column, map[string]any{"name": "__proto__", "type": "string", "jsonPath": ".spec.text"}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "description": hostile, "properties": map[string]any{
					"spec": map[string]any{"type": "object", "description": hostile, "properties": map[string]any{
						"text":                map[string]any{"type": "string", "description": hostile, "default": hostile, "pattern": ".*"},
						"<b class=evil>x</b>": map[string]any{"type": "string", "enum": []any{"a", hostile}},
					}},
					"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			}},
		}}))
	p := browse(t, 1280, 800)
	p.logIn(s, token)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		code, text := s.send(t, http.MethodPost, "/apis/evil.example/v1/namespaces/default/traps", "application/json",
			object(t, "evil.example/v1", "Trap", map[string]any{"name": "trap"}, map[string]any{
				"spec":   map[string]any{"text": hostile},
				"status": map[string]any{"phase": hostile, "conditions": []any{map[string]any{"type": map[string]any{"toString": 1}, "status": hostile, "message": hostile}, 7, nil}},
			}))
		if code == http.StatusCreated {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the custom resource is not served: %s", text)
		}
	}
	p.reloads(token)

	p.open("#/r/clusterroles.rbac.authorization.k8s.io?q=")
	p.sees("live")
	p.unharmed("the list of ClusterRoles")
	for _, name := range made {
		p.tours("clusterroles.rbac.authorization.k8s.io", "-", name)
	}
	p.tours("clusterrolebindings.rbac.authorization.k8s.io", "-", roles[0])
	p.tours("configmaps", "default", "victim")
	p.tours("traps.evil.example", "default", "trap")
	for _, view := range []string{
		"#/", "#/r/events", "#/r/traps.evil.example?wide=1&failing=0&sort=__proto__", "#/r/traps.evil.example?sort=-__proto__&failing=1", "#/access",
		"#/definitions", "#/definitions/traps.evil.example", "#/extensions", "#/timeline?ns=default", "#/server",
		"#/r/" + url.PathEscape(hostile), "#/o/configmaps/default/" + url.PathEscape(hostile), "#/o/configmaps/" + url.PathEscape(hostile) + "/x",
		"#/r/configmaps?ns=" + url.QueryEscape(hostile), "#/r/configmaps?labels=" + url.QueryEscape(hostile), "#/definitions/" + url.PathEscape(hostile),
		"#/" + url.PathEscape(hostile), "#/javascript:window.hacked=1", "#javascript:window.hacked=1", "#/%", "#/o/%ZZ/%00/%ED%A0%80", "#/r/__proto__",
		"#/create?kind=constructor&ns=" + url.QueryEscape(hostile), "#/o/configmaps/default/..", "#/o/configmaps/../..", "#/o/configmaps/default/victim/__proto__",
	} {
		p.open(view)
		p.do("wait for "+view, chromedp.Poll(`!document.querySelector('main .busy')`, nil, chromedp.WithPollingInterval(50*time.Millisecond)))
		p.do("wait", chromedp.Sleep(150*time.Millisecond))
		p.unharmed(view)
	}
	p.open("#/definitions/traps.evil.example")
	p.click("Create with a form")
	p.sees("What is sent")
	p.unharmed("the form")
	p.open("#/access")
	p.do("look at another user", chromedp.WaitVisible("input[name=user]"), chromedp.SendKeys("input[name=user]", hostile[:60]+kb.Enter))
	p.do("wait", chromedp.Sleep(500*time.Millisecond))
	p.unharmed("the rules of another user")
	p.open("#/r/configmaps?ns=default")
	p.sees("victim", "live")
}

// extension is the hostile API server of the group evil.example. Each resource answers in another way.
var extension = map[string]func(http.ResponseWriter, *http.Request){
	"markups": table(`{"columnDefinitions":[{"name":"<b class=evil>","type":"string","description":%[1]s},{"name":%[1]s,"type":"string"}],
		"rows":[{"cells":[%[1]s,%[1]s],"object":{"metadata":{"name":"a","namespace":"default"}}}]}`, hostile),
	"names": table(`{"columnDefinitions":[{"name":"Name","type":"string"}],"rows":[
		{"cells":["a"],"object":{"metadata":{"name":"javascript:window.hacked=1","namespace":"javascript:"}}},
		{"cells":["b"],"object":{"metadata":{"name":"../../../../api/v1/secrets","namespace":".."}}},
		{"cells":["c"],"object":{"metadata":{"name":"..","namespace":".."}}},
		{"cells":["d"],"object":{"metadata":{"name":"a/b?c#d%%2e%%2e\u0000\ud800","namespace":"//evil.example"}}},
		{"cells":["e"],"object":{"metadata":{"name":"__proto__","namespace":"constructor"}}}]}`),
	"huges": table(`{"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Huge","type":"string"}],"rows":[
		{"cells":["a",%[1]s],"object":{"metadata":{"name":"a","namespace":"default"}}},
		{"cells":["b",{"x":%[1]s}],"object":{"metadata":{"name":"b","namespace":"default"}}},
		{"cells":[%[1]s,"c"],"object":{"metadata":{"name":%[1]s,"namespace":"default"}}}]}`, strings.Repeat("<b class=evil>", 80_000)),
	"controls": table(`{"columnDefinitions":[{"name":"Name\u0000\u001b]0;x\u0007","type":"string"}],"rows":[
		{"cells":["\u0000\u0001\u001b[31m\u202e\u2066\r\n\t\u0007\ud800"],"object":{"metadata":{"name":"\u0001\u202e","namespace":"default"}}}]}`),
	"types": table(`{"columnDefinitions":[{"name":{"a":1},"type":7,"priority":"x"},null,7,{"name":null},{"name":"Status"},{"name":"Ready"},{"name":"Age"}],
		"rows":[{"cells":[{"toString":1,"valueOf":2,"constructor":null},["<b class=evil>"],null,true,{"constructor":null,"type":"script","props":{"src":"/x"}},1e400,{"a":1}],
			"object":{"metadata":{"name":{"toString":1},"namespace":["x"],"creationTimestamp":{"a":1},"deletionTimestamp":[]}}},
			{"cells":"text","object":"text"},{"cells":null,"object":null},{"cells":{"length":1e9}},{}]}`),
	"nulls": table(`{"columnDefinitions":[{"name":"Name"}],"rows":[null,7,"x",[],{"cells":["good"],"object":{"metadata":{"name":"good","namespace":"default"}}}]}`),
	"columns": table(`{"columnDefinitions":[%[2]s{"name":"Name"}],"rows":[{"cells":[%[3]s"x"],"object":{"metadata":{"name":"x"}}}]}`, "",
		raw(strings.Repeat(`{"name":"Same"},`, 50_000)), raw(strings.Repeat(`"v",`, 50_000))),
	"manys":   table(`{"columnDefinitions":[{"name":"Name"}],"rows":[%[2]s{}]}`, "", raw(strings.Repeat(`{"cells":[],"object":{}},`, 100_000))),
	"bare":    body("null"),
	"text":    body(`"text"`),
	"list":    body(`[1,2]`),
	"broken":  body(`{"kind":"Table","rows":[`),
	"html":    typed("text/html", `<script>window.hacked=1</script><b class=evil>`),
	"rowless": table(`{"columnDefinitions":"text","rows":{"a":1}}`),
	"listed": body(`{"kind":"ThingList","apiVersion":"evil.example/v1","metadata":{"resourceVersion":"1"},"items":[
		{"metadata":{"name":"listed-one","namespace":"default","creationTimestamp":"2024-01-01T00:00:00Z"}},null,7,{"metadata":null}]}`),
	"failings": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, `{"kind":"Status","message":%s,"reason":{"a":1},"details":{"causes":[null,{"field":{"a":1},"message":%[1]s}]}}`, quoted(hostile))
	},
	"endless": func(w http.ResponseWriter, r *http.Request) { // a page that always has another one, which is the same
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"x","resourceVersion":"1"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["again"],"object":{"metadata":{"name":"again","namespace":"default"}}}]}`)
	},
}

// raw is a part of JSON that is not quoted.
type raw string

// table answers a list with a Table. Text is quoted; raw is not.
func table(format string, args ...any) http.HandlerFunc {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = quoted(text)
		}
	}
	text := format
	if len(args) > 0 || strings.Contains(format, "%%") {
		text = fmt.Sprintf(format, args...)
		if i := strings.Index(text, "%!(EXTRA"); i >= 0 {
			text = text[:i]
		}
	}
	return body(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},` + strings.TrimPrefix(text, "{"))
}

func body(text string) http.HandlerFunc { return typed("application/json", text) }

func typed(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watchEvents(w)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text))
	}
}

// watchEvents answers a watch with nonsense.
func watchEvents(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	for _, event := range []string{
		`{"type":"MODIFIED","object":{"kind":"Table","rows":[null,{"cells":["\u003cb class=evil>"],"object":{"metadata":{"name":"watched","namespace":"default"}}}]}}`,
		`{"type":"BOOKMARK","object":{"rows":[null]}}`, `{"type":{"a":1},"object":{"kind":"Table","rows":7}}`, `{"type":"DELETED","object":{"kind":"Table","rows":[{}]}}`,
		`{"type":"ADDED","object":null}`, `null`, `not JSON`,
	} {
		_, _ = w.Write([]byte(event + "\n"))
	}
}

// serveExtension serves the discovery of the extension, and its resources.
func serveExtension(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/apis/evil.example/v1":
		list := map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "evil.example/v1"}
		resources := []any{map[string]any{"name": "..", "kind": "<b class=evil>K</b>", "namespaced": false, "verbs": []string{"list", "get", "delete"}}}
		for name := range extension {
			resources = append(resources, map[string]any{
				"name": name, "singularName": hostile, "kind": "<b class=evil>" + name + "</b>", "namespaced": true, "shortNames": []string{hostile},
				"verbs": []string{"list", "watch", "get", "delete", "patch", "update", "create"}, "categories": []string{hostile},
			})
		}
		list["resources"] = resources
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	case len(parts) == 4 && parts[0] == "apis" && extension[parts[3]] != nil:
		extension[parts[3]](w, r)
	case len(parts) == 6 && parts[0] == "apis" && extension[parts[5]] != nil:
		extension[parts[5]](w, r)
	case len(parts) == 7:
		// An object that claims to be another one.
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":{"a":1},"apiVersion":[%[1]s],"metadata":{"name":%[1]s,"namespace":"..","labels":{"a":{"toString":1},%[1]s:%[1]s},"annotations":{"a":null},
			"finalizers":[{"a":1}],"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"..","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"../../x","uid":"v"}],
			"managedFields":[{"manager":{"a":1},"fieldsV1":{"f:a":{"k:{bad":{}}}}],"creationTimestamp":{"a":1},"deletionTimestamp":7,"uid":{"toString":7}},
			"spec":{"containers":[null,7,{"name":{"toString":1}}],"serviceAccountName":"../x","secretName":%[1]s},
			"status":{"phase":{"a":1},"conditions":[{"type":{"toString":1}}],"containerStatuses":[null]},"data":{"a":{"toString":1}}}`, quoted(hostile))
	default:
		http.NotFound(w, r)
	}
}

// TestAttackExtension: an extension API server that answers with nonsense cannot do more than spoil the views of its resources.
func TestAttackExtension(t *testing.T) {
	s := start(t)
	evil := httptest.NewTLSServer(http.HandlerFunc(serveExtension))
	t.Cleanup(func() {
		evil.CloseClientConnections()
		evil.Close()
	})
	address, err := url.Parse(evil.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.create(t, "/api/v1/namespaces/default/services", object(t, "v1", "Service", map[string]any{"name": "evil"},
		map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"}}))
	s.create(t, "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.evil.example}
spec: {group: evil.example, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {name: evil, namespace: default, port: %s}}
`, address.Port()))
	s.create(t, configMaps, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: innocent}\n")
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		_, text := s.send(t, http.MethodGet, "/apis/evil.example/v1", "", "")
		_, found := s.send(t, http.MethodGet, "/apis", "", "")
		if strings.Contains(text, "markups") && strings.Contains(found, "evil.example") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the extension is not served: %s", text)
		}
	}
	p := browse(t, 1280, 800)
	p.logIn(s, token)
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) { // until discovery has the group
		if p.says(`String(document.querySelector('nav.side').textContent.includes('evil.example'))`) == "true" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the group evil.example is not in the discovery")
		}
		p.reloads(token)
	}
	p.unharmed("the resources")
	for name := range extension {
		began := time.Now()
		for _, view := range []string{"?wide=1", "?wide=1&sort=Name", "?failing=1&q=a&sort=-Age"} {
			p.open("#/r/" + name + ".evil.example" + view)
			p.do("wait", chromedp.Sleep(400*time.Millisecond))
			p.unharmed(name + view)
		}
		switch name {
		case "nulls":
			p.open("#/r/nulls.evil.example")
			p.sees("good")
		case "listed":
			p.open("#/r/listed.evil.example")
			p.sees("listed-one")
		case "names":
			p.open("#/r/names.evil.example")
			p.sees("javascript:")
			for i := range 5 {
				p.open("#/r/names.evil.example")
				p.do("follow a link", chromedp.Poll(fmt.Sprintf(`document.querySelectorAll('.rows tbody th a').length >= 5 && (document.querySelectorAll('.rows tbody th a')[%d].click(), true)`, i), nil))
				p.do("wait", chromedp.Sleep(200*time.Millisecond))
				p.unharmed(fmt.Sprintf("object %d", i))
			}
		}
		for _, part := range []string{"", "/yaml", "/related", "/history"} {
			p.open("#/o/" + name + ".evil.example/default/x" + part)
			p.do("wait", chromedp.Sleep(150*time.Millisecond))
			p.unharmed(name + " x" + part)
		}
		p.open("#/r/configmaps?ns=default")
		p.sees("innocent", "live")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: the page needed %v", name, took)
		}
	}
	p.open("#/r/configmaps?ns=default")
	p.sees("innocent", "live")
	if list := s.call(t, http.MethodGet, configMaps, "", ""); !strings.Contains(list, "innocent") {
		t.Error("an object is gone")
	}
}

// TestAttackYAML: YAML that is made to stop or change the page.
func TestAttackYAML(t *testing.T) {
	s := start(t)
	p := browse(t, 1280, 800)
	p.logIn(s, token)
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\ndata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	merges := "a0: &a0 {k: 1}\n"
	for i := range 300 {
		merges += fmt.Sprintf("a%d: &a%d\n  <<: [%s]\n  k%d: 1\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 50), ", "), i)
	}
	var large strings.Builder
	large.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n")
	for i := range 32_000 {
		fmt.Fprintf(&large, "  k%d: %q\n", i, strings.Repeat("v", 50))
	}
	for _, c := range []struct{ name, text, want string }{
		{"aliases of aliases", bomb, "larger than 16 MiB"},
		{"an alias of a long text", "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 1000) + "*a]\n", "larger than 16 MiB"},
		{"an alias of itself", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: &a {a: *a}\n", "an alias is inside of what it names"},
		{"merges", merges, "merge"},
		{"a function", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f}\ndata: {a: !!js/function 'window.hacked=1'}\n", "unknown scalar tag"},
		{"a tag of Python", "a: !!python/object/apply:os.system ['id']\n", "unknown"},
		{"deep nesting", "a: " + strings.Repeat("[", 50_000), "nesting"},
		{"no YAML", strings.Repeat("{[\"", 1000), "("},
		{"control characters", "a: \"\\0\"\nb: \x01\n", ""},
		{"a prototype", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: proto, __proto__: {polluted: 1}}\n__proto__: {polluted: 1}\n" +
			"constructor: {prototype: {polluted: 1}}\ndata: {__proto__: polluted}\n", "refused"},
		{"a large document", large.String(), ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			p.open("#/")
			p.sees("Overview")
			p.open("#/create")
			began := time.Now()
			p.pastes(c.text)
			p.presses("section.create header button.primary")
			want := fmt.Sprintf(`[...document.querySelectorAll('section.create [role=alert], section.create table')].some((e) => e.textContent.includes(%s))`, quoted(c.want))
			p.do("wait for "+c.want, chromedp.Poll(want, nil, chromedp.WithPollingInterval(50*time.Millisecond)))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			p.unharmed(c.name)
		})
	}
	// Numbers and words are read as kubectl reads them.
	p.open("#/")
	p.open("#/create")
	p.pastes(`apiVersion: v1
kind: Pod
metadata: {name: modes, namespace: default}
spec:
  hostNetwork: no
  containers: [{name: a, image: b}]
  volumes: [{name: v, configMap: {name: a, defaultMode: 0440, optional: yes}}]
`)
	p.presses("section.create header button.primary")
	p.sees("created")
	if pod := s.call(t, http.MethodGet, "/api/v1/namespaces/default/pods/modes", "", ""); !strings.Contains(pod, `"defaultMode":288`) || !strings.Contains(pod, `"optional":true`) {
		t.Errorf("the pod has other values: %s", pod)
	}
	// A change of all of many lines is reviewed without a comparison that takes minutes.
	lines := map[string]any{}
	for i := range 20_000 {
		lines[fmt.Sprintf("key-%d", i)] = "before"
	}
	s.create(t, configMaps, object(t, "v1", "ConfigMap", map[string]any{"name": "lines"}, map[string]any{"data": lines}))
	p.open("#/o/configmaps/default/lines/yaml")
	p.click("Edit")
	yaml := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lines, namespace: default}\ndata:\n"
	for i := range 20_000 {
		yaml += fmt.Sprintf("  other-%d: after\n", i)
	}
	p.do("wait for the editor", chromedp.Poll(`document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')?.contentEditable === 'true'`, nil))
	p.pastes(yaml)
	began := time.Now()
	p.presses(".edit .bar button.primary")
	p.sees("The server has accepted it as a dry run")
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the review took %v", took)
	}
	p.unharmed("the review")
}

// escapes is what a hostile program writes into its log and on a terminal.
const escapes = "plain-before \x1b]8;;javascript:window.hacked=1\x07link\x1b]8;;\x07 \x1b]52;c;aGFja2Vk\x07\x1b]0;hacked-title\x07\x1b]2;hacked-title\x1b\\" +
	"\x1b[2J\x1b[31mred\x1b[0m \x1b[21t\x1b]4;1;?\x07\x1bP$qm\x1b\\\u202eoverride\u2066 <img src=x onerror=window.hacked=1 class=evil> plain-after\r\n"

// TestAttackLogAndTerminal: what a container writes is text. It comes from an API server that says what the test wants.
func TestAttackLogAndTerminal(t *testing.T) {
	s := start(t)
	s.create(t, "/api/v1/namespaces/default/pods", `
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec: {containers: [{name: a, image: b}], nodeName: node}
`)
	upstream := record(t, s)
	typed := make(chan string, 100)
	upstream.override = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/talker/log"):
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte(escapes + strings.Repeat("x", 1<<20) + "\n\nlast-line\n"))
			return true
		case strings.HasSuffix(r.URL.Path, "/talker/exec"):
			upgrader := ws.HTTPUpgrader{Protocol: func(name string) bool { return name == "v5.channel.k8s.io" }}
			conn, _, _, err := upgrader.Upgrade(r, w)
			if err != nil {
				return true
			}
			go func() {
				defer conn.Close()
				for _, text := range []string{escapes, "\x1b]8;;https://evil.example\x1b\\click-me\x1b]8;;\x1b\\ https://evil.example/ \r\n", "ready-for-input\r\n"} {
					if wsutil.WriteServerBinary(conn, append([]byte{1}, text...)) != nil {
						return
					}
				}
				for {
					message, err := wsutil.ReadClientBinary(conn)
					if err != nil {
						return
					}
					if len(message) > 1 && message[0] == 0 {
						typed <- string(message[1:])
					}
				}
			}()
			return true
		}
		return false
	}
	c := startProxy(t, kubeconfig(t, upstream.URL, token))
	p := browse(t, 1280, 800)
	p.enter(c.link)
	p.open("#/o/pods/default/talker/logs")
	p.sees("plain-before", "plain-after", "last-line")
	p.unharmed("the log")
	text := p.says(`document.querySelector('pre.log').textContent`)
	for _, bad := range []string{"\x1b", "\x07", "\u202e", "\u2066", "aGFja2Vk", "javascript:", "\x00"} {
		if strings.Contains(text, bad) {
			t.Errorf("the log shows %q", bad)
		}
	}
	if n := p.says(`String(document.querySelector('pre.log').childElementCount)`); n != "0" {
		t.Errorf("the log has %s elements", n)
	}
	if len(text) > 100_000 {
		t.Errorf("a line of %d characters is shown", len(text))
	}

	p.open("#/o/pods/default/talker/terminal")
	var clipboard string
	p.do("note what is written to the clipboard", chromedp.Evaluate(`
		window.copied = []; window.opened = [];
		Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (t) => window.copied.push(t), readText: async () => 'secret', write: async (t) => window.copied.push('x') } });
		window.open = (u) => (window.opened.push(String(u)), null);
		document.execCommand = (c) => (window.copied.push(c), true);
	`, nil))
	p.click("Connect")
	p.do("wait for the terminal", chromedp.Poll(`document.querySelector('.xterm-rows, .xterm-screen') && document.querySelector('.terminal .dim')?.textContent === 'connected'`, nil))
	p.do("wait", chromedp.Sleep(time.Second))
	if title := p.says("document.title"); strings.Contains(title, "hacked") {
		t.Errorf("the title is %s", title)
	}
	p.evaluate(`JSON.stringify([window.copied, window.opened])`, &clipboard)
	if clipboard != "[[],[]]" {
		t.Errorf("copied and opened: %s", clipboard)
	}
	rows := p.says(`document.querySelector('.xterm-rows')?.innerText ?? ''`)
	if !strings.Contains(rows, "ready-for-input") {
		t.Errorf("the terminal shows %q", rows)
	}
	if found := p.says(`[...document.querySelectorAll('.xterm a, .xterm img, .xterm [class*=link], .xterm [style*=underline]')].map((e) => e.outerHTML).join()`); found != "" {
		t.Errorf("the terminal has links: %s", found)
	}
	p.do("click on all of the text", chromedp.MouseClickXY(400, 400), chromedp.Evaluate(`
		for (const e of document.querySelectorAll('.xterm-rows *')) for (const type of ['mousemove', 'mousedown', 'mouseup', 'click']) {
			const b = e.getBoundingClientRect();
			e.dispatchEvent(new MouseEvent(type, { bubbles: true, clientX: b.x + 5, clientY: b.y + 5, ctrlKey: true }));
		}`, nil))
	p.evaluate(`JSON.stringify([window.copied, window.opened])`, &clipboard)
	if clipboard != "[[],[]]" {
		t.Errorf("after a click: copied and opened: %s", clipboard)
	}
	p.do("type", chromedp.ActionFunc(func(ctx context.Context) error { return insert(ctx, "echo\r") }))
	got := ""
	for end := time.After(patience); !strings.HasSuffix(got, "echo\r"); {
		select {
		case text := <-typed:
			got += text
		case <-end:
			t.Fatalf("the program got %q", got)
		}
	}
	if sent := strings.TrimSuffix(got, "echo\r"); strings.ContainsAny(sent, "\r\n") || strings.Contains(sent, "secret") || strings.Contains(sent, "hacked") {
		t.Errorf("the terminal has answered %q", sent)
	}
	t.Logf("the terminal has answered %q", strings.TrimSuffix(got, "echo\r"))
}
