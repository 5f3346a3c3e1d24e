package garbagecollector

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
)

// maxReports limits the number of events that wait to be written. Further events are dropped, because they are only
// hints.
const maxReports = 256

// reporter writes events about owner references that cannot be right.
type reporter struct {
	c     *Collector
	queue chan *invalidOwner
}

func newReporter(c *Collector) *reporter {
	return &reporter{c: c, queue: make(chan *invalidOwner, maxReports)}
}

// add queues an event about an owner in another namespace.
func (r *reporter) add(i invalidOwner) {
	select {
	case r.queue <- &i:
		r.c.Activity.Add(1)
	default:
	}
}

// run writes events until ctx ends.
func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case i := <-r.queue:
			if err := workers.Protect(func() error { return r.write(ctx, *i) }); err != nil && ctx.Err() == nil {
				r.c.Log.Warn("cannot write an event about an owner in another namespace",
					"dependent", i.dependent, "error", err)
			}
			r.c.Activity.Add(-1)
		}
	}
}

// write writes the event about an owner in another namespace. Its texts are those of kube-controller-manager.
func (r *reporter) write(ctx context.Context, i invalidOwner) error {
	d := i.dependent
	now := metav1.NewTime(r.c.Now())
	missing := identity{i.owner.apiVersion, i.owner.kind, d.namespace, i.owner.name, i.owner.uid}
	event := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: d.apiVersion, Kind: d.kind, Namespace: d.namespace, Name: d.name, UID: d.uid,
		},
		Reason: "OwnerRefInvalidNamespace", Type: corev1.EventTypeWarning, Count: 1,
		Message:        fmt.Sprintf("ownerRef %v does not exist in namespace %q", missing, d.namespace),
		Source:         corev1.EventSource{Component: "garbage-collector-controller"},
		FirstTimestamp: now, LastTimestamp: now, ReportingController: "garbage-collector-controller",
	}
	event.Namespace = d.namespace
	if event.Namespace == "" {
		event.Namespace = metav1.NamespaceDefault
	}
	event.Name = fmt.Sprintf("%s.%x", d.name, time.Now().UnixNano())
	_, err := r.c.Client.Create(ctx, client.CreateRequest{
		Resource: corev1.SchemeGroupVersion.WithResource("events"), Object: event,
	})
	return err
}
