package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two servers delete objects here: kube-apiserver with kube-controller-manager, and Keelson alone. What the tests do to
// them is random, but the same for both, and both must end in the same state.

// ownedKinds are the kinds of the objects in the graphs.
var ownedKinds = []ownedKind{
	{"v1", "ConfigMap", "/api/v1", "configmaps", true},
	{"v1", "Secret", "/api/v1", "secrets", true},
	{"example.com/v1", "Widget", "/apis/example.com/v1", "widgets", true},
	{"example.com/v1", "Gadget", "/apis/example.com/v1", "gadgets", false},
	{"rbac.authorization.k8s.io/v1", "ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles", false},
}

type ownedKind struct {
	apiVersion, kind, root, resource string
	namespaced                       bool
}

// graphPrefix is the beginning of the names of the objects in graphs.
const graphPrefix = "graph-"

// graphObject is an object of a graph. Its UID differs between the servers.
type graphObject struct {
	kind            ownedKind
	namespace, name string
}

func (o *graphObject) collection() string {
	if o.kind.namespaced {
		return o.kind.root + "/namespaces/" + o.namespace + "/" + o.kind.resource
	}
	return o.kind.root + "/" + o.kind.resource
}

func (o *graphObject) path() string { return o.collection() + "/" + o.name }

// graphOwner is an owner reference: to an object of the graph, or to something that does not exist if of is nil.
type graphOwner struct {
	of                          *graphObject
	apiVersion, kind, name, uid string // instead of what of says, where they are not empty
	blocks                      *bool
}

// graphStep is one request of a graph. Steps of the same phase come after the servers have settled. Steps of the same group
// are sent at the same time.
type graphStep struct {
	object     *graphObject
	create     bool
	owners     []graphOwner // of a create, or of a change
	change     bool         // sets the owners
	finalizers []string     // of a create
	release    bool         // removes the finalizers of users
	policy     string       // of a deletion
}

// graphPlan is a random graph with what happens to it.
type graphPlan struct {
	objects []*graphObject
	phases  [][]graphStep
}

// describe returns the steps up to a phase.
func (p *graphPlan) describe(last int) string {
	var out []string
	for phase := range last + 1 {
		for _, s := range p.phases[phase] {
			var owners []string
			for _, o := range s.owners {
				text := o.apiVersion + o.kind + o.name + o.uid
				if o.of != nil {
					text = fmt.Sprintf("%s(%s%s%s)", o.of.name, o.apiVersion, o.name, o.uid)
				}
				if o.blocks != nil {
					text += fmt.Sprint(" ", *o.blocks)
				}
				owners = append(owners, text)
			}
			out = append(out, fmt.Sprintf("%d %s %s/%s create %t change %t owners %v finalizers %v release %t policy %s",
				phase, s.object.kind.kind, s.object.namespace, s.object.name, s.create, s.change, owners, s.finalizers, s.release, s.policy))
		}
	}
	return strings.Join(out, "; ")
}

// newGraphPlan returns a random plan.
func newGraphPlan(r *rand.Rand, number int) *graphPlan {
	p := &graphPlan{phases: make([][]graphStep, 5)}
	namespaces := []string{"graphs-a", "graphs-b"}
	home := namespaces[r.IntN(2)]
	for i := range 2 + r.IntN(5) {
		kind := ownedKinds[r.IntN(len(ownedKinds))]
		o := &graphObject{kind, home, fmt.Sprintf("%s%d-%d", graphPrefix, number, i)}
		if r.IntN(12) == 0 {
			o.namespace = namespaces[r.IntN(2)]
		}
		step := graphStep{object: o, create: true, owners: p.owners(r, number)}
		if r.IntN(5) == 0 {
			step.finalizers = []string{"example.com/wait"}
		}
		p.objects = append(p.objects, o)
		p.phases[0] = append(p.phases[0], step)
	}
	for phase := 1; phase < len(p.phases); phase++ {
		p.phases[phase] = p.changes(r, number)
	}
	return p
}

