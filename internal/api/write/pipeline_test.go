package write_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

var rewrite = flag.Bool("update", false, "write the transcripts' answers anew")

// TestPipeline runs the transcripts in testdata/pipeline: commands, a line of dashes, and their output. Each file
// begins with an empty store at revision 1. The commands are the methods of transcript. The output has u1, u2, ...
// for UIDs in the order in which they first appear, and seconds since the start for times.
func TestPipeline(t *testing.T) {
	files, err := filepath.Glob("testdata/pipeline/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr := newTranscript(t)
			var out []string
			for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
				commands, want, found := strings.Cut(block, "\n----\n")
				if !found && strings.HasPrefix(block, "#") {
					out = append(out, block)
					continue
				}
				commands = strings.TrimSuffix(commands, "\n----")
				got := tr.run(commands)
				if got != want && !*rewrite {
					t.Errorf("%s:\n%s\n---- got\n%s\n---- want\n%s", file, commands, got, want)
				}
				out = append(out, commands+"\n----\n"+got)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// bench is a registry of all kinds on a store in memory.
type bench struct {
	store *embedded.Store
	cache *cache.Cache
	*registry.Registry
	writer *writetest.Writer
}

func newBench(t testing.TB, now func() time.Time) *bench {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, now)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{store, c, reg, writetest.New(reg)}
}

// short has the names of kinds that transcripts use.
var short = map[string]schema.GroupResource{
	"cm": {Resource: "configmaps"}, "pod": {Resource: "pods"}, "ns": {Resource: "namespaces"},
	"rc":    {Resource: "replicationcontrollers"},
	"role":  {Group: "rbac.authorization.k8s.io", Resource: "roles"},
	"lease": {Group: "coordination.k8s.io", Resource: "leases"},
}

// transcript interprets commands.
type transcript struct {
	t     *testing.T
	b     *bench
	start time.Time
	now   time.Time
	uids  []string
	seen  int64 // the last revision that log has shown
}

func newTranscript(t *testing.T) *transcript {
	tr := &transcript{t: t, start: time.Unix(1_700_000_000, 0), seen: 1}
	tr.now = tr.start
	utilrand.Seed(1) // generated names
	tr.b = newBench(t, func() time.Time { return tr.now })
	return tr
}

func (tr *transcript) run(commands string) string {
	var out []string
	for _, line := range strings.Split(commands, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		answer := tr.command(words[0], words[1:])
		if answer != "" {
			out = append(out, answer)
		}
	}
	return strings.Join(out, "\n")
}

func (tr *transcript) command(name string, args []string) string {
	switch name {
	case "tick":
		seconds, err := strconv.Atoi(args[0])
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.now = tr.now.Add(time.Duration(seconds) * time.Second)
		return ""
	case "log":
		return tr.log()
	}
	r := tr.b.Resource(short[args[0]])
	if r == nil {
		tr.t.Fatalf("no kind %q", args[0])
	}
	namespace, object, namespaced := strings.Cut(args[1], "/")
	if !namespaced {
		namespace, object = "", args[1]
	}
	o := parseSettings(args[2:])
	run := map[string]func(*registry.Resource, string, string, settings) string{
		"create": tr.create, "update": tr.update, "put": tr.update, "status": tr.update, "finalize": tr.update,
		"access": tr.access, "delete": tr.delete, "get": tr.get,
	}[name]
	if run == nil {
		tr.t.Fatalf("no command %q", name)
	}
	o["command"] = name
	return run(r, namespace, object, o)
}

// settings are the key=value words of a command. A word such as "dry" has no value.
type settings map[string]string

func parseSettings(words []string) settings {
	s := settings{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		s[k] = v
	}
	return s
}

func (s settings) has(key string) bool { _, ok := s[key]; return ok }

// set changes obj as the settings say.
func (tr *transcript) set(obj registry.Object, s settings) {
	for key, value := range s {
		kind, name, _ := strings.Cut(key, ".")
		switch kind {
		case "label":
			obj.SetLabels(with(obj.GetLabels(), name, value))
		case "ann":
			obj.SetAnnotations(with(obj.GetAnnotations(), name, value))
		case "data":
			m := obj.(*corev1.ConfigMap)
			m.Data = with(m.Data, name, value)
		case "image":
			obj.(*corev1.Pod).Spec.Containers[0].Image = value
		case "phase":
			obj.(*corev1.Pod).Status.Phase = corev1.PodPhase(value)
		case "node":
			obj.(*corev1.Pod).Spec.NodeName = value
		case "replicas":
			n, _ := strconv.Atoi(value)
			replicas := int32(n)
			obj.(*corev1.ReplicationController).Spec.Replicas = &replicas
		case "specfinalizers":
			obj.(*corev1.Namespace).Spec.Finalizers = nil
		case "finalizers":
			obj.SetFinalizers(nil)
			if value != "" {
				obj.SetFinalizers(strings.Split(value, ","))
			}
		case "generate":
			obj.SetGenerateName(value)
		case "namespace":
			obj.SetNamespace(value)
		case "created":
			obj.SetCreationTimestamp(metav1.Unix(1, 0))
		case "generation":
			obj.SetGeneration(99)
		case "rv":
			obj.SetResourceVersion(strings.TrimPrefix(value, "none"))
		case "uid":
			obj.SetUID(types.UID(tr.realUID(value)))
		}
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	if m[key] = value; value == "-" {
		delete(m, key)
	}
	return m
}

// body makes a valid object of a kind.
func (tr *transcript) body(r *registry.Resource, namespace, name string, s settings) registry.Object {
	v := r.Kind.Version(r.Kind.Storage.Version)
	obj := v.New()
	container := corev1.Container{Name: "c", Image: "i"}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Spec.Containers = []corev1.Container{container}
	case *corev1.ReplicationController:
		o.Spec.Selector = map[string]string{"a": "b"}
		o.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
		o.Spec.Template.Labels = map[string]string{"a": "b"}
	}
	obj.SetNamespace(namespace)
	if name != "*" {
		obj.SetName(name)
	}
	tr.set(obj, s)
	if v.Default != nil {
		v.Default(obj)
	}
	return obj
}

func (tr *transcript) create(r *registry.Resource, namespace, name string, s settings) string {
	obj := tr.body(r, namespace, name, s)
	result, err := tr.b.writer.Create(
		tr.t.Context(), r, namespace, obj, writetest.Options{DryRun: s.has("dry"), Admit: tr.admit(s)},
	)
	return tr.answer(r, "created", result, err)
}

// admit returns an admission that refuses the write if the command has the word "refuse".
func (tr *transcript) admit(s settings) registry.Admit {
	if !s.has("refuse") {
		return nil
	}
	return func(context.Context, registry.Object, registry.Object) error {
		return errors.New("refused by admission")
	}
}

// update runs the commands update, put, status and finalize: it changes the current object, or its subresource of
// that name. With the word "create" it creates a missing object.
func (tr *transcript) update(r *registry.Resource, namespace, name string, s settings) string {
	options := writetest.Options{
		DryRun: s.has("dry"), Admit: tr.admit(s), CreateMissing: s.has("create"), CheckUID: s["command"] == "put",
	}
	sub := r.Kind.Subresource(s["command"])
	result, err := tr.b.writer.Update(tr.t.Context(), r, sub, namespace, name, options,
		func(c *write.Current) (registry.Object, error) {
			if !c.Exists() {
				return tr.body(r, namespace, name, s), nil
			}
			obj := c.Copy()
			tr.set(obj, s)
			return obj, nil
		})
	what := "updated"
	if result.Created {
		what = "created"
	}
	return tr.answer(r, what, result, err)
}

// access changes an object by an Amend, as a Post does.
func (tr *transcript) access(r *registry.Resource, namespace, name string, s settings) string {
	obj, err := tr.b.writer.Amend(tr.t.Context(), r, namespace, name, s.has("dry"), func(obj registry.Object) error {
		tr.set(obj, s)
		return nil
	})
	if err != nil {
		return tr.failure(err)
	}
	return "updated " + tr.show(obj)
}

func (tr *transcript) delete(r *registry.Resource, namespace, name string, s settings) string {
	options := &metav1.DeleteOptions{}
	if s.has("grace") {
		n, _ := strconv.ParseInt(s["grace"], 10, 64)
		options.GracePeriodSeconds = &n
	}
	if p := metav1.DeletionPropagation(s["policy"]); p != "" {
		options.PropagationPolicy = &p
	}
	if s.has("uid") || s.has("rv") {
		options.Preconditions = &metav1.Preconditions{}
		if uid := types.UID(tr.realUID(s["uid"])); uid != "" {
			options.Preconditions.UID = &uid
		}
		if rv := s["rv"]; rv != "" {
			options.Preconditions.ResourceVersion = &rv
		}
	}
	if s.has("dry") {
		options.DryRun = []string{metav1.DryRunAll}
	}
	result, err := tr.b.writer.Delete(tr.t.Context(), r, namespace, name, options, tr.admit(s))
	return tr.answer(r, "kept", result, err)
}

func (tr *transcript) get(r *registry.Resource, namespace, name string, _ settings) string {
	obj, err := tr.b.Get(tr.t.Context(), r.Kind.GroupResource(), namespace, name)
	if err != nil {
		return tr.failure(err)
	}
	return tr.show(obj)
}

func (tr *transcript) answer(r *registry.Resource, what string, result registry.Result, err error) string {
	if err != nil {
		return tr.failure(err)
	}
	obj, err := r.Decoder.Decode(tr.t.Context(), result.Object)
	if err != nil {
		tr.t.Fatal(err)
	}
	if result.Deleted {
		what = "deleted"
	}
	return what + " " + tr.show(obj)
}

func (tr *transcript) failure(err error) string {
	status := apierr.Status(err)
	return fmt.Sprintf("%d %s: %s", status.Code, status.Reason, tr.hideUIDs(status.Message))
}

// show writes an object in a line.
func (tr *transcript) show(obj registry.Object) string {
	out := []string{obj.GetName()}
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+"="+value)
		}
	}
	add("rv", obj.GetResourceVersion())
	if g := obj.GetGeneration(); g > 0 {
		add("gen", fmt.Sprint(g))
	}
	add("uid", tr.uid(string(obj.GetUID())))
	add("created", tr.second(&metav1.Time{Time: obj.GetCreationTimestamp().Time}))
	addMap := func(key string, m map[string]string) {
		for _, k := range sorted(m) {
			add(key+"."+k, m[k])
		}
	}
	addMap("label", obj.GetLabels())
	addMap("ann", obj.GetAnnotations())
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		addMap("data", o.Data)
	case *corev1.Pod:
		add("image", o.Spec.Containers[0].Image)
		add("phase", string(o.Status.Phase))
	case *corev1.Namespace:
		add("phase", string(o.Status.Phase))
		add("specfinalizers", fmt.Sprint(o.Spec.Finalizers))
	case *corev1.ReplicationController:
		add("replicas", fmt.Sprint(*o.Spec.Replicas))
	}
	add("finalizers", strings.Join(obj.GetFinalizers(), ","))
	if d := obj.GetDeletionTimestamp(); d != nil {
		add("deleting", tr.second(d))
		if s := obj.GetDeletionGracePeriodSeconds(); s != nil {
			add("grace", fmt.Sprint(*s))
		}
	}
	return strings.Join(out, " ")
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (tr *transcript) second(t *metav1.Time) string {
	if t.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%+ds", int(t.Sub(tr.start).Seconds()))
}

