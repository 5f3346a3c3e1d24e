package managedfields

import (
	"context"
	"encoding/json"
	"fmt"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestApplyNewTwin compares the first apply of an object by the incremental algorithm with that by the general
// one.
func TestApplyNewTwin(t *testing.T) {
	for _, k := range testKinds() {
		t.Run(k.gvk.Kind+k.sub, func(t *testing.T) {
			m := k.manager(t)
			random := k
			if typ, ok := treeTypes[k.gvk.Kind]; ok {
				random.make = typ
			}
			incremental := 0
			all := effort.Rounds(150, 30)
			for seed := range all {
				f := filler{rand.New(rand.NewSource(int64(seed)))}
				configuration := f.configuration(t, k, f.objectOf(random))
				want, wantErr := m.applyGeneral(context.Background(), m.make(), configuration, "one", false, testNow)
				got, ok := m.incremental.applyNew(configuration, "one", testNow)
				if !ok {
					continue
				}
				incremental++
				if wantErr != nil {
					t.Fatalf("seed %d: want %v", seed, wantErr)
				}
				a, _ := json.MarshalIndent(got, "", " ")
				b, _ := json.MarshalIndent(want, "", " ")
				if string(a) != string(b) || !sameTypes(got, want) {
					t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, a, b)
				}
			}
			t.Logf("%d of %d fast", incremental, all)
			if incremental < all/5 {
				t.Errorf("only %d of %d fast", incremental, all)
			}
		})
	}
}

