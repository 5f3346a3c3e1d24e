package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// mixed are servers of different minors on one etcd, which know each other.
type mixed struct {
	*peerCluster
	servers []*apiServer
	// versions are the versions of each resource that some server serves, by group and resource.
	versions map[string][]string
}

// posted is an object that one of the servers has created.
type posted struct {
	path, group, resource, name string
	by                          *apiServer
}

// everything are the flags with which a server serves all versions.
func everything(name string) []string {
	gates := "AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"
	if name != previousServer {
		// With this gate kube-apiserver sets a default when it reads a pod that the minor before stored. Keelson serves what is stored.
		gates += ",H2CContainerProbe=false"
	}
	return []string{"--runtime-config", "api/all=true", "--feature-gates", gates}
}

// startMixed starts kube-apiserver, kube-apiserver-1.36 if that is built, and Keelson.
func startMixed(t *testing.T, flags func(name string) []string) *mixed {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			t.Skipf("%s is not built", name)
		}
	}
	m := &mixed{peerCluster: newPeerCluster(t), versions: map[string][]string{}}
	names := []string{"kube-apiserver", previousServer, "keelson"}
	for i, name := range names {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			t.Logf("without %s, which is not built", name)
			continue
		}
		m.servers = append(m.servers, m.serve(name, fmt.Sprintf("machine-%d", i), freePort(t), flags(name)...))
	}
	for _, s := range m.servers {
		for _, g := range s.resources(t, "").Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					id := g.Name + "/" + r.Resource
					if !slices.Contains(m.versions[id], v.Version) {
						m.versions[id] = append(m.versions[id], v.Version)
					}
				}
			}
		}
	}
	return m
}

// TestMixedMinors: kube-apiserver of two minors (of one, if the other is not built) and Keelson share an etcd. Each creates an
// object of every kind, and changes those of the others; all show each object in the same way in every version that they serve, and
// store it in the same version.
func TestMixedMinors(t *testing.T) {
	m := startMixed(t, everything)
	m.servers[0].namespace(t, "mixed")
	account := []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
	m.servers[0].must(t, http.MethodPost, "/api/v1/namespaces/mixed/serviceaccounts", jsonType, jsonType, account)
	// Webhooks and policies would affect the other writes, so they come last.
	const admission = "/admissionregistration.k8s.io/"
	bodies := mixedBodies(t)
	for _, last := range []bool{false, true} {
		var made []posted
		for i, s := range m.servers {
			made = append(made, m.create(t, s, fmt.Sprintf("m%d", i), slices.DeleteFunc(slices.Clone(bodies), func(d dumped) bool {
				return strings.Contains(d.Path, admission) != last
			}))...)
		}
		m.same(t, made)
		if !last {
			m.change(t, made)
			m.same(t, made)
		}
		m.storedAlike(t, made)
	}
}

