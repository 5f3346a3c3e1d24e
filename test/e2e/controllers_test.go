package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson"
)

const taskFinalizer = "e2e.example.com/cleanup"

// TestControllers runs controllers that are made with controller-runtime, on a server in this process, and on a server
// as an existing cluster of envtest.
func TestControllers(t *testing.T) {
	ctrl.SetLogger(logr.Discard()) // its lines would hide the output of the test
	t.Run("embedded", func(t *testing.T) {
		testControllers(t, keelson.ForTest(t).RESTConfig())
	})
	t.Run("envtest", func(t *testing.T) {
		existing := true
		e := &envtest.Environment{UseExistingCluster: &existing, Config: serve(t).config(t)}
		c, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
		})
		testControllers(t, c)
	})
}

func testControllers(t *testing.T, c *rest.Config) {
	s := taskScheme(t)
	// The managers serve the conversion webhook of the definition.
	hooks := envtest.WebhookInstallOptions{}
	if err := hooks.PrepWithoutInstalling(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Cleanup() })
	crds := envtest.CRDInstallOptions{
		Paths: []string{"testdata/controllers"}, Scheme: s, ErrorIfPathMissing: true, WebhookOptions: hooks,
	}
	if _, err := envtest.InstallCRDs(c, crds); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(c, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	w := &taskWorld{t: t, config: c, scheme: s, api: api, hooks: hooks, cleaned: map[string]bool{}}
	first := w.manage("first")
	w.reconciles()
	w.converts()
	w.indexes(first)
	w.conflicts()
	second := w.manage("second")
	w.finalizes()
	first.stop()
	w.followsLeader()
	second.stop()
	if err := envtest.UninstallCRDs(c, crds); err != nil {
		t.Error(err)
	}
}

func taskScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), addTasks(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// taskWorld is a server with the definition of tasks, with records of what the controllers did.
type taskWorld struct {
	t      *testing.T
	config *rest.Config
	scheme *runtime.Scheme
	api    client.Client // without a cache
	hooks  envtest.WebhookInstallOptions

	mu      sync.Mutex // guards the fields below
	leader  string
	cleaned map[string]bool
}

// managed is a running manager.
type managed struct {
	manager.Manager
	stop func()
}

// manage runs a manager that reconciles tasks while it is the leader. The first manager serves the webhooks, because
// there is only one port.
func (w *taskWorld) manage(name string) managed {
	w.t.Helper()
	skip := true
	options := ctrl.Options{
		Scheme: w.scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: &skip},
		LeaderElection: true, LeaderElectionID: "tasks", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
		RetryPeriod:                   new(200 * time.Millisecond),
	}
	options.WebhookServer = webhook.NewServer(
		webhook.Options{Host: w.hooks.LocalServingHost, Port: w.hooks.LocalServingPort, CertDir: w.hooks.LocalServingCertDir},
	)
	m, err := ctrl.NewManager(w.config, options)
	if err != nil {
		w.t.Fatal(err)
	}
	err = m.GetFieldIndexer().IndexField(
		w.t.Context(), &Task{}, "spec.class", func(o client.Object) []string { return []string{o.(*Task).Spec.Class} },
	)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &taskReconciler{Client: m.GetClient(), w: w, name: name}
	if err := ctrl.NewControllerManagedBy(m).For(&Task{}).Owns(
		&corev1.ConfigMap{}, builder.OnlyMetadata,
	).Complete(r); err != nil {
		w.t.Fatal(err)
	}
	if name == "first" {
		if err := ctrl.NewWebhookManagedBy(m, &Task{}).Complete(); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("manager %s: %v", name, err)
		}
	})
	w.t.Cleanup(stop)
	return managed{m, stop}
}

// taskReconciler creates a ConfigMap with the number of each task, and sets the task's status.
type taskReconciler struct {
	client.Client
	w    *taskWorld
	name string
}

