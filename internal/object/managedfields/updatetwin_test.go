package managedfields

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	k8sfields "k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// testKind is a kind of one version for tests.
type testKind struct {
	gvk   schema.GroupVersionKind
	make  func() registry.Object
	types k8sfields.TypeConverter
	reset map[fieldpath.APIVersion]*fieldpath.Set
	sub   string
	// defaults may be nil.
	defaults func(registry.Object)
}

func (k testKind) manager(t testing.TB) *Manager {
	t.Helper()
	m, err := New(Config{
		Kind: k.gvk, Subresource: k.sub, Storage: k.gvk.GroupVersion(), Types: k.types, Reset: k.reset, Default: k.defaults,
		Versions: []Version{{GroupVersion: k.gvk.GroupVersion(), New: k.make}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func kindOf[T any, P interface {
	*T
	registry.Object
}](group, version, kind string) testKind {
	return testKind{
		gvk:   schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
		make:  func() registry.Object { return P(new(T)) },
		types: mergeschema.Converter{},
	}
}

func reset(gv string, paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	s := fieldpath.NewSet()
	for _, p := range paths {
		var parts []any
		for _, name := range strings.Split(p, ".") {
			parts = append(parts, name)
		}
		s.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(gv): s}
}

// asTrees returns k with trees as objects. If deduced is true, it also has no schema.
func asTrees(k testKind, deduced bool) testKind {
	k.make = func() registry.Object {
		return &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": k.gvk.GroupVersion().String(), "kind": k.gvk.Kind},
		}
	}
	if deduced {
		k.types = k8sfields.NewDeducedTypeConverter()
	}
	return k
}

func testKinds() []testKind {
	pod := kindOf[corev1.Pod]("", "v1", "Pod")
	pod.reset = reset("v1", "status")
	podStatus := pod
	podStatus.sub, podStatus.reset = "status", reset(
		"v1", "spec", "metadata.deletionTimestamp", "metadata.ownerReferences",
	)
	return []testKind{
		pod, podStatus, asTrees(pod, false), asTrees(podStatus, false), asTrees(pod, true),
		asTrees(
			kindOf[apiextensionsv1.CustomResourceDefinition]("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), false,
		),
		kindOf[corev1.ConfigMap]("", "v1", "ConfigMap"),
		kindOf[corev1.Secret]("", "v1", "Secret"),
		kindOf[corev1.Service]("", "v1", "Service"),
		kindOf[corev1.Node]("", "v1", "Node"),
		kindOf[corev1.PersistentVolume]("", "v1", "PersistentVolume"),
		kindOf[corev1.Event]("", "v1", "Event"),
		kindOf[appsv1.Deployment]("apps", "v1", "Deployment"),
		kindOf[appsv1.ControllerRevision]("apps", "v1", "ControllerRevision"),
		kindOf[batchv1.CronJob]("batch", "v1", "CronJob"),
		kindOf[networkingv1.Ingress]("networking.k8s.io", "v1", "Ingress"),
		kindOf[networkingv1.NetworkPolicy]("networking.k8s.io", "v1", "NetworkPolicy"),
		kindOf[discoveryv1.EndpointSlice]("discovery.k8s.io", "v1", "EndpointSlice"),
		kindOf[resourcev1.ResourceSlice]("resource.k8s.io", "v1", "ResourceSlice"),
		kindOf[apiextensionsv1.CustomResourceDefinition]("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
	}
}

// filler makes random values of Go types: few names, so that two values have much
// in common.
type filler struct{ *rand.Rand }

var words = []string{"a", "b", "c", "app", "TCP", "http-80", "x/y", "q\"uote", "back\\slash", "<&>"}

func (f filler) word() string {
	if f.Intn(8) > 0 {
		return words[f.Intn(6)]
	}
	return words[f.Intn(len(words))]
}

func (f filler) fill(v reflect.Value, depth int) {
	if !v.CanSet() {
		return
	}
	switch v.Type() {
	case reflect.TypeFor[metav1.Time]():
		if f.Intn(3) > 0 {
			v.Set(reflect.ValueOf(metav1.Unix(int64(1e9+f.Intn(3)), int64(f.Intn(2)))))
		}
		return
	case reflect.TypeFor[metav1.MicroTime]():
		v.Set(reflect.ValueOf(metav1.NewMicroTime(time.Unix(1e9, int64(f.Intn(3))*500))))
		return
	case reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse([]string{"1", "1000m", "2", "1Gi", "1024Mi"}[f.Intn(5)])))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		v.Set(
			reflect.ValueOf(
				[]intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("80"), intstr.FromString("a")}[f.Intn(3)],
			),
		)
		return
	case reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[metav1.ManagedFieldsEntry]():
		return
	case reflect.TypeFor[runtime.RawExtension]():
		raw := []string{`{"a":1}`, `{"a":{"b":[1]},"c":null}`, `{"a":2.5}`, `{}`, ``}[f.Intn(5)]
		if raw != "" {
			v.Set(reflect.ValueOf(runtime.RawExtension{Raw: []byte(raw)}))
		}
		return
	case reflect.TypeFor[apiextensionsv1.JSON]():
		v.Set(reflect.ValueOf(apiextensionsv1.JSON{Raw: []byte([]string{`1`, `"a"`, `{"a":[true]}`, `null`}[f.Intn(4)])}))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.Intn(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Int16, reflect.Int8:
		v.SetInt(int64(f.Intn(3)))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.Intn(3)))
	case reflect.Float64:
		v.SetFloat(float64(f.Intn(3)) / 2)
	case reflect.String:
		v.SetString(f.word())
	case reflect.Pointer:
		if f.Intn(3) == 0 || depth > 14 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		n := []int{0, 0, 0, 1, 1, 2, 3}[f.Intn(7)]
		if depth > 14 {
			n = 0
		}
		switch {
		case n == 0 && f.Intn(2) == 0:
			v.SetZero()
		default:
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
		f.distinct(v)
	case reflect.Map:
		v.SetZero()
		if f.Intn(3) == 0 || depth > 14 {
			if f.Intn(2) == 0 {
				v.Set(reflect.MakeMap(v.Type()))
			}
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range f.Intn(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(f.word())
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f.Intn(3) > 0 {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}

// distinct makes the keys of the items of a list different, as they mostly are; sometimes it does not.
func (f filler) distinct(list reflect.Value) {
	if f.Intn(30) == 0 {
		return
	}
	for i := range list.Len() {
		item := list.Index(i)
		for _, name := range []string{
			"Name", "Type", "IP", "Key", "UID", "MountPath", "DevicePath", "TopologyKey", "Manager", "Port", "ContainerPort",
		} {
			if item.Kind() == reflect.Struct {
				if field := item.FieldByName(name); field.IsValid() && field.CanSet() {
					switch field.Kind() {
					case reflect.String:
						field.SetString(fmt.Sprint(field.String(), i))
					case reflect.Int32:
						field.SetInt(int64(9 + i))
					}
				}
			}
		}
		if item.Kind() == reflect.String && f.Intn(10) > 0 {
			item.SetString(fmt.Sprint(item.String(), i))
		}
	}
}

// mutate refills some parts of a value.
func (f filler) mutate(v reflect.Value, depth int) {
	switch v.Type() {
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[apiextensionsv1.JSON](),
		reflect.TypeFor[resource.Quantity](),
		reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[intstr.IntOrString]():
		f.fill(v, depth)
		return
	}
	if f.Intn(12) == 0 {
		f.fill(v, depth)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			f.mutate(v.Elem(), depth+1)
		}
	case reflect.Struct:
		if v.NumField() > 0 {
			for range 1 + f.Intn(3) {
				if field := v.Field(f.Intn(v.NumField())); field.CanSet() {
					f.mutate(field, depth+1)
				}
			}
		}
	case reflect.Slice:
		if n := v.Len(); n > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			f.mutate(v.Index(f.Intn(n)), depth+1)
			if f.Intn(4) == 0 {
				v.Set(v.Slice(1, n))
			}
		}
	case reflect.Map:
		if v.Len() > 0 && f.Intn(2) == 0 {
			v.SetMapIndex(v.MapKeys()[0], reflect.Value{})
		}
	}
}

func (f filler) objectOf(k testKind) registry.Object {
	o := k.make()
	f.fill(reflect.ValueOf(o).Elem(), 0)
	o.SetManagedFields(nil)
	return o
}

// treeTypes are the types that trees are made from.
var treeTypes = map[string]func() registry.Object{
	"Pod":                      func() registry.Object { return &corev1.Pod{} },
	"CustomResourceDefinition": func() registry.Object { return &apiextensionsv1.CustomResourceDefinition{} },
}

// like converts an object to a tree if the objects of k are trees.
func (f filler) like(k testKind, o registry.Object) registry.Object {
	out, isTree := k.make().(*unstructured.Unstructured)
	if !isTree {
		return o
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	f.emptyTree(tree)
	for name, v := range out.Object {
		tree[name] = v
	}
	out.Object = tree
	return out
}

// emptyTree replaces some values by null and empty ones.
func (f filler) emptyTree(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			switch below := v[name]; {
			case f.Intn(200) == 0:
				v[name] = nil
			case f.Intn(200) == 0:
				v[name] = []any{}
			case f.Intn(200) == 0:
				v[name] = map[string]any{}
			case f.Intn(400) == 0:
				v["unknown"] = "x"
			default:
				f.emptyTree(below)
			}
		}
	case []any:
		for i := range v {
			f.emptyTree(v[i])
		}
	}
}

func sortedNames(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f filler) mutateTree(v any) {
	switch v := v.(type) {
	case map[string]any:
		names := sortedNames(v)
		if len(names) == 0 {
			return
		}
		name := names[f.Intn(len(names))]
		switch below := v[name].(type) {
		case string:
			if name != "kind" && name != "apiVersion" {
				v[name] = f.word()
			}
		case int64:
			v[name] = []any{int64(3), 3.0, 2.5}[f.Intn(3)]
		case bool:
			v[name] = !below
		default:
			if f.Intn(8) == 0 && name != "metadata" {
				delete(v, name)
			} else {
				f.mutateTree(below)
			}
		}
	case []any:
		if len(v) > 0 {
			f.mutateTree(v[f.Intn(len(v))])
		}
	}
}

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// described returns the managedFields of an object as indented JSON.
func described(o registry.Object) string {
	raw, err := json.MarshalIndent(o.GetManagedFields(), "", " ")
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// TestUpdateTwin compares the fast algorithm with the general one over histories of random objects.
func TestUpdateTwin(t *testing.T) {
	for _, k := range testKinds() {
		t.Run(k.gvk.Kind+k.sub, func(t *testing.T) {
			m := k.manager(t)
			random := k
			if typ, ok := treeTypes[k.gvk.Kind]; ok {
				random.make = typ
			}
			incremental, all := 0, 0
			histories := 60
			if !effort.Full() {
				histories = 10
			}
			for seed := range histories {
				f := filler{rand.New(rand.NewSource(int64(seed)))}
				var live registry.Object
				object := f.like(k, f.objectOf(random))
				for step := range 12 {
					manager := []string{"one", "two", "three"}[f.Intn(3)]
					now := testNow.Add(time.Duration(step) * time.Minute)
					base := live
					if base == nil {
						base = m.incremental.empty()
					}
					want := m.updateGeneral(context.Background(), base, object.DeepCopyObject().(registry.Object), manager, now)
					got := object.DeepCopyObject().(registry.Object)
					all++
					if m.incremental.update(base, got, manager, now) {
						incremental++
						if described(got) != described(want) {
							a, _ := json.Marshal(base)
							b, _ := json.Marshal(object)
							t.Fatalf("seed %d step %d:\n%s\nwant\n%s\n%s\n%s", seed, step, described(got), described(want), a, b)
						}
					}
					live = want
					live.SetUID("u")
					live.GetObjectKind().SetGroupVersionKind(k.gvk)
					object = live.DeepCopyObject().(registry.Object)
					switch f.Intn(6) {
					case 0:
						object = f.like(k, f.objectOf(random))
					case 1:
					default:
						if tree, ok := object.(*unstructured.Unstructured); ok {
							f.mutateTree(tree.Object)
						} else {
							f.mutate(reflect.ValueOf(object).Elem(), 0)
						}
					}
					if f.Intn(10) > 0 {
						object.SetManagedFields(live.GetManagedFields())
					}
				}
			}
			t.Logf("%d of %d fast", incremental, all)
			if incremental*10 < all*8 {
				t.Errorf("only %d of %d fast", incremental, all)
			}
		})
	}
}
