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
	jsonType      = "application/json"
	protoType     = "application/vnd.kubernetes.protobuf"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
)

// dumped is an entry that kube-apiserver 1.36 wrote to etcd.
type dumped struct {
	Key, Path string
	Value     []byte
	Object    map[string]any
}

// readDump reads the entries that the tests of package registry also read (one of each kind), or those in the file
// KEELSON_ETCD_DUMP.
func readDump(t *testing.T) []dumped {
	t.Helper()
	name := os.Getenv("KEELSON_ETCD_DUMP")
	if name == "" {
		name = "../../internal/object/registry/testdata/etcd-dump.jsonl.gz"
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

// hasPrefix reports whether s begins with one of the prefixes.
func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// collection returns the path of all objects of an object's resource, over all namespaces.
func (d dumped) collection() string {
	path := d.Path[:strings.LastIndexByte(d.Path, '/')]
	if before, after, ok := strings.Cut(path, "/namespaces/"); ok {
		if _, resource, ok := strings.Cut(after, "/"); ok {
			return before + "/" + resource
		}
	}
	return path
}

// shared is an etcd that contains the dump, with two servers on it.
type shared struct {
	t         *testing.T
	etcd      *etcdServer
	reference *apiServer
	keelson   *apiServer
	entries   []dumped // that belong to a served resource
}

// TestSharedEtcd runs kube-apiserver and Keelson on one etcd that contains objects which kube-apiserver has stored.
// Both must return the same bytes for every object and every list, in JSON and in protobuf; each must serve the writes
// of the other and send them to its watchers.
func TestSharedEtcd(t *testing.T) {
	dir := logDir(t)
	s := &shared{t: t, etcd: startEtcd(t, dir)}
	dump := readDump(t)
	// Webhooks and policies would affect all other writes of the test.
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
		// These are Leases of servers that no longer run.
		if done[d.Key] || hasPrefix(d.Key, "/registry/masterleases/", "/registry/peerserverleases/") {
			continue
		}
		done[d.Key] = true
		if err := s.etcd.put(s.t.Context(), d.Key, d.Value); err != nil {
			s.t.Fatalf("%s: %v", d.Key, err)
		}
	}
}

// namespaces creates the namespaces of the objects that the dump does not contain, because nothing can be written in a
// missing namespace.
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

// served returns the entries that belong to a served resource.
func served(dump []dumped) []dumped {
	return slices.DeleteFunc(slices.Clone(dump), func(d dumped) bool {
		return d.Object == nil // it belongs to no resource
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

// same asks both servers until their responses are equal, because their controllers may write between the two
// requests.
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

// each calls f for each element of a list, several at a time, and reports its errors.
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

// sameAnswers compares the responses of both servers for all objects and all lists.
func (s *shared) sameAnswers(t *testing.T) {
	for _, accept := range []string{jsonType, protoType} {
		each(t, s.entries, func(d dumped) error { return s.same(t.Context(), d.Path, accept) })
		each(t, s.collections(), func(path string) error { return s.sameList(t.Context(), path, accept) })
	}
}

// sameList compares lists at one revision, so that the resourceVersion of the list is the same.
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

// writes changes every object through one of the servers. It compares the objects that both servers return afterwards,
// and the events of watches that were started before. Some objects can no longer be changed: then the other server
// must refuse the change with the same message.
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

// revision returns the current revision.
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

// sameEvents compares the events of watches of a collection since a revision, up to the last event that both servers
// have sent, because there may be further changes meanwhile.
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

// creates creates a copy of each namespaced object through one server, in another namespace. The other server must
// return the objects that were accepted. Some are refused: an object in the dump may have values that only a
// controller may write.
func (s *shared) creates(t *testing.T, by *apiServer) {
	namespace := "made-by-" + by.name
	if status, body := by.must(
		t, http.MethodPost, "/api/v1/namespaces", jsonType, jsonType,
		fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace),
	); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	account := []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`) // required by Pods
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
			return nil // these would refuse the other objects
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

// anew returns the path for creating a copy of the object in another namespace, its name, and its body. The path is
// empty for objects without a namespace. Objects with the same name in different namespaces get different names.
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
		panic(err) // it comes from JSON
	}
	return before + "/namespaces/" + namespace + "/" + resource, name, body
}

// deletes deletes each namespaced object through one of the servers in turn. Both servers must return the same
// remaining objects, and send the same events to watchers.
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
