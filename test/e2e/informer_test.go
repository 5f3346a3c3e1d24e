package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	informerObjects = 10_000
	informerWriters = 8
	informerSeconds = 3 // duration of writing between two restarts
)

// TestInformer runs shared informers, in protobuf and JSON, on 10,000 objects that are changed while the server is
// stopped and killed. No event may be out of order, no acknowledged write may be lost, and at the end the informers
// must have the objects that a list returns.
func TestInformer(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch-list=%v", watchList), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			testInformer(t, watchList)
		})
	}
}

func testInformer(t *testing.T, watchList bool) {
	s := serve(t)
	formats := map[string]string{"protobuf": "application/vnd.kubernetes.protobuf", "json": "application/json"}
	writing := kubernetes.NewForConfigOrDie(inFormat(s.config(t), formats["protobuf"]))

	w := newWriters(writing)
	began := time.Now()
	w.fill(t)
	t.Logf(
		"%d objects made by %d writers in %v", informerObjects, informerWriters, time.Since(began).Round(time.Millisecond),
	)

	observers := map[string]*observer{}
	for name, format := range formats {
		observers[name] = observe(t, name, inFormat(s.config(t), format))
	}

	for i, end := range []func(){func() { s.stop(t) }, func() { s.kill() }, func() { s.stop(t) }, func() { s.kill() }} {
		stop := w.run()
		time.Sleep(informerSeconds * time.Second)
		end()
		time.Sleep(time.Duration(i) * 300 * time.Millisecond) // so that clients meet refused connections
		s.start(t)
		time.Sleep(time.Second)
		stop()
	}
	acknowledged, ambiguous := w.counts()
	t.Logf("%d writes acknowledged, %d unknown, with 4 restarts", acknowledged, ambiguous)
	if acknowledged < 1000 {
		t.Errorf("only %d writes were acknowledged", acknowledged)
	}

	want := listAll(t, writing)
	w.check(t, want)
	for name, o := range observers {
		eventually(
			t, time.Minute, name+" informer holds what a list returns", func(context.Context) error { return o.differs(want) },
		)
		o.check(t, watchList)
	}
}

func inFormat(c *rest.Config, contentType string) *rest.Config {
	c.ContentType = contentType
	c.AcceptContentTypes = contentType
	return c
}

// version identifies a state of an object.
type version struct {
	uid  types.UID
	rv   string
	data string
}

func versionOf(c *corev1.ConfigMap) version {
	return version{c.UID, c.ResourceVersion, c.Data["n"]}
}

func listAll(t *testing.T, client kubernetes.Interface) map[string]version {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]version, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = versionOf(&list.Items[i])
	}
	return all
}

// observer checks the calls of a shared informer's handlers.
type observer struct {
	name     string
	informer cache.SharedIndexInformer
	events   atomic.Int64
	lists    atomic.Int64 // LIST requests
	streams  atomic.Int64 // WATCH requests with initial events

	mu    sync.Mutex // guards the fields below
	state map[string]version
	wrong []string
}

func observe(t *testing.T, name string, config *rest.Config) *observer {
	t.Helper()
	o := &observer{name: name, state: map[string]version{}}
	config.Wrap(o.count)
	began := time.Now()
	factory := informers.NewSharedInformerFactoryWithOptions(
		kubernetes.NewForConfigOrDie(config), 0, informers.WithNamespace("default"),
	)
	o.informer = factory.Core().V1().ConfigMaps().Informer()
	if _, err := o.informer.AddEventHandler(o); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), o.informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	t.Logf("%s informer synced after %v", name, time.Since(began).Round(time.Millisecond))
	return o
}

func (o *observer) wrongf(format string, args ...any) {
	if len(o.wrong) < 20 {
		o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
	}
}

