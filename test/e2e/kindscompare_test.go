package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKindsAsKubeAPIServer sends variants of valid objects of the built-in kinds to kube-apiserver and Keelson, and
// compares status, causes, warnings, the object in the response and the cells of its table row. The valid objects are
// those whose creation is recorded in the folders of package resource; their fields come from the OpenAPI document of
// kube-apiserver. Most requests are dry runs of creations, updates, patches, applications and writes of subresources;
// some are carried out, so that later updates start from many states.
//
// The log has the figures of each kind. KEELSON_KINDS is a regular expression for the resources ("^storageclasses.",
// "core" for those without a group), KEELSON_FUZZ_PAIRS the number of requests for each kind, KEELSON_FUZZ_SEED repeats
// a run, KEELSON_FUZZ_REPORT names a file for the differences. KEELSON_KINDS_GATES are feature gates for both servers.
//
// The test fails if a status code differs, except for the kinds in unfinishedKinds.
func TestKindsAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	seed, pairs := fuzzSeed(t), fuzzPairs(t)
	only := regexp.MustCompile(os.Getenv("KEELSON_KINDS"))
	var args []string
	if gates := os.Getenv("KEELSON_KINDS_GATES"); gates != "" {
		args = append(args, "--feature-gates", gates)
	}
	// No controllers that only Keelson has change objects.
	f := &kindFuzz{
		reference: kubeAPIServer(t, dir, startEtcd(t, dir), append(args, "--allow-privileged")...),
		keelson:   keelsonOn(t, dir, append(args, "--quota-usage=false", "--default-service-accounts=false")...),
		tally:     map[string]*kindTally{},
	}
	kinds := recordedKinds(t)
	var names []string
	for _, name := range sorted(kinds) {
		if only.MatchString(name) {
			names = append(names, name)
		}
	}
	each(t, names, func(name string) error {
		f.compareKind(t, kinds[name], rand.New(rand.NewPCG(seed, uint64(crc32.ChecksumIEEE([]byte(name))))), pairs)
		return nil
	})
	t.Log(f.table())
	f.found.report(t)
}

// unfinishedKinds are the resources whose responses may still differ in the status code: pods, and Services, whose addresses
// depend on the ServiceCIDRs that the test makes at the same time.
func unfinishedKinds() []string { return []string{"pods.core", "services.core"} }

// recordedKind is a kind with the valid objects of it.
type recordedKind struct {
	name                  string // RESOURCE.GROUP, or RESOURCE.core
	group, version, kind  string
	prefix, resource      string // the paths of the API
	namespaced            bool
	subresources          []string // those that take the object itself
	objects               []map[string]any
	schema                tree
	document              openAPI
	namespace, collection string
}

// recordedKinds reads the recorded creations. It keeps the largest body of each name of an object.
func recordedKinds(t *testing.T) map[string]*recordedKind {
	t.Helper()
	files, err := filepath.Glob("../../internal/resource/*/testdata/create.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded creations: %v", err)
	}
	out := map[string]*recordedKind{}
	longest := map[string]map[string][]byte{} // by kind and name
	for _, file := range files {
		readLines(t, file, func(line []byte) {
			var c struct {
				Resource string
				Body     struct {
					APIVersion, Kind string
					Metadata         struct{ Name string }
				}
			}
			var raw struct{ Body json.RawMessage }
			if json.Unmarshal(line, &c) != nil || json.Unmarshal(line, &raw) != nil || c.Body.Metadata.Name == "" ||
				c.Body.APIVersion == "" {
				return // generated names cannot be updated, and a body without a version is no valid object
			}
			k := newRecordedKind(c.Resource, c.Body.APIVersion, c.Body.Kind)
			if out[k.name] == nil {
				out[k.name], longest[k.name] = k, map[string][]byte{}
			}
			if old := longest[k.name][c.Body.Metadata.Name]; len(raw.Body) > len(old) {
				longest[k.name][c.Body.Metadata.Name] = raw.Body
			}
		})
	}
	for name, k := range out {
		for _, object := range sorted(longest[name]) {
			body := bytes.ReplaceAll(longest[name][object], []byte("${ns}"), []byte(k.namespace))
			var o map[string]any
			if err := json.Unmarshal(body, &o); err != nil {
				t.Fatal(err)
			}
			const longName = 60 // such names are tests of names
			if generated := dig(o, "metadata", "generateName"); len(object) < longName && generated == nil {
				k.objects = append(k.objects, o)
			}
		}
	}
	return out
}

