package managedfields

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// history is a random sequence of applies and updates of one object by some managers.
type history struct {
	filler
	subject
	// sent is what each manager applied last.
	sent map[string]map[string]any
	live registry.Object
	now  time.Time
}

// TestApplyTwin compares applies to existing objects by the incremental algorithm with those by the general one.
// Either both results are the same to the byte, with managedFields, or both algorithms refuse the apply.
func TestApplyTwin(t *testing.T) {
	histories := 6
	switch {
	case os.Getenv("KEELSON_LONG") != "":
		histories = 500
	case !effort.Full():
		histories = 3
	}
	for _, s := range applySubjects(t) {
		t.Run(s.name, func(t *testing.T) {
			counted := map[string]int{}
			for seed := range histories * s.times {
				h := &history{
					filler: filler{rand.New(rand.NewSource(int64(seed)))}, subject: s, sent: map[string]map[string]any{}, now: testNow,
				}
				h.live = h.object()
				// Every apply to an object with a value of the wrong type fails, so few histories begin with one.
				for try := 0; seed%4 != 0 && !h.typed() && try < 100; try++ {
					h.live = h.object()
				}
				if h.Intn(4) > 0 {
					h.live = h.m.updateGeneral(context.Background(), h.m.incremental.empty(), h.live, "creator", h.now)
				}
				h.store(t)
				for step := range 12 {
					h.step(t, counted, fmt.Sprintf("seed %d step %d", seed, step))
				}
			}
			t.Log(counted)
			// The data of a ControllerRevision is a RawExtension: the incremental algorithm does not support it.
			if s.kind.gvk.Kind == "ControllerRevision" {
				return
			}
			// A short test has too few applies of each kind for a meaningful share.
			few := counted["done"] < 40
			if counted["incremental"] == 0 || !few && counted["incremental"]*4 < counted["done"] {
				t.Errorf("only %d of %d applies were incremental", counted["incremental"], counted["done"])
			}
		})
	}
}

// subject is a kind that is applied to, with random objects of it.
type subject struct {
	name   string
	kind   testKind
	m      *Manager
	random func(f filler) registry.Object
	// other is the Manager of the rest of the object: of the status if m is the Manager of the object itself, and
	// of the object itself if m is that of the status. It is nil if the kind has no status.
	other *Manager
	// times multiplies the number of histories.
	times int
}

func (h *history) object() registry.Object { return known(h.random(h.filler)) }

// typed reports whether all values of the object have the types of the schema.
func (h *history) typed() bool {
	gvk := h.kind.gvk
	nothing := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "metadata": map[string]any{}}
	_, err := h.m.applyGeneral(context.Background(), h.live, nothing, "nobody", false, h.now)
	return err == nil
}

func applySubjects(t *testing.T) []subject {
	var out []subject
	for i, k := range testKinds() {
		random := k
		if typ, ok := treeTypes[k.gvk.Kind]; ok {
			random.make = typ
		}
		s := subject{name: k.gvk.Kind + k.sub, kind: k, m: k.manager(t), times: 1}
		s.random = func(f filler) registry.Object { return f.like(k, f.objectOf(random)) }
		if i == 1 { // the status of a Pod, after the Pod
			s.other, out[0].other = out[0].m, s.m
		}
		out = append(out, s)
	}
	return append(append(out, customSubjects(t)...), specialSubjects(t)...)
}

// customSubjects returns a custom resource, its status, and objects with so few fields that managers often share
// a field.
func customSubjects(t *testing.T) []subject {
	custom := customResource()
	status := custom
	status.sub, status.reset = "status", reset("example.com/v1", "metadata", "spec")
	m, ofStatus := custom.manager(t), status.manager(t)
	random := func(f filler) registry.Object { return f.custom(custom, m) }
	dense := func(f filler) registry.Object {
		object := f.custom(custom, m).(*unstructured.Unstructured)
		spec, _ := object.Object["spec"].(map[string]any)
		for name := range spec {
			if name != "inner" && name != "defaults" && name != "byName" && name != "number" {
				delete(spec, name)
			}
		}
		return object
	}
	return []subject{
		{"Custom", custom, m, random, ofStatus, 2},
		{"Customstatus", status, ofStatus, random, m, 1},
		{"Dense", custom, m, dense, ofStatus, 10},
	}
}