func (o *observer) OnAdd(obj any, _ bool) {
	c := obj.(*corev1.ConfigMap)
	o.events.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if old, ok := o.state[c.Name]; ok {
		o.wrongf("ADDED %s %v is there already as %v", c.Name, versionOf(c), old)
	}
	o.state[c.Name] = versionOf(c)
}

func (o *observer) OnUpdate(oldObj, obj any) {
	old, c := oldObj.(*corev1.ConfigMap), obj.(*corev1.ConfigMap)
	o.events.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.state[c.Name]
	if !ok || last != versionOf(old) {
		o.wrongf("MODIFIED %s from %v, but it was %v (%v)", c.Name, versionOf(old), last, ok)
	}
	next := versionOf(c)
	if number(next.rv) < number(last.rv) || next.rv == last.rv && next != last {
		o.wrongf("MODIFIED %s from %v back to %v", c.Name, last, next)
	}
	o.state[c.Name] = next
}

func (o *observer) OnDelete(obj any) {
	o.events.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		o.wrongf("DELETED %v", err)
		return
	}
	_, name, _ := cache.SplitMetaNamespaceKey(key)
	last, ok := o.state[name]
	if !ok {
		o.wrongf("DELETED %s, which is not there", name)
	}
	// A deletion that came by a watch has a later version of its own.
	if c, known := obj.(*corev1.ConfigMap); known && (c.UID != last.uid || number(c.ResourceVersion) <= number(last.rv)) {
		o.wrongf("DELETED %s %v, but it was %v", name, versionOf(c), last)
	}
	delete(o.state, name)
}

// differs describes how the state of the informer or its handler differs from the wanted one.
func (o *observer) differs(want map[string]version) error {
	stored := map[string]version{}
	for _, obj := range o.informer.GetStore().List() {
		c := obj.(*corev1.ConfigMap)
		stored[c.Name] = versionOf(c)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for what, got := range map[string]map[string]version{"store": stored, "handler": o.state} {
		if maps.Equal(got, want) {
			continue
		}
		differ := 0
		example := ""
		for name := range want {
			if got[name] != want[name] {
				differ++
				example = fmt.Sprintf("%s is %v, want %v", name, got[name], want[name])
			}
		}
		return fmt.Errorf("%s has %d objects, want %d; %d differ: %s", what, len(got), len(want), differ, example)
	}
	return nil
}

// check reports whether the informer worked in the way that the test is about, without an event out of order.
func (o *observer) check(t *testing.T, watchList bool) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, wrong := range o.wrong {
		t.Errorf("%s: %s", o.name, wrong)
	}
	lists, streams := o.lists.Load(), o.streams.Load()
	t.Logf(
		"%s informer: %d events, %d list requests, %d watches with initial events", o.name, o.events.Load(), lists, streams,
	)
	if watchList && (lists > 0 || streams == 0) || !watchList && (lists == 0 || streams > 0) {
		t.Errorf(
			"%s: watch-list is %v, and there were %d lists and %d watches with initial events", o.name, watchList, lists,
			streams,
		)
	}
}

func number(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// writers change the objects; each writer has its own share of them.
type writers struct {
	client kubernetes.Interface
	shares []*share
}

// share is what one writer knows about its objects.
type share struct {
	client       kubernetes.Interface
	random       *rand.Rand
	names        []string
	known        map[string]fact
	acknowledged int
	ambiguous    int
	failed       error
}

// fact is what must be true for an object. If the last write of an object got no response, its state is unknown.
type fact struct {
	known  bool
	exists bool
	rv     string
}

func newWriters(client kubernetes.Interface) *writers {
	w := &writers{client: client}
	for i := range informerWriters {
		s := &share{client: client, random: rand.New(rand.NewPCG(1, uint64(i))), known: map[string]fact{}}
		for n := i; n < informerObjects; n += informerWriters {
			s.names = append(s.names, fmt.Sprintf("c%05d", n))
		}
		w.shares = append(w.shares, s)
	}
	return w
}

func (w *writers) each(f func(*share)) {
	var wait sync.WaitGroup
	for _, s := range w.shares {
		wait.Go(func() { f(s) })
	}
	wait.Wait()
}

func (w *writers) fill(t *testing.T) {
	t.Helper()
	w.each(func(s *share) {
		for _, name := range s.names {
			if s.create(name); s.failed != nil {
				return
			}
		}
	})
	w.failures(t)
}

// run lets all writers write until the returned function is called.
func (w *writers) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.each(func(s *share) {
			for ctx.Err() == nil {
				s.step()
			}
		})
	}()
	return func() { cancel(); <-done }
}