func newRecordedKind(resource, apiVersion, kind string) *recordedKind {
	group, version, ok := strings.Cut(apiVersion, "/")
	k := &recordedKind{kind: kind, resource: resource, group: group, version: version, prefix: "/apis/" + apiVersion}
	if !ok {
		k.group, k.version, k.prefix = "", apiVersion, "/api/"+apiVersion
	}
	k.name = resource + "." + cmp.Or(k.group, "core")
	if k.version != "v1" {
		k.name += "." + k.version
	}
	// A name of a namespace has at most 63 characters.
	k.namespace = fmt.Sprintf("kinds-%s-%x", resource, crc32.ChecksumIEEE([]byte(k.name)))
	return k
}

// readLines calls f for each line of a compressed file.
func readLines(t *testing.T, name string, f func([]byte)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		f(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// discover reads from kube-apiserver how the kind is served. It returns false if the kind is not served.
func (k *recordedKind) discover(t *testing.T, s *apiServer) bool {
	t.Helper()
	var list struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
			Verbs      []string
		}
	}
	if status, body := s.must(t, http.MethodGet, k.prefix, jsonType, "", nil); status != http.StatusOK ||
		json.Unmarshal(body, &list) != nil {
		return false
	}
	served := false
	for _, r := range list.Resources {
		if r.Name == k.resource {
			served, k.namespaced = true, r.Namespaced
		}
		name, ok := strings.CutPrefix(r.Name, k.resource+"/")
		if ok && r.Kind == k.kind && slices.Contains(r.Verbs, "update") {
			k.subresources = append(k.subresources, name)
		}
	}
	var document struct {
		Components struct{ Schemas openAPI }
	}
	eventually(t, time.Minute, "the OpenAPI document of "+k.prefix+" is served", func(ctx context.Context) error {
		_, body, err := s.call(ctx, http.MethodGet, "/openapi/v3"+k.prefix, jsonType, "", nil)
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &document)
	})
	k.document = document.Components.Schemas
	k.schema = k.document.ofKind(k.group, k.version, k.kind)
	k.collection = k.prefix + "/" + k.resource
	if k.namespaced {
		k.collection = k.prefix + "/namespaces/" + k.namespace + "/" + k.resource
	}
	return served && k.schema != nil
}

// kindTally counts the responses to the requests of a kind.
type kindTally struct{ requests, sameCode, exact, stored, failed int }

type kindFuzz struct {
	reference, keelson *apiServer
	found              differences
	mu                 sync.Mutex // guards tally
	tally              map[string]*kindTally
}

// table returns the figures by kind.
func (f *kindFuzz) table() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	b.WriteString("figures by kind\n\n| kind | requests | status code right % | exact % | carried out | kube-apiserver failed |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: |\n")
	all := &kindTally{}
	row := func(name string, t *kindTally) {
		share := func(n int) float64 { return 100 * float64(n) / float64(max(t.requests, 1)) }
		fmt.Fprintf(&b, "| %s | %d | %.2f | %.2f | %d | %d |\n", name, t.requests, share(t.sameCode), share(t.exact), t.stored, t.failed)
	}
	for _, name := range slices.Sorted(maps.Keys(f.tally)) {
		t := f.tally[name]
		row(name, t)
		all.requests, all.sameCode, all.exact = all.requests+t.requests, all.sameCode+t.sameCode, all.exact+t.exact
		all.stored, all.failed = all.stored+t.stored, all.failed+t.failed
	}
	row("all", all)
	return b.String()
}

// kindObject is an object on both servers.
type kindObject struct {
	name   string
	body   map[string]any // as it was sent last
	exists bool
}

