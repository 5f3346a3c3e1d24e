package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	jsonType  = "application/json"
	protoType = "application/vnd.kubernetes.protobuf"
	mergeType = "application/merge-patch+json"
)

// dumped is an entry that kube-apiserver 1.36 wrote to etcd.
type dumped struct {
	Key, Path string
	Value     []byte
	Object    map[string]any
}

// readDump reads what the tests of registry read: one entry of each shape, or those
// of the file that KEELSON_ETCD_DUMP names.
func readDump(t *testing.T) []dumped {
	t.Helper()
	name := os.Getenv("KEELSON_ETCD_DUMP")
	if name == "" {
		name = "../../registry/testdata/etcd-dump.jsonl.gz"
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	var out []dumped
	for lines.Scan() {
		var d dumped
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// hasPrefix says whether s begins with one of a list.
func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// collection is the path of all objects of the resource of an object, over all
// namespaces.
func (d dumped) collection() string {
	path := d.Path[:strings.LastIndexByte(d.Path, '/')]
	if before, after, ok := strings.Cut(path, "/namespaces/"); ok {
		if _, resource, ok := strings.Cut(after, "/"); ok {
			return before + "/" + resource
		}
	}
	return path
}

// shared is an etcd with the dump in it, and two servers on it.
type shared struct {
	t         *testing.T
	etcd      *etcdServer
	reference *apiServer
	keelson   *apiServer
	entries   []dumped // that are served
}

// TestSharedEtcd has kube-apiserver and Keelson on one etcd, with what kube-apiserver
// once wrote to it in it: both serve every object and every list as the same bytes, in
// JSON and in protobuf; what one writes, the other serves and sends to its watchers.
func TestSharedEtcd(t *testing.T) {
	dir := logDir(t)
	s := &shared{t: t, etcd: startEtcd(t, dir)}
	dump := readDump(t)
	// Webhooks and policies would act on all other writes of the test.
	admission := slices.DeleteFunc(
		slices.Clone(dump), func(d dumped) bool { return !strings.Contains(d.Path, "/admissionregistration.k8s.io/") },
	)
	dump = slices.DeleteFunc(
		dump, func(d dumped) bool { return strings.Contains(d.Path, "/admissionregistration.k8s.io/") },
	)
	s.load(dump)
	s.reference = kubeAPIServer(t, dir, s.etcd, "--allow-privileged")
	s.keelson = keelsonOn(t, dir, "--storage", "etcd", "--etcd-servers", s.etcd.url)
	s.namespaces(dump)
	s.entries = served(dump)
	t.Logf("%d objects of %d resources", len(s.entries), len(s.collections()))
	t.Run("what kube-apiserver wrote once", s.sameAnswers)
	t.Run("what Keelson writes", func(t *testing.T) { s.writes(t, s.keelson) })
	t.Run("what kube-apiserver writes", func(t *testing.T) { s.writes(t, s.reference) })
	t.Run("what Keelson creates", func(t *testing.T) { s.creates(t, s.keelson) })
	t.Run("what kube-apiserver creates", func(t *testing.T) { s.creates(t, s.reference) })
	t.Run("what either deletes", s.deletes)
	t.Run("webhooks and policies", func(t *testing.T) {
		s.t = t
		s.load(admission)
		s.entries = served(admission)
		s.sameAnswers(t)
		s.writes(t, s.keelson)
		s.writes(t, s.reference)
	})
}

// load puts entries into etcd.
func (s *shared) load(dump []dumped) {
	s.t.Helper()
	done := map[string]bool{}
	for _, d := range dump {
		// Leases of servers that are no more.
		if done[d.Key] || hasPrefix(d.Key, "/registry/masterleases/", "/registry/peerserverleases/") {
			continue
		}
		done[d.Key] = true
		if err := s.etcd.put(s.t.Context(), d.Key, d.Value); err != nil {
			s.t.Fatalf("%s: %v", d.Key, err)
		}
	}
}

// namespaces makes those that objects are in, where the dump lacks them: nothing is
// written in a namespace that is not there.
func (s *shared) namespaces(dump []dumped) {
	s.t.Helper()
	done := map[string]bool{}
	for _, d := range dump {
		_, after, ok := strings.Cut(d.Path, "/namespaces/")
		name, _, nested := strings.Cut(after, "/")
		if !ok || !nested || done[name] {
			continue
		}
		done[name] = true
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
		if status, answer := s.reference.must(
			s.t, http.MethodPost, "/api/v1/namespaces", jsonType, jsonType, body,
		); status != http.StatusCreated && status != http.StatusConflict {
			s.t.Fatalf("%d %s", status, answer)
		}
	}
}

// served are the entries that are a resource's.
func served(dump []dumped) []dumped {
	return slices.DeleteFunc(slices.Clone(dump), func(d dumped) bool {
		return d.Object == nil // not a resource's
	})
}

func (s *shared) collections() []string {
	var out []string
	for _, d := range s.entries {
		out = append(out, d.collection())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// same asks both servers until they agree: their own controllers may write between
// the two answers.
func (s *shared) same(ctx context.Context, path, accept string) error {
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		wantStatus, want, err := s.reference.call(ctx, http.MethodGet, path, accept, "", nil)
		if err != nil {
			return err
		}
		status, got, err := s.keelson.call(ctx, http.MethodGet, path, accept, "", nil)
		if err != nil {
			return err
		}
		if status == wantStatus && bytes.Equal(want, got) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf(
				"GET %s as %s: kube-apiserver %d, Keelson %d, %s", path, accept, wantStatus, status, firstDifference(want, got),
			)
		}
	}
}

// firstDifference shows where two texts part.
func firstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	around := func(s []byte) []byte { return s[max(0, min(i, len(s))-200):min(len(s), i+200)] }
	return fmt.Sprintf("%d and %d bytes, at %d:\n%q\n%q", len(a), len(b), i, around(a), around(b))
}

// each calls f for each element of a list, some at a time, and reports its errors.
func each[T any](t *testing.T, list []T, f func(T) error) {
	t.Helper()
	const workers = 16
	work := make(chan T)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for v := range work {
				if err := f(v); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, v := range list {
		work <- v
	}
	close(work)
	wg.Wait()
}

// sameAnswers compares all objects and all lists.
func (s *shared) sameAnswers(t *testing.T) {
	for _, accept := range []string{jsonType, protoType} {
		each(t, s.entries, func(d dumped) error { return s.same(t.Context(), d.Path, accept) })
		each(t, s.collections(), func(path string) error { return s.sameList(t.Context(), path, accept) })
	}
}

// sameList compares lists at one revision, so that the list's own is the same.
func (s *shared) sameList(ctx context.Context, path, accept string) error {
	_, body, err := s.reference.call(ctx, http.MethodGet, path+"?limit=1", jsonType, "", nil)
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return s.same(ctx, path+"?resourceVersionMatch=Exact&resourceVersion="+list.Metadata.ResourceVersion, accept)
}

// writes changes every object through one of the servers, and compares what both
// serve then, and what both tell watchers from before. Some objects cannot be changed
// any more as they are: the other server must refuse that with the same words.
func (s *shared) writes(t *testing.T, by *apiServer) {
	other := s.reference
	if by == other {
		other = s.keelson
	}
	before := s.revision(t)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.example.com/by":%q}}}`, by.name)
	var mu sync.Mutex // guards changed
	changed := map[string]bool{}
	each(t, s.entries, func(d dumped) error {
		status, body, err := by.call(t.Context(), http.MethodPatch, d.Path, jsonType, mergeType, patch)
		if err != nil {
			return err
		}
		if status == http.StatusOK {
			mu.Lock()
			changed[d.collection()] = true
			mu.Unlock()
			return nil
		}
		alsoStatus, also, err := other.call(t.Context(), http.MethodPatch, d.Path+"?dryRun=All", jsonType, mergeType, patch)
		if err == nil && (alsoStatus != status || !bytes.Equal(also, body)) {
			err = fmt.Errorf(
				"PATCH %s: %s %d, %s %d, %s", d.Path, by.name, status, other.name, alsoStatus, firstDifference(body, also),
			)
		}
		return err
	})
	s.sameAnswers(t)
	each(t, s.collections(), func(path string) error {
		if !changed[path] {
			t.Logf("%s: nothing could be changed", path)
			return nil
		}
		return s.sameEvents(t.Context(), path, before)
	})
}

// revision is the present one.
func (s *shared) revision(t *testing.T) string {
	t.Helper()
	_, body := s.reference.must(t, http.MethodGet, "/api/v1/namespaces?limit=1", jsonType, "", nil)
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	return list.Metadata.ResourceVersion
}

// sameEvents compares what watches of a collection tell since a revision, as far as
// both got: something may happen meanwhile.
func (s *shared) sameEvents(ctx context.Context, path, since string) error {
	const seconds = "2"
	query := path + "?watch=1&timeoutSeconds=" + seconds + "&resourceVersion=" + since
	var want, got []byte
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { _, want, errs[0] = s.reference.call(ctx, http.MethodGet, query, jsonType, "", nil) })
	wg.Go(func() { _, got, errs[1] = s.keelson.call(ctx, http.MethodGet, query, jsonType, "", nil) })
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	n := min(len(want), len(got))
	if n == 0 || !bytes.Equal(want[:n], got[:n]) {
		return fmt.Errorf("GET %s: %s", query, firstDifference(want, got))
	}
	return nil
}

// creates makes each namespaced object anew through one server, in a namespace of
// its own. What it takes, the other must serve; not all is: an object of the dump may
// have what only a controller may write.
func (s *shared) creates(t *testing.T, by *apiServer) {
	namespace := "made-by-" + by.name
	if status, body := by.must(
		t, http.MethodPost, "/api/v1/namespaces", jsonType, jsonType,
		fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace),
	); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	account := []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`) // that Pods need
	if status, body := by.must(
		t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", jsonType, jsonType, account,
	); status != http.StatusCreated && status != http.StatusConflict {
		t.Fatalf("%d %s", status, body)
	}
	var mu sync.Mutex // guards made
	var made []dumped
	refused := map[string]int{}
	each(t, s.entries, func(d dumped) error {
		path, name, body := d.anew(namespace)
		if path == "" || hasPrefix(path[strings.LastIndexByte(path, '/'):], "/limitranges", "/resourcequotas") {
			return nil // those would refuse the others
		}
		status, answer, err := by.call(t.Context(), http.MethodPost, path, jsonType, jsonType, body)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if status != http.StatusCreated {
			refused[fmt.Sprintf("%d %s", status, path[strings.LastIndexByte(path, '/')+1:])]++
			if status >= http.StatusInternalServerError {
				return fmt.Errorf("POST %s: %d %s", path, status, answer)
			}
			return nil
		}
		made = append(made, dumped{Path: path + "/" + name})
		return nil
	})
	t.Logf("%d created, refused %v", len(made), refused)
	if len(made) < len(s.entries)/4 {
		t.Errorf("few of %d could be created", len(s.entries))
	}
	for _, accept := range []string{jsonType, protoType} {
		each(t, made, func(d dumped) error { return s.same(t.Context(), d.Path, accept) })
	}
}

// anew returns where to create the object in another namespace, as what, and its
// body. The path is empty for what has no namespace. Objects of the same name in
// different namespaces get names of their own.
func (d dumped) anew(namespace string) (path, name string, body []byte) {
	before, after, ok := strings.Cut(d.Path, "/namespaces/")
	_, rest, nested := strings.Cut(after, "/")
	if !ok || !nested {
		return "", "", nil
	}
	from, _, _ := strings.Cut(after, "/")
	resource, _, _ := strings.Cut(rest, "/")
	old := d.Object["metadata"].(map[string]any)
	name = fmt.Sprintf("%s-%s-%x", old["name"], from, crc32.ChecksumIEEE([]byte(d.Path)))
	metadata := map[string]any{"name": name, "namespace": namespace}
	for _, keep := range []string{"labels", "annotations"} {
		if v, ok := old[keep]; ok {
			metadata[keep] = v
		}
	}
	object := map[string]any{}
	for name, value := range d.Object {
		object[name] = value
	}
	object["metadata"] = metadata
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return before + "/namespaces/" + namespace + "/" + resource, name, body
}

// deletes deletes each namespaced object through one of the servers in turn. Both
// agree on what is left, and on what watchers are told.
func (s *shared) deletes(t *testing.T) {
	before := s.revision(t)
	type turn struct {
		dumped
		by *apiServer
	}
	var turns []turn
	for i, d := range s.entries {
		if strings.Contains(d.Path, "/namespaces/") && d.collection() != "/api/v1/namespaces" {
			turns = append(turns, turn{d, []*apiServer{s.keelson, s.reference}[i%2]})
		}
	}
	each(t, turns, func(d turn) error {
		status, body, err := d.by.call(
			t.Context(), http.MethodDelete, d.Path+"?propagationPolicy=Background&gracePeriodSeconds=0", jsonType, "", nil,
		)
		if err == nil && status != http.StatusOK && status != http.StatusAccepted && status != http.StatusNotFound {
			err = fmt.Errorf("%s: DELETE %s: %d %.500s", d.by.name, d.Path, status, body)
		}
		return err
	})
	s.sameAnswers(t)
	each(t, s.collections(), func(path string) error {
		if !slices.ContainsFunc(turns, func(d turn) bool { return d.collection() == path }) {
			return nil
		}
		return s.sameEvents(t.Context(), path, before)
	})
}
