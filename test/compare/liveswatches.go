package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A lifeWatch is one watch of a life. It records what it is sent as lines. When it has ended, reopen begins it again where it
// ended, as an informer does.
type lifeWatch struct {
	name, path, query, accept string
	initial                   string // more of the query when it begins for the first time
	life                      *livingLife
	ofThings                  bool // of the objects of the definition

	mu       sync.Mutex // guards what follows
	running  bool
	expired  bool   // it has to list before it begins again
	version  string // the last resourceVersion that it was sent
	lines    []string
	objects  map[string]string // by namespace and name, the last resourceVersion
	lastLine time.Time
	cancel   context.CancelFunc
	ended    chan struct{} // closed when it has ended
}

// add appends a line.
func (w *lifeWatch) add(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines, w.lastLine = append(w.lines, line), time.Now()
}

// take returns the events since the last take, and the ends and beginnings of the watch. Events of different objects may come in any
// order: they are sorted by object.
func (w *lifeWatch) take() (events, ends []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.HasPrefix(line, "-") {
			ends = append(ends, line)
		} else {
			events = append(events, line)
		}
	}
	w.lines = nil
	slices.SortStableFunc(events, func(a, b string) int { return strings.Compare(lineObject(a), lineObject(b)) })
	return events, slices.Compact(ends)
}

// runs reports whether the watch has not ended.
func (w *lifeWatch) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// lineObject returns the object of a line of an event: its second word.
func lineObject(line string) string {
	words := strings.SplitN(line, " ", 3)
	return words[min(1, len(words)-1)]
}

// last returns when the last line was added.
func (w *lifeWatch) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastLine
}

// open begins the watch if it does not run, and reports whether it was begun.
func (w *lifeWatch) open(ctx context.Context) (bool, error) {
	w.mu.Lock()
	running, version, expired, initial := w.running, w.version, w.expired, w.initial
	w.mu.Unlock()
	if running {
		return false, nil
	}
	if initial == "" && (version == "" || expired) {
		list, err := w.life.server.do(ctx, request{method: http.MethodGet, path: w.path + "?" + w.query})
		if err != nil {
			return false, err
		}
		if list.status != http.StatusOK {
			w.add("- list: " + w.life.answer(list))
			return false, nil
		}
		var found map[string]any
		if err := decode(list.body, &found); err != nil {
			return false, err
		}
		version = text(dig(found, "metadata", "resourceVersion"))
		if expired {
			w.add("- " + w.life.names(list.body))
		}
	}
	more := "&resourceVersion=" + version
	if initial != "" {
		more = initial
	}
	return w.begin(ctx, w.query+more, version)
}

// begin sends the request of the watch and reads its events in the background.
func (w *lifeWatch) begin(ctx context.Context, query, version string) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	target := w.life.watched.url + w.path + "?watch=1&timeoutSeconds=600&" + strings.TrimPrefix(query, "&")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		cancel()
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+w.life.watched.token)
	req.Header.Set("User-Agent", "compare")
	req.Header.Set("Accept", w.accept)
	answered := time.AfterFunc(answerLimit, cancel)
	resp, err := (&http.Client{Transport: w.life.watched.http.Transport}).Do(req)
	answered.Stop()
	if err != nil {
		cancel()
		w.add("- no answer")
		return false, nil //nolint:nilerr // it is a line
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body) // what was read is shown
		_ = resp.Body.Close()
		cancel()
		w.add("- begun: " + w.life.answer(response{status: resp.StatusCode, body: body}))
		w.mu.Lock()
		defer w.mu.Unlock()
		gone := resp.StatusCode == http.StatusGone
		w.expired = w.expired || gone
		return gone, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		w.lines, w.lastLine = append(w.lines, "- begun"), time.Now()
	}
	w.running, w.expired, w.initial, w.version = true, false, "", version
	w.cancel, w.ended = cancel, make(chan struct{})
	go w.read(resp.Body, w.ended)
	return true, nil
}

const (
	answerLimit = 10 * time.Second // for the headers of a watch
	eventLimit  = 1 << 20          // bytes of an event
)

// read adds a line for each event, and one for the end.
func (w *lifeWatch) read(body io.ReadCloser, ended chan struct{}) {
	defer close(ended)
	defer body.Close()
	events := bufio.NewScanner(body)
	events.Buffer(nil, eventLimit)
	for events.Scan() {
		var event map[string]any
		if err := decode(events.Bytes(), &event); err != nil {
			w.add("- no JSON: " + err.Error())
			continue
		}
		w.event(event)
	}
	end := "- end"
	if err := events.Err(); err != nil {
		end = "- broken"
	}
	w.add(end)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
}

