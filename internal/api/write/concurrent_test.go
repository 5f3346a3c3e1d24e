package write_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

func configMap(name string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = "default", name
	return m
}

// create stores a ConfigMap and returns the resource.
func (b *bench) create(t *testing.T, m *corev1.ConfigMap) *registry.Resource {
	t.Helper()
	r := b.Resource(configMaps)
	if _, err := b.writer.Create(t.Context(), r, m.Namespace, m, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// together runs f in n goroutines that start at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

func count(obj metav1.Object) int {
	n, _ := strconv.Atoi(obj.GetAnnotations()["n"])
	return n
}

func setCount(obj metav1.Object, n int) {
	obj.SetAnnotations(with(obj.GetAnnotations(), "n", strconv.Itoa(n)))
}

// TestUpdatesAreNotLost increments a number in one annotation from 64 goroutines. Each number is stored exactly
// once, and in order.
func TestUpdatesAreNotLost(t *testing.T) {
	const goroutines, each = 64, 5
	b := newBench(t, time.Now)
	b.create(t, configMap("a"))
	together(goroutines, func(int) {
		for range each {
			_, err := b.writer.Amend(t.Context(), b.Resource(configMaps), "default", "a", false,
				func(obj registry.Object) error {
					setCount(obj, count(obj)+1)
					return nil
				})
			if err != nil {
				t.Error(err)
			}
		}
	})
	obj, err := b.Get(t.Context(), configMaps, "default", "a")
	if err != nil || count(obj) != goroutines*each {
		t.Fatalf("%v, %v, want %d", obj, err, goroutines*each)
	}
	if got, want := obj.GetResourceVersion(), strconv.Itoa(2+goroutines*each); got != want {
		t.Errorf("at revision %s, want %s: as many as there were counts", got, want)
	}
	r := b.Resource(configMaps)
	for revision := int64(2); revision <= 2+goroutines*each; revision++ {
		snap, err := r.Reader.Exactly(t.Context(), revision)
		if err != nil {
			t.Fatal(err)
		}
		o, ok, _ := snap.Get(t.Context(), "default/a")
		if !ok {
			t.Fatalf("nothing at revision %d", revision)
		}
		obj, err := r.Decoder.Decode(t.Context(), o)
		if err != nil || int64(count(obj)) != revision-2 || o.Revision != revision {
			t.Fatalf("%d at revision %d, of %d: %v", count(obj), revision, o.Revision, err)
		}
	}
}

// TestOptimisticUpdates has clients that send the resourceVersion that they have read, and try again after a
// conflict: none of their changes is lost. Clients that send no resourceVersion overwrite each other, but never
// fail.
func TestOptimisticUpdates(t *testing.T) {
	const goroutines, each = 16, 6
	b := newBench(t, time.Now)
	r := b.create(t, configMap("a"))
	b.create(t, configMap("b"))
	send := func(obj registry.Object) error {
		_, err := b.writer.Update(t.Context(), r, nil, "default", obj.GetName(), writetest.Options{},
			func(*write.Current) (registry.Object, error) {
				return obj.DeepCopyObject().(registry.Object), nil
			})
		return err
	}
	var conflicts atomic.Int64
	together(goroutines, func(i int) {
		for done := 0; done < each; {
			obj, err := b.Get(t.Context(), configMaps, "default", "a")
			if err != nil {
				t.Error(err)
				return
			}
			setCount(obj, count(obj)+1)
			switch err := send(obj); {
			case err == nil:
				done++
			case kerrors.IsConflict(err):
				conflicts.Add(1)
			default:
				t.Error(err)
				return
			}
			blind := configMap("b")
			setCount(blind, 1000*i+done)
			if err := send(blind); err != nil {
				t.Errorf("without a resourceVersion: %v", err)
			}
		}
	})
	obj, err := b.Get(t.Context(), configMaps, "default", "a")
	if err != nil || count(obj) != goroutines*each {
		t.Errorf("%d, %v, want %d (after %d conflicts)", count(obj), err, goroutines*each, conflicts.Load())
	}
}

// TestCreatesOfOneName: one of several creates with the same name succeeds, the others get AlreadyExists.
func TestCreatesOfOneName(t *testing.T) {
	b := newBench(t, time.Now)
	r := b.Resource(configMaps)
	for round := range 10 {
		name := fmt.Sprint("a", round)
		var won, lost atomic.Int64
		together(16, func(int) {
			_, err := b.writer.Create(t.Context(), r, "default", configMap(name), writetest.Options{})
			switch {
			case err == nil:
				won.Add(1)
			case kerrors.IsAlreadyExists(err):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
		if won.Load() != 1 || lost.Load() != 15 {
			t.Errorf("%d won, %d lost", won.Load(), lost.Load())
		}
	}
}

// TestUpdatesThatCreate makes concurrent updates that may create the object (PUT where the kind allows it,
// server-side apply). One of them creates it, and the others change the created object.
func TestUpdatesThatCreate(t *testing.T) {
	const goroutines = 16
	b := newBench(t, time.Now)
	r := b.Resource(configMaps)
	for round := range 10 {
		name := fmt.Sprint("a", round)
		var created atomic.Int64
		together(goroutines, func(i int) {
			result, err := b.writer.Update(t.Context(), r, nil, "default", name, writetest.Options{CreateMissing: true},
				func(c *write.Current) (registry.Object, error) {
					var obj registry.Object = configMap(name)
					if c.Exists() {
						obj = c.Copy()
					}
					obj.SetLabels(with(obj.GetLabels(), fmt.Sprint("l", i), "x"))
					return obj, nil
				})
			if err != nil {
				t.Errorf("update %d: %v", i, err)
				return
			}
			if result.Created {
				created.Add(1)
			}
		})
		obj, err := b.Get(t.Context(), configMaps, "default", name)
		if err != nil || created.Load() != 1 || len(obj.GetLabels()) != goroutines {
			t.Fatalf("created %d times, labels %v, %v", created.Load(), obj.GetLabels(), err)
		}
	}
}

// TestDeletesOfOneObject: only one of several concurrent deletes removes the object.
func TestDeletesOfOneObject(t *testing.T) {
	b := newBench(t, time.Now)
	for round := range 10 {
		name := fmt.Sprint("a", round)
		r := b.create(t, configMap(name))
		var gone, missing atomic.Int64
		together(12, func(i int) {
			result, err := b.writer.Delete(t.Context(), r, "default", name, &metav1.DeleteOptions{}, nil)
			switch {
			case err == nil && result.Deleted:
				gone.Add(1)
			case kerrors.IsNotFound(err):
				missing.Add(1)
			default:
				t.Errorf("%+v, %v", result, err)
			}
		})
		if gone.Load() != 1 || missing.Load() != 11 {
			t.Errorf("deleted %d times, missing %d times", gone.Load(), missing.Load())
		}
	}
}

// TestFinalizersRemovedAtOnce: each of many controllers removes its finalizer from an object whose deletion begins
// meanwhile. The object is removed with the last finalizer.
func TestFinalizersRemovedAtOnce(t *testing.T) {
	const controllers = 24
	b := newBench(t, time.Now)
	m := configMap("a")
	for i := range controllers {
		m.Finalizers = append(m.Finalizers, fmt.Sprint("x.io/f", i))
	}
	r := b.create(t, m)
	var gone atomic.Int64
	note := func(result registry.Result, err error) {
		if err != nil {
			t.Error(err)
		}
		if result.Deleted {
			gone.Add(1)
		}
	}
	note(b.writer.Delete(t.Context(), r, "default", "a", &metav1.DeleteOptions{}, nil))
	together(controllers, func(i int) {
		mine := fmt.Sprint("x.io/f", i)
		note(b.writer.Update(t.Context(), r, nil, "default", "a", writetest.Options{},
			func(c *write.Current) (registry.Object, error) {
				obj := c.Copy()
				obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == mine }))
				return obj, nil
			}))
	})
	if gone.Load() != 1 {
		t.Errorf("deleted %d times", gone.Load())
	}
	if _, err := b.Get(t.Context(), configMaps, "default", "a"); !kerrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestDeleteMeetsUpdate: an update of an object that is deleted meanwhile gets 404 and never creates it again. A
// delete with a precondition on an object that has changed gets a conflict.
func TestDeleteMeetsUpdate(t *testing.T) {
	b := newBench(t, time.Now)
	r := b.create(t, configMap("a"))
	remove := func(options *metav1.DeleteOptions) error {
		_, err := b.writer.Delete(t.Context(), r, "default", "a", options, nil)
		return err
	}
	_, err := b.writer.Amend(t.Context(), b.Resource(configMaps), "default", "a", false, func(obj registry.Object) error {
		setCount(obj, 1)
		return remove(&metav1.DeleteOptions{})
	})
	if !kerrors.IsNotFound(err) {
		t.Errorf("update of what went meanwhile: %v", err)
	}
	if _, err := b.Get(t.Context(), configMaps, "default", "a"); !kerrors.IsNotFound(err) {
		t.Errorf("it came back: %v", err)
	}

	b.create(t, configMap("a"))
	obj, err := b.Get(t.Context(), configMaps, "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	rv := obj.GetResourceVersion()
	changed := false
	_, err = b.writer.Delete(t.Context(), r, "default", "a", &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &rv},
	}, func(context.Context, registry.Object, registry.Object) error {
		if changed {
			return nil
		}
		changed = true
		_, err := b.writer.Amend(
			t.Context(), b.Resource(configMaps), "default", "a", false,
			func(obj registry.Object) error { setCount(obj, 2); return nil },
		)
		return err
	})
	if !kerrors.IsConflict(err) {
		t.Errorf("delete of what changed meanwhile: %v", err)
	}
	if err := remove(&metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestUpdateEndsWithItsContext: an update that meets a conflict at each try ends
// when its request does.
func TestUpdateEndsWithItsContext(t *testing.T) {
	b := newBench(t, time.Now)
	r := b.create(t, configMap("a"))
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	_, err := b.writer.Update(ctx, r, nil, "default", "a", writetest.Options{},
		func(c *write.Current) (registry.Object, error) {
			tries++
			if _, err := b.writer.Amend(t.Context(), b.Resource(configMaps), "default", "a", false,
				func(obj registry.Object) error {
					setCount(obj, count(obj)+1)
					return nil
				}); err != nil {
				return nil, err
			}
			if tries == 5 {
				cancel()
			}
			obj := c.Copy()
			obj.SetResourceVersion("")
			obj.SetLabels(map[string]string{"try": strconv.Itoa(tries)})
			return obj, nil
		})
	if !errors.Is(err, context.Canceled) || tries != 5 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// TestGeneratedNames: if a generated name is taken, another one is generated, up to eight times.
func TestGeneratedNames(t *testing.T) {
	names := func(n int) []string {
		utilrand.Seed(7)
		var names []string
		for range n {
			names = append(names, "web-"+utilrand.String(5))
		}
		utilrand.Seed(7)
		return names
	}
	for _, taken := range []int{0, 1, 8, 9} {
		b := newBench(t, time.Now)
		r := b.Resource(configMaps)
		for _, name := range names(taken) {
			b.create(t, configMap(name))
		}
		want := names(taken + 1)[taken]
		m := configMap("")
		m.GenerateName = "web-"
		result, err := b.writer.Create(t.Context(), r, "default", m, writetest.Options{})
		switch {
		case taken > 8:
			if !kerrors.IsAlreadyExists(err) {
				t.Errorf("%d taken: %v", taken, err)
			}
		case err != nil:
			t.Errorf("%d taken: %v", taken, err)
		case result.Object.Name != want:
			t.Errorf("%d taken: named %s, want %s", taken, result.Object.Name, want)
		}
	}
	// A name that the client has chosen is not replaced by a generated one.
	b := newBench(t, time.Now)
	b.create(t, configMap("a"))
	m := configMap("a")
	m.GenerateName = "web-"
	if _, err := b.writer.Create(
		t.Context(), b.Resource(configMaps), "default", m, writetest.Options{},
	); !kerrors.IsAlreadyExists(err) {
		t.Error(err)
	}
}

// TestResultIsWhatIsStored: a write returns the same bytes as a read after it.
func TestResultIsWhatIsStored(t *testing.T) {
	b := newBench(t, time.Now)
	r := b.Resource(configMaps)
	v := r.Kind.Version("v1")
	check := func(what string, result registry.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(what, err)
		}
		answered, err := r.Renderer.ResultJSON(t.Context(), result, v)
		if err != nil {
			t.Fatal(what, err)
		}
		snap, err := r.Reader.Current(t.Context())
		if err != nil {
			t.Fatal(what, err)
		}
		o, ok, _ := snap.Get(t.Context(), "default/a")
		if !ok {
			t.Fatal(what, "is not there")
		}
		read, err := r.Renderer.ItemJSON(t.Context(), o, v)
		if err != nil || string(read) != string(answered) {
			t.Errorf("%s: answered\n%s\nread\n%s (%v)", what, answered, read, err)
		}
		if !strings.Contains(string(read), fmt.Sprintf(`"resourceVersion":"%d"`, o.Revision)) {
			t.Errorf("%s: %s is not of revision %d", what, read, o.Revision)
		}
	}
	m := configMap("a")
	m.Data, m.Labels, m.Finalizers = map[string]string{"k": "<&\u2028"}, map[string]string{"a": "b"}, []string{"x.io/y"}
	result, err := b.writer.Create(t.Context(), r, "default", m, writetest.Options{})
	check("create", result, err)
	change := func(c *write.Current) (registry.Object, error) {
		obj := c.Copy()
		setCount(obj, 1)
		return obj, nil
	}
	for _, what := range []string{"update", "update of nothing"} {
		result, err = b.writer.Update(t.Context(), r, nil, "default", "a", writetest.Options{}, change)
		check(what, result, err)
	}
	result, err = b.writer.Delete(t.Context(), r, "default", "a", &metav1.DeleteOptions{}, nil)
	check("delete that finalizers stop", result, err)
}

// hooked is a store that calls a function once, after a commit.
type hooked struct {
	storage.Store
	after func()
}

func (h *hooked) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	revision, err := h.Store.Commit(ctx, txn)
	if f := h.after; f != nil && err == nil {
		h.after = nil
		f()
	}
	return revision, err
}

// TestDeletionThatAnUpdateCompletes deletes a pod without a grace period. That takes two commits, the first of which
// marks the pod. An update between the two removes the marked pod, and the deletion succeeds all the same.
func TestDeletionThatAnUpdateCompletes(t *testing.T) {
	store := &hooked{Store: newStore(t)}
	s := newQuotaServer(t, func(string) storage.Store { return store })
	pod := &corev1.Pod{}
	pod.Name = "a"
	pod.Spec.Containers = []corev1.Container{{
		Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}
	pod.Spec.RestartPolicy, pod.Spec.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
	if err := s.create(t.Context(), "pods", pod, false); err != nil {
		t.Fatal(err)
	}
	r := s.Resource(corev1.Resource("pods"))
	served := registry.NewServed(r, r.Kind.Version("v1"))
	var updated write.Result
	store.after = func() {
		var err error
		updated, err = s.pipeline.Do(t.Context(), write.Request{
			Verb: write.Update, Target: served, Namespace: "default", Name: "a", Subresource: r.Kind.Subresource("status"),
			Make: func(ctx context.Context, c *write.Current) (registry.Object, error) { return c.Copy(), nil },
		})
		if err != nil {
			t.Error(err)
		}
	}
	none := int64(0)
	result, err := s.pipeline.Delete(t.Context(), served, "default", "a", &metav1.DeleteOptions{GracePeriodSeconds: &none})
	if err != nil || !result.Deleted || !updated.Deleted || result.Object == nil {
		t.Errorf("the deletion: %v, deleted %v; the update: deleted %v", err, result.Deleted, updated.Deleted)
	}
	if _, err := s.Get(t.Context(), corev1.Resource("pods"), "default", "a"); !kerrors.IsNotFound(err) {
		t.Error(err)
	}
}
