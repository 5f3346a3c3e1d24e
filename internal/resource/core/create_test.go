package core

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sigsjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// created is a recorded create: what was sent, and the 201 that answered it.
type created struct {
	Name, Group, Resource string
	Body                  json.RawMessage
	Expect                map[string]any
	// Ignore are dotted paths that the recording leaves open.
	Ignore   []string
	Warnings []string
}

// notOurs are fields of answers that admission plugins and allocators set, by
// resource. They are taken out of both sides.
var notOurs = map[string][]string{
	// Priority, RuntimeClass.
	"pods": {"spec.priority", "spec.preemptionPolicy", "spec.overhead"},
	// TaintNodesByCondition.
	"nodes": {"spec.taints"},
	// StorageObjectInUseProtection, DefaultStorageClass.
	"persistentvolumes":      {"metadata.finalizers"},
	"persistentvolumeclaims": {"metadata.finalizers"},
	// Allocation of cluster IPs.
	"services": {"spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy",
		"spec.healthCheckNodePort"},
}

// skipped are recordings that other admission plugins changed, and those that
// the strategies as they are cannot serve.
var skipped = map[string]string{
	"kind-config/limitrange-applied-to-pods[3]": "LimitRanger",
	"kind-config/limitrange-applied-to-pods[4]": "LimitRanger",
	"kind-pod/runtime-class-admission[2]":       "RuntimeClass",
	"kind-pod/service-account-token-volume[2]":  "ServiceAccount",
	"kind-pod/service-account-token-volume[5]":  "ServiceAccount",
	"metadata/owner-references[11]":             "the pipeline drops repeated owner references",
	"mutate-pod.v1.core/pod-rich-create[25]":    "the pipeline drops repeated owner references",
	"kind-pod/service-account-token-volume[0]":  "ServiceAccount",
}

func TestCreate(t *testing.T) {
	kinds := kindsByResource()
	seen := map[string]int{}
	for _, c := range readCreated(t) {
		k := kinds[c.Resource]
		if skipped[c.Name] != "" {
			continue
		}
		obj, err := create(k, c)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		seen[c.Resource]++
		got := toTree(t, obj)
		want := c.Expect
		for _, tree := range []map[string]any{got, want} {
			strip(c, tree)
		}
		fillServiceAccount(c, want, got)
		if diff := difference("", want, got); len(diff) > 0 {
			t.Errorf("%s: %s\n%s\n\tsent %.600s", c.Name, k.Name, strings.Join(diff, "\n"), c.Body)
		}
	}
	for resource := range kinds {
		if seen[resource] == 0 && resource != "bindings" && resource != "componentstatuses" {
			t.Errorf("no recorded create of %s", resource)
		}
	}
}

func TestCreateWarnings(t *testing.T) {
	kinds := kindsByResource()
	for _, c := range readCreated(t) {
		k := kinds[c.Resource]
		obj, err := create(k, c)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		var got []string
		if k.Strategy.Warn != nil {
			got = k.Strategy.Warn(obj, nil)
		}
		if v := k.Versions[0]; v.Warning != "" {
			got = append(got, v.Warning)
		}
		var want []string
		for _, w := range c.Warnings {
			if strings.Contains(w, "ownerReferences contains") || strings.Contains(w, "unknown field") ||
				strings.Contains(w, "metadata.finalizers") || strings.Contains(w, "appArmorProfile") {
				// The steps of a write send these.
				continue
			}
			want = append(want, w)
		}
		var quoted []string
		for _, w := range got {
			quoted = append(quoted, fmt.Sprintf("299 - %q", w))
		}
		// The pipeline sends a warning once.
		slices.Sort(quoted)
		quoted = slices.Compact(quoted)
		slices.Sort(want)
		if !slices.Equal(quoted, want) {
			t.Errorf("%s:\n got %q\nwant %q\n%.500s", c.Name, quoted, want, c.Body)
		}
	}
}

func TestDefaultIsIdempotent(t *testing.T) {
	kinds := kindsByResource()
	for _, c := range readCreated(t) {
		obj, err := create(kinds[c.Resource], c)
		if err != nil {
			t.Fatal(err)
		}
		again := obj.DeepCopyObject().(registry.Object)
		for _, v := range kinds[c.Resource].Versions {
			if v.Default != nil && v.FromStorage == nil {
				v.Default(again)
			}
		}
		if !reflect.DeepEqual(toTree(t, obj), toTree(t, again)) {
			t.Errorf("%s: defaulting again changes %s", c.Name, difference("", toTree(t, obj), toTree(t, again)))
		}
	}
}

func kindsByResource() map[string]*registry.Kind {
	kinds := map[string]*registry.Kind{}
	for _, k := range Kinds(features.Gates{}) {
		kinds[k.Resource] = k
	}
	return kinds
}

func readCreated(t *testing.T) []created { return readLines[created](t, "create") }

