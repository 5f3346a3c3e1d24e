package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/serviceresolver"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// checkEvery is the time between two checks of a server that is available.
	checkEvery = 30 * time.Second
	// A server that is not available is checked again after firstRetry. The time doubles with each further failure, up
	// to lastRetry. If it is available but its documents cannot be read, the time doubles up to checkEvery.
	firstRetry, lastRetry = 200 * time.Millisecond, 5 * time.Second
	// suspectEvery is the shortest time between two checks that are caused by failed requests.
	suspectEvery = time.Second
	// checkTime limits one check.
	checkTime = 5 * time.Second
	// checkTries is the number of requests of a check; one successful response is enough.
	checkTries = 5
	// refreshEvery is the interval in which the documents of a server are checked.
	refreshEvery = time.Minute
)

// availableCondition returns the condition Available, the zero value if the APIService has none.
func availableCondition(s *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available}
}

// setAvailable sets whether requests are forwarded. If they are not, the documents of the server become stale.
func (r *remote) setAvailable(available bool) {
	if r.available.Swap(available) != available {
		r.a.changes.add()
	}
}

// run checks the server, and reads its documents, until ctx ends.
func (r *remote) run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, resource := range []string{"services", "endpointslices"} {
		tasks.Go(func() { r.follow(ctx, resource) })
	}
	retry := firstRetry
	var refreshed time.Time
	for ctx.Err() == nil {
		r.checked.Store(time.Now().UnixNano())
		condition := r.checkAvailability(ctx)
		if ctx.Err() != nil {
			return
		}
		available := condition.Status == apiregistrationv1.ConditionTrue
		recovered := available && !r.available.Load()
		r.setAvailable(available)
		failed := r.report(ctx, *condition)
		if failed != nil && ctx.Err() == nil {
			r.a.o.Log.Warn("cannot write the status of an APIService; will try again", "apiservice", r.name, "error", failed)
		}
		if r.outdated.Swap(false) || recovered || time.Since(refreshed) >= refreshEvery || r.stale() != !available {
			r.refresh(ctx, available)
			refreshed = time.Now()
		}
		wait, most := checkEvery, lastRetry
		if available { // but its documents could not be read, or the condition could not be written
			most = checkEvery
		}
		if available && failed == nil && !r.stale() {
			retry = firstRetry
		} else {
			wait, retry = min(retry, most), min(2*retry, most)
		}
		select {
		case <-ctx.Done():
		case <-r.check:
		case <-time.After(wait):
		}
	}
}

// follow requests a check of the server whenever its Service, or an EndpointSlice of the Service, changes.
func (r *remote) follow(ctx context.Context, name string) {
	resource := r.a.o.Registry.Resource(corev1.Resource(name))
	if name == "endpointslices" {
		resource = r.a.o.Registry.Resource(discoveryv1.Resource(name))
	}
	for ctx.Err() == nil {
		if err := r.followOnce(ctx, resource); err != nil && ctx.Err() == nil {
			workers.Pause(ctx, lastRetry)
		}
	}
}

func (r *remote) followOnce(ctx context.Context, resource *registry.Resource) error {
	revision, err := resource.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	cursor, err := resource.Reader.Watch(ctx, revision, cache.Interest{Namespace: r.service.Namespace})
	if err != nil {
		return err
	}
	r.checkSoon() // something may have changed before
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		if r.concerns(e) {
			r.checkSoon()
		}
		return nil
	})
}

// concerns reports whether a change may be about the Service of the remote: about the Service itself or about a slice of its
// endpoints, whose name is arbitrary.
func (r *remote) concerns(e *cache.Event) bool {
	o := e.Object
	if o == nil {
		o = e.Prev
	}
	label := cache.Label{Key: discoveryv1.LabelServiceName, Value: r.service.Name}
	return o.Name == r.service.Name || slices.Contains(o.Labels, label)
}