// specialSubjects returns a kind with two versions, once for each version, and a kind with defaults.
func specialSubjects(t *testing.T) []subject {
	one := kindOf[autoscalingv1.HorizontalPodAutoscaler]("autoscaling", "v1", "HorizontalPodAutoscaler")
	two := kindOf[autoscalingv2.HorizontalPodAutoscaler]("autoscaling", "v2", "HorizontalPodAutoscaler")
	defaulted := named("ConfigMap", "")
	defaulted.defaults = func(o registry.Object) {
		if cm := o.(*corev1.ConfigMap); cm.Immutable == nil {
			cm.Immutable = new(bool)
		}
	}
	of := func(k testKind) func(filler) registry.Object {
		return func(f filler) registry.Object { return f.objectOf(k) }
	}
	return []subject{
		{"versions-v1", one, autoscaler(t, "v1"), of(one), nil, 1},
		{"versions-v2", two, autoscaler(t, "v2"), of(two), nil, 1},
		{"defaults", defaulted, defaulted.manager(t), of(defaulted), nil, 1},
	}
}

func (h *history) step(t *testing.T, counted map[string]int, where string) {
	h.now = h.now.Add(time.Minute)
	manager := []string{"one", "two", "three", "kubectl"}[h.Intn(4)]
	if h.Intn(5) == 0 {
		object := h.live.DeepCopyObject().(registry.Object)
		h.change(object)
		m := h.m
		if h.other != nil && h.Intn(2) == 0 {
			m = h.other
		}
		h.live = m.updateGeneral(context.Background(), h.live, object, manager, h.now)
		h.store(t)
		return
	}
	if h.Intn(6) == 0 {
		h.disown(t)
	}
	configuration, force := h.next(t, manager), h.Intn(3) > 0
	before, sent := asJSON(h.live), asJSON(configuration)
	want, wantErr := h.m.applyGeneral(context.Background(), h.live, configuration, manager, force, h.now)
	got, ok, gotErr := h.m.incremental.apply(context.Background(), h.live, configuration, manager, force, h.now)
	if asJSON(h.live) != before || asJSON(configuration) != sent {
		t.Fatalf("%s: the arguments are changed", where)
	}
	switch {
	case wantErr != nil:
		counted["refused"]++
	default:
		counted["done"]++
	}
	switch {
	case gotErr != nil:
		counted["conflicts"]++
		if a, b := refusal(gotErr), refusal(wantErr); a != b {
			t.Fatalf("%s: %s applies\n%s\nto\n%s\ngot %s\nwant %s", where, manager, sent, before, a, b)
		}
	case ok:
		counted["incremental"]++
		if wantErr != nil {
			t.Fatalf("%s: want %v\n%s\n%s", where, wantErr, before, sent)
		}
		if a, b := asJSON(got), asJSON(want); a != b || !sameTypes(got, want) {
			i := 0
			for i < min(len(a), len(b)) && a[i] == b[i] {
				i++
			}
			i = max(i-200, 0)
			t.Fatalf(
				"%s: %s applies (force=%v)\n%s\nto\n%s\ngot ...%.400s\nwant ...%.400s", where, manager, force, sent, before, a[i:],
				b[i:],
			)
		}
	}
	if wantErr == nil {
		h.live = want
		h.store(t)
		h.sent[manager] = configuration
	}
}

// known removes the fields that the schema does not have from a tree, because any apply to such a tree would fail.
func known(object registry.Object) registry.Object {
	if tree, ok := object.(*unstructured.Unstructured); ok {
		forget(tree.Object)
	}
	return object
}

func forget(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "unknown")
		for _, below := range v {
			forget(below)
		}
	case []any:
		for _, below := range v {
			forget(below)
		}
	}
}

