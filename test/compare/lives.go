package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// The section lives compares what happens in the lives of definitions. Each life (livescases.go) is a definition with a group of
// its own, some objects, and steps that change, delete or recreate it. It runs under watches of all kinds (liveswatches.go). After
// each step the section keeps what the writes were answered, the events of each watch, and what reads and discovery answer.
// kube-apiserver lives all of them twice; what differs there is not compared.

// livesAtOnce is how many lives run at the same time.
const livesAtOnce = 10

// A life is one life of a definition, as a script. In all texts GROUP, NSA, NSB and CRD are replaced: the group, its two namespaces,
// and the path of definitions.
type life struct {
	name    string
	born    definition
	objects []request    // written before the watches begin
	watches []*lifeWatch // more than the usual ones
	steps   []lifeStep
}

type lifeStep struct {
	name   string
	writes []request
	until  map[string]string // for probes, a text that the answer has in the end
	bound  time.Duration     // how long to wait for that; 0 is untilLimit
	down   bool              // the conversion webhook is down from here on
	up     bool              // it is back
}

const (
	untilLimit = 5 * time.Second
	quiet      = 400 * time.Millisecond // without an event: nothing more is expected
	quietLimit = 4 * time.Second
	// retryLimit is how long a watch waits at most, with a margin, before it calls a webhook again that was down.
	retryLimit = 4500 * time.Millisecond
)

// A livingLife is a life that runs on a server.
type livingLife struct {
	plan    *life
	server  *server // where it is written and read
	watched *server // where its watches are
	hooks   *converter
	group   string
	fill    *strings.Replacer
	watches []*lifeWatch

	mu   sync.Mutex          // guards what follows
	uids map[string][]string // of each namespace and name, in the order in which they were first seen
	revs map[string]string
}

// collectLives runs all lives on a server.
func collectLives(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	if s.name == reference && c.answers != "" {
		if saved, err := os.ReadFile(c.answers); err == nil {
			return c.restoreAnswers(saved)
		}
	}
	hooks := newConverter()
	defer hooks.Close()
	first, err := c.runLives(ctx, s, hooks, 0)
	if err != nil || s.name != reference {
		return first, err
	}
	second, err := c.runLives(ctx, s, hooks, 1)
	if err != nil {
		return nil, err
	}
	c.findUnstable(first, second)
	if c.answers != "" {
		return first, c.saveAnswers(first)
	}
	return first, nil
}

// runLives runs all lives once, several at a time.
func (c *comparison) runLives(ctx context.Context, s *server, hooks *converter, round int) (map[string]any, error) {
	chosen := slices.DeleteFunc(definitionLives(), func(l life) bool {
		return c.cases != nil && !c.cases.MatchString(l.name)
	})
	out := map[string]any{}
	var mu sync.Mutex // guards out and firstErr
	var firstErr error
	limit := make(chan struct{}, livesAtOnce)
	var running sync.WaitGroup
	for i := range chosen {
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			l := newLivingLife(&chosen[i], s, hooks, fmt.Sprintf("o%d-%d", round, i))
			aspects, err := l.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && firstErr == nil {
				firstErr = fmt.Errorf("%s: %s: %w", s.name, chosen[i].name, err)
			}
			out[chosen[i].name] = aspects
		})
	}
	running.Wait()
	c.requests, c.lines = len(chosen), 0
	for _, aspects := range out {
		for _, lines := range aspects.(map[string]any) {
			if list, ok := lines.([]any); ok {
				c.lines += len(list)
			} else {
				c.lines++
			}
		}
	}
	return out, firstErr
}

