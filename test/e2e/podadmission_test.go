package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPodAdmissionAsKubeAPIServer sends pods, claims, bindings and events to kube-apiserver and Keelson with the same
// admission plug-ins and the same configurations of these. It fails if one of the answers differs. KEELSON_FUZZ_PAIRS is
// the number of generated requests, KEELSON_FUZZ_SEED repeats a run.
func TestPodAdmissionAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	rng := rand.New(rand.NewPCG(fuzzSeed(t), 0))
	args := []string{
		"--enable-admission-plugins", "LimitPodHardAntiAffinityTopology,AlwaysPullImages,ImagePolicyWebhook," +
			"PodNodeSelector,PodTolerationRestriction,EventRateLimit,ExtendedResourceToleration",
		// These ask what the node of a pod can do. The nodes here are only names.
		"--disable-admission-plugins", "PodResizeValidator,NodeDeclaredFeatureValidator",
		"--admission-control-config-file", admissionConfig(t, dir),
	}
	f := &podFuzz{
		reference: kubeAPIServer(t, dir, startEtcd(t, dir), args...), keelson: keelsonOn(t, dir, args...),
		tally: map[string]int{},
	}
	f.setUp(t, rng)
	for i := range fuzzPairs(t) {
		f.one(t, rng, i)
	}
	f.events(t)
	t.Logf("kube-apiserver answered %v", f.tally)
	f.found.report(t)
}

// admissionConfig writes the configurations of the plug-ins, and starts a webhook for images.
func admissionConfig(t *testing.T, dir string) string {
	hook := httptest.NewServer(http.HandlerFunc(reviewImages))
	t.Cleanup(hook.Close)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("images.kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: '"+hook.URL+"'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u, user: {}}]\n")
	images := write("images.yaml", "imagePolicy: {kubeConfigFile: '"+kubeconfig+"', retryBackoff: 1}\n")
	selectors := write("selectors.yaml",
		"podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=general, restricted: 'pool=general,disk=ssd'}\n")
	tolerations := write("tolerations.yaml", `
apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
kind: Configuration
default: [{key: cluster, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]
`)
	events := write("events.yaml", `
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits:
- {type: Namespace, qps: 1, burst: 3}
- {type: SourceAndObject, qps: 1, burst: 2, cacheSize: 100}
`)
	return write("admission.yaml", fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: ImagePolicyWebhook, path: %s}
- {name: PodNodeSelector, path: %s}
- {name: PodTolerationRestriction, path: %s}
- {name: EventRateLimit, path: %s}
`, images, selectors, tolerations, events))
}

// reviewImages answers an ImageReview by the names of its images.
func reviewImages(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server fails then
	}
	w.Header().Set("Content-Type", "application/json")
	status := `{"allowed":true}`
	switch text := string(body); {
	case strings.Contains(text, "broken"):
		http.Error(w, "no", http.StatusBadGateway)
		return
	case strings.Contains(text, "refused"):
		status = `{"allowed":false,"reason":"it is old"}`
	case strings.Contains(text, "unwanted"):
		status = `{"allowed":false}`
	}
	fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":%s}`, status)
}

// podFuzz compares the two servers.
type podFuzz struct {
	reference, keelson *apiServer
	tally              map[string]int
	found              differences
	// ranged are namespaces with a LimitRange each.
	ranged []string
}

// tree is a part of an object.
type tree = map[string]any

// both sends a request to both servers and compares the answers. It returns the status code of kube-apiserver.
func (f *podFuzz) both(t *testing.T, method, path string, body any, contentType string) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	code, want := f.reference.must(t, method, path, jsonType, contentType, text)
	gotCode, got := f.keelson.must(t, method, path, jsonType, contentType, text)
	f.tally[fmt.Sprint(code)]++
	a, b := admitted(code, want), admitted(gotCode, got)
	if a != b {
		f.found.add(difference{
			group: fmt.Sprintf("%s %s %d %d", method, path[strings.LastIndex(path, "/"):], code, gotCode), wrong: "the answers differ",
			request: fmt.Sprintf("%s %s %s", method, path, text), want: outcome{code: code, message: a},
			got: outcome{code: gotCode, message: b},
		})
	}
	return code
}