func (f *kindFuzz) compareKind(t *testing.T, k *recordedKind, rng *rand.Rand, pairs int) {
	if !k.discover(t, f.reference) {
		return
	}
	tally := &kindTally{}
	f.mu.Lock()
	f.tally[k.name] = tally
	f.mu.Unlock()
	for _, s := range []*apiServer{f.reference, f.keelson} {
		s.namespace(t, k.namespace)
		account := []byte(`{"metadata":{"name":"default"}}`)
		_, _ = s.must(t, http.MethodPost, "/api/v1/namespaces/"+k.namespace+"/serviceaccounts", jsonType, jsonType, account)
	}
	v := &variants{doc: k.document, schema: k.schema, rng: rng}
	var objects []*kindObject
	for _, body := range k.objects {
		metadata := body["metadata"].(map[string]any)
		delete(metadata, "namespace")
		o := &kindObject{name: fmt.Sprint(metadata["name"]), body: body}
		f.restore(t, k, o)
		objects = append(objects, o)
	}
	for range pairs {
		f.oneOfKind(t, k, v, tally, objects)
	}
	for _, o := range objects {
		o.exists = o.exists && !f.remove(t, k, o)
	}
}

// storable makes what is stored harmless for other requests: webhooks and policies are for no object, and no class is
// the default.
func (k *recordedKind) storable(body map[string]any) map[string]any {
	if annotations, _ := dig(body, "metadata", "annotations").(map[string]any); strings.HasSuffix(k.resource, "classes") {
		for name := range annotations {
			if strings.Contains(name, "is-default-class") {
				body = clone(body).(map[string]any)
				delete(body["metadata"].(map[string]any), "annotations")
			}
		}
	}
	if body["globalDefault"] != nil {
		body = clone(body).(map[string]any)
		delete(body, "globalDefault")
	}
	if k.group != "admissionregistration.k8s.io" {
		return body
	}
	body = clone(body).(map[string]any)
	none := map[string]any{"matchLabels": map[string]any{"e2e.example.com/none": "x"}}
	hooks, _ := body["webhooks"].([]any)
	for _, hook := range hooks {
		hook.(map[string]any)["objectSelector"] = none
	}
	if match, _ := dig(body, "spec", "matchConstraints").(map[string]any); match != nil {
		match["objectSelector"] = none
	}
	return body
}

// remove deletes an object on both servers, and returns true.
func (f *kindFuzz) remove(t *testing.T, k *recordedKind, o *kindObject) bool {
	for _, s := range []*apiServer{f.reference, f.keelson} {
		path := k.collection + "/" + o.name + "?gracePeriodSeconds=0&propagationPolicy=Background"
		_, _, _ = s.call(t.Context(), http.MethodDelete, path, jsonType, "", nil)
		// Finalizers would delay the deletion.
		_, _, _ = s.call(t.Context(), http.MethodPatch, k.collection+"/"+o.name, jsonType, mergeType,
			[]byte(`{"metadata":{"finalizers":null}}`))
	}
	return true
}

// restore creates an object again, on both servers or on none.
func (f *kindFuzz) restore(t *testing.T, k *recordedKind, o *kindObject) {
	if k.resource == "apiservices" || k.resource == "customresourcedefinitions" {
		return // they change what is served
	}
	if o.exists {
		f.remove(t, k, o)
	}
	o.exists = true
	for _, s := range []*apiServer{f.reference, f.keelson} {
		code, _, err := s.call(t.Context(), http.MethodPost, k.collection, jsonType, jsonType, marshal(k.storable(o.body)))
		o.exists = o.exists && err == nil && code == http.StatusCreated
	}
	f.settle(t, k, o)
}