func newLivingLife(plan *life, s *server, hooks *converter, name string) *livingLife {
	group := name + ".lives.example.org"
	l := &livingLife{plan: plan, server: s, watched: s, hooks: hooks, group: group,
		revs: map[string]string{}, uids: map[string][]string{}}
	l.fill = strings.NewReplacer(
		"GROUP", group, "NSA", name+"-a", "NSB", name+"-b", "CONVERTER", hooks.URL+"/"+group, "CABUNDLE", hooks.bundle,
		"CRD", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	l.watches = lifeWatches(l)
	return l
}

// run runs the life and returns its aspects: "STEP: ASPECT".
func (l *livingLife) run(ctx context.Context) (map[string]any, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	defer func() {
		for _, w := range l.watches {
			w.close()
		}
		l.clean(ctx)
	}()
	out := map[string]any{}
	for i, step := range append([]lifeStep{{name: "watches begin"}}, l.plan.steps...) {
		l.hooks.set(l.group, step.down, step.up)
		prefix := fmt.Sprintf("%d %s: ", i, step.name)
		for n, w := range step.writes {
			answer, err := l.write(ctx, w.filled(l.fill))
			if err != nil {
				return nil, err
			}
			out[prefix+fmt.Sprintf("write %d", n)] = answer
		}
		if step.up {
			time.Sleep(retryLimit)
		}
		probes, err := l.await(ctx, step)
		if err != nil {
			return nil, err
		}
		if err := l.restore(ctx, step); err != nil {
			return nil, err
		}
		for name, answer := range probes {
			out[prefix+name] = answer
		}
		for _, w := range l.watches {
			events, ends := w.take()
			if len(events) > 0 {
				out[prefix+"watch "+w.name] = anyTexts(events)
			}
			if len(ends) > 0 {
				out[prefix+"ends "+w.name] = strings.Join(ends, "")
			}
		}
	}
	return out, nil
}

func changesDefinition(r request) bool {
	return r.method != http.MethodGet && strings.HasPrefix(r.path, definitionPath)
}

// restore begins all watches again that have ended, until they run or are refused. kube-apiserver ends watches a while after a change
// of their definition: the section waits for that.
func (l *livingLife) restore(ctx context.Context, step lifeStep) error {
	const rounds = 4
	changed, endLimit := slices.ContainsFunc(step.writes, changesDefinition), 2500*time.Millisecond
	if step.down {
		endLimit = retryLimit
	}
	for end := time.Now().Add(endLimit); changed && time.Now().Before(end); time.Sleep(quiet / 4) {
		if !slices.ContainsFunc(l.watches, func(w *lifeWatch) bool { return w.ofThings && w.runs() }) {
			break
		}
	}
	for range rounds {
		if err := l.settle(ctx); err != nil {
			return err
		}
		again := false
		for _, w := range l.watches {
			begun, err := w.open(ctx)
			if err != nil {
				return err
			}
			again = again || begun
		}
		if !again {
			break
		}
	}
	return l.settle(ctx)
}

// anyTexts returns texts as what a section compares.
func anyTexts(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

// begin creates namespaces, the definition and its objects.
func (l *livingLife) begin(ctx context.Context) error {
	made := []request{
		{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"NSA"}}`},
		{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"NSB"}}`},
		l.plan.born.create(),
	}
	for _, r := range made {
		answer, err := l.server.do(ctx, r.filled(l.fill))
		if err != nil {
			return err
		}
		if answer.status != http.StatusCreated {
			return fmt.Errorf("POST %s: %d %.500s", r.path, answer.status, answer.body)
		}
	}
	served := lifeStep{until: map[string]string{"list v1": "200", "list v2": "200", "discovery v1": "200", "discovery v2": "200"},
		bound: time.Minute}
	if _, err := l.await(ctx, served); err != nil {
		return err
	}
	for _, r := range l.plan.objects {
		if _, err := l.write(ctx, r.filled(l.fill)); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what the life has left: finalizers, objects, the definition.
func (l *livingLife) clean(ctx context.Context) {
	l.hooks.set(l.group, false, true)
	for _, r := range []request{
		{method: http.MethodPatch, path: "CRD/things.GROUP", body: `{"metadata":{"finalizers":null}}`, contentType: mergePatch},
		{method: http.MethodDelete, path: "CRD/things.GROUP"},
		{method: http.MethodDelete, path: "CRD/others.GROUP"},
	} {
		_, _ = l.server.do(ctx, r.filled(l.fill)) // it may be gone
	}
}

// write sends a request. The body SAME is what a GET of the path answers, with RV the resourceVersion of now.
func (l *livingLife) write(ctx context.Context, r request) (string, error) {
	if r.body == "SAME" || strings.Contains(r.body, `"RV"`) || strings.Contains(r.body, `"UID"`) {
		path, _, _ := strings.Cut(r.path, "?")
		now, err := l.server.do(ctx, request{method: http.MethodGet, path: strings.TrimSuffix(path, "/status")})
		if err != nil {
			return "", err
		}
		if r.body == "SAME" {
			r.body = string(now.body)
		} else {
			var obj map[string]any
			if err := decode(now.body, &obj); err != nil {
				return "", err
			}
			meta := dig(obj, "metadata")
			r.body = strings.NewReplacer(`"RV"`, escaped(text(dig(meta, "resourceVersion"))),
				`"UID"`, escaped(text(dig(meta, "uid")))).Replace(r.body)
		}
	}
	answer, err := l.server.do(ctx, r)
	if err != nil {
		return "", err
	}
	return r.method + " " + l.answer(answer), nil
}

// await waits until probes answer as a step says, and do not change any more.
func (l *livingLife) await(ctx context.Context, step lifeStep) (map[string]string, error) {
	bound := step.bound
	if bound == 0 {
		bound = untilLimit
	}
	end := time.Now().Add(bound)
	for {
		probes, err := l.settledProbes(ctx)
		if err != nil {
			return nil, err
		}
		missing := ""
		for _, name := range slices.Sorted(maps.Keys(step.until)) {
			if !strings.Contains(probes[name], step.until[name]) {
				missing += name + " has no " + step.until[name] + " "
			}
		}
		if missing == "" {
			return probes, nil
		}
		if time.Now().After(end) {
			probes["awaited"] = l.text(missing)
			return probes, nil
		}
	}
}

// settledProbes reads until two readings are equal, or quietLimit has passed.
func (l *livingLife) settledProbes(ctx context.Context) (map[string]string, error) {
	end := time.Now().Add(quietLimit)
	var last map[string]string
	for {
		now, err := l.probe(ctx)
		if err != nil || maps.Equal(last, now) || time.Now().After(end) {
			return now, err
		}
		last = now
		time.Sleep(quiet)
	}
}

// settle waits until no watch has been sent an event for some time.
func (l *livingLife) settle(ctx context.Context) error {
	end := time.Now().Add(quietLimit)
	for {
		var last time.Time
		for _, w := range l.watches {
			if at := w.last(); at.After(last) {
				last = at
			}
		}
		if time.Since(last) > quiet || time.Now().After(end) {
			return ctx.Err()
		}
		time.Sleep(quiet / 4)
	}
}

// lifeProbes are the reads after each step.
var lifeProbes = map[string]string{
	"list v1":       "/apis/GROUP/v1/things",
	"list v2":       "/apis/GROUP/v2/things",
	"list v3":       "/apis/GROUP/v3/things",
	"list zero":     "/apis/GROUP/v1/things?resourceVersion=0",
	"list A":        "/apis/GROUP/v2/namespaces/NSA/things",
	"get v1":        "/apis/GROUP/v1/namespaces/NSA/things/one",
	"get v2":        "/apis/GROUP/v2/namespaces/NSA/things/one",
	"get cluster":   "/apis/GROUP/v1/things/one",
	"definition":    "CRD/things.GROUP",
	"other":         "CRD/others.GROUP",
	"apiservice v1": "/apis/apiregistration.k8s.io/v1/apiservices/v1.GROUP",
	"apiservice v2": "/apis/apiregistration.k8s.io/v1/apiservices/v2.GROUP",
	"discovery":     "/apis/GROUP",
	"discovery v1":  "/apis/GROUP/v1",
	"discovery v2":  "/apis/GROUP/v2",
	"discovery v3":  "/apis/GROUP/v3",
}

// probe reads all probes once.
func (l *livingLife) probe(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(lifeProbes)) {
		answer, err := l.server.do(ctx, request{method: http.MethodGet, path: l.fill.Replace(lifeProbes[name])})
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "list") && answer.status == http.StatusOK {
			out[name] = "200 " + l.names(answer.body)
		} else {
			out[name] = l.answer(answer)
		}
	}
	return out, nil
}