// Reconcile implements reconcile.Reconciler.
func (r *taskReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.w.mu.Lock()
	r.w.leader = r.name
	r.w.mu.Unlock()
	task := &Task{}
	if err := r.Get(ctx, request.NamespacedName, task); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !task.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.cleanUp(ctx, task)
	}
	if controllerutil.AddFinalizer(task, taskFinalizer) {
		return ctrl.Result{}, r.Update(ctx, task)
	}
	owned := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": task.Name, "namespace": task.Namespace},
		"data":     map[string]any{"replicas": strconv.Itoa(int(task.Spec.Replicas))},
	}}
	if err := controllerutil.SetControllerReference(task, owned, r.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Apply(
		ctx, client.ApplyConfigurationFromUnstructured(owned), client.FieldOwner("tasks"), client.ForceOwnership,
	); err != nil {
		return ctrl.Result{}, err
	}
	if task.Status.Ready == task.Spec.Replicas && task.Status.ObservedGeneration == task.Generation {
		return ctrl.Result{}, nil
	}
	task.Status = TaskStatus{Ready: task.Spec.Replicas, ObservedGeneration: task.Generation}
	return ctrl.Result{}, r.Status().Update(ctx, task)
}

func (r *taskReconciler) cleanUp(ctx context.Context, task *Task) error {
	if !controllerutil.RemoveFinalizer(task, taskFinalizer) {
		return nil
	}
	r.w.mu.Lock()
	r.w.cleaned[task.Name] = true
	r.w.mu.Unlock()
	return r.Update(ctx, task)
}

func (w *taskWorld) task(name string, replicas int32, class string) *Task {
	return &Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: TaskSpec{Replicas: replicas, Class: class},
	}
}

func (w *taskWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// settled reports whether a task and its ConfigMap are in the state that the reconciler wants.
func (w *taskWorld) settled(ctx context.Context, name string) error {
	task, owned := &Task{}, &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: "default", Name: name}
	if err := w.api.Get(ctx, key, task); err != nil {
		return err
	}
	if err := w.api.Get(ctx, key, owned); err != nil {
		return err
	}
	want := strconv.Itoa(int(task.Spec.Replicas))
	if !slices.Contains(task.Finalizers, taskFinalizer) || task.Status.Ready != task.Spec.Replicas ||
		task.Status.ObservedGeneration != task.Generation ||
		owned.Data["replicas"] != want || !metav1.IsControlledBy(owned, task) {
		return fmt.Errorf("%+v, %+v of %v", task, owned.Data, owned.OwnerReferences)
	}
	return nil
}

const someTasks = 20

// reconciles creates and changes tasks, and deletes ConfigMaps of the reconciler.
func (w *taskWorld) reconciles() {
	w.t.Helper()
	for i := range someTasks {
		w.must(w.api.Create(w.t.Context(), w.task(fmt.Sprintf("task-%d", i), int32(i), [...]string{"", "fancy"}[i%2])))
	}
	for i := range someTasks {
		eventually(
			w.t, time.Minute, "a task is reconciled",
			func(ctx context.Context) error { return w.settled(ctx, fmt.Sprintf("task-%d", i)) },
		)
	}
	task := w.task("task-3", 0, "")
	w.must(
		w.api.Patch(
			w.t.Context(), task,
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":33},"status":{"ready":1000}}`)),
		),
	)
	if task.Generation != 2 || task.Status.Ready == 1000 {
		w.t.Errorf("patched to %+v", task)
	}
	eventually(
		w.t, time.Minute, "a changed task is reconciled", func(ctx context.Context) error { return w.settled(ctx, "task-3") },
	)
	w.must(
		w.api.Delete(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "task-4"}}),
	)
	eventually(
		w.t, time.Minute, "a deleted ConfigMap comes back",
		func(ctx context.Context) error { return w.settled(ctx, "task-4") },
	)
}