// admitted returns what the answer shows of admission: of an object the parts that plug-ins change, of an error the
// message, with its words in one order, because kube-apiserver has no order for several errors.
func admitted(code int, body []byte) string {
	var doc struct {
		Kind, Message, Reason string
		Metadata              struct{ Labels, Annotations map[string]string }
		Spec                  any
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Sprintf("%d %s", code, body)
	}
	if doc.Kind == "Status" {
		words := strings.FieldsFunc(doc.Message, func(r rune) bool { return strings.ContainsRune("[], ", r) })
		for i, word := range words {
			if rest, ok := strings.CutPrefix(word, `"generated-`); ok && len(rest) == len(`abcde"`) {
				words[i] = "a generated name"
			}
		}
		slices.Sort(words)
		return fmt.Sprintf("%d %s %v", code, doc.Reason, words)
	}
	text, err := json.Marshal(doc.Spec)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %v %v %s", code, doc.Metadata.Labels, doc.Metadata.Annotations, text)
}

// setUp creates namespaces with different annotations and LimitRanges, RuntimeClasses and nodes.
func (f *podFuzz) setUp(t *testing.T, rng *rand.Rand) {
	t.Helper()
	const scheduler = "scheduler.alpha.kubernetes.io/"
	namespaces := map[string]map[string]string{
		"plain": {}, "restricted": {}, "selected": {scheduler + "node-selector": "pool=own,os=linux"},
		"unselected": {scheduler + "node-selector": ""}, "badselector": {scheduler + "node-selector": "pool"},
		"tolerant": {
			scheduler + "defaultTolerations":   `[{"key":"ns","operator":"Equal","value":"v","effect":"NoSchedule"}]`,
			scheduler + "tolerationsWhitelist": `[{"key":"ns","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"}]`,
		},
		"intolerant": {scheduler + "defaultTolerations": ""}, "badtolerations": {scheduler + "tolerationsWhitelist": `{"a"`},
	}
	for i := range 24 {
		f.ranged = append(f.ranged, fmt.Sprintf("ranged%d", i))
		namespaces[f.ranged[i]] = nil
	}
	for name, annotations := range namespaces {
		f.both(t, http.MethodPost, "/api/v1/namespaces", tree{"metadata": tree{"name": name, "annotations": annotations}}, jsonType)
		account := []byte(`{"metadata":{"name":"default"}}`)
		for _, s := range []*apiServer{f.reference, f.keelson} {
			_, _ = s.must(t, http.MethodPost, "/api/v1/namespaces/"+name+"/serviceaccounts", jsonType, jsonType, account)
		}
	}
	for _, name := range f.ranged {
		path := "/api/v1/namespaces/" + name + "/limitranges"
		for f.both(t, http.MethodPost, path, limitRange(rng), jsonType) != http.StatusCreated {
			continue
		}
	}
	for name, class := range map[string]tree{
		"plain": {}, "heavy": {"overhead": tree{"podFixed": tree{"cpu": "250m", "memory": "10Mi"}}},
		"nothing": {"overhead": tree{"podFixed": tree{}}}, "somewhere": {"scheduling": tree{
			"nodeSelector": tree{"kata": "yes", "disk": "ssd"},
			"tolerations":  []any{tree{"key": "kata", "operator": "Exists"}, tree{"key": "x", "operator": "Equal", "value": "1"}},
		}},
	} {
		class["metadata"], class["handler"] = tree{"name": name}, "h"
		f.both(t, http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses", class, jsonType)
	}
	for name, labels := range map[string]tree{
		"bare": {}, "zoned": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "rack": "k"},
	} {
		f.both(t, http.MethodPost, "/api/v1/nodes", tree{"metadata": tree{"name": name, "labels": labels}}, jsonType)
	}
	time.Sleep(2 * time.Second) // the informers of kube-apiserver get to know all this
}