// settle waits until both servers have written the status of a FlowSchema, which they do some time after a change.
func (f *kindFuzz) settle(t *testing.T, k *recordedKind, o *kindObject) {
	if k.resource != "flowschemas" || !o.exists {
		return
	}
	r := &kindRequest{op: "get", method: http.MethodGet, path: k.collection + "/" + o.name, accept: jsonType}
	for range 60 {
		want, got := r.send(t.Context(), f.reference), r.send(t.Context(), f.keelson)
		if want.difference(got) == "" && dig(want.body, "status", "conditions") != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// oneOfKind sends one request about an object of the kind to both servers.
func (f *kindFuzz) oneOfKind(t *testing.T, k *recordedKind, v *variants, tally *kindTally, objects []*kindObject) {
	o := oneOf(v.rng, objects...)
	r := k.request(v, o, objects)
	// A variant of a webhook or policy could affect other requests.
	dry := !o.exists || r.op == "create" || k.group == "admissionregistration.k8s.io"
	if dry || v.rng.IntN(15) > 0 {
		r.path += "?dryRun=All"
	} else {
		r.path += "?"
		r.stored = true
	}
	r.path += "&fieldManager=e2e"
	if r.contentType == applyType {
		r.path += "&force=true"
	}
	want, got := r.send(t.Context(), f.reference), r.send(t.Context(), f.keelson)
	tally.requests++
	d := want.difference(got)
	// A panic of kube-apiserver cuts the connection. Some errors of clients are a 500 there.
	failed := want.code == 0 || want.code == http.StatusInternalServerError
	switch {
	case failed && got.code >= http.StatusBadRequest && got.code < http.StatusInternalServerError:
		tally.requests--
		tally.failed++
		return
	case d == "":
		tally.exact++
	default:
		f.add(k, r, want, got, d)
	}
	if want.code == got.code {
		tally.sameCode++
	}
	if !r.stored {
		return
	}
	if want.code != http.StatusOK || got.code != http.StatusOK {
		if want.code != got.code {
			f.restore(t, k, o)
		}
		return
	}
	tally.stored++
	if len(want.difference(got)) > 0 || v.rng.IntN(4) == 0 {
		f.restore(t, k, o)
		return
	}
	f.settle(t, k, o)
	f.rows(t, k, o)
	if r.next != nil {
		o.body = r.next
	}
}

// rows compares the table rows of an object, without the age.
func (f *kindFuzz) rows(t *testing.T, k *recordedKind, o *kindObject) {
	r := &kindRequest{
		op: "table", method: http.MethodGet, path: k.collection + "/" + o.name,
		accept: "application/json;as=Table;g=meta.k8s.io;v=v1",
	}
	want, got := r.send(t.Context(), f.reference), r.send(t.Context(), f.keelson)
	if d := want.difference(got); d != "" {
		f.add(k, r, want, got, d)
	}
}

func (f *kindFuzz) add(k *recordedKind, r *kindRequest, want, got kindOutcome, text string) {
	d := difference{
		group:    fmt.Sprintf("%s %s %d, Keelson %d: %s", k.name, r.op, want.code, got.code, shape(text)),
		resource: k.name, request: r.String(),
		want: outcome{code: want.code}, got: outcome{code: got.code, message: text},
	}
	if want.code != got.code && !slices.Contains(unfinishedKinds(), k.name) {
		d.wrong = "the status code differs"
	}
	f.found.add(d)
}

// kindRequest is a request to both servers.
type kindRequest struct {
	op, method, path, contentType, accept, how string
	body                                       []byte
	stored                                     bool
	next                                       map[string]any // what the object is afterwards
}

func (r *kindRequest) String() string {
	const most = 3000
	return fmt.Sprintf("%s %s (%s)\n  %.*s", r.method, r.path, r.how, most, r.body)
}

// request makes a random request about an object.
func (k *recordedKind) request(v *variants, o *kindObject, objects []*kindObject) *kindRequest {
	r := &kindRequest{op: "create", method: http.MethodPost, path: k.collection, contentType: jsonType, accept: jsonType}
	one := k.collection + "/" + o.name
	pick := v.rng.IntN(20)
	if !o.exists || pick < 7 {
		from := o.body
		// The names of these have a meaning.
		if o.exists && k.resource != "ipaddresses" {
			from = clone(from).(map[string]any)
			named(from, o.name+newSuffix)
		}
		var body map[string]any
		body, r.how = v.of(from, "")
		r.body = marshal(body)
		return r
	}
	r.method, r.path = http.MethodPut, one
	switch {
	case pick < 11: // the object of another name, changed
		from := o.body
		if v.rng.IntN(4) == 0 {
			from = oneOf(v.rng, objects...).body
		}
		r.op = "update"
		r.next, r.how = v.of(k.storable(from), "")
		named(r.next, o.name)
		r.body = marshal(r.next)
	case pick < 14 || len(k.subresources) == 0 && pick < 16:
		k.patch(v, o, r)
	case pick < 16 || len(k.subresources) == 0:
		r.op, r.method, r.contentType = "apply", http.MethodPatch, applyType
		var body map[string]any
		body, r.how = v.of(k.storable(o.body), "")
		named(body, o.name)
		r.body = marshal(body)
	default:
		k.subresource(v, o, r)
	}
	return r
}

// patch makes r a patch of one of the three types.
func (k *recordedKind) patch(v *variants, o *kindObject, r *kindRequest) {
	from := k.storable(o.body)
	to, how := v.of(from, "")
	r.method, r.how = http.MethodPatch, how
	switch v.rng.IntN(4) {
	case 0, 1:
		r.op, r.contentType, r.body = "merge patch", mergeType, marshal(changed(from, to))
	case 2:
		r.op, r.contentType, r.body = "strategic patch", strategicType, marshal(changed(from, to))
	default:
		r.op, r.contentType = "JSON patch", jsonPatchType
		r.body = marshal(v.operations(from, to))
	}
}

// subresource makes r a write of a subresource: an update, a patch or an application.
func (k *recordedKind) subresource(v *variants, o *kindObject, r *kindRequest) {
	sub := oneOf(v.rng, k.subresources...)
	r.path += "/" + sub
	from := k.storable(o.body)
	to, how := v.of(from, map[string]string{"status": "status", "finalize": "spec"}[sub])
	named(to, o.name)
	r.how = how
	switch v.rng.IntN(6) {
	case 0:
		r.op, r.method, r.contentType, r.body = "merge patch "+sub, http.MethodPatch, mergeType, marshal(changed(from, to))
	case 1:
		r.op, r.method, r.contentType, r.body = "apply "+sub, http.MethodPatch, applyType, marshal(to)
	default:
		r.op, r.next, r.body = "update "+sub, to, marshal(to)
	}
}

// named gives an object its name again most of the time.
func named(body map[string]any, name string) {
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		body["metadata"] = metadata
	}
	metadata["name"] = name
	delete(metadata, "generateName")
}

// kindOutcome is a response.
type kindOutcome struct {
	code     int
	warnings []string
	body     any // normalized
}

// send sends the request to a server.
func (r *kindRequest) send(ctx context.Context, s *apiServer) kindOutcome {
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return kindOutcome{body: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("User-Agent", "e2e")
	req.Header.Set("Accept", r.accept)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return kindOutcome{body: err.Error()}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return kindOutcome{body: err.Error()}
	}
	out := kindOutcome{code: resp.StatusCode, warnings: slices.Sorted(slices.Values(resp.Header.Values("Warning")))}
	if r.op == "table" {
		out.body = withoutChance(tableRow(answer))
		return out
	}
	var body any
	if json.Unmarshal(normalized(answer), &body) != nil {
		body = string(answer)
	}
	out.body = withoutChance(body)
	return out
}

// tableRow returns the cells of the first row without the age, and the columns.
func tableRow(answer []byte) any {
	var table struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if json.Unmarshal(answer, &table) != nil || len(table.Rows) == 0 {
		return string(answer)
	}
	out := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		if i < len(table.Rows[0].Cells) && column.Name != "Age" {
			out[column.Name] = table.Rows[0].Cells[i]
		}
	}
	return out
}

