package metamorphic

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/test/rig"
)

// apiWorld is a server with the state that the test keeps about it.
type apiWorld struct {
	World
	store     storage.Store
	server    *rig.Server
	base      int64
	uids      map[string]string
	continues []string         // the continue tokens of incomplete lists; "" after the token was used
	revisions map[string]int64 // the resourceVersions of objects, by path
}

// API sends random requests to a server in each world. It returns a *Difference at the first response that is not the
// same in all worlds.
func API(t *testing.T, seed uint64, steps int, worlds ...World) error {
	t.Helper()
	return run(t, seed, steps, false, worlds)
}

// Past is API with reads of the past instead of reads at a revision, and of the history of objects. All worlds have to keep
// everything.
func Past(t *testing.T, seed uint64, steps int, worlds ...World) error {
	t.Helper()
	return run(t, seed, steps, true, worlds)
}

func run(t *testing.T, seed uint64, steps int, past bool, worlds []World) error {
	t.Helper()
	list := make([]*apiWorld, len(worlds))
	for i, w := range worlds {
		list[i] = &apiWorld{World: w, store: w.Open(t), uids: map[string]string{}, revisions: map[string]int64{}}
		var err error
		if list[i].base, err = list[i].store.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
		list[i].serve(t)
	}
	t.Cleanup(func() {
		for _, w := range list {
			w.server.Close()
		}
	})
	g := &requests{rng: rand.New(rand.NewPCG(seed, 2)), past: past}
	statuses := map[string]int{}
	defer func() { t.Logf("answers: %v", statuses) }()
	for g.number = range steps {
		what, do := g.next()
		answers := make([]string, len(list))
		for i, w := range list {
			answers[i] = clip(do(t, w))
		}
		if status, _, _ := strings.Cut(answers[0], " "); status != "" {
			statuses[status[:3]]++
		}
		if err := compare(g.number, what, worlds, answers); err != nil {
			return err
		}
		if r, err := list[0].store.Revision(t.Context()); err == nil {
			g.current = r - list[0].base
		}
	}
	return nil
}

func (w *apiWorld) serve(t *testing.T) {
	t.Helper()
	var err error
	if w.server, err = rig.Serve(rig.Options{Store: w.store, Cache: w.Cache}); err != nil {
		t.Fatal(err)
	}
}

// requests generates random requests.
type requests struct {
	rng       *rand.Rand
	number    int // of the step
	current   int64
	compacted int64
	continues int
	past      bool // reads at a revision have asOf
}

// resource is a resource that requests are about.
type resource struct {
	version, kind, plural string
	namespaced            bool
	body                  func(value string) map[string]any
}

var resources = []resource{
	{
		"v1", "ConfigMap", "configmaps", true,
		func(v string) map[string]any { return map[string]any{"data": map[string]any{"v": v}} },
	},
	{
		"v1", "Secret", "secrets", true,
		func(v string) map[string]any { return map[string]any{"stringData": map[string]any{"v": v}} },
	},
	{"coordination.k8s.io/v1", "Lease", "leases", true, func(v string) map[string]any {
		return map[string]any{"spec": map[string]any{"holderIdentity": v}}
	}},
	{"v1", "PersistentVolume", "persistentvolumes", false, func(v string) map[string]any {
		return map[string]any{"spec": map[string]any{
			"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"},
			"hostPath": map[string]any{"path": "/" + v}, "persistentVolumeReclaimPolicy": "Retain",
		}}
	}},
}

var colors = []string{"red", "blue", "green"}

func (r resource) path(namespace, name string) string {
	p := "/apis/" + r.version
	if !strings.Contains(r.version, "/") {
		p = "/api/" + r.version
	}
	if r.namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + r.plural
	if name != "" {
		p += "/" + name
	}
	return p
}

// request is one request. Each world inserts its own revisions.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	accept       string
	body         map[string]any
	patch        any
	// revision says which resourceVersion the body has: "has" is that of the object, "wrong" an older one, "none" none
	// at all.
	revision string
}

func (r request) String() string {
	b, _ := json.Marshal(r.body)
	p, _ := json.Marshal(r.patch)
	return fmt.Sprintf(
		"%s %s?%s revision %s body %s patch %s %s", r.method, r.path, r.query.Encode(), r.revision, b, p, r.contentType,
	)
}

type step func(t *testing.T, w *apiWorld) string