// readLines reads a file of recordings: lines of JSON, compressed.
func readLines[T any](t *testing.T, name string) []T {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var line T
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// create does what the pipeline does with a new object, and returns it in the
// version it was sent in.
func create(k *registry.Kind, c created) (registry.Object, error) {
	v := &k.Versions[0]
	for i := range k.Versions {
		if g := k.Versions[i].Group; g != "" && strings.HasPrefix(c.Group, "apis/"+g) {
			v = &k.Versions[i]
		}
	}
	obj := v.New()
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(c.Body, obj); err != nil {
		return nil, err
	}
	if v.Default != nil {
		v.Default(obj)
	}
	if v.ToStorage != nil {
		var err error
		if obj, err = v.ToStorage(context.Background(), obj); err != nil {
			return nil, err
		}
	}
	if k.Strategy.Status != nil && !k.Strategy.StatusOnCreate {
		reflect.ValueOf(k.Strategy.Status(obj)).Elem().SetZero()
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName("generated")
	}
	if k.Strategy.Generation != nil {
		obj.SetGeneration(1)
	}
	if k.Strategy.PrepareCreate != nil {
		k.Strategy.PrepareCreate(context.Background(), obj)
	}
	// A dry run is answered as it would have been stored too.
	obj, err := throughProtobuf(obj)
	if err != nil {
		return nil, err
	}
	if k.Storage.DefaultOnRead != nil {
		v.Default(obj)
	}
	if v.FromStorage != nil {
		return v.FromStorage(context.Background(), obj)
	}
	return obj, nil
}

func throughProtobuf(obj registry.Object) (registry.Object, error) {
	data, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return nil, err
	}
	out := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(registry.Object)
	return out, out.(interface{ Unmarshal([]byte) error }).Unmarshal(data)
}

func toTree(t *testing.T, obj runtime.Object) map[string]any {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// strip takes out of an answer what the generic pipeline sets and what is not
// ours.
func strip(c created, tree map[string]any) {
	delete(tree, "apiVersion")
	delete(tree, "kind")
	for _, path := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "namespace", "name",
		"generateName", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		remove(tree, "metadata."+path)
	}
	if c.Resource != "pods" && c.Resource != "podtemplates" && c.Resource != "replicationcontrollers" {
		remove(tree, "metadata.generation")
	}
	for _, path := range slices.Concat(notOurs[c.Resource], c.Ignore) {
		remove(tree, path)
	}
	switch c.Resource {
	case "pods":
		stripPod(tree)
	case "services":
		for _, p := range list(tree, "spec", "ports") {
			delete(p, "nodePort")
		}
	}
	forget(tree)
}

// stripPod takes out what DefaultTolerationSeconds and ServiceAccount add.
func stripPod(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	if spec == nil {
		return
	}
	keep := func(name string, in map[string]any, drop func(map[string]any) bool) {
		items, ok := in[name].([]any)
		if !ok {
			return
		}
		items = slices.DeleteFunc(items, func(i any) bool { m, _ := i.(map[string]any); return m != nil && drop(m) })
		if in[name] = items; len(items) == 0 {
			delete(in, name)
		}
	}
	keep("tolerations", spec, func(m map[string]any) bool {
		return (m["key"] == corev1.TaintNodeNotReady || m["key"] == corev1.TaintNodeUnreachable) &&
			m["operator"] == "Exists" && m["tolerationSeconds"] == 300.0
	})
	isToken := func(m map[string]any) bool {
		name, _ := m["name"].(string)
		return strings.HasPrefix(name, "kube-api-access-")
	}
	keep("volumes", spec, isToken)
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range list(spec, kind) {
			keep("volumeMounts", c, isToken)
		}
	}
}

// fillServiceAccount accepts the account that admission chose where the pod
// named none.
func fillServiceAccount(c created, want, got map[string]any) {
	if c.Resource != "pods" {
		return
	}
	w, _ := want["spec"].(map[string]any)
	g, _ := got["spec"].(map[string]any)
	if w != nil && g != nil && g["serviceAccountName"] == nil {
		g["serviceAccountName"], g["serviceAccount"] = w["serviceAccountName"], w["serviceAccount"]
	}
}

func list(tree map[string]any, path ...string) []map[string]any {
	var v any = tree
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	items, _ := v.([]any)
	var out []map[string]any
	for _, i := range items {
		if m, ok := i.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func remove(tree map[string]any, path string) {
	first, rest, more := strings.Cut(path, ".")
	if !more {
		delete(tree, first)
		return
	}
	switch v := tree[first].(type) {
	case map[string]any:
		remove(v, rest)
	case []any:
		for _, i := range v {
			if m, ok := i.(map[string]any); ok {
				remove(m, rest)
			}
		}
	}
}

// forget blanks what recordings replace by a placeholder.
func forget(v any) {
	if m, ok := v.(map[string]any); ok {
		for k, x := range m {
			if s, ok := x.(string); ok && strings.HasPrefix(s, "10.") {
				m[k] = "<ip>"
			} else if ok && (len(s) == 20 && s[4] == '-' && strings.HasSuffix(s, "Z") || len(s) == 27 && s[4] == '-') {
				m[k] = "<time>"
			}
			if k == "uid" || k == "resourceVersion" {
				delete(m, k)
			}
			forget(x)
		}
	}
	if l, ok := v.([]any); ok {
		for i, x := range l {
			if s, ok := x.(string); ok && strings.HasPrefix(s, "10.") && strings.Contains(s, "/") {
				_, mask, _ := strings.Cut(s, "/")
				l[i] = "<ip>/" + mask
			}
			forget(x)
		}
	}
}

func difference(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		var out []string
		for k := range w {
			if _, ok := g[k]; !ok {
				out = append(out, fmt.Sprintf("\t%s.%s: want %v, got nothing", path, k, w[k]))
			} else {
				out = append(out, difference(path+"."+k, w[k], g[k])...)
			}
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				out = append(out, fmt.Sprintf("\t%s.%s: want nothing, got %v", path, k, g[k]))
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		var out []string
		for i := range w {
			out = append(out, difference(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return out
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("\t%s: want %v, got %v", path, want, got)}
	}
	return nil
}
