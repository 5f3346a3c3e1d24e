// Package fairness runs API priority and fairness. It keeps the controller of internal/gateway/flowcontrol up to
// date with the configuration in the API, and with the sizes of the resources, from which the controller estimates
// the cost of a list.
package fairness

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/server/background"
)

// Options are the dependencies of Start. All fields must be set.
type Options struct {
	ReadOnly, Mutating int // the seats of all levels add up to these limits of the requests in flight
	Registry           *registry.Registry
	// Custom calls add for each custom resource that is in use, with the number and the bytes of its objects.
	Custom func(add func(group, resource string, n int, bytes int64))
	// UpdateDangling writes the conditions of flow schemas whose priority level is missing or is there again.
	UpdateDangling func(context.Context) error
	BySize         bool // the seats of lists are estimated by bytes too
	Work           *background.Group
	Log            *slog.Logger
}

// Names of the goroutines in Options.Work.
const (
	Runners = "priority and fairness: " // the prefix of all names
	Config  = Runners + "configuration"
	Seats   = Runners + "seats"
)

// fairness keeps the configuration and the sizes of the controller up to date.
type fairness struct {
	Options
	controller *flowcontrol.Controller
	changed    chan struct{} // has an element if the configuration has changed

	mu      sync.Mutex // guards the fields below
	schemas map[string]*flowcontrolv1.FlowSchema
	levels  map[string]*flowcontrolv1.PriorityLevelConfiguration

	sizesMu sync.RWMutex // guards sizes
	sizes   map[schema.GroupResource]flowcontrol.Size
}

const (
	// settleTime is the time in which changes of the configuration are collected before they take effect together.
	settleTime = 20 * time.Millisecond
	// sizePeriod is the interval in which the objects of each resource are counted.
	sizePeriod = 10 * time.Second
)

// Start returns a controller with the current configuration. Work in Options.Work keeps it up to date.
func Start(ctx context.Context, o Options) (*flowcontrol.Controller, error) {
	f := &fairness{
		Options: o, changed: make(chan struct{}, 1),
		schemas: map[string]*flowcontrolv1.FlowSchema{}, levels: map[string]*flowcontrolv1.PriorityLevelConfiguration{},
	}
	f.controller = flowcontrol.New(flowcontrol.Options{ReadOnly: o.ReadOnly, Mutating: o.Mutating, Sizes: f.size})
	run := func(name string, work func(context.Context)) { o.Work.Go(name, background.Forever(work)) }
	schemas := follow[*flowcontrolv1.FlowSchema](f, "flowschemas", f.schemas)
	levels := follow[*flowcontrolv1.PriorityLevelConfiguration](f, "prioritylevelconfigurations", f.levels)
	if _, err := informer.Start(ctx, run, Runners, schemas, levels); err != nil {
		return nil, fmt.Errorf("following the configuration of priority and fairness: %w", err)
	}
	f.configure()
	f.count()
	run(Config, f.run)
	run(Seats, f.controller.Run)
	return f.controller, nil
}

// follow returns the options of an informer that keeps a map of the objects of a resource up to date.
func follow[T registry.Object](f *fairness, resource string, objects map[string]T) informer.Options {
	apply := func(changes []informer.Change) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range changes {
			if obj, ok := c.Object.(T); ok {
				objects[c.Name] = obj
			} else {
				delete(objects, c.Name)
			}
		}
		select {
		case f.changed <- struct{}{}:
		default: // it is known already
		}
	}
	return informer.Options{
		Resource: f.Registry.Resource(flowcontrolv1.Resource(resource)), Apply: apply, Log: f.Log,
		Reset: func(all []informer.Change) {
			f.mu.Lock()
			clear(objects)
			f.mu.Unlock()
			apply(all)
		},
	}
}

// configure passes the current configuration to the controller.
func (f *fairness) configure() {
	f.mu.Lock()
	schemas, levels := slices.Collect(maps.Values(f.schemas)), slices.Collect(maps.Values(f.levels))
	f.mu.Unlock()
	f.controller.Configure(schemas, levels)
}

// run applies changes of the configuration, sets the conditions of flow schemas, and counts objects, until ctx ends.
func (f *fairness) run(ctx context.Context) {
	ticker := time.NewTicker(sizePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.count()
		case <-f.changed:
			if background.Sleep(ctx, settleTime) != nil {
				return
			}
			f.configure()
			if err := f.UpdateDangling(ctx); err != nil && ctx.Err() == nil {
				f.Log.Warn("cannot update the conditions of flow schemas; will try again", "error", err)
			}
		}
	}
}

// count stores the number and the bytes of the objects of each resource in use.
func (f *fairness) count() {
	sizes := map[schema.GroupResource]flowcontrol.Size{}
	for _, r := range f.Registry.Resources() {
		if n, bytes, ok := r.Reader.Size(); ok {
			key := schema.GroupResource{Group: r.Kind.Group, Resource: r.Kind.Resource}
			sizes[key] = flowcontrol.Size{Objects: int64(n), Bytes: bytes}
		}
	}
	f.Custom(func(group, resource string, n int, bytes int64) {
		sizes[schema.GroupResource{Group: group, Resource: resource}] = flowcontrol.Size{Objects: int64(n), Bytes: bytes}
	})
	f.sizesMu.Lock()
	defer f.sizesMu.Unlock()
	f.sizes = sizes
}

// size returns the size of a resource at the last count.
func (f *fairness) size(group, resource string) (flowcontrol.Size, bool) {
	f.sizesMu.RLock()
	defer f.sizesMu.RUnlock()
	s, ok := f.sizes[schema.GroupResource{Group: group, Resource: resource}]
	if !f.BySize {
		s.Bytes = 0
	}
	return s, ok
}