func (re *requests) next() (string, step) {
	r := resources[re.rng.IntN(len(resources))]
	namespace := pick(re.rng, "one", "two")
	name := fmt.Sprintf("n%d", re.rng.IntN(6))
	switch n := re.rng.IntN(100); {
	case n < 18:
		return re.one(re.create(r, namespace, name))
	case n < 34:
		return re.one(re.update(r, namespace, name))
	case n < 46:
		return re.one(re.patch(r, namespace, name))
	case n < 55:
		return re.one(re.delete(r, namespace, name))
	case n < 57:
		return re.one(
			request{
				method: http.MethodDelete, path: r.path(namespace, ""),
				query: url.Values{"labelSelector": {"color=" + pick(re.rng, colors...)}},
			},
		)
	case n < 68:
		return re.get(r, namespace, name)
	case n < 88:
		return re.list(r, namespace)
	case n < 97:
		return re.watch(r, namespace)
	case n < 98:
		return re.compact()
	}
	return "restart", func(t *testing.T, w *apiWorld) string {
		w.server.Close()
		if w.Reopen != nil {
			w.store = w.Reopen(t, w.store)
		}
		w.serve(t)
		return ""
	}
}

// compact compacts the store. Then reads of older revisions are answered 410, and so are the next pages of lists that
// began at an older revision.
func (re *requests) compact() (string, step) {
	re.compacted = max(re.compacted, re.current-re.rng.Int64N(100))
	to := re.compacted
	return fmt.Sprintf("compact %d", to), func(t *testing.T, w *apiWorld) string {
		if err := w.store.Compact(t.Context(), w.base+to); err != nil {
			t.Fatalf("%s: compact: %v", w.Name, err)
		}
		return ""
	}
}

func (re *requests) one(r request) (string, step) {
	return r.String(), func(t *testing.T, w *apiWorld) string {
		status, answer := w.send(t, r)
		return fmt.Sprintf("%d %s", status, w.normal(t, answer))
	}
}

func (re *requests) object(r resource, namespace, name string) map[string]any {
	o := r.body(fmt.Sprintf("s%d", re.number))
	meta := map[string]any{"name": name, "labels": map[string]any{"color": pick(re.rng, colors...)}}
	if r.namespaced {
		meta["namespace"] = namespace
	}
	if re.rng.IntN(6) == 0 {
		meta["finalizers"] = []any{"example.com/wait"}
	}
	o["apiVersion"], o["kind"], o["metadata"] = r.version, r.kind, meta
	return o
}

func (re *requests) dry(q url.Values) url.Values {
	if re.rng.IntN(15) == 0 {
		q.Set("dryRun", "All")
	}
	return q
}

func (re *requests) create(r resource, namespace, name string) request {
	return request{
		method: http.MethodPost, path: r.path(namespace, ""), query: re.dry(url.Values{}), body: re.object(r, namespace, name),
	}
}

func (re *requests) update(r resource, namespace, name string) request {
	return request{
		method: http.MethodPut, path: r.path(namespace, name), query: re.dry(url.Values{}),
		body: re.object(r, namespace, name), revision: pick(re.rng, "has", "has", "wrong", "none"),
	}
}

func (re *requests) patch(r resource, namespace, name string) request {
	req := request{method: http.MethodPatch, path: r.path(namespace, name), query: re.dry(url.Values{})}
	switch re.rng.IntN(3) {
	case 0:
		req.contentType = "application/merge-patch+json"
		req.patch = map[string]any{"metadata": map[string]any{
			"labels":      map[string]any{"color": pick(re.rng, colors...)},
			"annotations": map[string]any{"step": strconv.Itoa(re.number)}, "finalizers": pick[any](re.rng, nil, []any{}),
		}}
	case 1:
		req.contentType = "application/json-patch+json"
		req.patch = []any{
			map[string]any{
				"op": pick(re.rng, "test", "replace"), "path": "/metadata/labels/color", "value": pick(re.rng, colors...),
			},
		}
	case 2:
		req.contentType = "application/apply-patch+yaml"
		req.query.Set("fieldManager", pick(re.rng, "ann", "bob"))
		if re.rng.IntN(2) == 0 {
			req.query.Set("force", "true")
		}
		req.patch = re.object(r, namespace, name)
	}
	return req
}

func (re *requests) delete(r resource, namespace, name string) request {
	req := request{
		method: http.MethodDelete, path: r.path(namespace, name), query: re.dry(url.Values{}),
		revision: pick(re.rng, "none", "none", "has", "wrong"),
	}
	return req
}