// condition returns the condition Available with a reason.
func condition(status apiregistrationv1.ConditionStatus, reason, format string, args ...any,
) *apiregistrationv1.APIServiceCondition {
	return &apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// checkAvailability checks whether the server can be used. The reasons and messages are those of kube-apiserver.
func (r *remote) checkAvailability(ctx context.Context) *apiregistrationv1.APIServiceCondition {
	const no = apiregistrationv1.ConditionFalse
	objects := serviceresolver.Stored(r.a.o.Registry)
	service, err := objects.Service(ctx, r.service.Namespace, r.service.Name)
	switch {
	case err != nil:
		return condition(apiregistrationv1.ConditionUnknown, "ServiceAccessError", "service/%s in %q cannot be checked due to: %v",
			r.service.Name, r.service.Namespace, err)
	case service == nil:
		return condition(no, "ServiceNotFound", "service/%s in %q is not present", r.service.Name, r.service.Namespace)
	}
	if service.Spec.Type == corev1.ServiceTypeClusterIP {
		if found := r.checkEndpoints(ctx, objects, service); found != nil {
			return found
		}
	}
	if err := r.probe(ctx); err != nil {
		return condition(no, "FailedDiscoveryCheck", "%v", err)
	}
	return condition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
}

// checkEndpoints returns the condition if the ports or endpoints of the Service cannot be used, otherwise nil.
func (r *remote) checkEndpoints(
	ctx context.Context, objects serviceresolver.Objects, service *corev1.Service,
) *apiregistrationv1.APIServiceCondition {
	const no = apiregistrationv1.ConditionFalse
	name, namespace := r.service.Name, r.service.Namespace
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == r.port })
	if i < 0 {
		return condition(no, "ServicePortError", "service/%s in %q is not listening on port %d", name, namespace, r.port)
	}
	all, err := objects.EndpointSlices(ctx, namespace, name)
	switch port := service.Spec.Ports[i].Name; {
	case err != nil:
		return condition(apiregistrationv1.ConditionUnknown, "EndpointsAccessError",
			"service/%s in %q cannot be checked due to: %v", name, namespace, err)
	case len(all) == 0:
		return condition(no, "EndpointsNotFound", "cannot find endpointslices for service/%s in %q", name, namespace)
	case !serviceresolver.AnyReady(all, port):
		return condition(no, "MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q",
			name, namespace, port)
	}
	return nil
}

// probe requests the document of the version. If the first request fails, the others are sent concurrently, because
// they may reach other endpoints; one successful response is enough.
func (r *remote) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := r.probeOnce(ctx)
	if err == nil || ctx.Err() != nil || !r.a.o.ByEndpoints {
		return err
	}
	answers := make(chan error, checkTries-1)
	for range checkTries - 1 {
		go func() { answers <- r.probeOnce(ctx) }()
	}
	for range checkTries - 1 {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

func (r *remote) probeOnce(ctx context.Context) error {
	path := "/apis/" + r.version.String()
	target, err := r.target(ctx, path, "")
	if err != nil {
		return err
	}
	response, err := r.get(ctx, path, checker())
	if err != nil {
		if ctx.Err() != nil {
			err = context.DeadlineExceeded
		}
		return fmt.Errorf("failing or missing response from %v: Get %q: %w", target.URL, target.URL.String(), err)
	}
	_ = response.Body.Close() // only the status matters
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("failing or missing response from %v: bad status from %v: %d",
			target.URL, target.URL, response.StatusCode)
	}
	return nil
}

// report writes the condition to the APIService if it has changed.
func (r *remote) report(ctx context.Context, now apiregistrationv1.APIServiceCondition) error {
	r.mu.Lock()
	before := r.condition
	r.mu.Unlock()
	if before.Status == now.Status && before.Reason == now.Reason && before.Message == now.Message {
		return nil
	}
	if before.Status != now.Status && now.Status != apiregistrationv1.ConditionTrue {
		r.a.metrics.becameUnavailable.WithLabelValues(r.name, now.Reason).Inc()
	}
	_, err := r.a.o.Client.Update(ctx, client.UpdateRequest{
		Ref:         client.Ref{Resource: apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"), Name: r.name},
		Subresource: "status",
		Change: func(obj registry.Object) error {
			s := obj.(*apiregistrationv1.APIService)
			if !r.sameTarget(s) {
				return errReplaced
			}
			setCondition(s, now, metav1.NewTime(r.a.o.Now()))
			return nil
		},
	})
	switch {
	case err == nil:
		r.mu.Lock()
		r.condition = now
		r.mu.Unlock()
		return nil
	case kerrors.IsNotFound(err), errors.Is(err, errReplaced):
		return nil // the loop is about to end
	}
	return err
}

// errReplaced means that the APIService names another server now.
var errReplaced = errors.New("the APIService names another server")

// setCondition sets the condition Available.
func setCondition(s *apiregistrationv1.APIService, now apiregistrationv1.APIServiceCondition, at metav1.Time) {
	now.LastTransitionTime = at
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == now.Type {
			if c.Status == now.Status {
				now.LastTransitionTime = c.LastTransitionTime
			}
			*c = now
			return
		}
	}
	s.Status.Conditions = append(s.Status.Conditions, now)
}