func (w *writers) counts() (acknowledged, ambiguous int) {
	for _, s := range w.shares {
		acknowledged += s.acknowledged
		ambiguous += s.ambiguous
	}
	return acknowledged, ambiguous
}

func (w *writers) failures(t *testing.T) {
	t.Helper()
	for i, s := range w.shares {
		if s.failed != nil {
			t.Fatalf("writer %d: %v", i, s.failed)
		}
	}
}

// check compares a list with the acknowledged writes.
func (w *writers) check(t *testing.T, list map[string]version) {
	t.Helper()
	w.failures(t)
	for _, s := range w.shares {
		for name, f := range s.known {
			got, exists := list[name]
			if f.known && (exists != f.exists || exists && got.rv != f.rv) {
				t.Errorf("%s: acknowledged %+v, listed %v %+v", name, f, exists, got)
			}
		}
	}
}

// step makes one random write.
func (s *share) step() {
	name := s.names[s.random.IntN(len(s.names))]
	switch f := s.known[name]; {
	case !f.known:
		s.find(name)
	case !f.exists:
		s.create(name)
	case s.random.IntN(5) == 0:
		s.delete(name)
	default:
		s.update(name, f)
	}
}

func (s *share) object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": strconv.Itoa(s.random.IntN(1e9))},
	}
}

func (s *share) create(name string) {
	c, err := s.client.CoreV1().ConfigMaps("default").Create(context.Background(), s.object(name), metav1.CreateOptions{})
	s.done(name, c, err)
}

func (s *share) update(name string, f fact) {
	c := s.object(name)
	c.ResourceVersion = f.rv
	c, err := s.client.CoreV1().ConfigMaps("default").Update(context.Background(), c, metav1.UpdateOptions{})
	s.done(name, c, err)
}

func (s *share) delete(name string) {
	err := s.client.CoreV1().ConfigMaps("default").Delete(context.Background(), name, metav1.DeleteOptions{})
	s.done(name, nil, err)
}

// find reads the object to learn whether a write without a response took effect.
func (s *share) find(name string) {
	c, err := s.client.CoreV1().ConfigMaps("default").Get(context.Background(), name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.known[name] = fact{true, true, c.ResourceVersion}
	case kerrors.IsNotFound(err):
		s.known[name] = fact{known: true}
	default:
		time.Sleep(20 * time.Millisecond)
	}
}

// done records the response to a write; c is nil after a deletion.
func (s *share) done(name string, c *corev1.ConfigMap, err error) {
	var status kerrors.APIStatus
	switch {
	case err == nil && c == nil:
		s.known[name] = fact{known: true}
		s.acknowledged++
	case err == nil:
		s.known[name] = fact{true, true, c.ResourceVersion}
		s.acknowledged++
	case errors.As(err, &status) && status.Status().Code < 500 && status.Status().Code != 429:
		// No other client writes these objects, so a refusal is an error.
		s.failed = fmt.Errorf("%s, known as %+v: %w", name, s.known[name], err)
		s.known[name] = fact{}
	default:
		s.known[name] = fact{}
		s.ambiguous++
		time.Sleep(20 * time.Millisecond)
	}
}

// count counts which of the two ways of listing the informer uses.
func (o *observer) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") == "true":
			o.streams.Add(1)
		case query.Get("watch") == "":
			o.lists.Add(1)
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
