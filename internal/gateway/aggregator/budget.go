package aggregator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	// callTime limits one call of a controller: a request and its response, or one page of a list. For a watch it limits
	// the time until the response begins.
	callTime = 15 * time.Second
	// slowAfter is the time after which a call counts as slow. While a server has slow calls, other calls do not wait
	// for a call to end.
	slowAfter = time.Second
	// These constants limit the calls of controllers that are in flight to one server: maxLists the lists of all
	// namespaces and the beginnings of watches, maxReads the other reads, and maxWrites the writes. So a server
	// that hangs takes at most maxReads + maxWrites of the workers of all controllers, and a server that hangs
	// only in deletions can still be read. Lists of all namespaces take no workers: they have a goroutine of their
	// own for each resource.
	maxLists, maxReads, maxWrites = 2, 3, 3
)

// budget bounds the calls of controllers to one server. All APIServices with the same Service share it.
type budget struct {
	service              string // namespace/name
	lists, reads, writes *lane
	// documents has one element while an OpenAPI document of the server is read.
	documents chan struct{}
}

// lane bounds the calls of one sort.
type lane struct {
	// taken has one element for each call in flight.
	taken chan struct{}
	slow  atomic.Int32 // calls in flight that have lasted for slowAfter
	// wait is the time that a call waits for another one to end; for workers it is at most slowAfter.
	wait time.Duration
	// patient reports whether calls also wait if there are slow calls.
	patient bool
}

func newBudget(s *apiregistrationv1.ServiceReference) *budget {
	return &budget{
		service:   serviceName(s),
		lists:     &lane{taken: make(chan struct{}, maxLists), wait: callTime, patient: true},
		reads:     &lane{taken: make(chan struct{}, maxReads), wait: slowAfter},
		writes:    &lane{taken: make(chan struct{}, maxWrites), wait: slowAfter},
		documents: make(chan struct{}, 1),
	}
}

func serviceName(s *apiregistrationv1.ServiceReference) string { return s.Namespace + "/" + s.Name }

// budgetOf returns the budget of a Service. mu is held.
func (a *Aggregator) budgetOf(s *apiregistrationv1.ServiceReference) *budget {
	for _, r := range a.remotes {
		if r.calls.service == serviceName(s) {
			return r.calls
		}
	}
	return newBudget(s)
}

// begin waits until the call may be sent. end has to be called when the response was read. The error is 429 if too
// many calls are in flight; the caller is expected to try again later.
func (l *lane) begin(ctx context.Context, service string) (end func(), err error) {
	full := func() error {
		return kerrors.NewTooManyRequests(fmt.Sprintf(
			"%d requests to the extension API server %s have not been answered yet", cap(l.taken), service), 1)
	}
	select {
	case l.taken <- struct{}{}:
		return l.run(), nil
	default:
	}
	if l.slow.Load() > 0 && !l.patient {
		return nil, full()
	}
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	select {
	case l.taken <- struct{}{}:
		return l.run(), nil
	case <-timer.C:
		return nil, full()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run counts a call as slow after slowAfter. It returns the function that ends the call.
func (l *lane) run() (end func()) {
	late := time.AfterFunc(slowAfter, func() { l.slow.Add(1) })
	return func() {
		if !late.Stop() {
			l.slow.Add(-1)
		}
		<-l.taken
	}
}

func (b *budget) lane(r *call) *lane {
	switch {
	case r.method != "GET":
		return b.writes
	case r.Name == "" && r.Namespace == "":
		return b.lists
	}
	return b.reads
}