// owners returns owner references to objects that are in the plan already, some of them wrong.
func (p *graphPlan) owners(r *rand.Rand, number int) (out []graphOwner) {
	for range []int{0, 1, 1, 1, 2, 2, 3}[r.IntN(7)] {
		o := graphOwner{}
		switch r.IntN(4) {
		case 0:
			o.blocks = new(false)
		case 1, 2:
			o.blocks = new(true)
		}
		if len(p.objects) > 0 && r.IntN(12) > 0 {
			o.of = p.objects[r.IntN(len(p.objects))]
			if slices.ContainsFunc(out, func(other graphOwner) bool { return other.of == o.of }) {
				continue
			}
		}
		switch wrong := r.IntN(24); {
		case o.of == nil && wrong%2 == 0:
			o.apiVersion, o.kind, o.name, o.uid = "v1", "ConfigMap", "missing", fmt.Sprint("missing-", number)
		case o.of == nil:
			o.apiVersion, o.kind, o.name, o.uid = "example.org/v1", "Unknown", "unknown", fmt.Sprint("unknown-", number)
		case wrong == 0:
			o.uid = fmt.Sprint("wrong-", number)
		case wrong == 1:
			o.name = "wrong"
		case wrong == 2:
			o.apiVersion = "example.org/v1"
		}
		out = append(out, o)
	}
	return out
}

// changes returns the steps of a later phase: often one, sometimes two deletions at the same time.
func (p *graphPlan) changes(r *rand.Rand, number int) []graphStep {
	object := func() *graphObject { return p.objects[r.IntN(len(p.objects))] }
	switch r.IntN(8) {
	case 0:
		return []graphStep{{object: object(), release: true}}
	case 1:
		return []graphStep{{object: object(), change: true, owners: p.owners(r, number)}}
	case 2:
		a, b := object(), object()
		if a == b {
			return []graphStep{{object: a, policy: "Background"}}
		}
		return []graphStep{{object: a, policy: "Background"}, {object: b, policy: "Background"}}
	}
	return []graphStep{{object: object(), policy: []string{"Background", "Foreground", "Orphan"}[r.IntN(3)]}}
}

// graphServer is one of the two servers, with the UIDs that it gave.
type graphServer struct {
	*apiServer
	mu   sync.Mutex
	uids map[*graphObject]string
}

func (s *graphServer) uid(o *graphObject) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uids[o]
}

// references returns owner references as they are sent to the server.
func (s *graphServer) references(owners []graphOwner) []map[string]any {
	out := []map[string]any{}
	for _, o := range owners {
		if o.of != nil {
			if o.apiVersion == "" {
				o.apiVersion = o.of.kind.apiVersion
			}
			o.kind = o.of.kind.kind
			if o.name == "" {
				o.name = o.of.name
			}
			if o.uid == "" {
				o.uid = s.uid(o.of)
			}
		}
		ref := map[string]any{"apiVersion": o.apiVersion, "kind": o.kind, "name": o.name, "uid": o.uid}
		if o.blocks != nil {
			ref["blockOwnerDeletion"] = *o.blocks
		}
		out = append(out, ref)
	}
	return out
}

// run carries out a step. Objects that are gone, and changes that are not allowed, are no errors: they are so on both
// servers.
func (s *graphServer) run(ctx context.Context, step graphStep) error {
	o := step.object
	switch {
	case step.create:
		body := map[string]any{"apiVersion": o.kind.apiVersion, "kind": o.kind.kind, "metadata": map[string]any{
			"name": o.name, "ownerReferences": s.references(step.owners), "finalizers": step.finalizers,
		}}
		var created metav1.PartialObjectMetadata
		if err := s.send(ctx, http.MethodPost, o.collection(), jsonType, body, &created, http.StatusCreated); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uids[o] = string(created.UID)
		return nil
	case step.change:
		body := map[string]any{"metadata": map[string]any{"ownerReferences": s.references(step.owners)}}
		return s.send(ctx, http.MethodPatch, o.path(), mergeType, body, nil, http.StatusOK, http.StatusNotFound)
	case step.release:
		return s.release(ctx, o.path())
	}
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": step.policy}
	return s.send(ctx, http.MethodDelete, o.path(), jsonType, body, nil, http.StatusOK, http.StatusNotFound)
}

// release removes the finalizers of users from an object.
func (s *graphServer) release(ctx context.Context, path string) error {
	var o metav1.PartialObjectMetadata
	err := s.send(ctx, http.MethodGet, path, "", nil, &o, http.StatusOK, http.StatusNotFound)
	if err != nil || len(o.Finalizers) == 0 {
		return err
	}
	kept := slices.DeleteFunc(o.Finalizers, func(f string) bool { return strings.HasPrefix(f, "example.com/") })
	body := map[string]any{"metadata": map[string]any{"finalizers": kept}}
	return s.send(ctx, http.MethodPatch, path, mergeType, body, nil, http.StatusOK, http.StatusNotFound)
}