func sameTypes(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// configuration returns the configuration that a client would apply for an object.
func (f filler) configuration(t *testing.T, k testKind, o registry.Object) map[string]any {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	f.emptyTree(tree)
	tree["apiVersion"], tree["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	if meta, _ := tree["metadata"].(map[string]any); meta != nil {
		meta["name"] = "a"
	} else {
		tree["metadata"] = map[string]any{"name": "a"}
	}
	return tree
}

// autoscaler returns the Manager of one version of a kind with two versions, of which the newer one is stored.
func autoscaler(t *testing.T, version string) *Manager {
	t.Helper()
	group := func(v string) schema.GroupVersion { return schema.GroupVersion{Group: "autoscaling", Version: v} }
	c := Config{
		Kind: group(version).WithKind("HorizontalPodAutoscaler"), Storage: group("v2"), Types: mergeschema.Converter{},
		Versions: []Version{
			{GroupVersion: group("v2"), New: func() registry.Object { return &autoscalingv2.HorizontalPodAutoscaler{} }},
			{
				GroupVersion: group("v1"), New: func() registry.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
				ToStorage: func(_ context.Context, o registry.Object) (registry.Object, error) {
					in := o.(*autoscalingv1.HorizontalPodAutoscaler)
					out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
					out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
					out.Spec.ScaleTargetRef.Name = in.Spec.ScaleTargetRef.Name
					return out, nil
				},
				FromStorage: func(_ context.Context, o registry.Object) (registry.Object, error) {
					in := o.(*autoscalingv2.HorizontalPodAutoscaler)
					out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
					out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
					out.Spec.ScaleTargetRef.Name = in.Spec.ScaleTargetRef.Name
					return out, nil
				},
			},
		},
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestVersions(t *testing.T) {
	one, two := autoscaler(t, "v1"), autoscaler(t, "v2")
	object := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	object.Spec.MaxReplicas = 3
	one.Update(context.Background(), nil, object, "old", testNow)
	object.UID = "u"
	converted, err := (&converter{config: one.config}).ConvertToVersion(withKind(object, one), one.config.Storage)
	if err != nil {
		t.Fatal(err)
	}
	live := converted.(*autoscalingv2.HorizontalPodAutoscaler)
	next := live.DeepCopy()
	next.Spec.MaxReplicas = 5
	two.Update(context.Background(), live, next, "new", testNow.Add(time.Minute))
	want := `Update new autoscaling/v2  {"f:spec":{"f:maxReplicas":{}}}
Update old autoscaling/v1  {"f:spec":{"f:scaleTargetRef":{}}}`
	if got := owned(next.ManagedFields); !strings.HasPrefix(
		got, `Update new autoscaling/v2  {"f:spec":{"f:maxReplicas":{}}}`,
	) || strings.Contains(got, `old autoscaling/v1  {"f:spec":{"f:maxReplicas"`) {
		t.Errorf("got\n%s\nwant about\n%s", got, want)
	}
	configuration := map[string]any{
		"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"maxReplicas": int64(7)},
	}
	if _, err := two.Apply(
		context.Background(), next, configuration, "applier", false, testNow,
	); !kerrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	applied, err := two.Apply(context.Background(), next, configuration, "applier", true, testNow)
	if err != nil {
		t.Fatal(err)
	}
	if n := applied.(*autoscalingv2.HorizontalPodAutoscaler).Spec.MaxReplicas; n != 7 {
		t.Errorf("got %d", n)
	}
	// An entry in a version that is no longer served is dropped.
	entries := applied.GetManagedFields()
	entries[0].APIVersion = "autoscaling/v2beta1"
	entries[0].Operation = metav1.ManagedFieldsOperationUpdate
	entries[0].Manager = "gone"
	applied.SetManagedFields(entries)
	applied.SetUID("u")
	again := applied.DeepCopyObject().(registry.Object)
	two.Update(context.Background(), applied, again, "new", testNow)
	if got := owned(again.GetManagedFields()); strings.Contains(got, "v2beta1") {
		t.Errorf("got\n%s", got)
	}
}

func withKind(o registry.Object, m *Manager) registry.Object {
	o.GetObjectKind().SetGroupVersionKind(m.config.Kind)
	return o
}

func TestCapManagers(t *testing.T) {
	m := named("ConfigMap", "").manager(t)
	var live registry.Object
	for i := range MaxUpdateManagers + 5 {
		object := benchConfigMap()
		object.Data = map[string]string{}
		if live != nil {
			object = live.DeepCopyObject().(*corev1.ConfigMap)
		}
		object.Data[fmt.Sprint("key", i)] = "x"
		m.Update(context.Background(), live, object, fmt.Sprint("manager", i), testNow.Add(time.Duration(i)*time.Minute))
		object.UID = "u"
		live = object
	}
	entries := live.GetManagedFields()
	if len(entries) != MaxUpdateManagers {
		t.Errorf("got %d entries", len(entries))
	}
	if entries[0].Manager != "ancient-changes" {
		t.Errorf("got %s", described(live))
	}
}

func TestNothingChangedKeepsTime(t *testing.T) {
	m := named("ConfigMap", "").manager(t)
	object := benchConfigMap()
	m.Update(context.Background(), nil, object, "one", testNow)
	object.UID = "u"
	again := object.DeepCopy()
	again.ManagedFields = nil
	m.Update(context.Background(), object, again, "one", testNow.Add(time.Hour))
	if described(object) != described(again) {
		t.Errorf("got %s", described(again))
	}
	reset := object.DeepCopy()
	reset.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	m.Update(context.Background(), object, reset, "one", testNow)
	if len(reset.ManagedFields) != 0 {
		t.Errorf("got %s", described(reset))
	}
}

// FuzzSet compares the reading and writing of fieldsV1 with that of the general algorithm.
func FuzzSet(f *testing.F) {
	for _, raw := range []string{
		`{}`, `{"f:a":{}}`, `{"f:a":{".":{},"f:b":{}},"k:{\"name\":\"x\"}":{"f:c":{}}}`, `{"v:1":{},"v:\"a\\u003cb\"":{}}`,
		`{"k:{\"a\":true,\"b\":-5}":{}}`, `{"i:0":{}}`, `{"f:a":{".":{}}}`, `{"f:b":{},"f:a":{}}`,
		`{"f:\\\"":{}}`, `{"x":{}}`, `{"f:a":1}`,
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, ok := parseSet(raw)
		if !ok {
			return
		}
		want := &fieldpath.Set{}
		if err := want.FromJSON(strings.NewReader(raw)); err != nil {
			t.Fatalf("%q is not a set: %v", raw, err)
		}
		again, err := want.ToJSON()
		if err != nil || string(again) != raw {
			t.Fatalf("%q is written as %q (%v)", raw, again, err)
		}
		if empty := want.Empty(); empty != got.empty() {
			t.Fatalf("%q empty: %v", raw, empty)
		}
	})
}

// TestSetTwin compares the operations on sets with those of the general algorithm.
func TestSetTwin(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	build := func() (*set, *fieldpath.Set) {
		s := fieldpath.NewSet()
		for range random.Intn(12) {
			var path fieldpath.Path
			for range 1 + random.Intn(3) {
				path = append(
					path,
					fieldpath.MakePathOrDie(
						[]any{
							"a", "b", fieldpath.KeyByFields("name", "x"), fieldpath.KeyByFields("n", int64(random.Intn(3))),
						}[random.Intn(4)],
					)...,
				)
			}
			s.Insert(path)
		}
		raw, err := s.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		own, ok := parseSet(string(raw))
		if !ok {
			t.Fatalf("cannot read %s", raw)
		}
		return own, s
	}
	show := func(s *set) string {
		raw, _ := s.fields(nil)
		return string(raw)
	}
	for range 5000 {
		a, wantA := build()
		b, wantB := build()
		for name, pair := range map[string][2]any{
			"minus":  {a.difference(b), wantA.Difference(wantB)},
			"plus":   {a.union(b), wantA.Union(wantB)},
			"within": {a.without(b), wantA.RecursiveDifference(wantB)},
		} {
			want, _ := pair[1].(*fieldpath.Set).ToJSON()
			if got := show(pair[0].(*set)); got != string(want) {
				t.Fatalf("%s of %s and %s: got %s want %s", name, show(a), show(b), got, want)
			}
		}
		if got, want := a.intersects(b), !wantA.Intersection(wantB).Empty(); got != want {
			t.Fatalf("%s meets %s: %v", show(a), show(b), got)
		}
		if got, want := a.contains(b), wantB.Difference(wantA).Empty(); got != want {
			t.Fatalf("%s contains %s: %v", show(a), show(b), got)
		}
	}
}

func TestKeepTimes(t *testing.T) {
	m := named("ConfigMap", "").manager(t)
	live := benchConfigMap()
	m.Update(context.Background(), nil, live, "one", testNow)
	live.UID = "u"
	later := live.DeepCopy()
	later.ManagedFields[0].Time = &metav1.Time{Time: testNow.Add(time.Hour)}
	KeepTimes(live, later)
	if described(later) != described(live) {
		t.Errorf("got %s", described(later))
	}
	changed := live.DeepCopy()
	changed.Data["a"] = "other"
	m.Update(context.Background(), live, changed, "one", testNow.Add(time.Hour))
	KeepTimes(live, changed)
	if described(changed) == described(live) {
		t.Errorf("got %s", described(changed))
	}
}

func BenchmarkKeepTimes(b *testing.B) {
	live := benchPod(b)
	benchStatus(live, 1)
	m := named("Pod", "status").manager(b)
	m.Update(context.Background(), benchPod(b), live, "one", testNow)
	object := live.DeepCopy()
	object.Status.Conditions[0].Message = "other"
	m.Update(context.Background(), live, object, "one", testNow.Add(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		KeepTimes(live, object)
	}
}