// limitRange returns a LimitRange of random bounds; not every one is valid.
func limitRange(rng *rand.Rand) tree {
	maybe := func(n int, v any) any {
		if rng.IntN(n) > 0 {
			return nil
		}
		return v
	}
	some := func() tree {
		out := tree{}
		for name, values := range map[string][]string{
			"cpu": {"100m", "500m", "1", "1500m", "2"}, "memory": {"10Mi", "64Mi", "1Gi", "1000000000"},
			"example.com/gpu": {"1", "2"},
		} {
			if v := maybe(2, values[rng.IntN(len(values))]); v != nil {
				out[name] = v
			}
		}
		return out
	}
	var limits []any
	for range 1 + rng.IntN(3) {
		item := tree{"type": oneOf(rng, "Container", "Container", "Pod", "PersistentVolumeClaim")}
		switch item["type"] {
		case "PersistentVolumeClaim":
			item["min"], item["max"] = maybe(2, tree{"storage": "1Gi"}), tree{"storage": "3Gi"}
		case "Container":
			item["default"], item["defaultRequest"] = maybe(2, some()), maybe(2, some())
			fallthrough
		default:
			item["min"], item["max"] = maybe(2, some()), maybe(2, some())
			item["maxLimitRequestRatio"] = maybe(3, tree{oneOf(rng, "cpu", "memory"): oneOf(rng, "1", "1500m", "2")})
		}
		limits = append(limits, item)
	}
	return tree{"metadata": tree{"name": "l"}, "spec": tree{"limits": limits}}
}

// one sends a random pod or claim, perhaps followed by changes of it.
func (f *podFuzz) one(t *testing.T, rng *rand.Rand, i int) {
	namespace := oneOf(rng, "plain", "plain", "restricted", "selected", "unselected", "badselector", "tolerant", "intolerant",
		"badtolerations")
	if rng.IntN(2) == 0 {
		namespace = oneOf(rng, f.ranged...)
	}
	base := "/api/v1/namespaces/" + namespace
	name := fmt.Sprintf("p%d", i)
	if rng.IntN(8) == 0 {
		f.claim(t, rng, base, name)
		return
	}
	pod := tree{"metadata": tree{"name": name, "annotations": tree{"x.image-policy.k8s.io/a": "b"}}, "spec": podSpec(rng)}
	if rng.IntN(3) > 0 {
		if rng.IntN(5) == 0 {
			meta := pod["metadata"].(tree)
			meta["name"], meta["generateName"] = "", "generated-"
		}
		f.both(t, http.MethodPost, base+"/pods?dryRun=All", pod, jsonType)
		return
	}
	if f.both(t, http.MethodPost, base+"/pods", pod, jsonType) != http.StatusCreated {
		return
	}
	path := base + "/pods/" + name
	switch rng.IntN(5) {
	case 0:
		f.both(t, http.MethodPatch, path, tree{"metadata": tree{"labels": tree{"a": "b"}}}, mergeType)
	case 1:
		f.both(t, http.MethodPatch, path+"/resize", tree{"spec": tree{"containers": []any{
			tree{"name": "c0", "resources": resources(rng)},
		}}}, strategicType)
	case 2:
		f.both(t, http.MethodPatch, path+"/ephemeralcontainers", tree{"spec": tree{"ephemeralContainers": []any{
			tree{"name": "e", "image": image(rng)},
		}}}, strategicType)
	case 3:
		target := tree{"kind": oneOf(rng, "Node", "Node", ""), "name": oneOf(rng, "bare", "zoned", "missing")}
		f.both(t, http.MethodPost, path+"/binding", tree{"metadata": tree{"name": name}, "target": target}, jsonType)
		f.both(t, http.MethodGet, path, nil, "")
	case 4:
		f.both(t, http.MethodPatch, path, tree{"spec": tree{"containers": []any{tree{"name": "c0", "image": image(rng)}}}},
			strategicType)
	}
}

// claim creates a claim and changes it.
func (f *podFuzz) claim(t *testing.T, rng *rand.Rand, base, name string) {
	size := func() tree {
		return tree{"resources": tree{"requests": tree{"storage": oneOf(rng, "500Mi", "1Gi", "3Gi", "4Gi")}}}
	}
	spec := size()
	spec["accessModes"], spec["storageClassName"] = []any{"ReadWriteOnce"}, "none"
	if f.both(t, http.MethodPost, base+"/persistentvolumeclaims", tree{"metadata": tree{"name": name}, "spec": spec},
		jsonType) == http.StatusCreated {
		f.both(t, http.MethodPatch, base+"/persistentvolumeclaims/"+name, tree{"metadata": tree{"labels": tree{"a": "b"}}}, mergeType)
	}
}

func image(rng *rand.Rand) string {
	if rng.IntN(12) == 0 {
		return oneOf(rng, "refused:1", "unwanted:1", "broken:1")
	}
	return oneOf(rng, "a:1", "b:2", "c")
}