// send sends a request and expects one of some codes. It decodes a successful response.
func (s *graphServer) send(
	ctx context.Context, method, path, contentType string, body, into any, codes ...int,
) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	status, answer, err := s.call(ctx, method, path, jsonType, contentType, text)
	switch {
	case err != nil:
		return err
	case !slices.Contains(codes, status):
		return fmt.Errorf("%s: %s %s: %d %s", s.name, method, path, status, answer)
	case into != nil && status < http.StatusBadRequest:
		return json.Unmarshal(answer, into)
	}
	return nil
}

// state returns all objects of graphs: for each its owners, its finalizers and whether it is being deleted, without
// what differs between servers.
func (s *graphServer) state(ctx context.Context) (map[string]string, error) {
	s.mu.Lock()
	names := map[string]string{}
	for o, uid := range s.uids {
		names[uid] = o.name
	}
	s.mu.Unlock()
	out := map[string]string{}
	for _, kind := range ownedKinds {
		var list metav1.PartialObjectMetadataList
		if err := s.send(ctx, http.MethodGet, kind.root+"/"+kind.resource, "", nil, &list, http.StatusOK); err != nil {
			return nil, err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if !strings.HasPrefix(o.Name, graphPrefix) {
				continue
			}
			text := fmt.Sprintf("deleting %t, finalizers %v, owners", o.DeletionTimestamp != nil, o.Finalizers)
			for _, ref := range o.OwnerReferences {
				uid := string(ref.UID)
				if name := names[uid]; name != "" {
					uid = name
				}
				text += fmt.Sprintf(" %s/%s %s %s", ref.APIVersion, ref.Kind, ref.Name, uid)
				if ref.BlockOwnerDeletion != nil {
					text += fmt.Sprint(" ", *ref.BlockOwnerDeletion)
				}
			}
			out[kind.kind+" "+o.Namespace+"/"+o.Name] = text
		}
	}
	return out, nil
}

// graphDefinitions are the definitions of the custom kinds in the graphs.
func graphDefinitions() (out []map[string]any) {
	for _, kind := range ownedKinds {
		if kind.root != "/apis/example.com/v1" {
			continue
		}
		scope := "Cluster"
		if kind.namespaced {
			scope = "Namespaced"
		}
		out = append(out, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": kind.resource + ".example.com"},
			"spec": map[string]any{
				"group": "example.com", "scope": scope, "names": map[string]any{"plural": kind.resource, "kind": kind.kind},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			},
		})
	}
	return out
}

// deletionServers starts both servers with the definitions and the namespaces of graphs.
func deletionServers(t *testing.T) (reference, own *graphServer) {
	t.Helper()
	dir := logDir(t)
	reference = &graphServer{apiServer: kubeAPIServer(t, dir, startEtcd(t, dir)), uids: map[*graphObject]string{}}
	kubeconfig := filepath.Join(dir, "manager.kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
		"users":[{"name":"u","user":{"token":%q}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, reference.url, adminToken)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	own = &graphServer{
		apiServer: keelsonOn(t, dir, "--storage", "embedded", "--controllers", "*"), uids: map[*graphObject]string{},
	}
	for _, s := range []*graphServer{reference, own} {
		for _, definition := range graphDefinitions() {
			if err := s.send(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType,
				definition, nil, http.StatusCreated); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"graphs-a", "graphs-b"} {
			s.createNamespace(t, name)
		}
		eventually(t, time.Minute, s.name+" serves custom resources", func(ctx context.Context) error {
			_, err := s.state(ctx)
			return err
		})
	}
	// It looks for new resources every 30 seconds, so it starts after the definitions.
	start(t, filepath.Join(dir, "manager.log"), nil, program(t, "kube-controller-manager"),
		"--kubeconfig", kubeconfig, "--secure-port=0", "--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000",
		"--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,"+
			"root-ca-certificate-publisher-controller", "--root-ca-file", filepath.Join(dir, "kube-apiserver", "apiserver.crt"))
	return reference, own
}

func (s *graphServer) createNamespace(t *testing.T, name string) {
	t.Helper()
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
	if err := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", jsonType, body, nil, http.StatusCreated); err != nil {
		t.Fatal(err)
	}
}

// TestOwnerGraphs runs random graphs of owners on both servers. KEELSON_GRAPHS is their number, KEELSON_SEED the seed.
func TestOwnerGraphs(t *testing.T) {
	number, seed := numberFrom(t, "KEELSON_GRAPHS", 2000), uint64(numberFrom(t, "KEELSON_SEED", 1))
	reference, own := deletionServers(t)
	r := rand.New(rand.NewPCG(seed, 0))
	plans := make([]*graphPlan, number)
	objects := 0
	for i := range plans {
		plans[i] = newGraphPlan(r, i)
		objects += len(plans[i].objects)
	}
	t.Logf("%d graphs with %d objects", number, objects)
	wrong := map[string]bool{}
	for phase := range plans[0].phases {
		for _, s := range []*graphServer{reference, own} {
			began := time.Now()
			runPlans(t, s, plans, phase)
			t.Logf("phase %d: %s after %v", phase, s.name, time.Since(began).Round(time.Millisecond))
		}
		for object, difference := range settle(t, reference, own) {
			graph := strings.Split(object, "-")[len(strings.Split(object, "-"))-2]
			if !wrong[graph] { // later phases begin with different states
				n, _ := strconv.Atoi(graph)
				t.Errorf("phase %d: %s: %s; the plan: %s", phase, object, difference, plans[n].describe(phase))
			}
			wrong[graph] = true
		}
	}
	t.Logf("%d of %d graphs were in the same state after each phase", number-len(wrong), number)
	for object, difference := range lost(t, reference, own) {
		t.Errorf("lost in the end: %s: %s", object, difference)
	}
}

// lost returns the objects that are gone from own but stay on the reference. kube-controller-manager tries again with
// longer and longer pauses after it could not look at an owner of an unknown kind, so it may delete an object minutes
// after the last change of it.
func lost(t *testing.T, reference, own *graphServer) map[string]string {
	t.Helper()
	const pause, patience = 10 * time.Second, 10 * time.Minute
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		a, err := reference.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := own.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		differences := compareStates(a, b)
		maps.DeleteFunc(differences, func(object, _ string) bool { return b[object] != "" })
		if len(differences) == 0 || time.Now().After(end) {
			t.Logf("in the end kube-controller-manager has %d objects, Keelson %d", len(a), len(b))
			return differences
		}
	}
}