func (re *requests) accept() string {
	return pick(re.rng, "application/json", "application/json", "application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
}

// get reads an object: as it is, as it was, or its history.
func (re *requests) get(r resource, namespace, name string) (string, step) {
	req := request{method: http.MethodGet, path: r.path(namespace, name), accept: re.accept(), query: url.Values{}}
	if !re.past || re.rng.IntN(3) == 0 {
		return re.one(req)
	}
	if re.rng.IntN(3) == 0 {
		req.path, req.accept = req.path+"/history", "application/json"
		req.query.Set("limit", strconv.Itoa(1+re.rng.IntN(20)))
		req.query.Set("objects", pick(re.rng, "true", "false"))
		return re.one(req)
	}
	relative := re.rng.Int64N(re.current + 1)
	return fmt.Sprintf("%v as of %d", req, relative), func(t *testing.T, w *apiWorld) string {
		req.query.Set("asOf", strconv.FormatInt(w.base+relative, 10))
		status, answer := w.send(t, req)
		return fmt.Sprintf("%d %s", status, w.normal(t, answer))
	}
}

// list makes a list request: of the latest state, at an old revision, not older than the current one, or in pages.
func (re *requests) list(r resource, namespace string) (string, step) {
	req := request{
		method: http.MethodGet, path: r.path(pick(re.rng, namespace, ""), ""), accept: re.accept(), query: url.Values{},
	}
	re.selectors(req.query)
	if re.rng.IntN(3) == 0 {
		req.query.Set("limit", strconv.Itoa(1+re.rng.IntN(4)))
	}
	relative, match := int64(0), ""
	page := -1
	switch re.rng.IntN(5) {
	case 0:
		relative, match = re.rng.Int64N(re.current+1), "Exact"
	case 1:
		relative, match = re.current, "NotOlderThan"
	case 2:
		if re.continues > 0 {
			page = re.rng.IntN(re.continues)
		}
	}
	return fmt.Sprintf("%v at %d %s, page %d", req, relative, match, page), func(t *testing.T, w *apiWorld) string {
		req := req
		q := url.Values{}
		for k, v := range req.query {
			q[k] = v
		}
		req.query = q
		switch revision := strconv.FormatInt(w.base+relative, 10); {
		case re.past && match == "Exact" || page >= 0 && re.past:
			q.Set("asOf", revision)
		case match != "":
			q.Set("resourceVersion", revision)
			q.Set("resourceVersionMatch", match)
		}
		if page >= 0 {
			q.Set("continue", w.continues[page])
		}
		status, answer := w.send(t, req)
		var list struct{ Metadata struct{ Continue string } }
		if json.Unmarshal(answer, &list) == nil && list.Metadata.Continue != "" && (!re.past || q.Has("asOf")) {
			w.continues = append(w.continues, list.Metadata.Continue)
			re.continues = len(w.continues)
		}
		return fmt.Sprintf("%d %s", status, w.normal(t, answer))
	}
}

func (re *requests) selectors(q url.Values) {
	switch re.rng.IntN(4) {
	case 0:
		q.Set("labelSelector", pick(re.rng, "color=red", "color!=red", "color in (red,blue)", "none", "color="))
	case 1:
		q.Set("fieldSelector", pick(re.rng, "metadata.name=n1", "metadata.namespace=one", "metadata.name!=n1", "nonsense=1"))
	}
}

// watch starts a watch at a revision and reads events until a newly created object arrives.
func (re *requests) watch(r resource, namespace string) (string, step) {
	mark := fmt.Sprintf("mark%d", re.number)
	object := re.object(r, namespace, mark)
	meta := object["metadata"].(map[string]any)
	delete(meta, "finalizers")
	meta["labels"] = map[string]any{"color": "red"}
	q := url.Values{"watch": {"1"}}
	if re.rng.IntN(2) == 0 {
		q.Set("labelSelector", "color=red")
	}
	// Revision 0 would begin with the current state. Compacted revisions are not used: the log of a cache may still
	// have their changes.
	relative := max(re.current-re.rng.Int64N(60), re.compacted)
	initial := re.rng.IntN(4) == 0
	req := request{method: http.MethodGet, path: r.path(pick(re.rng, namespace, ""), ""), query: q, accept: re.accept()}
	return fmt.Sprintf("%v from %d (initial %v)", req, relative, initial), func(t *testing.T, w *apiWorld) string {
		status, answer := w.send(t, request{method: http.MethodPost, path: r.path(namespace, ""), body: object})
		if status != http.StatusCreated {
			return fmt.Sprintf("the mark: %d %s", status, w.normal(t, answer))
		}
		q := url.Values{}
		for k, v := range req.query {
			q[k] = v
		}
		if !initial {
			q.Set("resourceVersion", strconv.FormatInt(w.base+relative, 10))
		}
		req := req
		req.query = q
		out := w.stream(t, req, mark)
		w.send(t, request{method: http.MethodDelete, path: r.path(namespace, mark)})
		return out
	}
}

// stream reads events until one has the name mark.
func (w *apiWorld) stream(t *testing.T, r request, mark string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp := w.ask(ctx, t, r)
	defer resp.Body.Close()
	out := strconv.Itoa(resp.StatusCode)
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return out + fmt.Sprintf(" ended: %v", err)
		}
		out += "\n" + w.normal(t, line)
		if bytes.Contains(line, []byte(mark+`"`)) || bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			return out
		}
	}
}