// event adds the line of an event. Bookmarks come at any time, except for the one after the initial events.
func (w *lifeWatch) event(event map[string]any) {
	kind, obj := text(event["type"]), event["object"]
	switch kind {
	case "ERROR":
		w.mu.Lock()
		w.expired = true
		w.mu.Unlock()
		w.add(fmt.Sprint("- ERROR ", dig(obj, "code"), " ", dig(obj, "reason"), " ", w.life.text(text(dig(obj, "message")))))
		return
	case "BOOKMARK":
		w.setVersion(text(dig(obj, "metadata", "resourceVersion")))
		if dig(obj, "metadata", "annotations", "k8s.io/initial-events-end") != nil {
			w.add("- initial events end")
		}
		return
	}
	about := w.life.describe(obj)
	meta := dig(obj, "metadata")
	if rows := items(dig(obj, "rows")); len(rows) == 1 {
		meta = dig(rows[0], "object", "metadata")
	}
	key := text(dig(meta, "namespace")) + "/" + text(dig(meta, "name"))
	now := text(dig(meta, "resourceVersion"))
	w.mu.Lock()
	order := compareVersions(w.objects[key], now)
	w.objects[key] = now
	if kind == "DELETED" {
		delete(w.objects, key)
	}
	w.mu.Unlock()
	w.setVersion(now)
	w.add(kind + " " + about + " " + order)
}

// setVersion keeps the resourceVersion of an event, from which the watch goes on.
func (w *lifeWatch) setVersion(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version != "" {
		w.version = version
	}
}

// compareVersions says how the revision of an object differs from that before.
func compareVersions(before, now string) string {
	longer := len(now) > len(before) || len(now) == len(before) && now > before
	switch {
	case before == "":
		return "rev first"
	case before == now:
		return "rev same"
	case longer:
		return "rev new"
	}
	return "rev old"
}

// close ends the watch.
func (w *lifeWatch) close() {
	w.mu.Lock()
	cancel, ended := w.cancel, w.ended
	w.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}

// lifeWatches are the watches that each life has: names, paths behind the group, queries, media types.
func lifeWatches(l *livingLife) []*lifeWatch {
	const things, table = "/apis/GROUP/v1/things", "application/json;as=Table;v=v1;g=meta.k8s.io"
	const metadata, plain = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json"
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	named := func(name string) string { return "fieldSelector=" + url.QueryEscape("metadata.name="+name) }
	all := []*lifeWatch{
		{name: "v1", path: things, accept: plain},
		{name: "v2", path: "/apis/GROUP/v2/things", accept: plain},
		{name: "namespace", path: "/apis/GROUP/v1/namespaces/NSA/things", accept: plain},
		{name: "namespace v2", path: "/apis/GROUP/v2/namespaces/NSB/things", accept: plain},
		{name: "name", path: things, query: named("one"), accept: plain},
		{name: "label", path: things, query: "labelSelector=color%3Dred", accept: plain},
		{name: "table", path: things, accept: table},
		{name: "metadata", path: "/apis/GROUP/v2/things", accept: metadata},
		{name: "initial", path: things, accept: plain,
			initial: "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
		{name: "zero", path: things, accept: plain, initial: "&resourceVersion=0"},
		{name: "definition", path: definitions, query: named("things.GROUP"), accept: plain},
		{name: "apiservice v1", path: services, query: named("v1.GROUP"), accept: plain},
		{name: "apiservice v2", path: services, query: named("v2.GROUP"), accept: plain},
	}
	all = append(all, l.plan.watches...)
	for i, w := range all {
		one := &lifeWatch{name: w.name, accept: w.accept, initial: w.initial, life: l, objects: map[string]string{}}
		one.path, one.query = l.fill.Replace(w.path), l.fill.Replace(w.query)
		one.ofThings = strings.HasPrefix(w.path, "/apis/GROUP/")
		if one.accept == "" {
			one.accept = plain
		}
		all[i] = one
	}
	return all
}

// withoutAge matches the cell of a Table that has an age.
var withoutAge = regexp.MustCompile(`^[0-9]+s$|^<unknown>$|^[0-9]+m`)