// converts writes and reads a task in a version that a webhook converts.
func (w *taskWorld) converts() {
	w.t.Helper()
	old := &OldTask{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "converted"},
		Spec:       OldTaskSpec{Count: "12", Class: "fancy"},
	}
	eventually(w.t, time.Minute, "a task is created in the old version", func(ctx context.Context) error {
		return w.api.Create(ctx, old.DeepCopyObject().(*OldTask))
	})
	eventually(
		w.t, time.Minute, "a converted task is reconciled",
		func(ctx context.Context) error { return w.settled(ctx, "converted") },
	)
	w.must(w.api.Get(w.t.Context(), client.ObjectKeyFromObject(old), old))
	if old.Spec.Count != "12" || old.Spec.Class != "fancy" {
		w.t.Errorf("converted to %+v", old.Spec)
	}
	bad := &OldTask{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"}, Spec: OldTaskSpec{Count: "many"}}
	if err := w.api.Create(w.t.Context(), bad); err == nil || !strings.Contains(err.Error(), "conversion webhook") {
		w.t.Errorf("a task that cannot be converted: %v", err)
	}
}

// indexes lists by an index of the manager's cache, and lists metadata only.
func (w *taskWorld) indexes(m managed) {
	w.t.Helper()
	eventually(w.t, time.Minute, "the cache has the fancy tasks", func(ctx context.Context) error {
		var fancy TaskList
		if err := m.GetClient().List(
			ctx, &fancy, client.InNamespace("default"), client.MatchingFields{"spec.class": "fancy"},
		); err != nil {
			return err
		}
		if len(fancy.Items) != someTasks/2+1 {
			return fmt.Errorf("%d fancy tasks", len(fancy.Items))
		}
		return nil
	})
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(tasksV2.WithKind("TaskList"))
	w.must(w.api.List(w.t.Context(), all, client.InNamespace("default"), client.Limit(someTasks/2)))
	if len(all.Items) != someTasks/2 || all.Continue == "" || all.Items[0].Name == "" {
		w.t.Errorf("metadata of %d tasks, continue %q", len(all.Items), all.Continue)
	}
}

// conflicts causes both kinds of conflicts.
func (w *taskWorld) conflicts() {
	w.t.Helper()
	stale := w.task("task-5", 0, "")
	w.must(w.api.Get(w.t.Context(), client.ObjectKeyFromObject(stale), stale))
	current := stale.DeepCopyObject().(*Task)
	current.Labels = map[string]string{"changed": "true"}
	w.must(w.api.Update(w.t.Context(), current))
	if err := w.api.Update(w.t.Context(), stale); !kerrors.IsConflict(err) {
		w.t.Errorf("updating what is stale: %v", err)
	}
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "task-5", "namespace": "default"},
		"data": map[string]any{"replicas": "other"},
	}}
	if err := w.api.Apply(
		w.t.Context(), client.ApplyConfigurationFromUnstructured(other), client.FieldOwner("other"),
	); !kerrors.IsConflict(err) {
		w.t.Errorf("applying what another owns: %v", err)
	}
}

// finalizes deletes tasks, which have a finalizer.
func (w *taskWorld) finalizes() {
	w.t.Helper()
	w.must(w.api.DeleteAllOf(w.t.Context(), &Task{}, client.InNamespace("default")))
	eventually(w.t, time.Minute, "all tasks are finalized and gone", func(ctx context.Context) error {
		var left TaskList
		if err := w.api.List(ctx, &left); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(left.Items) > 0 || len(w.cleaned) != someTasks+1 {
			return fmt.Errorf("%d tasks are left, %d were cleaned up", len(left.Items), len(w.cleaned))
		}
		return nil
	})
}

// followsLeader checks that the second manager reconciles after the first one has given up the leadership.
func (w *taskWorld) followsLeader() {
	w.t.Helper()
	w.must(w.api.Create(w.t.Context(), w.task("late", 1, "")))
	eventually(w.t, time.Minute, "the other manager leads", func(ctx context.Context) error {
		if err := w.settled(ctx, "late"); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.leader != "second" {
			return fmt.Errorf("%s leads", w.leader)
		}
		return nil
	})
	w.must(w.api.Delete(w.t.Context(), w.task("late", 1, "")))
	eventually(w.t, time.Minute, "the late task is gone", func(ctx context.Context) error {
		err := w.api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "late"}, &Task{})
		if kerrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
}