// mixedBodies returns objects of all kinds with the paths of their collections in the namespace mixed.
func mixedBodies(t *testing.T) []dumped {
	t.Helper()
	var out []dumped
	add := func(path string, object map[string]any) {
		if before, after, ok := strings.Cut(path, "/namespaces/"); ok {
			if _, resource, nested := strings.Cut(after, "/"); nested {
				path = before + "/namespaces/mixed/" + resource
			}
		}
		if hasPrefix(path[strings.LastIndexByte(path, '/'):], "/limitranges", "/resourcequotas", "/namespaces", "/customresourcedefinitions", "/apiservices") {
			return // they affect the other objects
		}
		out = append(out, dumped{Path: path, Object: object})
	}
	for _, d := range readDump(t) {
		if d.Object != nil {
			add(d.Path[:strings.LastIndexByte(d.Path, '/')], d.Object)
		}
	}
	f, err := os.Open(filepath.Join("testdata", "versions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	seen := map[string]bool{}
	for lines.Scan() {
		var r struct {
			Method, Path string
			Body         map[string]any
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Method != http.MethodPost || strings.Contains(r.Path, "?") || seen[r.Path] {
			continue
		}
		if metadata, _ := r.Body["metadata"].(map[string]any); metadata["name"] != nil {
			seen[r.Path] = true
			add(r.Path, r.Body)
		}
	}
	return out
}

// create has a server create the objects, under names of its own.
func (m *mixed) create(t *testing.T, by *apiServer, suffix string, bodies []dumped) []posted {
	var mu sync.Mutex // guards made and refused
	var made []posted
	refused := map[string]int{}
	number := map[string]int{}
	each(t, numbered(bodies, number), func(d dumped) error {
		name := fmt.Sprintf("%s-%s", d.Key, suffix)
		metadata := map[string]any{"name": name}
		old, _ := d.Object["metadata"].(map[string]any)
		for _, keep := range []string{"labels", "annotations"} {
			if v, ok := old[keep]; ok {
				metadata[keep] = v
			}
		}
		object := maps.Clone(d.Object)
		object["metadata"] = metadata
		body, err := json.Marshal(object)
		if err != nil {
			return err
		}
		status, answer, err := by.call(t.Context(), http.MethodPost, d.Path, jsonType, jsonType, body)
		if err != nil {
			return err
		}
		parts := strings.Split(strings.TrimPrefix(strings.Replace(d.Path, "/namespaces/mixed", "", 1), "/"), "/")
		mu.Lock()
		defer mu.Unlock()
		if status != http.StatusCreated {
			refused[fmt.Sprintf("%d %s", status, strings.Join(parts[1:], "/"))]++
			if status >= http.StatusInternalServerError {
				return fmt.Errorf("%s: POST %s: %d %s", by.name, d.Path, status, answer)
			}
			return nil
		}
		p := posted{path: d.Path + "/" + name, name: name, resource: parts[len(parts)-1], by: by}
		if parts[0] == "apis" {
			p.group = parts[1]
		}
		made = append(made, p)
		return nil
	})
	t.Logf("%s created %d objects, and refused %v", by.name, len(made), refused)
	return made
}

// numbered sets the key of each body to a name that differs within its resource.
func numbered(bodies []dumped, number map[string]int) []dumped {
	out := slices.Clone(bodies)
	for i := range out {
		parts := strings.Split(out[i].Path, "/")
		resource := parts[len(parts)-1]
		number[resource]++
		out[i].Key = fmt.Sprintf("%s%d", strings.TrimSuffix(resource, "s"), number[resource])
	}
	return out
}

// in returns the path of an object in a version.
func (p posted) in(version string) string {
	if p.group == "" {
		return p.path
	}
	prefix := "/apis/" + p.group + "/"
	_, rest, _ := strings.Cut(strings.TrimPrefix(p.path, prefix), "/")
	return prefix + version + "/" + rest
}

// same compares what all servers show of the objects, in all versions that they serve.
func (m *mixed) same(t *testing.T, made []posted) {
	var compared int
	var mu sync.Mutex // guards compared
	each(t, made, func(p posted) error {
		versions := m.versions[p.group+"/"+p.resource]
		if p.group == "" {
			versions = []string{"v1"}
		}
		for _, v := range versions {
			if m.hasPrevious() && p.resource == "workloads" {
				continue // kube-apiserver 1.37 cannot read the alpha version in which 1.36 stores it
			}
			n, err := m.sameObject(t.Context(), p.in(v))
			if err != nil {
				return fmt.Errorf("created by %s: %w", p.by.name, err)
			}
			mu.Lock()
			compared += n
			mu.Unlock()
		}
		return nil
	})
	t.Logf("%d objects, %d comparisons", len(made), compared)
}

// sameObject asks all servers for a path until those that serve it show the same, and returns the number of comparisons.
func (m *mixed) sameObject(ctx context.Context, path string) (int, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		compared, missing := 0, 0
		var first []byte
		var by string
		var failed error
		for _, s := range m.servers {
			if s.isPrevious() {
				continue // it does not show what it does not know
			}
			status, body, err := s.call(ctx, http.MethodGet, path, jsonType, "", nil)
			if err != nil {
				return 0, err
			}
			if status == http.StatusNotFound {
				missing++
			}
			if status != http.StatusOK {
				failed = fmt.Errorf("%s: GET %s: %d %s", s.name, path, status, body)
				continue
			}
			shown := withoutTimes(body)
			if first == nil {
				first, by = shown, s.name
				continue
			}
			compared++
			if !bytes.Equal(first, shown) {
				failed = fmt.Errorf("GET %s: %s and %s show %s", path, by, s.name, firstDifference(first, shown))
			}
		}
		if failed == nil || time.Now().After(end) {
			return compared, failed
		}
		if missing == 2 { // one of the servers has deleted a FlowSchema that says that servers maintain it
			return 0, nil
		}
	}
}

// isPrevious reports whether a server is of the minor before.
func (s *apiServer) isPrevious() bool { return s.name == previousServer }

// hasPrevious reports whether one of the servers is of the minor before.
func (m *mixed) hasPrevious() bool { return slices.ContainsFunc(m.servers, (*apiServer).isPrevious) }

const previousServer = "kube-apiserver-1.36"

// withoutTimes returns an object without the times of managedFields.
func withoutTimes(object []byte) []byte {
	var o map[string]any
	if json.Unmarshal(object, &o) != nil {
		return object
	}
	metadata, _ := o["metadata"].(map[string]any)
	managers, _ := metadata["managedFields"].([]any)
	for _, manager := range managers {
		if fields, ok := manager.(map[string]any); ok {
			delete(fields, "time")
		}
	}
	out, err := json.Marshal(o)
	if err != nil {
		return object
	}
	return out
}

// change has each object changed by another server than the one that created it.
func (m *mixed) change(t *testing.T, made []posted) {
	each(t, made, func(p posted) error {
		for i, s := range m.servers {
			if s == p.by {
				continue
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.example.com/by-%d":%q}}}`, i, s.name)
			status, body, err := s.call(t.Context(), http.MethodPatch, p.path, jsonType, mergeType, patch)
			if err != nil {
				return err
			}
			// What has gone meanwhile, and what a server does not know, it cannot change.
			if status == http.StatusNotFound || s.isPrevious() {
				continue
			}
			if status != http.StatusOK && status != http.StatusUnprocessableEntity && status != http.StatusForbidden {
				return fmt.Errorf("%s: PATCH %s of %s: %d %s", s.name, p.path, p.by.name, status, body)
			}
		}
		return nil
	})
}

// storedAlike compares the versions in which the servers have stored objects of the same kind.
func (m *mixed) storedAlike(t *testing.T, made []posted) {
	if m.hasPrevious() {
		return // which has stored again what it changed, in its own versions
	}
	by := map[string]string{} // the server, by the name of the object
	for _, p := range made {
		by[p.name] = p.by.name
	}
	var answer struct {
		Kvs []struct{ Key, Value []byte }
	}
	if err := m.etcd.call(t.Context(), "/v3/kv/range",
		map[string][]byte{"key": []byte("/registry/"), "range_end": []byte("/registry0")}, &answer); err != nil {
		t.Fatal(err)
	}
	versions := map[string]map[string][]string{} // by kind and version: the servers
	for _, kv := range answer.Kvs {
		key := string(kv.Key)
		server := by[key[strings.LastIndexByte(key, '/')+1:]]
		e, err := wire.OpenEnvelope(kv.Value)
		if server == "" || err != nil {
			continue
		}
		group, _, _ := strings.Cut(e.APIVersion, "/")
		id := group + " " + e.Kind
		if versions[id] == nil {
			versions[id] = map[string][]string{}
		}
		if !slices.Contains(versions[id][e.APIVersion], server) {
			versions[id][e.APIVersion] = append(versions[id][e.APIVersion], server)
		}
	}
	for kind, stored := range versions {
		if len(stored) > 1 {
			t.Errorf("%s is stored in several versions: %v", kind, stored)
		}
	}
	t.Logf("%d kinds are stored in the same version by all servers", len(versions))
}

// TestMixedReplicasAnswerEverything: of servers with different resources each answers requests for the resources of all, with
// the gate UnknownVersionInteroperabilityProxy, which is on where there are certificates of peers.
func TestMixedReplicasAnswerEverything(t *testing.T) {
	m := startMixed(t, func(name string) []string {
		if name == "keelson" {
			return []string{"--runtime-config", "api/alpha=true,api/beta=false,batch/v1=false", "--feature-gates",
				"AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"}
		}
		return []string{"--runtime-config", "api/beta=true,apps/v1=false", "--feature-gates", "UnknownVersionInteroperabilityProxy=true"}
	})
	own := map[string][]string{} // the servers that serve a collection, by its path
	for _, s := range m.servers {
		for _, g := range s.resources(t, ";profile=nopeer").Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					if slices.Contains(r.Verbs, "list") {
						path := "/apis/" + g.Name + "/" + v.Version + "/" + r.Resource
						own[path] = append(own[path], s.name)
					}
				}
			}
		}
	}
	foreign := 0
	for _, path := range slices.Sorted(maps.Keys(own)) {
		for _, s := range m.servers {
			if !slices.Contains(own[path], s.name) {
				foreign++
				s.awaitAnswer(t, path, http.StatusOK, "List")
			} else if got := s.ask(t, http.MethodGet, path, ""); got.status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", s.name, path, got.status, got.body)
			}
		}
	}
	t.Logf("%d collections, of which %d were answered by another server", len(own), foreign)
	if foreign == 0 {
		t.Error("no server has a resource that another one does not have")
	}
}