// store replaces the object by the object that is read after it was stored.
func (h *history) store(t *testing.T) {
	h.live.SetUID("u")
	h.live.GetObjectKind().SetGroupVersionKind(h.kind.gvk)
	stored := asJSON(h.live)
	h.live = h.kind.make()
	var err error
	if tree, ok := h.live.(*unstructured.Unstructured); ok {
		tree.Object = nil
		err = scheme.UnmarshalTree([]byte(stored), &tree.Object)
	} else {
		err = json.Unmarshal([]byte(stored), h.live)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refusal returns the Status of an error as text. It sorts the causes, because the general algorithm lists them in
// no particular order.
func refusal(err error) string {
	var status kerrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Sprint(err)
	}
	s := status.Status()
	if s.Details != nil {
		slices.SortStableFunc(
			s.Details.Causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Message, b.Message) },
		)
	}
	return asJSON(s)
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// disown takes some fields from an owner, as clients do that write managedFields themselves.
func (h *history) disown(t *testing.T) {
	entries := h.live.GetManagedFields()
	if len(entries) == 0 {
		return
	}
	e := &entries[h.Intn(len(entries))]
	var fields map[string]any
	if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for range 1 + h.Intn(4) {
		at := fields
		for {
			names := sortedNames(at)
			if len(names) == 0 {
				break
			}
			name := names[h.Intn(len(names))]
			below, _ := at[name].(map[string]any)
			if len(below) == 0 || h.Intn(4) == 0 {
				if len(at) > 1 {
					delete(at, name)
				}
				break
			}
			at = below
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(raw)
	h.live.SetManagedFields(entries)
	h.store(t)
}

// change makes the object that an update sends.
func (h *history) change(object registry.Object) {
	if tree, ok := object.(*unstructured.Unstructured); ok {
		h.mutateTree(tree.Object)
		return
	}
	h.mutate(reflect.ValueOf(object).Elem(), 0)
}

// next is what a manager applies next.
func (h *history) next(t *testing.T, manager string) map[string]any {
	var out map[string]any
	last := h.sent[manager]
	switch n := h.Intn(10); {
	case last != nil && n < 6:
		out = runtime.DeepCopyJSON(last)
		for range h.Intn(3) {
			h.mutateTree(out)
		}
		if h.Intn(2) == 0 {
			h.thin(out, 12)
		}
		h.shuffle(out)
	case n < 8:
		out = h.part(t)
	default:
		out = h.configuration(t, h.kind, h.object())
	}
	out["apiVersion"], out["kind"] = h.kind.gvk.GroupVersion().String(), h.kind.gvk.Kind
	if meta, _ := out["metadata"].(map[string]any); meta == nil {
		out["metadata"] = map[string]any{"name": "a"}
	}
	return out
}

// part is a configuration of some of the fields that the object has.
func (h *history) part(t *testing.T) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(h.live)
	if err != nil {
		t.Fatal(err)
	}
	out = runtime.DeepCopyJSON(out)
	if meta, _ := out["metadata"].(map[string]any); meta != nil {
		delete(meta, managedFields)
	}
	h.thin(out, 2+h.Intn(3))
	if h.Intn(2) == 0 {
		h.mutateTree(out)
	}
	h.shuffle(out)
	return out
}

// thin removes about one in n members of maps and items of lists. It never removes a member that could be a key.
func (f filler) thin(v any, n int) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			_, isMap := v[name].(map[string]any)
			_, isList := v[name].([]any)
			if f.Intn(n) == 0 && (isMap || isList || f.Intn(3) == 0) {
				delete(v, name)
			} else {
				v[name] = f.thin(v[name], n)
			}
		}
	case []any:
		out := v[:0]
		for i := range v {
			if f.Intn(n) > 0 {
				out = append(out, f.thin(v[i], n))
			}
		}
		return out
	}
	return v
}

// shuffle changes the order of some lists.
func (f filler) shuffle(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			f.shuffle(v[name])
		}
	case []any:
		if f.Intn(4) == 0 {
			f.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		}
		for i := range v {
			f.shuffle(v[i])
		}
	}
}