// answer describes a response.
func (l *livingLife) answer(r response) string {
	var obj map[string]any
	if err := decode(r.body, &obj); err != nil {
		return fmt.Sprint(r.status, " ", l.text(strings.TrimSpace(string(r.body[:min(len(r.body), eventShown)]))))
	}
	out := fmt.Sprint(r.status, " ")
	switch text(obj["kind"]) {
	case "Status":
		out += fmt.Sprint(obj["reason"], " ", l.text(text(obj["message"])))
		if causes := dig(obj, "details", "causes"); causes != nil && r.status < http.StatusInternalServerError {
			out += " " + l.text(compact(causes))
		}
	case "APIGroup", "APIResourceList":
		out += l.text(compact(obj))
	default:
		if text(dig(obj, "metadata", "uid")) == "" && obj["items"] != nil {
			return out + l.names(r.body)
		}
		out += l.describe(obj) + " " + l.revision(obj)
	}
	for _, w := range r.headers {
		out += " warning " + l.text(w)
	}
	return out
}

const eventShown = 200 // bytes of a body that is no JSON

// revision says how the revision of an object differs from that of the last answer about it.
func (l *livingLife) revision(obj map[string]any) string {
	if strings.HasPrefix(text(obj["apiVersion"]), "api") { // controllers write these at any time
		return ""
	}
	uid, now := text(dig(obj, "metadata", "uid")), text(dig(obj, "metadata", "resourceVersion"))
	l.mu.Lock()
	defer l.mu.Unlock()
	out := compareVersions(l.revs[uid], now)
	l.revs[uid] = now
	return out
}

