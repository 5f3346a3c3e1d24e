// Package workloads tells people who create workloads that nothing runs them: a Deployment on a server without
// kube-controller-manager and kube-scheduler stays at 0 of 3, and the API alone does not say why.
//
// Only kubectl and Helm get the notice, a Warning header and an Event, because programs would only log it.
package workloads

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Page is the page about how to run the missing components.
const Page = "https://github.com/keelson-dev/keelson/blob/main/docs/workloads.md"

// components are the components that make workloads run.
var components = [...]string{registry.ControllerManager, registry.Scheduler}

// readers are the beginnings of the User-Agents of programs that show warnings to a person.
var readers = []string{"kubectl", "Helm/"}

// eventWait is the longest time for which the response to a create waits for the Event. After that the Event may
// get lost.
const eventWait = time.Second

// These constants limit the Events of a namespace to eventBurst, and one more in each eventInterval, as client-go
// limits the Events of an object. The server itself writes these Events, and no quota counts them. Without the
// limit, a user who may only create and delete one kind of workload could fill the store with Events.
const (
	eventBurst    = 25
	eventInterval = 5 * time.Minute
	// eventNamespaces is the number of namespaces whose Events are counted. A namespace that was dropped begins
	// anew.
	eventNamespaces = 4096
)

// Notices sends warnings and Events for workloads that nothing runs.
type Notices struct {
	leases *registry.Resource
	events *client.Client
	log    *slog.Logger
	// wrote has the components that have created an object since the server began. They need no Lease to be known.
	wrote [len(components)]atomic.Bool

	mu      sync.Mutex // held to find or add a limiter
	written *lru.Cache // *rate.Limiter of the Events of a namespace, by its name
}

// New returns Notices. leases is the resource of the Leases by which components are known. A component counts as
// missing if its Lease never existed and it has created nothing since the server began. With --leader-elect=false
// that is wrong until the component writes its first Event, so the text of the notice mentions the Lease.
func New(leases *registry.Resource, events *client.Client, log *slog.Logger) *Notices {
	return &Notices{leases: leases, events: events, log: log, written: lru.New(eventNamespaces)}
}

// Created is called with each object that a client has created, before the response. If a component is missing and
// the client is a tool that people use, it adds a warning to the response and creates an Event about the object.
func (n *Notices) Created(r *http.Request, s *registry.Served, o *cache.Object) {
	for i, name := range components {
		if agent := r.UserAgent(); len(agent) > len(name) && agent[:len(name)] == name && agent[len(name)] == '/' {
			n.wrote[i].Store(true)
		}
	}
	needed := s.Kind.RunBy
	if needed == nil || !forPerson(r) {
		return
	}
	if err := n.notify(r.Context(), s, o, needed); err != nil {
		n.log.Debug("no notice of a workload that nothing runs", "error", err)
	}
}

// forPerson reports whether the request comes from a tool in readers, and its object is stored.
func forPerson(r *http.Request) bool {
	for _, begin := range readers {
		if strings.HasPrefix(r.UserAgent(), begin) {
			return !r.URL.Query().Has("dryRun")
		}
	}
	return false
}

// notify writes the warning and the Event if a component that the object needs is missing.
func (n *Notices) notify(ctx context.Context, s *registry.Served, o *cache.Object, needed []string) error {
	missing, err := n.missing(ctx, needed)
	if err != nil || len(missing) == 0 {
		return err
	}
	obj, err := s.Resource.Decoder.DecodeStored(o)
	if err != nil || placed(obj) {
		return err
	}
	text := "this server only stores the " + s.Kind.Name + ": it has no Lease of " + strings.Join(missing, " and of ") +
		", so no containers start, unless they run with --leader-elect=false; see " + Page
	request.Warn(ctx, text)
	if !n.mayWrite(obj.GetNamespace(), s.Resource.Now()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(request.WithUser(ctx, nil), eventWait)
	defer cancel()
	_, err = n.events.Create(ctx, client.CreateRequest{
		Resource: corev1.SchemeGroupVersion.WithResource("events"), Object: event(s, obj, text),
	})
	return err
}

// mayWrite reports whether another Event of a namespace may be written. If so, it counts the Event.
func (n *Notices) mayWrite(namespace string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.written.Get(namespace)
	if !ok {
		found = rate.NewLimiter(rate.Every(eventInterval), eventBurst)
		n.written.Add(namespace, found)
	}
	return found.(*rate.Limiter).AllowN(now, 1)
}

func (n *Notices) missing(ctx context.Context, needed []string) (names []string, err error) {
	for _, name := range needed {
		if n.wrote[slices.Index(components[:], name)].Load() {
			continue
		}
		lease, err := n.leases.Reader.Latest(ctx, metav1.NamespaceSystem, name)
		if err != nil {
			return nil, err
		}
		if lease == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// placed reports whether the object is a pod that needs no kube-scheduler: it has a node, or another scheduler.
func placed(obj registry.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && (pod.Spec.NodeName != "" || pod.Spec.SchedulerName != corev1.DefaultSchedulerName)
}

func event(s *registry.Served, obj registry.Object, text string) *corev1.Event {
	now := metav1.NewTime(s.Resource.Now())
	version, kind := s.GVK.ToAPIVersionAndKind()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), GenerateName: obj.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: version, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
		Type: corev1.EventTypeWarning, Reason: "NothingRunsThis", Message: text,
		Source: corev1.EventSource{Component: "keelson"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