var (
	timeNow   = regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]+(\.[0-9]+)?(Z|[+-][0-9:]+)( m=[+.0-9]+)?`)
	anyUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	clusterIP = regexp.MustCompile(`\b10\.0\.[0-9]{1,3}\.[0-9]{1,3}\b`)
	// tokenVolume is the name of the volume with the token of a service account.
	tokenVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	// anyNodePort is a node port that the server may have chosen.
	anyNodePort = regexp.MustCompile(`\b(3[01][0-9]{3}|32[0-7][0-9]{2})\b`)
	// versionText is a resourceVersion in an object that a message quotes.
	versionText = regexp.MustCompile(`resourceVersion\\*":\\*"[0-9]+`)
)

// withoutChance replaces what two servers never have in common: current times, UIDs, allocated addresses and ports.
func withoutChance(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = withoutChance(v[name])
			if name == "nodePort" || name == "healthCheckNodePort" {
				v[name] = "<port>"
			}
		}
		if prefix, _ := v["generateName"].(string); prefix != "" {
			if name, _ := v["name"].(string); strings.HasPrefix(name, prefix) {
				v["name"] = prefix + "<generated>"
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = withoutChance(v[i])
		}
		return v
	case string:
		v = timeNow.ReplaceAllStringFunc(v, func(s string) string {
			if strings.HasPrefix(s, "2020-01-01") || strings.HasPrefix(s, "2024-01-01") || strings.HasPrefix(s, "2050-01-01") {
				return s // a time of the request
			}
			return "<time>"
		})
		v = tokenVolume.ReplaceAllString(versionText.ReplaceAllString(v, "<version>"), "<volume>")
		v = anyNodePort.ReplaceAllString(v, "<port>")
		return clusterIP.ReplaceAllString(anyUID.ReplaceAllString(v, "<uid>"), "<ip>")
	}
	return v
}

// difference describes the first difference of two responses, "" if there is none.
func (o kindOutcome) difference(got kindOutcome) string {
	switch {
	case o.code != got.code:
		return fmt.Sprintf("want %s, got %s", o.summary(), got.summary())
	case !slices.Equal(o.warnings, got.warnings):
		return fmt.Sprintf("warnings: want %q, got %q", o.warnings, got.warnings)
	}
	return treeDifference("", o.body, got.body)
}

// summary returns the causes or the message of a refusal.
func (o kindOutcome) summary() string {
	const most = 600
	if o.code < http.StatusMultipleChoices && o.code > 0 {
		return "success"
	}
	if causes, _ := dig(o.body, "details", "causes").([]any); len(causes) > 0 {
		var lines []string
		for _, cause := range causes {
			lines = append(lines, fmt.Sprint(dig(cause, "field"), ": ", dig(cause, "message")))
		}
		text := strings.Join(lines, " | ")
		return text[:min(len(text), most)]
	}
	text := string(marshal(o.body))
	return text[:min(len(text), most)]
}

// treeDifference describes the first place where two trees differ.
func treeDifference(path string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(append(sorted(w), sorted(g)...)))) {
			if d := treeDifference(path+"."+name, w[name], g[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		if strings.HasSuffix(path, "details.causes") {
			return causeDifference(w, g)
		}
		for i := range min(len(w), len(g)) {
			if d := treeDifference(fmt.Sprintf("%s[%d]", path, i), w[i], g[i]); d != "" {
				return d
			}
		}
		if len(w) == len(g) {
			return ""
		}
	}
	if a, b := string(marshal(want)), string(marshal(got)); a != b {
		return fmt.Sprintf("%s: want %.500s, got %.500s", path, a, b)
	}
	return ""
}

// causeDifference returns which causes only one of the servers found.
func causeDifference(want, got []any) string {
	count := map[string]int{}
	for _, c := range want {
		count[string(marshal(c))]++
	}
	for _, c := range got {
		count[string(marshal(c))]--
	}
	var missing, extra []string
	for _, c := range sorted(count) {
		if count[c] > 0 {
			missing = append(missing, c)
		} else if count[c] < 0 {
			extra = append(extra, c)
		}
	}
	if len(missing)+len(extra) == 0 {
		return ""
	}
	return fmt.Sprintf("causes: missing %.600s, extra %.600s", missing, extra)
}