// ask sends a request with the revisions of this world.
func (w *apiWorld) ask(ctx context.Context, t *testing.T, r request) *http.Response {
	t.Helper()
	var content any = r.patch
	if r.body != nil {
		content = r.body
	}
	revision := w.revisions[r.path]
	if r.revision == "wrong" {
		revision = w.base
	}
	if r.revision == "has" && revision != 0 || r.revision == "wrong" {
		text := strconv.FormatInt(revision, 10)
		if r.method == http.MethodDelete {
			content = map[string]any{
				"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]any{"resourceVersion": text},
			}
		} else {
			content = with(r.body, text)
		}
	}
	var body io.Reader
	if content != nil {
		b, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, w.server.URL+r.path+"?"+r.query.Encode(), body)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Set("Content-Type", "application/json"); r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v: %v", w.Name, r, err)
	}
	return resp
}

// with returns a copy of an object with a resourceVersion.
func with(o map[string]any, revision string) map[string]any {
	out, meta := map[string]any{}, map[string]any{}
	for k, v := range o {
		out[k] = v
	}
	for k, v := range o["metadata"].(map[string]any) {
		meta[k] = v
	}
	meta["resourceVersion"] = revision
	out["metadata"] = meta
	return out
}

func (w *apiWorld) send(t *testing.T, r request) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp := w.ask(ctx, t, r)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v: %v", w.Name, r, err)
	}
	w.remember(r, answer)
	return resp.StatusCode, answer
}

// remember stores the revision of an object that was written or read.
func (w *apiWorld) remember(r request, answer []byte) {
	var o struct {
		Metadata struct {
			Name, ResourceVersion string
		}
	}
	if json.Unmarshal(answer, &o) != nil || o.Metadata.Name == "" || r.query.Has("dryRun") || r.query.Has("asOf") {
		return
	}
	path := r.path
	if !strings.HasSuffix(path, "/"+o.Metadata.Name) {
		path += "/" + o.Metadata.Name
	}
	if n, err := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64); err == nil {
		w.revisions[path] = n
	}
}

// normal returns a response without the values that may differ between worlds.
func (w *apiWorld) normal(t *testing.T, answer []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return string(answer)
	}
	b, err := json.Marshal(w.mapped("", v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ages     = regexp.MustCompile(`^\d+[smhd](\d+[smh])?$`)
	integers = regexp.MustCompile(`\b\d+\b`)
)

func (w *apiWorld) mapped(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = w.mapped(k, inner)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = w.mapped(field, inner)
		}
		// The causes of a conflict with several managers have no defined order: managers are sorted by their times,
		// and the second may have changed in one world but not in another.
		if field == "causes" || field == "managedFields" {
			slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return v
	case string:
		switch field {
		case "resourceVersion":
			return w.relative(v)
		case "continue":
			return "(continue)"
		case "message":
			if strings.Contains(v, "ersion") { // the text contains a revision
				v = integers.ReplaceAllStringFunc(v, w.relative)
			}
		case "cells":
			if ages.MatchString(v) {
				return "(age)"
			}
		}
		v = times.ReplaceAllString(v, "(time)")
		return uuids.ReplaceAllStringFunc(v, func(uid string) string {
			if w.uids[uid] == "" {
				w.uids[uid] = fmt.Sprintf("(uid %d)", len(w.uids))
			}
			return w.uids[uid]
		})
	}
	return v
}

// relative returns a revision as the difference to the first revision of the world. It leaves smaller numbers
// unchanged.
func (w *apiWorld) relative(v string) string {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= w.base {
		return fmt.Sprintf("+%d", n-w.base)
	}
	return v
}