// names describes the objects of a list.
func (l *livingLife) names(list []byte) string {
	var obj map[string]any
	if err := decode(list, &obj); err != nil {
		return err.Error()
	}
	out := []string{text(obj["apiVersion"]) + " " + text(obj["kind"])}
	for _, item := range items(obj["items"]) {
		out = append(out, l.describe(item))
	}
	slices.Sort(out[1:])
	return l.text(strings.Join(out, "; "))
}

// describe returns what matters of an object. Its first word is its namespace and name.
func (l *livingLife) describe(v any) string {
	obj, _ := v.(map[string]any)
	meta := dig(obj, "metadata")
	kind := fmt.Sprint(obj["apiVersion"], " ", obj["kind"])
	rest := ""
	switch text(obj["kind"]) {
	case "Table":
		var cells string
		for _, row := range items(obj["rows"]) {
			meta = dig(row, "object", "metadata")
			kind += fmt.Sprint(" of ", dig(row, "object", "apiVersion"), " ", dig(row, "object", "kind"))
			list, _ := row["cells"].([]any)
			for _, cell := range list {
				cells += " " + withoutAge.ReplaceAllString(fmt.Sprint(cell), "AGE")
			}
		}
		rest = " cells" + cells
		for _, column := range items(obj["columnDefinitions"]) {
			rest += " column " + text(column["name"])
		}
	case "CustomResourceDefinition":
		rest = describeDefinition(obj)
	case "APIService":
		spec := dig(obj, "spec")
		rest = fmt.Sprint(" priority ", dig(spec, "groupPriorityMinimum"), " ", dig(spec, "versionPriority"), " service ",
			compact(dig(spec, "service")), describeConditions(obj))
	default:
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if name != "metadata" && name != "apiVersion" && name != "kind" {
				rest += " " + name + " " + compact(obj[name])
			}
		}
	}
	key := text(dig(meta, "namespace")) + "/" + text(dig(meta, "name"))
	out := key + " " + kind + " " + l.uid(key, text(dig(meta, "uid")))
	for _, name := range []string{"generation", "labels", "finalizers", "deletionGracePeriodSeconds"} {
		if value := dig(meta, name); value != nil {
			out += " " + name + " " + compact(value)
		}
	}
	if dig(meta, "deletionTimestamp") != nil {
		out += " deleted"
	}
	var managers []string
	for _, m := range items(dig(meta, "managedFields")) {
		managers = append(managers, fmt.Sprint(m["manager"], "/", m["operation"], "/", m["apiVersion"], "/", m["subresource"]))
	}
	slices.Sort(managers)
	out += " managers " + strings.Join(managers, ",")
	return l.text(out + rest)
}