// numberFrom returns the number in an environment variable.
func numberFrom(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// runPlans carries out a phase of all plans on a server, several plans at a time.
func runPlans(t *testing.T, s *graphServer, plans []*graphPlan, phase int) {
	t.Helper()
	var group sync.WaitGroup
	next := make(chan *graphPlan)
	for range 16 {
		group.Go(func() {
			for p := range next {
				runSteps(t, s, p.phases[phase])
			}
		})
	}
	for _, p := range plans {
		next <- p
	}
	close(next)
	group.Wait()
}

// runSteps carries out steps: creations one after the other, others at the same time.
func runSteps(t *testing.T, s *graphServer, steps []graphStep) {
	var group sync.WaitGroup
	for _, step := range steps {
		run := func() {
			if err := s.run(t.Context(), step); err != nil {
				t.Error(err)
			}
		}
		if step.create {
			run()
		} else {
			group.Go(run)
		}
	}
	group.Wait()
}

// settle waits until both servers have the same state for some seconds, or until neither has changed anything for long.
// It returns the differences by object.
func settle(t *testing.T, reference, own *graphServer) map[string]string {
	t.Helper()
	const pause, same, unchanged = time.Second, 4, 45
	equal, still := 0, 0
	last := map[string]string{}
	for {
		a, err := reference.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := own.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		differences := compareStates(a, b)
		if maps.Equal(differences, last) {
			still++
		} else {
			still = 0
		}
		if len(differences) == 0 {
			equal++
		} else {
			equal = 0
		}
		last = differences
		if equal == same || still == unchanged {
			t.Logf("%d objects are left; %d differ", len(a), len(differences))
			return differences
		}
		time.Sleep(pause)
	}
}

func compareStates(reference, own map[string]string) map[string]string {
	out := map[string]string{}
	for object, text := range reference {
		if own[object] != text {
			out[object] = fmt.Sprintf("kube-controller-manager: %s; Keelson: %s", text, own[object])
		}
	}
	for object, text := range own {
		if reference[object] == "" {
			out[object] = fmt.Sprintf("kube-controller-manager: gone; Keelson: %s", text)
		}
	}
	return out
}

// TestNamespaceDeletions deletes namespaces with random content on both servers, and compares the conditions of those
// that stay because of finalizers. Then it removes the finalizers, and all namespaces must go. KEELSON_NAMESPACES is
// their number.
func TestNamespaceDeletions(t *testing.T) {
	number, seed := numberFrom(t, "KEELSON_NAMESPACES", 60), uint64(numberFrom(t, "KEELSON_SEED", 1))
	reference, own := deletionServers(t)
	servers := []*graphServer{reference, own}
	r := rand.New(rand.NewPCG(seed, 0))
	contents := make([][]string, number) // the paths of objects with finalizers
	for i := range number {
		name := fmt.Sprint("deleted-", i)
		for _, s := range servers {
			s.createNamespace(t, name)
			eventually(t, time.Minute, "the service account of "+name, func(ctx context.Context) error {
				path := "/api/v1/namespaces/" + name + "/serviceaccounts/default"
				return s.send(ctx, http.MethodGet, path, "", nil, nil, http.StatusOK)
			})
		}
		contents[i] = fillNamespace(t, r, servers, name)
		for _, s := range servers {
			if err := s.send(t.Context(), http.MethodDelete, "/api/v1/namespaces/"+name, "", nil, nil, http.StatusOK); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Pods keep everything else, so their finalizers are removed first.
	for _, part := range []string{"/pods/", "/"} {
		sameConditions(t, reference, own, number)
		for _, paths := range contents {
			for _, path := range paths {
				for _, s := range servers {
					if err := s.releaseIf(t.Context(), path, part); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	sameConditions(t, reference, own, number)
	for _, s := range servers {
		if left := s.conditions(t, number); len(left) > 0 {
			t.Errorf("%s: %d namespaces are left: %v", s.name, len(left), left)
		}
	}
}

// releaseIf releases an object whose path has a part.
func (s *graphServer) releaseIf(ctx context.Context, path, part string) error {
	if !strings.Contains(path, part) {
		return nil
	}
	return s.release(ctx, path)
}

// fillNamespace creates random objects. It returns the paths of those with finalizers.
func fillNamespace(t *testing.T, r *rand.Rand, servers []*graphServer, namespace string) (kept []string) {
	t.Helper()
	kinds := append([]ownedKind{
		{"v1", "Pod", "/api/v1", "pods", true}, {"apps/v1", "Deployment", "/apis/apps/v1", "deployments", true},
		{"v1", "Service", "/api/v1", "services", true},
	}, ownedKinds[:3]...)
	for i := range r.IntN(8) {
		o := &graphObject{kinds[r.IntN(len(kinds))], namespace, fmt.Sprint("object-", i)}
		meta := map[string]any{"name": o.name}
		if r.IntN(3) == 0 {
			meta["finalizers"] = []string{[]string{"example.com/a", "example.com/b"}[r.IntN(2)]}
			kept = append(kept, o.path())
		}
		container := []any{map[string]any{"name": "c", "image": "i"}}
		body := map[string]any{"apiVersion": o.kind.apiVersion, "kind": o.kind.kind, "metadata": meta}
		switch o.kind.kind {
		case "Pod":
			body["spec"] = map[string]any{"containers": container}
		case "Service":
			body["spec"] = map[string]any{"ports": []any{map[string]any{"port": 80}}}
		case "Deployment":
			labels := map[string]any{"a": "b"}
			body["spec"] = map[string]any{
				"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
					"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": container}},
			}
		}
		for _, s := range servers {
			if err := s.send(t.Context(), http.MethodPost, o.collection(), jsonType, body, nil, http.StatusCreated); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kept
}

// conditions returns the phase and the conditions of the namespaces that are left.
func (s *graphServer) conditions(t *testing.T, number int) map[string]string {
	t.Helper()
	var list corev1.NamespaceList
	if err := s.send(t.Context(), http.MethodGet, "/api/v1/namespaces", "", nil, &list, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		n := &list.Items[i]
		if !strings.HasPrefix(n.Name, "deleted-") {
			continue
		}
		text := fmt.Sprint(n.Status.Phase, " ", n.Spec.Finalizers)
		for _, c := range n.Status.Conditions {
			text += fmt.Sprintf("\n\t%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		out[n.Name] = text
	}
	if len(out) > number {
		t.Fatalf("there are %d namespaces", len(out))
	}
	return out
}

// sameConditions waits until the namespaces of both servers have the same conditions.
func sameConditions(t *testing.T, reference, own *graphServer, number int) {
	t.Helper()
	const tries, pause = 90, time.Second
	var differences map[string]string
	for range tries {
		a, b := reference.conditions(t, number), own.conditions(t, number)
		if differences = compareStates(a, b); len(differences) == 0 {
			t.Logf("%d namespaces are left, with the same conditions", len(a))
			for name := range a {
				t.Logf("for example %s: %s", name, a[name])
				break
			}
			return
		}
		time.Sleep(pause)
	}
	for name, difference := range differences {
		t.Errorf("%s: %s", name, difference)
	}
}