func (tr *transcript) uid(uid string) string {
	if uid == "" {
		return ""
	}
	i := slices.Index(tr.uids, uid)
	if i < 0 {
		i, tr.uids = len(tr.uids), append(tr.uids, uid)
	}
	return fmt.Sprintf("u%d", i+1)
}

// realUID returns the UID for which a transcript has u1, u2, ...; it returns any other text as it is.
func (tr *transcript) realUID(name string) string {
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "u")); err == nil && n <= len(tr.uids) {
		return tr.uids[n-1]
	}
	return name
}

var uidForm = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (tr *transcript) hideUIDs(text string) string { return uidForm.ReplaceAllStringFunc(text, tr.uid) }

// log returns the events of the store since its last call.
func (tr *transcript) log() string {
	ctx := tr.t.Context()
	now, err := tr.b.store.Revision(ctx)
	if err != nil {
		tr.t.Fatal(err)
	}
	w, err := tr.b.store.Watch(ctx, registry.Root, tr.seen+1)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer w.Close()
	out := []string{}
	for tr.seen < now {
		batch, err := w.Next(ctx)
		if err != nil {
			tr.t.Fatal(err)
		}
		for _, e := range batch.Events {
			verb := map[bool]string{true: "DELETE", false: "PUT"}[e.Deleted]
			out = append(out, fmt.Sprintf("%d %s %s", e.Entry.ModRevision, verb, strings.TrimPrefix(e.Entry.Key, registry.Root)))
		}
		tr.seen = batch.Revision
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}