// resources returns random requests and limits.
func resources(rng *rand.Rand) tree {
	out := tree{}
	for _, kind := range []string{"requests", "limits"} {
		list := tree{}
		if rng.IntN(2) == 0 {
			list["cpu"] = oneOf(rng, "0", "50m", "100m", "500m", "1", "1500m", "2", "3")
		}
		if rng.IntN(3) == 0 {
			list["memory"] = oneOf(rng, "1Mi", "10Mi", "64Mi", "1Gi", "1500m")
		}
		if rng.IntN(10) == 0 {
			list["example.com/gpu"] = oneOf(rng, "1", "2")
		}
		if rng.IntN(2) == 0 && len(list) > 0 {
			out[kind] = list
		}
	}
	return out
}

func podSpec(rng *rand.Rand) tree {
	container := func(name string) tree {
		c := tree{"name": name, "image": image(rng), "resources": resources(rng)}
		if rng.IntN(4) == 0 {
			c["imagePullPolicy"] = oneOf(rng, "Never", "IfNotPresent", "Always")
		}
		return c
	}
	var regular, initial []any
	for i := range 1 + rng.IntN(2) {
		regular = append(regular, container(fmt.Sprintf("c%d", i)))
	}
	for i := range rng.IntN(3) {
		c := container(fmt.Sprintf("i%d", i))
		if rng.IntN(2) == 0 {
			c["restartPolicy"] = "Always"
		}
		initial = append(initial, c)
	}
	spec := tree{"automountServiceAccountToken": false, "containers": regular, "initContainers": initial}
	add := func(n int, key string, value any) {
		if rng.IntN(n) == 0 {
			spec[key] = value
		}
	}
	add(6, "resources", tree{"limits": tree{"cpu": oneOf(rng, "1", "4")}, "requests": tree{"memory": "128Mi"}})
	add(3, "runtimeClassName", oneOf(rng, "plain", "heavy", "nothing", "somewhere", "missing"))
	add(8, "overhead", oneOf(rng, tree{"cpu": "250m", "memory": "10Mi"}, tree{"cpu": "0.25", "memory": "10Mi"}, tree{"cpu": "1"}, tree{}))
	add(4, "nodeSelector", oneOf(rng, tree{"pool": "general"}, tree{"pool": "own"}, tree{"disk": "ssd"}, tree{"disk": "hdd"},
		tree{"kata": "no"}, tree{"kata": "yes"}, tree{"os": "linux"}))
	add(8, "nodeName", oneOf(rng, "bare", "zoned", "missing"))
	add(8, "affinity", tree{"podAntiAffinity": tree{"requiredDuringSchedulingIgnoredDuringExecution": []any{tree{
		"topologyKey": oneOf(rng, "kubernetes.io/hostname", "zone"), "labelSelector": tree{},
	}}}})
	var tolerations []any
	for range rng.IntN(4) {
		toleration := tree{"key": oneOf(rng, "ns", "kata", "x", "cluster", "example.com/gpu")}
		switch rng.IntN(3) {
		case 0:
			toleration["operator"] = "Exists"
		case 1:
			toleration["operator"], toleration["value"] = "Equal", oneOf(rng, "v", "1")
		}
		switch rng.IntN(3) {
		case 0:
			toleration["effect"] = "NoSchedule"
		case 1:
			toleration["effect"], toleration["tolerationSeconds"] = "NoExecute", rng.IntN(2)*90
		}
		tolerations = append(tolerations, toleration)
	}
	add(2, "tolerations", tolerations)
	add(10, "volumes", []any{tree{"name": "v", "image": tree{"reference": "a:1", "pullPolicy": oneOf(rng, "Never", "IfNotPresent")}}})
	return spec
}

// events sends events in quick succession, so that the limits are reached before the buckets are filled again.
func (f *podFuzz) events(t *testing.T) {
	for round, objects := range [][]string{{"a", "b", "c", "d", "e"}, {"a", "a", "a", "b"}} {
		namespace := f.ranged[round]
		for i, object := range objects {
			for _, query := range []string{"?dryRun=All", ""} {
				f.both(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/events"+query, tree{
					"metadata": tree{"name": fmt.Sprintf("e%d", i)}, "source": tree{"component": "c"},
					"involvedObject": tree{"kind": "Pod", "name": object, "namespace": namespace},
				}, jsonType)
			}
		}
	}
}