// describeDefinition returns what matters of a definition.
func describeDefinition(obj map[string]any) string {
	spec, status := dig(obj, "spec"), dig(obj, "status")
	var versions []string
	for _, v := range items(dig(spec, "versions")) {
		versions = append(versions, fmt.Sprint(v["name"], " ", v["served"], " ", v["storage"]))
	}
	return fmt.Sprint(" ", dig(spec, "scope"), " ", versions, " accepted ", compact(dig(status, "acceptedNames")), " stored ",
		compact(dig(status, "storedVersions")), describeConditions(obj))
}

func describeConditions(obj map[string]any) string {
	var out []string
	for _, c := range items(dig(obj, "status", "conditions")) {
		out = append(out, fmt.Sprint(c["type"], " ", c["status"], " ", c["reason"], " ", c["message"]))
	}
	slices.Sort(out)
	return fmt.Sprintf(" conditions %q", out)
}

// uid returns the number of a uid among those that the object of a namespace and name has had.
func (l *livingLife) uid(key, uid string) string {
	if uid == "" {
		return "no uid"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.uids[key]
	n := number(&had, uid)
	l.uids[key] = had
	return "uid " + n
}

var (
	anyRevision = regexp.MustCompile(`(version: |revision[ =]|Version: )[0-9]+( \([0-9]+\))?`)
	anyPort     = regexp.MustCompile(`127\.0\.0\.1:[0-9]+(->127\.0\.0\.1:[0-9]+)?`)
	anyHash     = regexp.MustCompile(`,"storageVersionHash":"[^"]*"`)
	anyCount    = regexp.MustCompile(`revision|resource ?version|too old`)
)

// text returns a text without what two runs cannot have in common.
func (l *livingLife) text(s string) string {
	s = anyUID.ReplaceAllString(anyName.ReplaceAllString(s, "o-$1"), "UID")
	s = anyTime.ReplaceAllString(anyHash.ReplaceAllString(s, ""), "TIME")
	if anyCount.MatchString(s) {
		s = anyRevision.ReplaceAllString(s, "$1")
	}
	return anyPort.ReplaceAllString(s, "HOST")
}

// A converter is the conversion webhook of all lives. It is asked at a path that is the group, and may be down for a group.
type converter struct {
	*httptest.Server
	bundle string

	mu   sync.Mutex // guards down
	down map[string]bool
}

func newConverter() *converter {
	c := &converter{down: map[string]bool{}}
	c.Server = httptest.NewTLSServer(c)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	c.bundle = base64.StdEncoding.EncodeToString(ca)
	return c
}

// set changes whether the webhook is down for a group.
func (c *converter) set(group string, down, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[group] = (c.down[group] || down) && !up
}

// ServeHTTP implements http.Handler. It changes the apiVersion of all objects.
func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	down := c.down[strings.Trim(r.URL.Path, "/")]
	c.mu.Unlock()
	var body bytes.Buffer
	_, err := body.ReadFrom(r.Body)
	var review map[string]any
	if down || err != nil || decode(body.Bytes(), &review) != nil {
		http.Error(w, "the webhook is down", http.StatusServiceUnavailable)
		return
	}
	asked := dig(review, "request")
	objects := items(dig(asked, "objects"))
	for _, obj := range objects {
		obj["apiVersion"] = dig(asked, "desiredAPIVersion")
	}
	delete(review, "request")
	review["response"] = map[string]any{
		"uid": dig(asked, "uid"), "convertedObjects": objects, "result": map[string]any{"status": "Success"},
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the server may be gone
}
